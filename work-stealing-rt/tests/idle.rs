//! Idle pools use no CPU, and dropped pools leave no threads. One test, for it looks at the
//! whole process.
#![cfg(target_os = "linux")]

use std::thread;
use std::time::{Duration, Instant};

use work_stealing_rt::{ThreadPoolBuilder, join};

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

/// CPU time of the process, in clock ticks of 10 ms.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc is mounted");
    let after_name = stat.rsplit_once(") ").expect("a name in parentheses").1;
    let fields: Vec<&str> = after_name.split(' ').collect();
    fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("/proc is mounted").count()
}

#[test]
fn an_idle_pool_costs_nothing_and_a_dropped_one_is_gone() {
    let before = threads();
    let pool = ThreadPoolBuilder::new().num_threads(8).build().expect("threads");
    assert_eq!(threads(), before + 8);
    assert_eq!(pool.install(|| fib(20)), 6765);

    thread::sleep(Duration::from_millis(100));
    let start = cpu_ticks();
    thread::sleep(Duration::from_millis(1_500));
    let used = cpu_ticks() - start;
    assert!(used <= 3, "{used} ticks of 10 ms in 1.5 s of doing nothing");

    // A long serial stretch inside the pool must not keep the other workers awake either.
    let start = cpu_ticks();
    pool.install(|| thread::sleep(Duration::from_millis(1_000)));
    let used = cpu_ticks() - start;
    assert!(used <= 3, "{used} ticks of 10 ms while one worker slept 1 s");

    drop(pool);
    let start = Instant::now();
    while threads() > before {
        assert!(start.elapsed() < Duration::from_secs(10), "worker threads are left");
        thread::sleep(Duration::from_millis(1));
    }
}
