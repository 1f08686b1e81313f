//! Bounded mutation runs of everything that parses: real files, bytes changed, cut and repeated.
//!
//! The fuzz targets (`fuzz/`) do the same without an end, where a nightly toolchain is at hand.

use fastrand::Rng;
use hpcrun_tests::run::is_long;
use hpcrun_tests::tools::{one_core, release};
use hpcrun_tests::{parsers, seeds};
use std::path::Path;
use std::time::{Duration, Instant};

/// A mutant of `seed`: a few of these in a row.
fn mutate(seed: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.usize(..6) {
        let at = random.usize(..bytes.len().max(1));
        match random.usize(..6) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random.usize(..8),
            2 if !bytes.is_empty() => bytes[at] = random.u8(..),
            3 => {
                // A length or an offset that is far too large.
                for byte in bytes.iter_mut().skip(at).take(1 << random.usize(..4)) {
                    *byte = 0xff;
                }
            }
            4 => {
                let piece: Vec<u8> = bytes.iter().skip(at).take(random.usize(..64)).copied().collect();
                let to = random.usize(..=bytes.len());
                bytes.splice(to..to, piece);
            }
            _ => {
                let end = (at + random.usize(..64)).min(bytes.len());
                bytes.drain(at..end);
            }
        }
    }
    bytes
}

/// Runs `parse` over mutants of the seeds for `seconds`, or 0.4 of them in a short run, and over at least
/// `least` mutants.
fn run(what: &str, seeds: &[Vec<u8>], seconds: u64, least: usize, parse: fn(&[u8])) {
    assert!(seeds.iter().any(|s| !s.is_empty()), "{what}: there are seeds");
    let mut random = Rng::with_seed(0x9e37_79b9_7f4a_7c15);
    let end = Instant::now() + Duration::from_millis(seconds * if is_long() { 1000 } else { 400 });
    let mut count = 0;
    for seed in seeds {
        parse(seed);
    }
    while count < least || Instant::now() < end {
        let seed = &seeds[random.usize(..seeds.len())];
        parse(&mutate(seed, &mut random));
        count += 1;
    }
    eprintln!("{what}: {count} mutants");
}

#[test]
fn measurements() {
    let _cores = one_core();
    let [profiles, processes, traces] = seeds::of_measurement("mutations");
    run("profiles", &profiles, 1, 500, parsers::profile);
    run("process files", &processes, 1, 500, parsers::process);
    run("traces", &traces, 1, 500, parsers::trace);
}

#[test]
fn structures_and_binaries() {
    let _cores = one_core();
    let structures = seeds::structures("mutations-structure");
    run("structures", &structures, 1, 300, parsers::structure);
    let library = vec![seeds::library()];
    run("machine code", &seeds::code(&library[0]), 1, 300, parsers::code);
    run("debug information", &seeds::debug_information(&library), 2, 300, parsers::debug_information);
    run("libraries", &library, 3, 200, parsers::analyse);
    // A Rust program, with inlining and several units: few mutants, as each takes a while.
    run("programs", &seeds::read_all(&[release("recursion")]), 2, 5, parsers::analyse);
}

#[test]
#[ignore = "of use to `cargo xtask fuzz-seeds` alone, which names the folder"]
fn seeds_of_the_fuzz_targets() {
    let _cores = one_core();
    let folder = std::env::var_os("FUZZ_SEEDS").expect("FUZZ_SEEDS names a folder");
    for (target, files) in seeds::of_all_targets() {
        let place = Path::new(&folder).join(target);
        std::fs::create_dir_all(&place).expect("the folder can be made");
        assert!(!files.is_empty(), "{target} has seeds");
        for (number, bytes) in files.iter().enumerate() {
            let path = place.join(format!("seed-{number}"));
            std::fs::write(path, bytes).expect("the seed can be written");
        }
        println!("{target}: {} seeds in {}", files.len(), place.display());
    }
}
