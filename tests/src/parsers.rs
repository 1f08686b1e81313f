//! What a parser must do with any bytes: return, and hand out only data that keeps its invariants.
//!
//! Input: bytes. Each function here is the body of a fuzz target (`fuzz/`) and of the bounded
//! mutation runs (`tests/mutations.rs`). They panic when a parser breaks its contract.

use hpc_formats::critical_path::CriticalPath;
use hpc_formats::process::Process;
use hpc_formats::profile::{MAX_METRICS, Profile, Record, VALUES_PER_RECORD};
use hpc_formats::structure::Structure;
use hpc_formats::trace::Trace;
use hpcstruct_rs::code::loops_of_bytes;
use hpcstruct_rs::{Options, analyse_bytes};

/// A thread's profile: every record that is handed out has its parent before it, and every value a metric.
pub fn profile(data: &[u8]) {
    let Ok(profile) = Profile::parse(data) else {
        return;
    };
    assert!(profile.header.period_ns > 0);
    for index in 0..profile.len() {
        match profile.record(index) {
            Some(Record::Root) => assert_eq!(index, 0, "one root"),
            Some(Record::Note { parent, .. }) => assert!((parent as usize) < index),
            Some(Record::Metric { owner, group, values }) => {
                assert!((owner as usize) < index);
                let metrics = &profile.header.metrics[VALUES_PER_RECORD * group as usize..];
                assert!(!metrics.is_empty() && metrics.len() <= MAX_METRICS);
                let mut amounts = metrics.iter().zip(values).map(|(m, word)| m.amount(word));
                assert!(amounts.all(|amount| amount >= 0.0));
            }
            Some(Record::Entry | Record::Anchor { .. } | Record::Partial { .. }) => {
                assert!(index > 0);
            }
            None => {}
        }
    }
    assert_eq!(profile.record(profile.len()), None);
}

/// Process files, one behind the other.
pub fn process(data: &[u8]) {
    for process in Process::parse_all(data).into_iter().flatten() {
        assert!(process.modules.len() <= data.len() && process.sites.len() <= data.len());
    }
}

/// A critical path: it is what is written again.
pub fn critical_path(data: &[u8]) {
    if let Ok(path) = CriticalPath::decode(data) {
        assert_eq!(CriticalPath::decode(&path.encode()), Ok(path));
    }
}

/// A trace: the times of a block do not go back, and nothing follows an event that makes no sense.
pub fn trace(data: &[u8]) {
    let Ok(trace) = Trace::parse(data) else { return };
    assert!(trace.period_ns > 0 && trace.blocks.len() <= data.len());
    for block in &trace.blocks {
        let mut time = block.time;
        let mut events = block.events();
        while let Some(Some((at, _))) = events.next() {
            assert!(at >= time && block.thread > 0);
            time = at;
        }
        assert_eq!(events.next(), None);
    }
}

/// A structure file.
pub fn structure(data: &[u8]) {
    if let Ok(structure) = Structure::decode(data) {
        assert_structure(&structure);
    }
}

/// A binary under analysis.
pub fn analyse(data: &[u8]) {
    let options = Options { threads: 1, debug_directories: Vec::new(), ..Options::default() };
    if let Ok(structure) = analyse_bytes("fuzzed", data, &options) {
        assert_structure(&structure);
    }
}

/// Debug information in an ELF file with sound headers: bytes as [`crate::elf::unpack`] takes
/// them. Nearly every mutant gets as far as the parsers of DWARF and of unwind tables.
pub fn debug_information(data: &[u8]) {
    let file = crate::elf::unpack(data);
    let options = Options { threads: 1, debug_directories: Vec::new(), ..Options::default() };
    let structure = analyse_bytes("fuzzed", &file, &options).expect("the headers are sound");
    assert_structure(&structure);
}

/// Machine code, at an address that the first byte chooses.
pub fn code(data: &[u8]) {
    let base = match data.first() {
        Some(0) => 0,
        Some(255) => u64::MAX - data.len() as u64,
        _ => 0x40_1000,
    };
    let end = base + data.len() as u64;
    let found = loops_of_bytes(base, data);
    for (index, one) in found.loops.iter().enumerate() {
        assert!(one.parent.is_none_or(|parent| (parent as usize) < index));
        assert!((base..end).contains(&one.header));
    }
    let mut after = base;
    for region in &found.regions {
        assert!(region.range.start >= after && region.range.end <= end);
        assert!(region.range.start < region.range.end, "sorted regions");
        assert!((region.inner as usize) < found.loops.len());
        after = region.range.end;
    }
}

/// The invariants that `Structure`'s documentation states.
fn assert_structure(structure: &Structure) {
    for (index, scope) in structure.scopes.iter().enumerate() {
        assert!((scope.procedure.0 as usize) < structure.procedures.len());
        assert!(scope.parent.is_none_or(|parent| (parent.0 as usize) < index));
    }
    let mut end = 0;
    for span in &structure.spans {
        assert!(span.start >= end && span.end > span.start, "sorted spans");
        assert!((span.procedure.0 as usize) < structure.procedures.len());
        assert!(structure.scope_chain(span).len() <= structure.scopes.len());
        end = span.end;
    }
}
