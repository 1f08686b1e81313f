//! What HPCToolkit's XML says of a load module beyond its structure: the path by which
//! HPCToolkit knows it, and where procedures begin whose code is in several parts.
//!
//! Input: a structure and the file that it describes. Invariants: the path is absolute, except
//! that of the vdso and of a file that is gone; an entry lies in its procedure's code, so that no
//! two procedures share one.

use crate::input::file_bytes::FileBytes;
use crate::input::image::Image;
use crate::input::{debug_file, vdso};
use crate::symbols::{self, Symbols};
use crate::{Options, StructError, names};
use hpc_formats::structure::{ProcedureId, Structure};
use std::collections::BTreeMap;
use std::path::{Component, Path};

/// Of a path that XML cannot state.
const UNNAMEABLE: &str = "HPCToolkit finds a module by its path, and XML cannot state this one \
    (control characters, or not UTF-8): its hpcprof will not use the structure; run the program under \
    another path";

/// A load module as HPCToolkit sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoadModule {
    /// The path that measurements name.
    pub path: String,
    /// What keeps HPCToolkit from finding the module by that path.
    pub note: Option<&'static str>,
    /// Entry addresses of procedures that do not begin with their lowest byte, such as those
    /// whose unlikely code the linker put first.
    pub entries: BTreeMap<ProcedureId, u64>,
}

impl LoadModule {
    /// Reads what is needed of the file that `structure` describes, and of its debug file.
    ///
    /// # Errors
    /// The file cannot be read or is no load module (any more).
    pub fn read(structure: &Structure, options: &Options) -> Result<LoadModule, StructError> {
        let path = Path::new(&structure.module);
        let lowest = lowest_of_split(structure);
        let mut module = LoadModule { path: absolute(path), ..LoadModule::default() };
        if module.path.contains(|c: char| c.is_control() || c == '\u{fffd}') {
            module.note = Some(UNNAMEABLE);
        }
        if lowest.is_empty() {
            return Ok(module);
        }
        let is_vdso = path.as_os_str() == vdso::NAME;
        let (file, memory);
        let data = if is_vdso {
            memory = vdso::read().map_err(StructError::reading(path))?;
            memory.as_slice()
        } else {
            file = FileBytes::open(path)?;
            file.as_slice()
        };
        let image = Image::parse(path, data)?;
        let folders = (!is_vdso).then_some(options.debug_directories.as_slice());
        // The structure has these notes already.
        let files = debug_file::open(&image, path, folders, &mut Vec::new());
        let parsed = files.parse();
        let images = parsed.with_symbols(&image);
        let symbols = symbols::candidates(&images).choose(&image, &[]);
        module.entries = entries(structure, &symbols, &lowest);
        Ok(module)
    }
}

/// Procedures whose code is in several parts, with their lowest addresses.
fn lowest_of_split(structure: &Structure) -> BTreeMap<ProcedureId, u64> {
    let mut ends: Vec<Option<(u64, u64)>> = vec![None; structure.procedures.len()];
    let mut split = BTreeMap::new();
    for span in &structure.spans {
        let known = &mut ends[span.procedure.0 as usize];
        match known {
            None => *known = Some((span.start, span.end)),
            Some((lowest, end)) => {
                if *end != span.start {
                    split.insert(span.procedure, *lowest);
                }
                *end = span.end;
            }
        }
    }
    split
}

/// Of each split procedure the symbol that names it, else its first that names no cold part.
fn entries(
    structure: &Structure,
    symbols: &Symbols<'_>,
    lowest: &BTreeMap<ProcedureId, u64>,
) -> BTreeMap<ProcedureId, u64> {
    let mut best: BTreeMap<ProcedureId, ((bool, bool), u64)> = BTreeMap::new();
    for symbol in &symbols.sorted {
        let Some(span) = structure.span_at(symbol.start) else {
            continue;
        };
        if !lowest.contains_key(&span.procedure) {
            continue;
        }
        let name = structure.procedures[span.procedure.0 as usize].linkage_name;
        let symbol_name = symbol.text();
        let is_other = symbol_name != structure.string(name);
        let found = ((is_other, names::stem(&symbol_name).is_cold_part), symbol.start);
        best.entry(span.procedure).and_modify(|known| *known = found.min(*known)).or_insert(found);
    }
    let moved = best.into_iter().map(|(id, (_, start))| (id, start));
    moved.filter(|(id, start)| lowest[id] != *start).collect()
}

/// As measurements name the module: a path that does not start at the root, or that leads
/// upwards, is resolved.
fn absolute(path: &Path) -> String {
    let is_plain = path.is_absolute() && !path.components().any(|c| c == Component::ParentDir);
    let resolved = (!is_plain && path.as_os_str() != vdso::NAME).then(|| path.canonicalize().ok()).flatten();
    let path = resolved.as_deref().unwrap_or(path);
    path.to_string_lossy().into_owned()
}
