//! A table of distinct strings.

use hpc_formats::structure::StringId;
use std::collections::HashMap;

/// Distinct strings in the order of their first use.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    ids: HashMap<String, StringId>,
    list: Vec<String>,
}

impl Strings {
    /// The id of `text`, new or known.
    pub(crate) fn id(&mut self, text: &str) -> StringId {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        // A table of four billion strings does not fit the file format, nor memory.
        let id = StringId(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        self.ids.insert(text.to_owned(), id);
        self.list.push(text.to_owned());
        id
    }

    /// The text of an id of this table.
    pub(crate) fn text(&self, id: StringId) -> &str {
        self.list.get(id.0 as usize).map_or("", String::as_str)
    }

    /// The strings, by id.
    pub(crate) fn into_list(self) -> Vec<String> {
        self.list
    }

    /// The strings, by id.
    pub(crate) fn list(&self) -> &[String] {
        &self.list
    }
}
