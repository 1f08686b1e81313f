//! Traces to read in tests.

#![allow(unreachable_pub, missing_docs)]

use hpc_formats::trace::{
    BLOCK_HEADER_SIZE, BLOCK_SIZE, Event, KIND, Last, MAX_EVENT, State, block, encode, header,
};

/// Makes a trace in memory, as the sampler does in a file.
#[derive(Clone, Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    last: Last,
}

impl Writer {
    /// A trace without blocks.
    pub fn new(pid: u32, image: u64, period_ns: u64) -> Writer {
        let mut bytes = vec![0; BLOCK_SIZE];
        let fields: [(usize, &[u8]); 5] = [
            (header::MAGIC, &KIND.magic),
            (header::VERSION, &KIND.version().to_le_bytes()),
            (header::PID, &pid.to_le_bytes()),
            (header::IMAGE, &image.to_le_bytes()),
            (header::PERIOD_NS, &period_ns.to_le_bytes()),
        ];
        for (at, field) in fields {
            bytes[at..at + field.len()].copy_from_slice(field);
        }
        Writer { bytes, last: Last { time: 0, context: 0 } }
    }

    /// Begins a block of a thread, which is in this state.
    pub fn begin(&mut self, thread: u32, time: u64, state: State) {
        let at = self.bytes.len();
        let sequence = (at / BLOCK_SIZE - 1) as u64;
        self.bytes.resize(at + BLOCK_SIZE, 0);
        self.last = Last { time, context: 0 };
        let mut set =
            |offset: usize, field: &[u8]| self.bytes[at + offset..][..field.len()].copy_from_slice(field);
        set(block::TIME, &time.to_le_bytes());
        set(block::SEQUENCE, &sequence.to_le_bytes());
        set(block::THREAD, &thread.to_le_bytes());
        set(block::STATE, &[state as u8]);
    }

    /// Adds an event to the last block. False: it is full.
    pub fn add(&mut self, time: u64, event: Event) -> bool {
        let at = self.bytes.len() - BLOCK_SIZE;
        let used =
            self.bytes[at + block::USED..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b)) as usize;
        let (mut bytes, mut last) = ([0; MAX_EVENT], self.last);
        let n = encode(time, event, &mut last, &mut bytes);
        if BLOCK_HEADER_SIZE + used + n > BLOCK_SIZE {
            return false;
        }
        self.last = last;
        self.bytes[at + BLOCK_HEADER_SIZE + used..][..n].copy_from_slice(&bytes[..n]);
        self.bytes[at + block::USED..][..4].copy_from_slice(&((used + n) as u32).to_le_bytes());
        true
    }

    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}
