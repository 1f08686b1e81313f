//! Queues of strands in memory that the processes of a host share: one for each sender and receiver.
//!
//! A queue is a ring of lines of 64 bytes; an entry usually takes one. The first word of its first line is
//! one more than the number of that line since the start, and is written last: so the receiver reads an entry
//! without reading anything else of the sender's. Of the savings, an entry has those that are not as in the
//! entry before. The receiver says now and then how far it is, and the sender looks when there seems to be no
//! room. If there is none, the sender closes the queue, and strands go another way from then on.
//!
//! Invariants: one thread at a time sends, and one receives (the job's state, in each process). A line is
//! written only after the receiver has said that it is behind it. All shared words are atomics. The first
//! word of a line that begins no entry is an earlier entry's, which is less than any that is expected there.

use crate::matching::Arrived;
use hpcrun_abi::{RemoteStrand, SAVINGS, Saving};
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = 8;
/// Bytes of a line.
const LINE: usize = WORDS * size_of::<u64>();
/// Words of data in a line.
const DATA: usize = WORDS - 1;
/// Words of data in an entry before its savings.
const HEAD: usize = 5;

/// One queue, as one of its ends sees it.
#[derive(Debug)]
pub(crate) struct Ring {
    /// A line with the receiver's position, and whether the queue is closed; the lines of entries follow.
    shared: *const AtomicU64,
    lines: u64,
    /// Lines that were sent, or received.
    position: u64,
    /// The receiver's position as it was last known to the sender, or said to it.
    known: u64,
    /// The savings of the last entry.
    last: [Saving; SAVINGS],
}

// SAFETY: the memory is shared between processes anyway, by atomics; the rest is numbers.
unsafe impl Send for Ring {}

/// Lines of an entry with so many savings.
fn lines(savings: u32) -> u64 {
    (HEAD + 2 * savings as usize).div_ceil(DATA) as u64
}

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
            last: Default::default(),
        }
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: indices are below the number of words (see the callers); the memory stays (`new`).
        unsafe { &*self.shared.add(index) }
    }

    /// The first word of the line at a position.
    #[inline]
    fn first(&self, position: u64) -> usize {
        ((position & (self.lines - 1)) as usize + 1) * WORDS
    }

    /// A word of data of the entry at the position.
    #[inline]
    fn data(&self, word: usize) -> &AtomicU64 {
        self.word(self.first(self.position + (word / DATA) as u64) + 1 + word % DATA)
    }

    fn has_room(&self, lines: u64) -> bool {
        self.position + lines - self.known <= self.lines
    }

    /// Sends; false: there is no room.
    #[inline]
    pub(crate) fn send(&mut self, comm: u64, tag: i32, strand: &RemoteStrand) -> bool {
        let savings = &strand.savings[..SAVINGS.min(strand.count as usize)];
        let changed = savings.iter().zip(&self.last).enumerate();
        let changed = changed.fold(0, |all, (at, (new, old))| all | u64::from(new != old) << at);
        let lines = lines(changed.count_ones());
        if !self.has_room(lines) {
            self.known = self.word(0).load(Ordering::Acquire);
            if !self.has_room(lines) {
                return false;
            }
        }
        let put = |word, value| self.data(word).store(value, Ordering::Relaxed);
        put(0, comm);
        put(1, u64::from(tag as u32) << 32 | u64::from(strand.export));
        put(2, strand.length);
        put(3, strand.burdened);
        put(
            4,
            u64::from(strand.session) << 32 | (savings.len() as u64) << 16 | changed,
        );
        for (place, at) in ones(changed).enumerate() {
            put(HEAD + 2 * place, savings[at].procedure);
            put(HEAD + 2 * place + 1, savings[at].time);
        }
        self.last[..savings.len()].copy_from_slice(savings);
        let number = self.word(self.first(self.position));
        number.store(self.position + 1, Ordering::Release);
        self.position += lines;
        let next = self.word(self.first(self.position));
        // The message's own words must not wait for the line of the next entry.
        // SAFETY: a hint.
        unsafe {
            core::arch::asm!(
                "prefetchw [{}]",
                in(reg) next,
                options(nostack, preserves_flags, readonly)
            );
        }
        true
    }

    /// Sends nothing any more.
    pub(crate) fn close(&self) {
        self.word(1).store(1, Ordering::Release);
    }

    /// What was sent before is there.
    pub(crate) fn is_closed(&self) -> bool {
        self.word(1).load(Ordering::Acquire) != 0
    }

    /// Receives, if there is something; of the savings, only those that count, and not who has sent it.
    #[inline]
    pub(crate) fn receive(&mut self, into: &mut Arrived) -> bool {
        let number = self.word(self.first(self.position));
        if number.load(Ordering::Acquire) != self.position + 1 {
            return false;
        }
        let get = |word| self.data(word).load(Ordering::Relaxed);
        let (tag, session) = (get(1), get(4));
        (into.comm, into.tag) = (get(0), (tag >> 32) as i32);
        let strand = &mut into.strand;
        (strand.length, strand.burdened) = (get(2), get(3));
        (strand.session, strand.export) = ((session >> 32) as u32, tag as u32);
        strand.count = (session as u32 >> 16).min(SAVINGS as u32);
        let changed = session & 0xffff;
        for (place, at) in ones(changed).enumerate() {
            self.last[at] = Saving {
                procedure: self.data(HEAD + 2 * place).load(Ordering::Relaxed),
                time: self.data(HEAD + 2 * place + 1).load(Ordering::Relaxed),
            };
        }
        let count = strand.count as usize;
        strand.savings[..count].copy_from_slice(&self.last[..count]);
        self.position += lines(changed.count_ones());
        if self.position - self.known > self.lines / 4 {
            self.known = self.position;
            self.word(0).store(self.position, Ordering::Release);
        }
        true
    }
}

/// The numbers of the bits that are set.
#[inline]
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let one = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        one
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(number: u64) -> Arrived {
        let mut strand = RemoteStrand {
            length: number * 1000,
            burdened: number * 1001,
            export: number as u32,
            session: 1,
            count: (number * 7 % 9) as u32,
            ..RemoteStrand::default()
        };
        // Some of them as before.
        for (at, saving) in strand.savings[..(number * 7 % 9) as usize]
            .iter_mut()
            .enumerate()
        {
            *saving = Saving {
                procedure: (1 << 60) | (number / 100),
                time: number / (at as u64 + 1),
            };
        }
        Arrived {
            comm: number,
            tag: -(number as i32),
            strand,
        }
    }

    fn send(sender: &mut Ring, arrived: &Arrived) -> bool {
        sender.send(arrived.comm, arrived.tag, &arrived.strand)
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
                    while !send(&mut sender, &arrived(number)) {
                        std::thread::yield_now();
                    }
                }
            });
            for number in 0..ENTRIES {
                // Savings that do not count stay.
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
            .take_while(|number| send(&mut sender, &empty(*number)))
            .count();
        assert_eq!(sent, 4);
        let mut received = Arrived::default();
        for number in 0..4 {
            assert!(receiver.receive(&mut received));
            assert_eq!(received, empty(number));
        }
        assert!(!receiver.receive(&mut received));
        assert!(send(&mut sender, &empty(4)) && receiver.receive(&mut received));
        assert_eq!(received, empty(4));
        assert!(!receiver.is_closed());
        sender.close();
        assert!(receiver.is_closed());
    }
}
