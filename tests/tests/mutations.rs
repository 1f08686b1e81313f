//! Bounded mutation runs of everything that parses: real files, bytes changed, cut and repeated.
//!
//! The fuzz targets (`fuzz/`) do the same without an end, where a nightly toolchain is at hand.

use hpcrun_tests::run::Spec;
use hpcrun_tests::tools::{c_program, machine, release, tool};
use hpcrun_tests::{elf, parsers};
use std::time::{Duration, Instant};

/// xorshift64*: reproducible, and good enough to choose bytes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 16) as usize % bound.max(1)
    }
}

/// A mutant of `seed`: a few of these in a row.
fn mutate(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            2 if !bytes.is_empty() => bytes[at] = random.next() as u8,
            3 => {
                // A length or an offset that is far too large.
                for byte in bytes.iter_mut().skip(at).take(1 << random.below(4)) {
                    *byte = 0xff;
                }
            }
            4 => {
                let piece: Vec<u8> = bytes
                    .iter()
                    .skip(at)
                    .take(random.below(64))
                    .copied()
                    .collect();
                let to = random.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            _ => {
                let end = (at + random.below(64)).min(bytes.len());
                bytes.drain(at..end);
            }
        }
    }
    bytes
}

/// Runs `parse` over mutants of the seeds for `seconds`, at least `least` of them.
fn run(what: &str, seeds: &[Vec<u8>], seconds: u64, least: usize, parse: fn(&[u8])) {
    assert!(
        seeds.iter().any(|s| !s.is_empty()),
        "{what}: there are seeds"
    );
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut count = 0;
    for seed in seeds {
        parse(seed);
    }
    while count < least || Instant::now() < end {
        let seed = &seeds[random.below(seeds.len())];
        parse(&mutate(seed, &mut random));
        count += 1;
    }
    eprintln!("{what}: {count} mutants");
}

fn read_all(paths: &[std::path::PathBuf]) -> Vec<Vec<u8>> {
    let read = |path: &std::path::PathBuf| std::fs::read(path).expect("the file is readable");
    paths.iter().map(read).collect()
}

#[test]
fn measurements() {
    let _machine = machine();
    let measured = Spec::fixture("mutations", "phases")
        .arguments(&["60"])
        .rate(1000)
        .succeed();
    let profiles = read_all(&measured.files("hpcprofile"));
    run("profiles", &profiles, 3, 500, parsers::profile);
    let processes = read_all(&measured.files("hpcproc"));
    run("process files", &processes, 3, 500, parsers::process);
}

#[test]
fn structures_and_binaries() {
    let _machine = machine();
    let place = hpcrun_tests::tools::folder("mutations-structure");
    let file = place.join("library.hpcstruct");
    let library = c_program("library.so");
    hpcrun_tests::tools::check(tool("hpcstruct-rs").arg(&library).arg("-o").arg(&file));
    run("structures", &read_all(&[file]), 3, 300, parsers::structure);
    // Code, and all else in the file taken for it.
    let pieces: Vec<Vec<u8>> = read_all(std::slice::from_ref(&library))
        .iter()
        .flat_map(|bytes| bytes.chunks(1 << 13).map(<[u8]>::to_vec))
        .collect();
    run("machine code", &pieces, 3, 300, parsers::code);
    let sections: Vec<Vec<u8>> = read_all(std::slice::from_ref(&library))
        .iter()
        .map(|bytes| elf::pack(bytes))
        .collect();
    assert!(sections[0].len() > 200, "the library has debug information");
    run(
        "debug information",
        &sections,
        6,
        300,
        parsers::debug_information,
    );
    run("libraries", &read_all(&[library]), 8, 200, parsers::analyse);
    // A Rust program, with inlining and several units: few mutants, as each takes a while.
    run(
        "programs",
        &read_all(&[release("recursion")]),
        5,
        5,
        parsers::analyse,
    );
}
