//! What is written as a trace is read, in few bytes, and damage is told.

#[path = "support/writer.rs"]
mod writer;

use hpc_formats::critical_path::Edge;
use hpc_formats::trace::{
    BLOCK_HEADER_SIZE, BLOCK_SIZE, Event, Followed, Last, MAX_EVENT, State, Trace, block, encode,
};
use writer::Writer;

const EVENTS: [(u64, Event); 11] = [
    (1000, Event::Sample { state: State::Works, weight: 1, context: 7 }),
    (1001, Event::Sample { state: State::Works, weight: 1, context: 7 }),
    (1_001_001, Event::Sample { state: State::Works, weight: 1, context: 3 }),
    (1_001_001, Event::Sample { state: State::Works, weight: 70_000, context: u32::MAX }),
    (1 << 61, Event::Change(State::Waits)),
    (1 << 61, Event::Waited(9)),
    (1 << 61, Event::Sent(u32::MAX)),
    (1 << 61, Event::Received { is_path: true, rank: 3, export: 1 << 20 }),
    (1 << 61, Event::Followed(Followed { edge: Edge::Folded, is_path: true, from: 7, ago: 1 << 60 })),
    (1 << 61, Event::Sample { state: State::Spins, weight: u64::MAX, context: 0 }),
    (1 << 61, Event::Change(State::Ended)),
];

fn trace() -> Vec<u8> {
    let mut writer = Writer::new(5, 6, 1_000_000);
    writer.begin(2, 900, State::Works);
    assert!(EVENTS.iter().all(|(time, event)| writer.add(*time, *event)));
    writer.begin(1, 800, State::Idle);
    assert!(writer.add(801, Event::Change(State::Works)));
    writer.finish()
}

#[test]
fn what_is_written_is_read() {
    let bytes = trace();
    let trace = Trace::parse(&bytes).unwrap();
    assert_eq!((trace.pid, trace.image, trace.period_ns, trace.damaged), (5, 6, 1_000_000, 0));
    let [first, second] = trace.blocks[..] else { panic!("{trace:?}") };
    assert_eq!((first.thread, first.time, first.state), (1, 800, State::Idle));
    assert_eq!(second.events().collect::<Option<Vec<_>>>().unwrap(), EVENTS);
}

#[test]
fn a_sample_at_a_thousand_hertz_takes_at_most_eight_bytes() {
    let mut last = Last { time: 0, context: 0 };
    let mut sizes = (1..1000_u64).map(|i| {
        let context = (i * 7919 % 30_000) as u32;
        let event = Event::Sample { state: State::Works, weight: 1, context };
        encode(i * 1_300_000, event, &mut last, &mut [0; MAX_EVENT])
    });
    assert!(sizes.all(|bytes| bytes <= 7));
}

#[test]
fn damage_is_told() {
    let good = trace();
    let told = |bytes: &[u8]| Trace::parse(bytes).expect_err("damaged").to_string();
    let short = told(&good[..BLOCK_SIZE - 1]);
    assert!(short.starts_with("trace truncated: 1023 of 1024 bytes: use the hpcprof-rs of"), "{short}");
    let damaged = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    assert_eq!(told(&damaged(0, 0)), "not a trace: wrong first bytes");
    assert!(told(&damaged(8, 9)).starts_with("trace of version 9.0 is not readable by this version (2.x)"));
    assert!(told(&Writer::new(5, 6, 0).finish()).starts_with("trace damaged (a period of 0)"));
    let bytes = damaged(BLOCK_SIZE + block::STATE, 77);
    assert!(Trace::parse(&bytes).is_ok_and(|t| t.damaged == 1 && t.blocks.len() == 1));
    // The first event's kind is now one that has a state.
    let bytes = damaged(BLOCK_SIZE + BLOCK_HEADER_SIZE, 0x83);
    let trace = Trace::parse(&bytes).unwrap();
    assert!(trace.blocks[1].events().any(|event| event.is_none()));
}
