//! Measurements of any size, with totals that are known exactly, for benchmarks of the merge.
//!
//! A procedure calls only those of the next layer, so no path recurses. Each code place has a line of its
//! own, so different call paths are different contexts. Equal shapes give equal files.

use super::{PERIOD_NS, Run, StructureBuilder, ThreadBuilder, at};
use fastrand::Rng;
use hpc_formats::address::CodeAddress;
use hpc_formats::structure::{
    Origin, Procedure, ProcedureId, Scope, ScopeId, ScopeKind, SourceLine, Span, StringId, Structure,
};
use std::path::Path;

/// What is written.
pub struct Shape {
    pub threads: u32,
    pub contexts: u32,
    /// Frames of the longest call paths.
    pub depth: u32,
    pub procedures: u32,
    /// Part of the contexts in which a thread has values, from 0 to 1; each has some in some thread.
    pub share: f64,
    pub seed: u64,
}

/// What the profiles of a run have in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    pub samples: u64,
    pub work_ns: u64,
    pub overhead_ns: u64,
    pub idleness_ns: u64,
}

const EXECUTABLE: &str = "/opt/synthetic/app";
const BUILD_ID: &[u8] = b"synt";
/// Overhead category of its tagged code: the last place of some procedures.
const TAG: &str = "sync";
/// Code places of a procedure.
const PLACES: u32 = 8;
/// Bytes between two places.
const PLACE_BYTES: u32 = 16;
/// Consecutive contexts, about a path, that a thread has all or none of.
const BLOCK: usize = 16;
/// Samples of a context in a thread, on average.
const MEAN_SAMPLES: u64 = 4;
/// Nanoseconds between the starts of two runs.
const RUN_DISTANCE_NS: u64 = 600_000_000_000;
/// Hosts of the runs, by turns; after each turn all were booted anew.
const HOSTS: u32 = 16;
/// The wall clock at the start of the first run: 2026-01-01.
const FIRST_START_NS: u64 = 1_767_225_600_000_000_000;

/// A calling context: a code place in the context of its caller's, which is an earlier one.
struct Context {
    parent: usize,
    place: u32,
    depth: u32,
    children: u32,
    /// Its part of the samples, relative to others'. The k-th heaviest has about 1/k of the heaviest.
    weight: u64,
}

impl Shape {
    /// Layers of procedures, and procedures in each.
    fn layers(&self) -> (u32, u32) {
        (self.depth, self.procedures.div_ceil(self.depth))
    }

    fn context(&self, parent: usize, depth: u32, place: u32, random: &mut Rng) -> Context {
        let weight = (1.0 / (1.0 - random.f64())).min(f64::from(1 << 20)) as u64;
        Context { parent, place, depth, children: 0, weight }
    }

    /// The calling context tree, callers first. It grows path by path: each leaves an earlier one somewhere.
    fn tree(&self) -> Vec<Context> {
        let (_, width) = self.layers();
        assert!(self.depth > 1 && width > 0, "paths need procedures");
        // Callees of one place: those of another are others, for calls are told apart by their callees.
        let callees = (width / PLACES).max(1);
        let mut random = Rng::with_seed(self.seed);
        let mut tree = vec![self.context(0, 0, 0, &mut random)];
        let mut parent = 0;
        while tree.len() < self.contexts as usize {
            let caller = &mut tree[parent];
            let (number, depth) = (caller.children, caller.depth + 1);
            if depth == self.depth || number == PLACES * callees || random.u32(..12) == 0 {
                // Earlier contexts are on more paths.
                parent = (random.f64().powi(2) * tree.len() as f64) as usize;
                continue;
            }
            caller.children += 1;
            // Its callees come one after the other, place by place.
            let (procedure, place) = (caller.place / PLACES, caller.place % PLACES);
            let first = (procedure.wrapping_mul(0x9e37_79b9) >> 8) + place * callees;
            let callee = depth * width + (first + number / PLACES) % width;
            let place = callee * PLACES + (first + number) % PLACES;
            tree.push(self.context(parent, depth, place, &mut random));
            parent = tree.len() - 1;
        }
        tree
    }

    /// Names, lines and scopes of all procedures.
    fn structure(&self) -> Structure {
        let (layers, width) = self.layers();
        let mut builder = StructureBuilder::new(EXECUTABLE, BUILD_ID);
        let (tag, helper) = (builder.text(TAG), builder.text("app::helper"));
        let mut structure = builder.structure;
        let mut text = |text: String| {
            structure.strings.push(text);
            StringId(structure.strings.len() as u32 - 1)
        };
        for layer in 0..layers {
            let file = text(format!("/src/app/layer{layer}.rs"));
            for index in 0..width {
                let id = layer * width + index;
                let name = text(match id {
                    0 => "app::main".to_owned(),
                    _ => format!("app::layer{layer}::procedure{index}"),
                });
                let first = 1 + index * (PLACES + 2);
                let line = |line| Some(SourceLine { file, line });
                structure.procedures.push(Procedure {
                    name,
                    linkage_name: name,
                    declared: line(first),
                    origin: Origin::User,
                    tag: None,
                });
                // The second half of every third procedure is inlined into it.
                let scope = (id % 3 == 1).then(|| {
                    structure.scopes.push(Scope {
                        kind: ScopeKind::Inlined,
                        procedure: ProcedureId(id),
                        parent: None,
                        name: helper,
                        declared: line(first + PLACES / 2),
                        site: line(first + 1),
                        origin: Origin::User,
                    });
                    ScopeId(structure.scopes.len() as u32 - 1)
                });
                structure.spans.extend((0..PLACES).map(|place| {
                    let start = address(id * PLACES + place).offset();
                    Span {
                        start,
                        end: start + u64::from(PLACE_BYTES),
                        procedure: ProcedureId(id),
                        scope: scope.filter(|_| place >= PLACES / 2),
                        line: line(first + 1 + place),
                        tag: is_tagged(id * PLACES + place).then_some(tag),
                    }
                }));
            }
        }
        structure
    }
}

