//! The source lines that have amounts, and the text of their files as far as it is that of the program.

use crate::exports::stacks::Stacks;
use crate::model::hash::NumberedMap;
use crate::sources::source_text::SourceFiles;
use serde_json::{Value, json};

/// Longer files show their lines without text.
const LONGEST: usize = 1 << 20;

/// By file and line: the amounts of all metrics, and the path of the load module.
pub(crate) type Costs = NumberedMap<(u32, u32), (Vec<i64>, Option<String>)>;

pub(crate) fn line_costs(stacks: &Stacks<'_>) -> Costs {
    let mut lines = Costs::default();
    for context in stacks.contexts().filter(|context| stacks.has_own(*context)) {
        let frame = stacks.frames(context).next();
        let Some((function, file)) = frame.and_then(|f| Some((f, f.function.file?))) else {
            continue;
        };
        let entry = lines.entry((file, function.line));
        let (sums, _) =
            entry.or_insert_with(|| (vec![0; stacks.metrics.len()], stacks.module(function.function.label)));
        sums.iter_mut().zip(stacks.own(context)).for_each(|(sum, own)| *sum += own);
    }
    lines
}

/// By file: the lines with their amounts of all metrics, the text, and why there is none.
pub(super) fn figures(stacks: &Stacks<'_>, no_text: bool) -> Value {
    let lines = line_costs(stacks);
    let mut files: NumberedMap<u32, (Vec<Value>, Option<String>)> = NumberedMap::default();
    for ((file, line), (sums, module)) in lines {
        let (of, built) = files.entry(file).or_default();
        of.push(json!([line, sums]));
        *built = built.take().or(module);
    }
    let mut texts = SourceFiles::default();
    let mut describe = |(file, (lines, module)): (u32, (Vec<Value>, Option<String>))| {
        let path = stacks.file(file);
        let found = match no_text {
            true => Err("left out by --no-source"),
            false => texts.whole(module.as_deref(), &path),
        };
        let found = found.and_then(|text| match text.len() > LONGEST {
            true => Err("longer than 1 MiB"),
            false => Ok(text),
        });
        let (text, missing) = found.map_or_else(|why| (None, Some(why)), |text| (Some(text), None));
        json!({ "path": path, "lines": lines, "text": text, "missing": missing })
    };
    files.into_iter().map(&mut describe).collect()
}
