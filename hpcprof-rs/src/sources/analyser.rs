//! Gets a module's structure from hpcstruct-rs: out of the user's cache, else by analysing the file.

use crate::error::{Error, Result};
use crate::model::symbols::Module;
use crate::model::warnings::Warnings;
use hpc_formats::process::bytes_of;
use hpc_formats::structure::Structure;
use hpcstruct_rs::cache::{Answer, Cache};
use hpcstruct_rs::{Options, Rules, StructError, analyse};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Debug)]
pub struct Analyser {
    options: Options,
    /// Where answers are kept between runs.
    cache: Option<Cache>,
    /// What was done, a line for each module.
    log: Vec<String>,
}

impl Analyser {
    /// With the built-in rules and those of a file, on a number of threads.
    /// `use_cache`: with the user's cache.
    pub fn new(rules: Option<&Path>, threads: usize, use_cache: bool) -> Result<Analyser> {
        let rules = match rules {
            Some(path) => Rules::with_file(path).map_err(|e| Error::Usage(e.to_string()))?,
            None => Rules::built_in(),
        };
        Ok(Analyser {
            options: Options { rules, threads: threads.max(1), ..Options::default() },
            cache: Cache::of_user().filter(|_| use_cache),
            log: Vec::new(),
        })
    }

    pub fn log(&self) -> &[String] {
        &self.log
    }

    /// The structure of a file, with a line in the log.
    fn answer(&mut self, path: &Path) -> std::result::Result<Structure, StructError> {
        let started = Instant::now();
        let Answer { structure, from_cache } = match &self.cache {
            Some(cache) => cache.answer(path, &self.options)?,
            None => Answer { structure: analyse(path, &self.options)?, from_cache: false },
        };
        let how = if from_cache { "from the cache" } else { "analysed" };
        self.log.push(format!(
            "{}: {how} in {:.3} s, {} procedures",
            path.display(),
            started.elapsed().as_secs_f64(),
            structure.procedures.len()
        ));
        Ok(structure)
    }

    /// The structure of the procedures that hold `addresses`; `None`, with a warning, when the
    /// file is gone, was changed since, or cannot be read.
    pub fn analyse(
        &mut self,
        module: &Module,
        copy: Option<&Path>,
        addresses: &BTreeSet<u64>,
        warnings: &mut Warnings,
    ) -> Option<Structure> {
        let is_vdso = module.path == "[vdso]";
        if module.path.starts_with('[') && !is_vdso {
            return None;
        }
        self.options.addresses = Some(addresses.iter().copied().collect());
        let path = PathBuf::from(OsString::from_vec(bytes_of(&module.path)));
        let is_same = copy.is_some() || !module.build_id.is_empty() || module.stamp.may_be(&path);
        let analysed = self.answer(copy.unwrap_or(&path));
        let problem = match analysed {
            Ok(structure) if !is_same || !same_build(module, &structure) => {
                "was built again since the measurement: measure again".to_owned()
            }
            Ok(structure) => return Some(structure),
            Err(StructError::Read { error, .. }) => {
                format!("{error}: put the file back, or measure again where it is")
            }
            Err(error) => one_problem(&error.to_string(), &module.path),
        };
        // The kernel maps the vdso; there is no file to put back.
        if !is_vdso {
            warnings.add(format!("{}: {problem}; its samples stay under the module's name", module.path));
        }
        None
    }
}

fn same_build(module: &Module, structure: &Structure) -> bool {
    module.build_id.is_empty() || module.build_id == structure.build_id
}

/// The error's text without the path, which the warning already begins with.
fn one_problem(text: &str, path: &str) -> String {
    text.strip_prefix(path).map_or(text, |rest| rest.trim_start_matches([':', ' '])).to_owned()
}
