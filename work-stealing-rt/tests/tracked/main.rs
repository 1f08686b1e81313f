//! All that the public operations promise holds while the critical path is tracked.
//!
//! The tests of `behaviour`, `interface` and `life` again, in a process that tracks from its start. Then
//! every second half of a join runs through the boundary, and every task is a strand.
#![cfg(all(target_os = "linux", feature = "context"))]

#[path = "../behaviour.rs"]
mod behaviour;
#[path = "../interface.rs"]
mod interface;
#[path = "../life.rs"]
mod life;
#[path = "../support/profiler.rs"]
mod profiler;

extern "C" fn start() {
    hpcrun_api::start();
}

/// Called by the C library before the tests.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[test]
fn the_tracking_is_on() {
    let pool = work_stealing_rt::ThreadPoolBuilder::new().num_threads(1);
    let pool = pool.build().expect("threads");
    let edges = || {
        assert!(hpcrun_api::report().is_some());
        profiler::tracker().report().quality.exact_edges
    };
    let before = edges();
    pool.install(|| work_stealing_rt::join(|| 1, || 2));
    // The installed closure's begin and end, the second half's begin and end.
    assert!(edges() >= before + 4);
}
