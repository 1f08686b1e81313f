//! Queues of strands in memory that the processes of a host share: one for each sender and receiver.
//!
//! A queue is a ring of lines of 64 bytes; an entry usually takes one. The first word of its first line is
//! one more than the number of that line since the start, and is written last: so the receiver reads an entry
//! without reading anything else of the sender's. The receiver says now and then how far it is, and the
//! sender looks when there seems to be no room. If there is none, the sender closes the queue, and strands
//! then go another way.
//!
//! Invariants: one thread at a time sends, and one receives (the job's state, in each process). A line is
//! written only after the receiver has said that it is behind it. All shared words are atomics. The first
//! word of a line that begins no entry is an earlier entry's, which is less than any that is expected there.

use crate::matching::Arrived;
use hpcrun_abi::{RemoteStrand, SAVINGS, Saving};
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = 8;
type Line = [AtomicU64; WORDS];
/// Words of data in a line.
const DATA: usize = WORDS - 1;
/// Odd, so that all positions have lines of their own.
const SPREAD: u64 = 0x25d;
/// Words of data in an entry before its savings.
const HEAD: usize = 5;

/// One queue, as one of its ends sees it.
#[derive(Debug)]
pub(crate) struct Ring {
    /// A line with the receiver's position, and whether the queue is closed; the lines of entries follow.
    shared: &'static [Line],
    /// Lines that were sent, or received.
    position: u64,
    /// The receiver's position as it was last known to the sender, or said to it.
    known: u64,
    /// The last entry that was received.
    entry: Arrived,
}

/// What a receiver finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Entry,
    Nothing,
    /// Nothing, and nothing will come.
    Closed,
}

/// Lines of an entry with so many savings.
fn lines(savings: usize) -> u64 {
    (HEAD + 2 * savings).div_ceil(DATA) as u64
}

impl Ring {
    /// Bytes of a queue of so many lines.
    pub(crate) const fn bytes(lines: usize) -> usize {
        (lines + 1) * size_of::<Line>()
    }

    /// A queue of so many lines, a power of two, in which this rank sends.
    ///
    /// # Safety
    /// Zeros at first, aligned to lines, and never unmapped. At most one ring for each end.
    pub(crate) unsafe fn new(shared: *const u8, lines: usize, sender: u32) -> Ring {
        let mut entry = Arrived::default();
        entry.strand.rank = sender;
        Ring {
            // SAFETY: the memory has a line more, see `bytes`; the caller's promise.
            shared: unsafe { std::slice::from_raw_parts(shared.cast(), lines + 1) },
            position: 0,
            known: 0,
            entry,
        }
    }

