//! Queues of strands in memory that the processes of a host share: one for each sender and receiver.
//!
//! A queue is a ring of lines of 64 bytes. An entry takes as many as it has savings for. Its first word is
//! one more than the number of its first line since the start, and is written last: so the receiver reads an
//! entry without reading anything else of the sender's. The receiver says now and then how far it is, and the
//! sender looks when there seems to be no room.
//!
//! Invariants: one thread at a time sends, and one receives (the job's lock, in each process). A line is
//! written only after the receiver has said that it is behind it. All shared words are atomics.

use crate::matching::Arrived;
use hpcrun_abi::Saving;
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = 8;
/// Bytes of a line.
const LINE: usize = WORDS * size_of::<u64>();
/// The words of an entry before its savings.
const HEAD: usize = 6;
/// Bits of a session's number.
const SESSION: u64 = 0xff_ffff;

/// One queue, as one of its ends sees it.
#[derive(Debug)]
pub(crate) struct Ring {
    /// The receiver's position; the lines follow.
    shared: *const AtomicU64,
    lines: u64,
    /// Lines that were sent, or received.
    position: u64,
    /// The receiver's position as it was last known to the sender, or said to it.
    known: u64,
}

// SAFETY: the memory is shared between processes anyway, by atomics; the rest is numbers.
unsafe impl Send for Ring {}

impl Ring {
    /// Bytes of a queue of so many lines.
    pub(crate) const fn bytes(lines: usize) -> usize {
        (lines + 1) * LINE
    }

    /// A queue of so many lines, a power of two.
    ///
    /// # Safety
    /// Zeros at first, aligned to lines, and never unmapped. At most one ring for each end.
    pub(crate) unsafe fn new(shared: *const u8, lines: usize) -> Ring {
        Ring {
            shared: shared.cast(),
            lines: lines as u64,
            position: 0,
            known: 0,
        }
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: indices are below the number of words (see the callers); the memory stays (`new`).
        unsafe { &*self.shared.add(index) }
    }

    /// A word of an entry that begins at a position.
    #[inline]
    fn word_of(&self, position: u64, word: usize) -> &AtomicU64 {
        let line = (position + (word / WORDS) as u64) & (self.lines - 1);
        self.word((line as usize + 1) * WORDS + word % WORDS)
    }

    /// Sends; false: there is no room.
    #[inline]
    pub(crate) fn send(&mut self, arrived: &Arrived) -> bool {
        let strand = &arrived.strand;
        let count = (strand.count as usize).min(strand.savings.len());
        let lines = (HEAD + 2 * count).div_ceil(WORDS) as u64;
        if self.position + lines - self.known > self.lines {
            self.known = self.word(0).load(Ordering::Acquire);
            if self.position + lines - self.known > self.lines {
                return false;
            }
        }
        let put = |word, value| {
            self.word_of(self.position, word)
                .store(value, Ordering::Relaxed)
        };
        put(1, arrived.comm);
        let session = u64::from(strand.session) & SESSION;
        put(
            2,
            u64::from(arrived.tag as u32) << 32 | session << 8 | count as u64,
        );
        put(3, strand.length);
        put(4, strand.burdened);
        put(5, u64::from(strand.rank) << 32 | u64::from(strand.export));
        for (index, saving) in strand.savings[..count].iter().enumerate() {
            put(HEAD + 2 * index, saving.procedure);
            put(HEAD + 2 * index + 1, saving.time);
        }
        // At the begin of any other line is the number of an entry of an earlier round, which is less than
        // any that the receiver expects there, or a procedure's, which is a hash and never that small.
        let number = self.word_of(self.position, 0);
        number.store(self.position + 1, Ordering::Release);
        self.position += lines;
        true
    }

    /// Receives, if there is something; of the savings, only those that count.
    #[inline]
    pub(crate) fn receive(&mut self, into: &mut Arrived) -> bool {
        let number = self.word_of(self.position, 0).load(Ordering::Acquire);
        if number != self.position + 1 {
            return false;
        }
        let get = |word| self.word_of(self.position, word).load(Ordering::Relaxed);
        let (tag, origin) = (get(2), get(5));
        (into.comm, into.tag) = (get(1), (tag >> 32) as i32);
        let strand = &mut into.strand;
        (strand.length, strand.burdened) = (get(3), get(4));
        (strand.rank, strand.export) = ((origin >> 32) as u32, origin as u32);
        strand.session = (tag >> 8 & SESSION) as u32;
        strand.count = (tag as u32 & 0xff).min(hpcrun_abi::SAVINGS as u32);
        let count = strand.count as usize;
        for (index, saving) in strand.savings[..count].iter_mut().enumerate() {
            *saving = Saving {
                procedure: get(HEAD + 2 * index),
                time: get(HEAD + 2 * index + 1),
            };
        }
        self.position += (HEAD + 2 * count).div_ceil(WORDS) as u64;
        if self.position - self.known > self.lines / 4 {
            self.known = self.position;
            self.word(0).store(self.position, Ordering::Release);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hpcrun_abi::RemoteStrand;

    fn arrived(number: u64) -> Arrived {
        let mut strand = RemoteStrand {
            length: number * 1000,
            burdened: number * 1001,
            rank: 3,
            export: number as u32,
            session: 1,
            count: (number * 7 % 9) as u32,
            ..RemoteStrand::default()
        };
        for saving in &mut strand.savings[..(number * 7 % 9) as usize] {
            *saving = Saving {
                procedure: 1 << 60 | number,
                time: number,
            };
        }
        Arrived {
            comm: number,
            tag: -(number as i32),
            strand,
        }
    }

    /// A sender and a receiver, each as fast as it can, in a ring of a few entries.
    #[test]
    fn what_is_sent_is_received_in_order() {
        const ENTRIES: u64 = 20_000;
        let memory: Vec<[AtomicU64; WORDS]> = (0..9).map(|_| Default::default()).collect();
        // SAFETY: zeros that live longer than both ends; alignment matters for speed alone.
        let end = || unsafe { Ring::new(memory.as_ptr().cast(), memory.len() - 1) };
        let (mut sender, mut receiver) = (end(), end());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..ENTRIES {
                    while !sender.send(&arrived(number)) {
                        std::thread::yield_now();
                    }
                }
            });
            for number in 0..ENTRIES {
                let mut received = Arrived::default();
                while !receiver.receive(&mut received) {
                    std::thread::yield_now();
                }
                assert_eq!(received, arrived(number));
            }
        });
        assert!(!receiver.receive(&mut Arrived::default()));
    }

    #[test]
    fn a_full_ring_refuses_and_goes_on() {
        let memory: Vec<[AtomicU64; WORDS]> = (0..5).map(|_| Default::default()).collect();
        // SAFETY: as above.
        let end = || unsafe { Ring::new(memory.as_ptr().cast(), memory.len() - 1) };
        let (mut sender, mut receiver) = (end(), end());
        let empty = |number| Arrived {
            strand: RemoteStrand::default(),
            ..arrived(number)
        };
        let sent = (0..9)
            .take_while(|number| sender.send(&empty(*number)))
            .count();
        assert_eq!(sent, 4);
        let mut received = Arrived::default();
        for number in 0..4 {
            assert!(receiver.receive(&mut received));
            assert_eq!(received, empty(number));
        }
        assert!(!receiver.receive(&mut received));
        assert!(sender.send(&empty(4)) && receiver.receive(&mut received));
        assert_eq!(received, empty(4));
    }
}
