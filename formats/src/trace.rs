//! The trace of one process image: what each thread did when, in a ring of blocks that keeps the newest.
//!
//! The file is a shared mapping, written while the program runs, so it is complete up to a kill. Block 0 is
//! the header. Each other block has events of one thread, each some bytes: the time since the one before, and
//! what changed. A block begins with the absolute time and the thread's state, so it is read without those
//! before it. Its count of bytes is raised after an event is complete. FORMATS.md has the byte tables.
//!
//! [`encode`] is async-signal-safe: the sampler's handler calls it.

use crate::bytes::{ByteReader, apart, difference};
use crate::critical_path::Edge;
use crate::error::{FileError, Kind};
use crate::numbered;

pub static KIND: Kind = Kind::measured("trace", *b"HPCRSTRC", 2);
/// Extension of traces.
pub const EXTENSION: &str = "hpctrace";
/// Bytes of a block.
pub const BLOCK_SIZE: usize = 1024;
/// Bytes before a block's events.
pub const BLOCK_HEADER_SIZE: usize = 32;
/// Most bytes of an event.
pub const MAX_EVENT: usize = 32;

/// Byte offsets of the header's fields.
pub mod header {
    /// Of [`super::KIND`].
    pub const MAGIC: usize = 0;
    /// u16 major, u16 minor version.
    pub const VERSION: usize = 8;
    /// u32 process id.
    pub const PID: usize = 12;
    /// u64 monotonic clock at the start of the process image.
    pub const IMAGE: usize = 16;
    /// u64 sampling period, nanoseconds.
    pub const PERIOD_NS: usize = 24;
    /// u64 blocks that newer ones have replaced.
    pub const REPLACED: usize = 32;
    /// u64 events that found no room, or came while their thread wrote another one.
    pub const LOST: usize = 40;
}

/// Byte offsets of the fields of a block.
pub mod block {
    /// u64 monotonic clock that the first event counts from, nanoseconds.
    pub const TIME: usize = 0;
    /// u64 position among all blocks that were begun.
    pub const SEQUENCE: usize = 8;
    /// u32 ordinal of the thread.
    pub const THREAD: usize = 16;
    /// u32 context of the last sample before, 0: none.
    pub const CONTEXT: usize = 20;
    /// u32 bytes of events.
    pub const USED: usize = 24;
    /// u8 the thread's state before the first event.
    pub const STATE: usize = 28;
    /// u8 1 while a thread writes it.
    pub const OPEN: usize = 29;
}

numbered! {
    /// What a thread does.
    State {
        /// It works, as far as is known.
        Works = 1, "works";
        /// It waits for a lock, a thread, a device, a message or a time.
        Waits = 2, "waits";
        /// It waits for a task, in a runtime.
        Idle = 3, "idle";
        /// It uses a core and has nothing to do.
        Spins = 4, "spins";
        Ended = 5, "ended";
    }
}

/// What happened. Contexts are indices of records in the thread's profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Samples found the thread in this state; they stand for so many periods. A context if it works.
    Sample {
        state: State,
        /// Number of periods.
        weight: u64,
        /// The context; 0: none.
        context: u32,
    },
    /// From now on the state is this.
    Change(State),
    /// The wait that ended last was in this context.
    Waited(u32),
    /// The thread has waited for an event of another moment.
    Followed(Followed),
    /// A message with this export has left the thread.
    Sent(u32),
    /// The thread has received one of another process.
    Received {
        /// The critical path of what follows comes this way.
        is_path: bool,
        /// The sender's rank.
        rank: u32,
        /// The number of its export.
        export: u32,
    },
}

/// What a thread has waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Followed {
    pub edge: Edge,
    /// The critical path of what follows comes this way.
    pub is_path: bool,
    /// Ordinal of the thread that it has waited for.
    pub from: u32,
    /// How long ago that was, nanoseconds.
    pub ago: u64,
}

/// What an event is relative to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Last {
    /// Monotonic clock, nanoseconds.
    pub time: u64,
    /// The context of the last event that has one.
    pub context: u32,
}

const AGAIN: u64 = 0;
const ELSEWHERE: u64 = 1;
const SAMPLE: u64 = 2;
const OTHER: u64 = 3;
/// In the place of a state: [`Event::Waited`].
const WAITED: u8 = 0;
/// In the place of a state: [`Event::Received`], plus whether it is on the path.
const RECEIVED: u8 = 12;
const RECEIVED_PATH: u8 = RECEIVED + 1;
/// In the place of a state: [`Event::Sent`].
const SENT: u8 = 15;
/// In the place of a state: [`Event::Followed`], plus twice its edge, plus 1 on the path.
const FOLLOWED: u8 = 16;

/// Writes an event, and returns its length. A time before the last one counts as equal to it.
#[inline]
pub fn encode(time: u64, event: Event, last: &mut Last, out: &mut [u8; MAX_EVENT]) -> usize {
    let mut out = Out { bytes: out, len: 0 };
    let delta = time.saturating_sub(last.time);
    last.time += delta;
    let mut head = |kind| out.number(delta << 2 | kind);
    let context = match event {
        Event::Sample { state: State::Works, weight: 1, context } if context == last.context => {
            head(AGAIN);
            return out.len;
        }
        Event::Sample { state: State::Works, weight: 1, context } => {
            head(ELSEWHERE);
            context
        }
        Event::Sample { state, weight, context } => {
            head(SAMPLE);
            out.byte(state as u8);
            out.number(weight);
            context
        }
        Event::Change(state) => {
            head(OTHER);
            out.byte(state as u8);
            return out.len;
        }
        Event::Waited(context) => {
            head(OTHER);
            out.byte(WAITED);
            context
        }
        Event::Sent(export) => {
            head(OTHER);
            out.byte(SENT);
            out.number(export.into());
            return out.len;
        }
        Event::Received { is_path, rank, export } => {
            head(OTHER);
            out.byte(RECEIVED + u8::from(is_path));
            out.number(rank.into());
            out.number(export.into());
            return out.len;
        }
        Event::Followed(Followed { edge, is_path, from, ago }) => {
            head(OTHER);
            out.byte(FOLLOWED + 2 * edge as u8 + u8::from(is_path));
            out.number(from.into());
            out.number(ago);
            return out.len;
        }
    };
    out.number(difference(context, last.context));
    last.context = context;
    out.len
}

