//! Checks JSON by a schema of `docs/schemas`, as far as these go. A member that a schema does not name is a
//! problem, too.

use serde_json::Value;
use std::path::Path;

/// A schema.
#[derive(Debug)]
pub struct Schema(Value);

impl Schema {
    pub fn read(name: &str) -> Schema {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas");
        let text = std::fs::read_to_string(folder.join(format!("{name}.json")));
        Schema(serde_json::from_str(&text.expect("a schema")).expect("JSON"))
    }

    /// What is wrong with a value, each with its place.
    pub fn problems(&self, value: &Value) -> Vec<String> {
        let mut problems = Vec::new();
        self.check(&self.0, value, "$", &mut problems);
        problems
    }

    fn check(&self, schema: &Value, value: &Value, at: &str, out: &mut Vec<String>) {
        if let Some(reference) = schema["$ref"].as_str() {
            let target = self.0.pointer(reference.trim_start_matches('#'));
            return self.check(target.expect("a definition"), value, at, out);
        }
        if schema.get("const").is_some_and(|only| only != value) {
            out.push(format!("{at}: {value} is not {}", schema["const"]));
        }
        if schema["enum"].as_array().is_some_and(|known| !known.contains(value)) {
            out.push(format!("{at}: {value} is none of {}", schema["enum"]));
        }
        let is_of = |kind: &Value| match kind.as_str().expect("a type") {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            other => panic!("an unknown type: {other}"),
        };
        let is_right = match &schema["type"] {
            Value::Null => true,
            Value::Array(kinds) => kinds.iter().any(is_of),
            kind => is_of(kind),
        };
        if !is_right {
            out.push(format!("{at}: {value} is no {}", schema["type"]));
        }
        for (index, element) in value.as_array().into_iter().flatten().enumerate() {
            self.check(&schema["items"], element, &format!("{at}[{index}]"), out);
        }
        let Some(members) = value.as_object() else { return };
        for name in schema["required"].as_array().into_iter().flatten() {
            if !members.contains_key(name.as_str().expect("a name")) {
                out.push(format!("{at}: {name} is missing"));
            }
        }
        for (name, member) in members {
            let at = format!("{at}.{name}");
            match schema["properties"].get(name).or(schema.get("additionalProperties")) {
                Some(schema) => self.check(schema, member, &at, out),
                None => out.push(format!("{at}: it is in no schema")),
            }
        }
    }
}
