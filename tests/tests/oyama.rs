//! The programs of Oyama's paper: what the tracker says of their paths, and the times that it predicts for 1
//! to 64 workers, against the graph that each program records of itself in the same run, and a simulation of
//! it. Neither knows anything of the other, and neither depends on how fast the machine is.

use hpcrun_tests::graph::Recorded;
use hpcrun_tests::run::Spec;
use hpcrun_tests::tools::exclusive_cores;

/// Of work and span: the graph has nothing of what the runtime does for each message.
const SHARE: f64 = 0.05;
/// Of a predicted time: a worker that is free begins what is beside a long chain early, of which the ideal
/// execution's levels know nothing.
const EARLY: f64 = 0.2;
/// Seconds for the begin of each of three threads.
const BEGIN: f64 = 1e-3;

fn check(program: &str, size: &str) {
    let arguments = [program, "2", size, "recorded"];
    let spec = Spec::fixture(&format!("oyama-{program}"), "oyama").arguments(&arguments);
    let run = spec.critical_path("").succeed();
    let path = run.critical_path();
    let graph = Recorded::of_output(&run.stdout(), false);
    // A sample may find a thread that spins for the runtime's own mutex: nobody tells who releases it.
    let lost = &path.quality.lost_edges;
    assert!(lost.iter().all(|(cause, count)| cause == "wait" && *count <= 2), "{program}: {lost:?}");
    let mut faults = Vec::new();
    let mut near = |what: &str, found: f64, truth: f64, share: f64| {
        let error = 100.0 * (found / truth - 1.0);
        println!("{program}, {what}: {found:.6} s, by its own graph {truth:.6} s, {error:+.1} %");
        if (found - truth).abs() > share * truth + BEGIN {
            faults.push(format!("{what}: {found:.6} s, not {truth:.6} s"));
        }
    };
    near("work", path.work as f64 * 1e-9, graph.work(), SHARE);
    near("span", path.span as f64 * 1e-9, graph.span(), SHARE);
    for workers in [1, 2, 4, 8, 16, 32, 64] {
        let predicted = path.prediction(workers);
        let [lower, time, upper] = [predicted.lower, predicted.time, predicted.upper].map(|t| t * 1e-9);
        let simulated = graph.simulate(workers as usize);
        near(&format!("{workers} workers"), time, simulated, EARLY);
        // The bounds hold for any schedule in which nobody is idle without need.
        near(&format!("{workers} workers, within bounds"), simulated.clamp(lower, upper), simulated, SHARE);
    }
    assert!(faults.is_empty(), "{program}, {} nodes:\n{}", graph.nodes(), faults.join("\n"));
}

#[test]
fn primes_are_divided_by_tasks_and_gathered_by_an_object() {
    let _cores = exclusive_cores();
    check("prime", "3000000");
}

#[test]
fn a_sentence_is_parsed_by_an_object_for_each_part() {
    let _cores = exclusive_cores();
    check("cky", "28");
}

#[test]
fn pixels_of_an_image_go_through_one_buffer() {
    let _cores = exclusive_cores();
    check("raytrace", "32");
}
