//! First pass: which modules the processes mapped, and which addresses in them were sampled.
//!
//! Modules of processes become modules of the experiment, so two processes of one program share their code.

use crate::model::hash::{FastMap, FastSet};
use crate::model::symbols::{GENERATED, ModuleIndex, Symbols};
use crate::model::warnings::Warnings;
use crate::sources::measurements::{Measurements, ProcessInput, ThreadInput};
use hpc_formats::address::{CodeAddress, ModuleId};
use hpc_formats::process::{Remapped, Stamp};
use hpc_formats::profile::{Record, SAMPLES};
use hpcstruct_rs::parallel;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[derive(Clone, Debug, Default)]
pub struct SampledModule {
    /// Sampled addresses, as the module states them.
    pub addresses: BTreeSet<u64>,
    /// Samples whose innermost frame lies in it.
    pub samples: u64,
}

pub type SampledModules = BTreeMap<ModuleIndex, SampledModule>;

#[derive(Debug, Default)]
pub struct LoadMap {
    modules: FastMap<u16, ModuleIndex>,
    /// Where code of the modules is mapped once more.
    remapped: Vec<Remapped>,
    /// Every code address in the profiles of the process and in its process file.
    pub addresses: Vec<CodeAddress>,
}

impl LoadMap {
    /// The module, and the address in it, as the module states it.
    pub fn place(&self, address: CodeAddress) -> Option<(ModuleIndex, u64)> {
        let mut place = address;
        if address.module() == ModuleId::UNKNOWN {
            let into = |r: &Remapped| address.offset().checked_sub(r.start).filter(|into| *into < r.size);
            let known = self.remapped.iter().rev().find_map(|r| Some((r.code, into(r)?)));
            place =
                known.map_or(address, |(code, into)| CodeAddress::new(code.module(), code.offset() + into));
        }
        Some((*self.modules.get(&place.module().0)?, place.offset()))
    }
}

/// Collects modules and addresses of all processes, on `threads` threads; the load maps are in the
/// processes' order.
pub fn collect(
    measurements: &Measurements,
    threads: usize,
    symbols: &mut Symbols,
    warnings: &mut Warnings,
) -> (Vec<LoadMap>, SampledModules) {
    let mut sampled = SampledModules::new();
    let mut maps = Vec::new();
    let mut seen = seen(measurements, threads);
    for (index, process) in measurements.processes.iter().enumerate() {
        let Seen { addresses, samples } = seen.remove(&index).unwrap_or_default();
        let directory = &measurements.directories[process.directory];
        let map = load_map(process, directory, addresses, symbols, warnings);
        for address in &map.addresses {
            if let Some((module, offset)) = map.place(*address) {
                let known: &mut SampledModule = sampled.entry(module).or_default();
                known.addresses.insert(offset);
            }
        }
        for (address, samples) in samples {
            let known = map.place(CodeAddress(address)).and_then(|(module, _)| sampled.get_mut(&module));
            if let Some(known) = known {
                known.samples = known.samples.saturating_add(samples);
            }
        }
        maps.push(map);
    }
    (maps, sampled)
}

/// What the profiles of one process contain.
#[derive(Default)]
struct Seen {
    addresses: FastSet<u64>,
    /// Samples by the innermost address.
    samples: FastMap<u64, u64>,
}

impl Seen {
    fn add(&mut self, thread: &ThreadInput, buffer: &mut Vec<u8>) {
        // A profile that cannot be read is reported when its values are.
        let Ok(profile) = thread.read(buffer) else {
            return;
        };
        let by_name = |name: &str| profile.header.metrics.iter().position(|m| m.name == name);
        let samples_at = by_name(SAMPLES);
        let mut innermost = vec![CodeAddress::NONE; profile.len()];
        for index in 0..profile.len() {
            match profile.record(index) {
                Some(Record::Note { ip, lip, .. }) => {
                    self.addresses.insert(ip.0);
                    self.addresses.insert(lip.0);
                    innermost[index] = if lip.is_none() { ip } else { lip };
                }
                Some(Record::Metric { owner, group: 0, values }) => {
                    let address = innermost[owner as usize].0;
                    let samples = samples_at.and_then(|at| values.get(at));
                    if let (1.., Some(samples)) = (address, samples) {
                        let known = self.samples.entry(address).or_default();
                        *known = known.saturating_add(*samples);
                    }
                }
                _ => {}
            }
        }
    }

    fn merge(&mut self, other: Seen) {
        self.addresses.extend(other.addresses);
        for (address, samples) in other.samples {
            let known = self.samples.entry(address).or_default();
            *known = known.saturating_add(samples);
        }
    }
}

/// What all profiles contain, by process.
fn seen(measurements: &Measurements, threads: usize) -> BTreeMap<usize, Seen> {
    let profiles: Vec<(usize, &ThreadInput)> = measurements.profiles().collect();
    let parts = parallel::for_each(
        &profiles,
        threads,
        || (BTreeMap::<usize, Seen>::new(), Vec::new()),
        |(seen, buffer), _, (process, thread)| seen.entry(*process).or_default().add(thread, buffer),
    );
    let mut all: BTreeMap<usize, Seen> = BTreeMap::new();
    for (process, seen) in parts.into_iter().flat_map(|(seen, _)| seen) {
        all.entry(process).or_default().merge(seen);
    }
    all
}

fn load_map(
    process: &ProcessInput,
    directory: &Path,
    mut addresses: FastSet<u64>,
    symbols: &mut Symbols,
    warnings: &mut Warnings,
) -> LoadMap {
    let mut map = LoadMap::default();
    let generated = directory.join(format!("perf-{}-{}.map", process.pid, process.start_monotonic_ns));
    let id = symbols.add_module(GENERATED, &[], Stamp::of(&generated));
    if generated.is_file() {
        symbols.copies.insert(id, generated);
    }
    map.modules.insert(ModuleId::UNKNOWN.0, id);
    match &process.process {
        Some(file) => {
            map.remapped.clone_from(&file.remapped);
            for module in &file.modules {
                let id = symbols.add_module(&module.path, &module.build_id, module.stamp);
                if !module.copy.is_empty() {
                    symbols.copies.insert(id, directory.join(&module.copy));
                }
                map.modules.entry(module.id.0).or_insert(id);
            }
        }
        None => warnings.add(format!(
            "process {}: its process file is missing or unreadable, so its code has no names: \
             run the program again",
            process.pid
        )),
    }
    if let Some(file) = &process.process {
        addresses.extend(file.sites.iter().map(|site| site.place.0));
        addresses.extend(file.directives.iter().map(|directive| directive.place.0));
    }
    let path = process.critical_path.iter();
    addresses.extend(path.flat_map(|path| path.addresses()).map(|address| address.0));
    addresses.remove(&CodeAddress::NONE.0);
    map.addresses = addresses.into_iter().map(CodeAddress).collect();
    map.addresses.sort_unstable();
    for address in &map.addresses {
        let id = address.module().0;
        map.modules.entry(id).or_insert_with(|| {
            let name = format!("[module {id} of process {}]", process.pid);
            symbols.add_module(&name, &[], Stamp::default())
        });
    }
    map
}
