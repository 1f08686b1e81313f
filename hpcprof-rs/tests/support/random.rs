//! Random runs: every kind of record, any association, anchors in all directions.

use super::program::{self, *};
use super::{Run, ThreadBuilder, at};
use fastrand::Rng;
use hpc_formats::address::CodeAddress;
use hpc_formats::loss::LossCause;
use hpc_formats::profile::Association;

fn address(random: &mut Rng) -> CodeAddress {
    let all = [
        START,
        MAIN,
        MAIN_SERIAL,
        CALLER,
        CALLER_JOIN,
        CALLER_JOIN_CLOSURE,
        CALLER_PUSH,
        LEAF,
        LEAF_ITERATOR,
        EXECUTE,
        EXECUTE_CLOSURE,
        CLOSURE,
        CALL_ONCE,
        SCHEDULER,
        SERIAL,
        MEMCPY,
        FUTEX,
        // No structure at this address, and no such module.
        at(LIBC, 0x9000),
        at(77, 0x10),
        at(u16::MAX, 0x1234),
    ];
    random.choice(all).expect("there are some")
}

/// `threads`: how many anchors may lead to; with 0 there are no anchors.
fn thread(random: &mut Rng, ordinal: u32, threads: u32, records: u64) -> ThreadBuilder {
    let mut thread = ThreadBuilder::new(ordinal);
    let mut nodes = vec![thread.entry()];
    nodes.push(thread.partial(match random.bool() {
        true => LossCause::TooDeep,
        false => LossCause::NoUnwindInfo,
    }));
    let anchors = if threads > 0 { random.u64(..3) } else { 0 };
    for _ in 0..anchors {
        let target = 1 + random.u32(..threads);
        nodes.push(thread.anchor(target, random.u64(..records) as u32));
    }
    for _ in 0..records {
        // Mostly deep, sometimes wide.
        let parent =
            if random.u64(..3) > 0 { nodes[nodes.len() - 1] } else { nodes[random.usize(..nodes.len())] };
        let (ip, lip) = (address(random), address(random));
        let node = match random.u64(..8) {
            0 => thread.support(parent, ip),
            1 => thread.note(parent, Association::OneToMany, 2, CodeAddress::NONE, lip),
            2 => thread.note(parent, Association::ManyToOne, 2, ip, CodeAddress::NONE),
            3 => thread.note(parent, Association::OneToMany, 1, ip, lip),
            _ => thread.native(parent, ip),
        };
        nodes.push(node);
        if random.bool() {
            let owner = nodes[random.usize(..nodes.len())];
            let samples = 1 + random.u64(..9);
            let idleness = random.u64(..1000) as f64 / 7.0;
            thread.values(owner, samples, samples + random.u64(..3), idleness);
        }
    }
    thread
}

/// A random run of `threads` threads with about `records` notes each.
pub fn run(seed: u64, threads: u32, records: u64) -> Run {
    run_with(seed, threads, threads, records)
}

/// The same, whose threads know nothing of each other.
pub fn run_without_anchors(seed: u64, threads: u32, records: u64) -> Run {
    run_with(seed, threads, 0, records)
}

fn run_with(seed: u64, threads: u32, targets: u32, records: u64) -> Run {
    let mut random = Rng::with_seed(seed);
    let mut run = program::run();
    let thread = |ordinal| thread(&mut random, ordinal, targets, records);
    run.threads = (1..=threads).map(thread).collect();
    run
}
