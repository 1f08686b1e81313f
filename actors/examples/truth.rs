//! How exact critical paths are, and what automatic priorities gain, by CPU time.
//!
//! Runs graphs with known figures as actors that spin for known CPU times, on 1, 2 and 4 workers, and prints
//! the greatest error of work, span and zeroed spans of each. Then T16 in phases, with automatic priorities.
//!
//! `cargo run --release -p work-stealing-actors --example truth [MICROSECONDS [GRAPH]]`: a unit
//! of time, 1000 by default; of one graph, as T16, or of `reduction`, a single run on two workers, and its
//! critical path in JSON.
#![allow(dead_code)]

#[path = "../tests/graphs/catalogue.rs"]
mod catalogue;
#[path = "../tests/graphs/dag.rs"]
mod dag;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use work_stealing_actors::{Context, Handle, PathReport, Reduction, System};

use dag::Dag;

/// A unit of time in nanoseconds.
static UNIT: AtomicU64 = AtomicU64::new(1_000_000);

fn thread_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Spins for so many units of CPU time.
fn spend(units: u64) {
    let end = thread_time() + units * UNIT.load(Ordering::Relaxed);
    while units != 0 && thread_time() < end {}
}

/// The greatest relative error of a run, in percent of the span.
fn error(dag: &Dag, workers: usize) -> f64 {
    let report = dag.run(System::builder().workers(workers).critical_path(true), false).report;
    let unit = UNIT.load(Ordering::Relaxed) as f64;
    let span = dag.span(None) as f64;
    let mut pairs = vec![(report.span, span), (report.work, dag.work() as f64)];
    for procedure in report.procedures.iter().filter(|p| p.name != "program") {
        let number = procedure.name.to_string().parse().expect("the name is a number");
        pairs.push((procedure.zeroed_span, dag.span(Some(number)) as f64));
    }
    let errors = pairs.iter().map(|(found, truth)| (*found as f64 / unit - truth).abs() / truth.max(span));
    100.0 * errors.fold(0.0, f64::max)
}

/// An element that contributes after 25 units, and one that begins then and contributes after 5. The result
/// is worked on for 50 units.
struct Element(Reduction<u64>);

#[derive(Clone)]
struct Contribute;

impl Handle<Contribute> for Element {
    fn handle(&mut self, _: Contribute, context: &mut Context<'_, Self>) {
        let index = context.index();
        while index == 1 && self.0.missing() != [1] {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        spend([25, 5][index]);
        self.0.contribute(index, 0);
    }
}

fn reduction() -> PathReport {
    let system = System::builder().workers(2).critical_path(true).build().expect("threads");
    let reduction = system.reduction(2, |a, b| a + b, |_| spend(50));
    let elements = system.array("element", 2, |_, _| Element(reduction.clone()));
    system.run(|| elements.broadcast(Contribute)).expect("no panic");
    system.critical_path()
}

fn main() {
    if let Some(unit) = std::env::args().nth(1) {
        UNIT.store(1000 * unit.parse::<u64>().expect("microseconds"), Ordering::Relaxed);
    }
    let graphs = [
        ("T6 integer sort", catalogue::integer_sort()),
        ("T11 rotating imbalance", catalogue::rotating_imbalance()),
        ("T12 broadcast", catalogue::broadcast()),
        ("T13 awaited together", catalogue::awaited_together()),
        ("T14 stencil", catalogue::stencil()),
        ("T15 reduction tree", catalogue::reduction_tree()),
        ("T16 chain and fillers", catalogue::chain_and_fillers()),
    ];
    if let Some(name) = std::env::args().nth(2) {
        if name == "reduction" {
            return println!("{}", reduction().to_json());
        }
        let (_, dag) = graphs.iter().find(|(title, _)| title.starts_with(&name)).expect("a graph");
        let report = dag.run(System::builder().workers(2).critical_path(true), false);
        return println!("{}", report.to_json());
    }
    println!("greatest error of work, span and zeroed spans, % (1, 2, 4 workers)");
    for (name, dag) in &graphs {
        let errors = [1, 2, 4].map(|workers| format!("{:5.2}", error(dag, workers)));
        println!("{name:24} {}", errors.join(" "));
    }
    println!("T16 in units, by phases, on 2 workers; the first has no priorities");
    let dag = catalogue::chain_and_fillers();
    let unit = UNIT.load(Ordering::Relaxed) as f64;
    let builder = System::builder().workers(2).automatic_priorities(true);
    let system = builder.build().expect("threads");
    let nodes = dag.actors(&system, false);
    let times = (0..6).map(|_| {
        let begun = Instant::now();
        system.run(|| dag.start(&nodes)).expect("no panic");
        format!("{:.1}", begun.elapsed().as_nanos() as f64 / unit)
    });
    println!("{}", times.collect::<Vec<_>>().join(" "));
}
