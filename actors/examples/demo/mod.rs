//! What the demonstrations share: arguments, and phases with and without automatic priorities.

use std::time::Instant;

use work_stealing_actors::{PathReport, System};

/// The value after `name` in the program's arguments.
pub(crate) fn argument(name: &str, default: usize) -> usize {
    let value = std::env::args().skip_while(|argument| argument != name).nth(1);
    value.map_or(default, |value| value.parse().expect("a number"))
}

/// Makes a program in a system, and returns what runs one phase of it.
type Make = dyn Fn(&System) -> Box<dyn Fn() + Sync>;

/// Prints the critical path of a phase, then the wall times of phases without and with automatic priorities,
/// interleaved.
pub(crate) fn demonstrate(workers: usize, phases: usize, make: &Make) -> PathReport {
    let build = |path: bool, automatic: bool| {
        let builder = System::builder().workers(workers).critical_path(path);
        builder.automatic_priorities(automatic).build().expect("threads")
    };
    let system = build(true, false);
    let phase = make(&system);
    system.run(&*phase).expect("no panic");
    let report = system.critical_path();
    println!("{report}");
    drop(phase);
    // The noise of the ratio: neither system has automatic priorities.
    let is_control = argument("--control", 0) != 0;
    let systems = [build(false, false), build(false, !is_control)];
    let programs: Vec<_> = systems.iter().map(make).collect();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..phases {
        for ((system, program), times) in systems.iter().zip(&programs).zip(&mut times) {
            let begun = Instant::now();
            system.run(&**program).expect("no panic");
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    let [plain, automatic] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    println!("median phase on {workers} workers: first in, first out {plain:.2} ms,");
    println!("automatic priorities {automatic:.2} ms, ratio {:.3}", plain / automatic);
    println!("priorities in use at the end: {}", systems[1].uses_priorities());
    report
}
