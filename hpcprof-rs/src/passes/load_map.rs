//! First pass: which modules the processes mapped, and which addresses in them were sampled.
//!
//! A process's module ids become modules of the whole experiment, so that two processes of one
//! program share their code.

use crate::model::hash::{FastHasher, FastMap};
use crate::model::symbols::{ModuleIndex, Symbols};
use crate::model::warnings::Warnings;
use crate::sources::measurements::{Measurements, ProcessInput};
use hpc_formats::address::{CodeAddress, ModuleId};
use hpc_formats::profile::Record;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::BuildHasherDefault;

/// Sampled addresses (as each module states them) by module.
pub type SampledAddresses = BTreeMap<ModuleIndex, BTreeSet<u64>>;

/// The modules of one process.
#[derive(Debug, Default)]
pub struct LoadMap {
    modules: FastMap<u16, ModuleIndex>,
    /// Every code address that a profile of the process mentions, or its process file.
    pub addresses: Vec<CodeAddress>,
}

impl LoadMap {
    /// The module of an address.
    pub fn module(&self, address: CodeAddress) -> Option<ModuleIndex> {
        self.modules.get(&address.module().0).copied()
    }
}

/// Collects modules and addresses of all processes; the load maps are in the processes' order.
pub fn collect(
    measurements: &Measurements,
    symbols: &mut Symbols,
    warnings: &mut Warnings,
) -> (Vec<LoadMap>, SampledAddresses) {
    let mut sampled = SampledAddresses::new();
    let mut maps = Vec::new();
    for process in &measurements.processes {
        let map = load_map(process, symbols, warnings);
        for address in &map.addresses {
            if let Some(module) = map.module(*address) {
                sampled.entry(module).or_default().insert(address.offset());
            }
        }
        maps.push(map);
    }
    (maps, sampled)
}

fn load_map(process: &ProcessInput, symbols: &mut Symbols, warnings: &mut Warnings) -> LoadMap {
    let mut map = LoadMap::default();
    map.modules
        .insert(ModuleId::UNKNOWN.0, symbols.module("[unknown]", &[]));
    match &process.process {
        Some(file) => {
            for module in &file.modules {
                let id = symbols.module(&module.path, &module.build_id);
                map.modules.entry(module.id.0).or_insert(id);
            }
        }
        None => warnings.add(format!(
            "process {}: its process file is missing or unreadable, so its code has no names: run the program again",
            process.pid
        )),
    }
    let mut addresses: HashSet<u64, BuildHasherDefault<FastHasher>> = HashSet::default();
    for thread in process.threads.values() {
        let Ok(profile) = thread.profile() else {
            continue;
        };
        for index in 0..profile.len() {
            if let Some(Record::Note { ip, lip, .. }) = profile.record(index) {
                addresses.insert(ip.0);
                addresses.insert(lip.0);
            }
        }
    }
    let counted = process.process.iter().flat_map(|file| &file.sites);
    addresses.extend(counted.map(|site| site.place.0));
    addresses.remove(&CodeAddress::NONE.0);
    map.addresses = addresses.into_iter().map(CodeAddress).collect();
    map.addresses.sort_unstable();
    for address in &map.addresses {
        let id = address.module().0;
        map.modules.entry(id).or_insert_with(|| {
            symbols.module(&format!("[module {id} of process {}]", process.pid), &[])
        });
    }
    map
}
