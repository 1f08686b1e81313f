//! Random runs: every kind of record, any association, anchors in all directions.

use super::program::{self, *};
use super::{Run, ThreadBuilder, at};
use hpc_formats::address::CodeAddress;
use hpc_formats::loss::LossCause;
use hpc_formats::profile::Association;

/// A small generator of reproducible numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

fn address(random: &mut Random) -> CodeAddress {
    let all = [
        start(),
        main(),
        main_serial(),
        caller(),
        caller_join(),
        caller_join_closure(),
        caller_push(),
        leaf(),
        leaf_iterator(),
        execute(),
        execute_closure(),
        closure(),
        call_once(),
        scheduler(),
        serial(),
        memcpy(),
        futex(),
        // No structure at this address, and no such module.
        at(LIBC, 0x9000),
        at(77, 0x10),
        at(u16::MAX, 0x1234),
    ];
    random.of(&all)
}

fn thread(random: &mut Random, ordinal: u32, threads: u32, records: u64) -> ThreadBuilder {
    let mut thread = ThreadBuilder::new(ordinal);
    let mut nodes = vec![thread.entry()];
    nodes.push(thread.partial(random.of(&[LossCause::TooDeep, LossCause::NoUnwindInfo])));
    for _ in 0..random.below(3) {
        let target = 1 + random.below(u64::from(threads)) as u32;
        nodes.push(thread.anchor(target, random.below(records) as u32));
    }
    for _ in 0..records {
        // Mostly deep, sometimes wide.
        let parent = if random.below(3) > 0 {
            nodes[nodes.len() - 1]
        } else {
            random.of(&nodes)
        };
        let (ip, lip) = (address(random), address(random));
        let node = match random.below(8) {
            0 => thread.support(parent, ip),
            1 => thread.note(parent, Association::OneToMany, 2, CodeAddress::NONE, lip),
            2 => thread.note(parent, Association::ManyToOne, 2, ip, CodeAddress::NONE),
            3 => thread.note(parent, Association::OneToMany, 1, ip, lip),
            _ => thread.native(parent, ip),
        };
        nodes.push(node);
        if random.below(2) == 0 {
            let owner = random.of(&nodes);
            let samples = 1 + random.below(9);
            let idleness = random.below(1000) as f64 / 7.0;
            thread.values(owner, samples, samples + random.below(3), idleness);
        }
    }
    thread
}

/// A random run of `threads` threads with about `records` notes each.
pub fn run(seed: u64, threads: u32, records: u64) -> Run {
    let mut random = Random::new(seed);
    let mut run = program::run();
    run.threads = (1..=threads)
        .map(|ordinal| thread(&mut random, ordinal, threads, records))
        .collect();
    run
}