    /// The line at a position. Lines that follow each other are far apart: a message takes less time so,
    /// perhaps since the receiver's processor does not fetch the next line too early.
    #[inline]
    fn line(&self, position: u64) -> &'static Line {
        let last = self.shared.len() as u64 - 2;
        &self.shared[(position.wrapping_mul(SPREAD) & last) as usize + 1]
    }

    /// A word of data of the entry at the position.
    fn data(&self, word: usize) -> &AtomicU64 {
        &self.line(self.position + (word / DATA) as u64)[1 + word % DATA]
    }

    fn has_room(&self, lines: u64) -> bool {
        self.position + lines - self.known < self.shared.len() as u64
    }

    /// Sends; false: there is no room.
    #[inline]
    pub(crate) fn send(&mut self, comm: u64, tag: i32, strand: &RemoteStrand) -> bool {
        let savings = &strand.savings[..SAVINGS.min(strand.count as usize)];
        let lines = lines(savings.len());
        if !self.has_room(lines) {
            self.known = self.shared[0][0].load(Ordering::Acquire);
            if !self.has_room(lines) {
                return false;
            }
        }
        let head: [u64; HEAD] = [
            comm,
            u64::from(tag as u32) << 32 | u64::from(strand.export),
            strand.length,
            strand.burdened,
            u64::from(strand.session) << 32 | savings.len() as u64,
        ];
        let line = self.line(self.position);
        for (word, value) in line[1..].iter().zip(head) {
            word.store(value, Ordering::Relaxed);
        }
        if !savings.is_empty() {
            self.put(savings);
        }
        line[0].store(self.position + 1, Ordering::Release);
        self.position += lines;
        let next = self.line(self.position);
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

    /// Puts the savings into the entry at the position.
    #[inline(never)]
    fn put(&self, savings: &[Saving]) {
        for (place, saving) in savings.iter().enumerate() {
            let put = |word, value| self.data(HEAD + 2 * place + word).store(value, Ordering::Relaxed);
            put(0, saving.procedure);
            put(1, saving.time);
        }
    }

    /// Sends nothing any more.
    pub(crate) fn close(&self) {
        self.shared[0][1].store(1, Ordering::Release);
    }

    /// What was sent before is there.
    fn is_closed(&self) -> bool {
        self.shared[0][1].load(Ordering::Acquire) != 0
    }

    /// What was received last; of the savings, those that count.
    #[inline]
    pub(crate) fn entry(&self) -> &Arrived {
        &self.entry
    }

    /// Receives, if there is something.
    #[inline]
    pub(crate) fn receive(&mut self) -> Next {
        let line = self.line(self.position);
        let is_there = || line[0].load(Ordering::Acquire) == self.position + 1;
        if !is_there() {
            match self.is_closed() {
                false => return Next::Nothing,
                // It may have been closed since.
                true if !is_there() => return Next::Closed,
                true => {}
            }
        }
        let head: [u64; HEAD] = std::array::from_fn(|word| line[1 + word].load(Ordering::Relaxed));
        let [comm, tag, length, burdened, session] = head;
        (self.entry.comm, self.entry.tag) = (comm, (tag >> 32) as i32);
        let strand = &mut self.entry.strand;
        (strand.length, strand.burdened) = (length, burdened);
        (strand.session, strand.export) = ((session >> 32) as u32, tag as u32);
        strand.count = (session as u32).min(SAVINGS as u32);
        let savings = strand.count as usize;
        if savings != 0 {
            self.take(savings);
        }
        self.position += lines(savings);
        if self.position - self.known > self.shared.len() as u64 / 4 {
            self.known = self.position;
            self.shared[0][0].store(self.position, Ordering::Release);
        }
        Next::Entry
    }

    /// Takes so many savings from the entry at the position.
    #[inline(never)]
    fn take(&mut self, savings: usize) {
        for place in 0..savings {
            let get = |word| self.data(HEAD + 2 * place + word).load(Ordering::Relaxed);
            self.entry.strand.savings[place] = Saving { procedure: get(0), time: get(1) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With up to eight savings.
    fn arrived(number: u64) -> Arrived {
        let content = number / 2;
        let mut strand = RemoteStrand {
            length: number * 1000,
            burdened: number * 1001,
            export: number as u32,
            session: 1,
            count: (content * 7 % 9) as u32,
            ..RemoteStrand::default()
        };
        let count = strand.count as usize;
        for (at, saving) in strand.savings[..count].iter_mut().enumerate() {
            *saving = Saving { procedure: (1 << 60) | (content / 100), time: content / (at as u64 + 1) };
        }
        Arrived { comm: number, tag: -(number as i32), strand }
    }

    fn send(sender: &mut Ring, arrived: &Arrived) -> bool {
        sender.send(arrived.comm, arrived.tag, &arrived.strand)
    }

    /// What was received last, with savings that count alone.
    fn received(receiver: &Ring) -> Arrived {
        let mut entry = *receiver.entry();
        entry.strand.savings[entry.strand.count as usize..].fill(Saving::default());
        entry
    }

    /// A sender and a receiver, each as fast as it can, in a ring of a few entries.
    #[test]
    fn what_is_sent_is_received_in_order() {
        const ENTRIES: u64 = 20_000;
        let memory: Vec<[AtomicU64; WORDS]> = (0..9).map(|_| Default::default()).collect();
        // SAFETY: zeros that live longer than both ends; alignment matters for speed alone.
        let end = || unsafe { Ring::new(memory.as_ptr().cast(), memory.len() - 1, 0) };
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
                while receiver.receive() != Next::Entry {
                    std::thread::yield_now();
                }
                let sent = arrived(number);
                assert_eq!(received(&receiver), sent);
            }
        });
        assert_eq!(receiver.receive(), Next::Nothing);
    }

    #[test]
    fn a_full_ring_refuses_and_goes_on() {
        let memory: Vec<[AtomicU64; WORDS]> = (0..5).map(|_| Default::default()).collect();
        // SAFETY: as above.
        let end = || unsafe { Ring::new(memory.as_ptr().cast(), memory.len() - 1, 0) };
        let (mut sender, mut receiver) = (end(), end());
        let empty = |number| Arrived { strand: RemoteStrand::default(), ..arrived(number) };
        let sent = (0..9).take_while(|number| send(&mut sender, &empty(*number))).count();
        assert_eq!(sent, 4);
        for number in 0..4 {
            assert_eq!(receiver.receive(), Next::Entry);
            assert_eq!(received(&receiver), empty(number));
        }
        assert_eq!(receiver.receive(), Next::Nothing);
        assert!(send(&mut sender, &empty(4)) && receiver.receive() == Next::Entry);
        assert_eq!(received(&receiver), empty(4));
        assert!(send(&mut sender, &empty(5)));
        sender.close();
        assert_eq!(receiver.receive(), Next::Entry);
        assert_eq!(receiver.receive(), Next::Closed);
    }
}