struct Out<'a> {
    bytes: &'a mut [u8; MAX_EVENT],
    len: usize,
}

impl Out<'_> {
    #[inline]
    fn byte(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
        }
        self.len += 1;
    }

    /// As [`ByteReader::number`] reads it.
    #[inline]
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace<'a> {
    pub pid: u32,
    /// Monotonic clock at the start of the process image.
    pub image: u64,
    /// Sampling period, nanoseconds.
    pub period_ns: u64,
    /// Number of blocks that newer ones have replaced.
    pub replaced: u64,
    /// Number of events that are lost.
    pub lost: u64,
    /// Blocks that do not make sense, which are left out.
    pub damaged: u64,
    /// The blocks, by thread and then in their order.
    pub blocks: Vec<Block<'a>>,
}

/// A block with its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block<'a> {
    /// Ordinal of the thread, from 1.
    pub thread: u32,
    /// Its position among all blocks.
    pub sequence: u64,
    /// Monotonic clock at its beginning, nanoseconds.
    pub time: u64,
    /// The thread's state there.
    pub state: State,
    context: u32,
    events: &'a [u8],
}

impl<'a> Trace<'a> {
    pub fn parse(data: &'a [u8]) -> Result<Trace<'a>, FileError> {
        let mut header = KIND.begin(data, BLOCK_SIZE)?;
        let pid = header.u32();
        let mut next = || header.u64();
        let fields = (pid, next(), next(), next(), next());
        let (Some(pid), Some(image), Some(period_ns), Some(replaced), Some(lost)) = fields else {
            return Err(KIND.corrupt("its header"));
        };
        if period_ns == 0 {
            return Err(KIND.corrupt("a period of 0"));
        }
        let mut trace = Trace { pid, image, period_ns, replaced, lost, damaged: 0, blocks: Vec::new() };
        for bytes in data[BLOCK_SIZE..].chunks_exact(BLOCK_SIZE) {
            let used = bytes[block::USED..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
            match Block::parse(bytes, used as usize) {
                Some(block) => trace.blocks.push(block),
                None => trace.damaged += u64::from(used > 0),
            }
        }
        trace.blocks.sort_by_key(|block| (block.thread, block.sequence));
        Ok(trace)
    }
}

impl<'a> Block<'a> {
    /// `None`: nothing is in it, or it is damaged.
    fn parse(bytes: &'a [u8], used: usize) -> Option<Block<'a>> {
        let mut reader = ByteReader::new(bytes);
        let (time, sequence, thread, context) = (reader.u64()?, reader.u64()?, reader.u32()?, reader.u32()?);
        let state = State::from_number(bytes[block::STATE])?;
        let events = bytes.get(BLOCK_HEADER_SIZE..)?.get(..used)?;
        (thread > 0 && used > 0).then_some(Block { thread, sequence, time, state, context, events })
    }

    /// Its events with their times; `None` in the place of the first one that does not make sense.
    pub fn events(&self) -> impl Iterator<Item = Option<(u64, Event)>> + use<'a> {
        let mut last = Last { time: self.time, context: self.context };
        let mut reader = ByteReader::new(self.events);
        std::iter::from_fn(move || {
            if reader.remaining() == 0 {
                return None;
            }
            let event = decode(&mut reader, &mut last);
            if event.is_none() {
                reader = ByteReader::new(&[]);
            }
            Some(event.map(|event| (last.time, event)))
        })
    }
}

fn decode(reader: &mut ByteReader<'_>, last: &mut Last) -> Option<Event> {
    let head = reader.number()?;
    last.time = last.time.checked_add(head >> 2)?;
    let works = |context| Event::Sample { state: State::Works, weight: 1, context };
    let event = match head & 3 {
        AGAIN => works(last.context),
        ELSEWHERE => works(context(reader, last)?),
        SAMPLE => {
            let (state, weight) = (State::from_number(reader.u8()?)?, reader.number()?);
            Event::Sample { state, weight, context: context(reader, last)? }
        }
        _ => match reader.u8()? {
            WAITED => Event::Waited(context(reader, last)?),
            SENT => Event::Sent(id(reader)?),
            code @ (RECEIVED | RECEIVED_PATH) => {
                Event::Received { is_path: code & 1 != 0, rank: id(reader)?, export: id(reader)? }
            }
            code @ FOLLOWED.. => Event::Followed(Followed {
                edge: Edge::from_number((code - FOLLOWED) / 2)?,
                is_path: code & 1 != 0,
                from: id(reader)?,
                ago: reader.number()?,
            }),
            state => Event::Change(State::from_number(state)?),
        },
    };
    Some(event)
}

fn id(reader: &mut ByteReader<'_>) -> Option<u32> {
    u32::try_from(reader.number()?).ok()
}

fn context(reader: &mut ByteReader<'_>, last: &mut Last) -> Option<u32> {
    last.context = apart(reader.number()?, last.context)?;
    Some(last.context)
}
