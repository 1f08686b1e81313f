//! Exports the profiler's symbol from the tests that are the profiler themselves (`tests/support`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-tests=-Wl,--export-dynamic-symbol=hpcrun_critical_path");
}