fn address(place: u32) -> CodeAddress {
    at(1, u64::from(0x1000 + place * PLACE_BYTES))
}

fn is_tagged(place: u32) -> bool {
    place % (10 * PLACES) == PLACES - 1
}

/// Writes the measurements of run number `run`.
pub fn write(shape: &Shape, run: u32, directory: &Path) -> Totals {
    let tree = shape.tree();
    let mut written = Run::new();
    let image = u64::from(run + 1) * RUN_DISTANCE_NS;
    let start = &mut written.start;
    (start.pid, start.image, start.realtime_ns) = (1000, image, FIRST_START_NS + image);
    start.executable = EXECUTABLE.to_owned();
    start.arguments = vec![EXECUTABLE.to_owned(), run.to_string()];
    start.cores = shape.threads;
    start.host = format!("host-{:02}", run % HOSTS);
    start.boot = format!("synthetic-boot-{}", run / HOSTS);
    written.module(1, EXECUTABLE, BUILD_ID);
    written.structures.push(shape.structure());
    written.write(directory);
    let mut totals = Totals::default();
    for number in 0..shape.threads {
        let thread = thread(shape, &tree, run, number, &mut totals);
        Run { threads: vec![thread], structures: Vec::new(), ..written.clone() }.write(directory);
    }
    // The run took as long as its effort on one core for each thread.
    let work_ns = totals.work_ns + totals.overhead_ns;
    let wall_ns = (work_ns + totals.idleness_ns).div_ceil(u64::from(shape.threads));
    let end = written.end.as_mut().expect("an end");
    (end.cores, end.threads, end.cpu.process_ns) = (shape.threads, shape.threads, work_ns);
    end.monotonic_ns = image + wall_ns;
    Run { structures: Vec::new(), ..written }.write(directory);
    totals
}

/// The profile of a thread. The first one begins at the program's entry, and `main` creates the others.
fn thread(shape: &Shape, tree: &[Context], run: u32, number: u32, totals: &mut Totals) -> ThreadBuilder {
    let seed = shape.seed ^ u64::from(run + 1) << 32 ^ u64::from(number) << 1;
    let mut random = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut has_values = vec![false; tree.len()];
    for (block, has_values) in has_values.chunks_mut(BLOCK).enumerate() {
        let own = block as u32 % shape.threads == number;
        has_values.fill(random.f64() < shape.share || own);
    }
    // The other threads' paths continue `main`: none ends there.
    has_values[0] &= number == 0;
    let mut is_needed = has_values.clone();
    is_needed[0] = true;
    for (id, context) in tree.iter().enumerate().rev() {
        is_needed[context.parent] |= is_needed[id];
    }
    let chosen = || tree.iter().zip(&has_values).filter(|(_, has)| **has).map(|(c, _)| c.weight);
    let (count, weight) = (chosen().count() as u64, chosen().sum::<u64>().max(1));
    let mut thread = ThreadBuilder::new(number + 1);
    (thread.pid, thread.image) = (1000, u64::from(run + 1) * RUN_DISTANCE_NS);
    let mut records = vec![match number {
        0 => {
            let entry = thread.entry();
            thread.native(entry, address(0))
        }
        // The record of `main` in the first thread.
        _ => thread.anchor(1, 2),
    }];
    records.resize(tree.len(), 0);
    for (id, context) in tree.iter().enumerate().filter(|(id, _)| is_needed[*id]) {
        if id > 0 {
            records[id] = thread.native(records[context.parent], address(context.place));
        }
        if !has_values[id] {
            continue;
        }
        let samples = 1 + count * (MEAN_SAMPLES - 1) * context.weight / weight;
        // Quarters of a period are whole nanoseconds, so sums are exact in any order.
        let quarters = random.u64(..4) * samples;
        thread.values(records[id], samples, samples, quarters as f64 / 4.0);
        totals.samples += samples;
        totals.idleness_ns += quarters * PERIOD_NS / 4;
        match is_tagged(context.place) {
            true => totals.overhead_ns += samples * PERIOD_NS,
            false => totals.work_ns += samples * PERIOD_NS,
        }
    }
    thread.cpu_ns = thread.samples * PERIOD_NS;
    thread
}
