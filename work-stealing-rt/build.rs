//! Exports the profiler's symbols from the tests that are the profiler themselves
//! (`tests/support/profiler.rs`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        for kind in ["tests", "examples"] {
            for symbol in ["hpcrun_rt_register", "hpcrun_critical_path"] {
                println!("cargo::rustc-link-arg-{kind}=-Wl,--export-dynamic-symbol={symbol}");
            }
        }
    }
}
