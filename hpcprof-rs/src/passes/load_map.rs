//! First pass: which modules the processes mapped, and which addresses in them were sampled.
//!
//! Modules of processes become modules of the experiment, so two processes of one program share their code.

use crate::model::hash::{FastMap, FastSet};
use crate::model::symbols::{ModuleIndex, Symbols};
use crate::model::warnings::Warnings;
use crate::sources::measurements::{Measurements, ProcessInput};
use hpc_formats::address::{CodeAddress, ModuleId};
use hpc_formats::profile::Record;
use std::collections::{BTreeMap, BTreeSet};

/// What was sampled in one module.
#[derive(Clone, Debug, Default)]
pub struct SampledModule {
    /// Sampled addresses, as the module states them.
    pub addresses: BTreeSet<u64>,
    /// Samples whose innermost frame lies in it.
    pub samples: u64,
}

/// What was sampled, by module.
pub type SampledModules = BTreeMap<ModuleIndex, SampledModule>;

/// The modules of one process.
#[derive(Debug, Default)]
pub struct LoadMap {
    modules: FastMap<u16, ModuleIndex>,
    /// Every code address in the profiles of the process and in its process file.
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
) -> (Vec<LoadMap>, SampledModules) {
    let mut sampled = SampledModules::new();
    let mut maps = Vec::new();
    for process in &measurements.processes {
        let map = load_map(process, symbols, warnings);
        for address in &map.addresses {
            if let Some(module) = map.module(*address) {
                let known: &mut SampledModule = sampled.entry(module).or_default();
                known.addresses.insert(address.offset());
            }
        }
        for (address, samples) in innermost(process) {
            let known = map
                .module(address)
                .and_then(|module| sampled.get_mut(&module));
            if let Some(known) = known {
                known.samples = known.samples.saturating_add(samples);
            }
        }
        maps.push(map);
    }
    (maps, sampled)
}

/// The innermost address of each record that has samples.
fn innermost(process: &ProcessInput) -> Vec<(CodeAddress, u64)> {
    let mut found = Vec::new();
    for profile in process.threads.values().filter_map(|t| t.profile().ok()) {
        for record in (0..profile.len()).filter_map(|index| profile.record(index)) {
            let Record::Metric {
                owner,
                group: 0,
                values: [samples, ..],
            } = record
            else {
                continue;
            };
            if let Some(Record::Note { ip, lip, .. }) = profile.record(owner as usize) {
                found.push((if lip.is_none() { ip } else { lip }, samples));
            }
        }
    }
    found
}

fn load_map(process: &ProcessInput, symbols: &mut Symbols, warnings: &mut Warnings) -> LoadMap {
    let mut map = LoadMap::default();
    map.modules
        .insert(ModuleId::UNKNOWN.0, symbols.add_module("[unknown]", &[]));
    match &process.process {
        Some(file) => {
            for module in &file.modules {
                let id = symbols.add_module(&module.path, &module.build_id);
                map.modules.entry(module.id.0).or_insert(id);
            }
        }
        None => warnings.add(format!(
            "process {}: its process file is missing or unreadable, so its code has no names: \
             run the program again",
            process.pid
        )),
    }
    let mut addresses: FastSet<u64> = FastSet::default();
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
            symbols.add_module(&format!("[module {id} of process {}]", process.pid), &[])
        });
    }
    map
}
