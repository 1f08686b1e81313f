//! Finds the program structure of a module: a structure file in the measurement directories that covers the
//! sampled addresses, else what the analyser says.

use crate::model::symbols::{GENERATED, Module};
use crate::model::warnings::Warnings;
use crate::sources::analyser::Analyser;
use crate::sources::measurements::decoded;
use crate::sources::perf_map;
use hpc_formats::structure::Origin;
use hpc_formats::structure::Structure;
use hpcstruct_rs::known::{self, Kind};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Directory of structure files within a measurement directory.
pub const STRUCTURE_DIRECTORY: &str = "structure";
/// Extension of structure files.
pub const STRUCTURE_EXTENSION: &str = "hpcstruct";

/// The structure files of some measurement directories.
#[derive(Debug)]
pub struct StructureLibrary {
    structures: Vec<Structure>,
    analyser: Analyser,
}

impl StructureLibrary {
    /// Reads all structure files; a damaged one becomes a warning.
    pub fn open(directories: &[PathBuf], analyser: Analyser, warnings: &mut Warnings) -> Self {
        let mut structures = Vec::new();
        for directory in directories {
            let Ok(entries) = std::fs::read_dir(directory.join(STRUCTURE_DIRECTORY)) else {
                continue;
            };
            let mut paths: Vec<PathBuf> = entries
                .filter_map(|e| Some(e.ok()?.path()))
                .filter(|p| p.extension().is_some_and(|e| e == STRUCTURE_EXTENSION))
                .filter(|p| p.is_file())
                .collect();
            paths.sort();
            for path in paths {
                let cost = "the module is analysed again: delete the file";
                structures.extend(decoded(&path, Structure::decode, cost, warnings));
            }
        }
        StructureLibrary { structures, analyser }
    }

    pub fn log(&self) -> &[String] {
        self.analyser.log()
    }

    /// The structure of `module` for the given addresses; `None` when its code has no names.
    pub fn find(
        &mut self,
        module: &Module,
        copy: Option<&Path>,
        addresses: &BTreeSet<u64>,
        warnings: &mut Warnings,
    ) -> Option<Structure> {
        if module.path == GENERATED {
            return perf_map::structure(copy?, addresses);
        }
        let stored = self.structures.iter().position(|s| {
            let same = if module.build_id.is_empty() {
                s.build_id.is_empty() && s.module == module.path
            } else {
                s.build_id == module.build_id
            };
            same && (s.complete || addresses.iter().all(|a| s.span_at(*a).is_some()))
        });
        let structure = match stored {
            Some(index) => self.structures.swap_remove(index),
            None => self.analyser.analyse(module, copy, addresses, warnings)?,
        };
        // Nobody rebuilds the system's libraries for a profile.
        let is_system = known::origin_of_module(&module.path) == Some(Origin::System)
            || known::origin(Kind::Folder, &module.path) == Some(Origin::System);
        for note in &structure.notes {
            let line = format!("{}: {note}", module.path);
            if is_system { warnings.add_detail(&line) } else { warnings.add(line) }
        }
        Some(structure)
    }
}
