//! From a measurement directory to the modules and addresses that were sampled.
//!
//! Input: the files `*.hpcproc` (load maps) and `*.hpcprofile` (sampled addresses) of one
//! directory. Invariant: a damaged file yields a warning and what can still be read of it.

use crate::base::error::StructError;
use hpc_formats::address::{CodeAddress, ModuleId};
use hpc_formats::process::{Module, Process, Stamp};
use hpc_formats::profile::{Profile, Record, profiles};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// A module and what was sampled in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledModule {
    /// Path at the time of the measurement, or `[vdso]`.
    pub path: String,
    /// Its GNU build id then; empty when it had none.
    pub build_id: Vec<u8>,
    /// Its file then.
    pub stamp: Stamp,
    /// A copy of its file, if that has gone since.
    pub copy: Option<PathBuf>,
    /// Sampled addresses, as the module states them, ascending.
    pub addresses: Vec<u64>,
}

/// What a measurement directory holds for us.
#[derive(Debug, Default)]
pub struct Sampled {
    /// Modules with at least one sampled address.
    pub modules: Vec<SampledModule>,
    /// Files that could not be read, or not wholly.
    pub warnings: Vec<String>,
}

/// Identifies a process image: process id and start.
type ImageKey = (u32, u64);
/// Identifies a module's file.
type FileKey = (String, Vec<u8>, Stamp);

/// Collects the sampled addresses of all processes in `directory`.
///
/// # Errors
/// The directory cannot be read, or has no readable process file.
pub fn sampled(directory: &Path) -> Result<Sampled, StructError> {
    let mut out = Sampled::default();
    let processes = processes(directory, &mut out.warnings)?;
    if processes.is_empty() {
        return Err(StructError::NoMeasurements(directory.to_owned()));
    }
    let mut found: BTreeMap<FileKey, (Option<PathBuf>, BTreeSet<u64>)> = BTreeMap::new();
    for path in files(directory, "hpcprofile")? {
        let mut problem = |text: String| {
            out.warnings.push(format!("{}: {text}", path.display()));
        };
        let data = match std::fs::read(&path) {
            Ok(data) => data,
            Err(error) => {
                problem(error.to_string());
                continue;
            }
        };
        for profile in profiles(&data).map(Profile::parse) {
            let profile = match profile {
                Ok(profile) => profile,
                Err(error) => {
                    problem(error.to_string());
                    continue;
                }
            };
            let key = (profile.header.pid, profile.header.image);
            let Some(modules) = processes.get(&key) else {
                problem("no process file of its process: its addresses cannot be named".to_owned());
                continue;
            };
            for address in addresses(&profile) {
                if let Some(module) = modules.get(&address.module()) {
                    let key = (module.path.clone(), module.build_id.clone(), module.stamp);
                    let (copy, addresses) = found.entry(key).or_default();
                    addresses.insert(address.offset());
                    if !module.copy.is_empty() {
                        *copy = Some(directory.join(&module.copy));
                    }
                }
            }
        }
    }
    out.modules = found
        .into_iter()
        .map(|((path, build_id, stamp), (copy, addresses))| SampledModule {
            path,
            build_id,
            stamp,
            copy,
            addresses: addresses.into_iter().collect(),
        })
        .collect();
    Ok(out)
}

/// The name of a module's structure file: its build id, else its file name and a hash of its
/// path.
pub fn structure_file_name(path: &str, build_id: &[u8]) -> String {
    if !build_id.is_empty() {
        return format!("{}.hpcstruct", crate::input::debug_file::hex(build_id));
    }
    let hash =
        path.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let base = path.rsplit('/').next().unwrap_or(path);
    let safe: String =
        base.chars().map(|c| if c.is_ascii_alphanumeric() || "._-+".contains(c) { c } else { '_' }).collect();
    format!("{safe}-{hash:016x}.hpcstruct")
}

fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>, StructError> {
    let read = StructError::reading(directory);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(&read)? {
        let path = entry.map_err(&read)?.path();
        // hpcrun-rs writes regular files only, and reading a pipe would block.
        if path.extension().is_some_and(|e| e == extension) && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn processes(
    directory: &Path,
    warnings: &mut Vec<String>,
) -> Result<HashMap<ImageKey, HashMap<ModuleId, Module>>, StructError> {
    let mut processes = HashMap::new();
    for path in files(directory, "hpcproc")? {
        let parsed = std::fs::read(&path)
            .map_err(|e| e.to_string())
            .and_then(|data| Process::parse(&data).map_err(|e| e.to_string()));
        match parsed {
            Ok(process) => {
                let key = (process.start.pid, process.start.image);
                let modules = process.modules.into_iter().map(|m| (m.id, m)).collect();
                processes.insert(key, modules);
            }
            Err(problem) => warnings.push(format!("{}: {problem}", path.display())),
        }
    }
    Ok(processes)
}

/// All distinct addresses of a profile.
fn addresses(profile: &Profile<'_>) -> BTreeSet<CodeAddress> {
    let mut found = BTreeSet::new();
    for i in 0..profile.len() {
        if let Some(Record::Note { ip, lip, .. }) = profile.record(i) {
            found.extend([ip, lip].into_iter().filter(|a| !a.is_none()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_safe_and_distinct() {
        assert_eq!(structure_file_name("/bin/x", &[1, 0xfe]), "01fe.hpcstruct");
        let a = structure_file_name("/bin/my prog", &[]);
        let b = structure_file_name("/opt/my prog", &[]);
        assert!(a.starts_with("my_prog-") && a.ends_with(".hpcstruct"), "{a}");
        assert_ne!(a, b);
        assert!(structure_file_name("[vdso]", &[]).starts_with("_vdso_-"));
    }
}
