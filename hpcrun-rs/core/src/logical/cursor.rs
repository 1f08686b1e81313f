//! The logical cursor: one step at a time over bichords and their notes (paper, section 4.3).
//!
//! All state of every agent is in this one fixed-size structure; no step looks ahead.
//! Async-signal-safe.

use super::agents::Owner;
use super::path::PathRoot;
use super::spawner::{self, Spawner};
use crate::activity;
use crate::unwind::read_log::ReadLog;
use crate::unwind::stack::{self, StackRoot};
use crate::unwind::{Cursor, End, Position, Registers};
use hpc_formats::address::CodeAddress;
use hpc_formats::loss::LossCause;
use hpc_formats::profile::Association;
use hpcrun_abi::RuntimeTable;

/// What step-pnote has yet to yield.
#[derive(Clone, Copy, Debug)]
enum Physical {
    /// The frame that the physical cursor points at.
    Pending(Owner),
    /// The chord's only p-note was yielded; the cursor still points at it.
    Yielded(Owner),
    /// The cursor points at the next bichord (or the walk ended).
    Done,
}

/// What step-lnote has yet to yield.
#[derive(Clone, Copy, Debug)]
enum Logical {
    /// Nothing.
    Done,
    /// The same frame as the p-note.
    Same(CodeAddress),
    /// The frames of the spawner's stack, at which the physical cursor now points.
    Spawner {
        /// The current frame was yielded, so move on first.
        yielded: bool,
    },
}

/// See the module's description.
#[derive(Debug)]
pub struct LogicalCursor<'a> {
    physical: Cursor<'a>,
    pnotes: Physical,
    lnotes: Logical,
    end: Option<PathRoot>,
    /// A task that stock rayon's scheduler runs was passed.
    in_task: bool,
    /// All frames so far are those of a runtime that has spin loops.
    in_support: bool,
    /// Stock rayon's scheduler was met without a task above it, or a spin loop without a frame of the
    /// program's.
    idle: bool,
}

impl<'a> LogicalCursor<'a> {
    /// A logical unwind from where a physical cursor begins.
    #[inline(always)] // it is large, and made in its place
    pub fn new(physical: Cursor<'a>) -> LogicalCursor<'a> {
        LogicalCursor {
            physical,
            pnotes: Physical::Done,
            lnotes: Logical::Done,
            end: None,
            in_task: false,
            in_support: true,
            idle: false,
        }
    }

    /// Identifies the first frame.
    #[inline]
    pub(super) fn start(&mut self) {
        if let Err(end) = self.physical.start() {
            self.finish(end);
        }
    }

    /// Whether the thread looks for a task or waits for one: there is no path then. Meaningful
    /// after step-bichord has returned `None`.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// What the path hangs under; meaningful after step-bichord has returned `None`.
    pub fn root(&self) -> PathRoot {
        self.end
            .unwrap_or(PathRoot::Partial(LossCause::UnknownThreadRoot))
    }

    /// Where the physical walk stands; see [`Cursor::position`].
    #[inline]
    pub(super) fn position(&self) -> Option<Position> {
        self.physical.position()
    }

    /// What the rest of the logical walk depends on beside the physical one, between bichords.
    #[inline]
    pub(super) fn context(&self) -> u64 {
        u64::from(self.in_task) | u64::from(self.in_support) << 1
    }

    /// What the walk has read.
    #[inline]
    pub(super) fn words(&self) -> &ReadLog {
        self.physical.words()
    }

    /// See [`Cursor::generation`].
    #[inline]
    pub(super) fn generation(&self) -> Option<u32> {
        self.physical.generation()
    }

    /// Finds the next bichord: `None` when the unwind is complete.
    #[inline]
    pub fn step_bichord(&mut self) -> Option<Association> {
        while self.end.is_none() {
            let frame = self.physical.frame();
            let owner = Owner::from_number(frame.owner);
            self.pnotes = Physical::Pending(owner);
            match owner {
                Owner::SpinLoop if self.in_support => {
                    self.idle = true;
                    self.finish(End::Root);
                }
                Owner::Native | Owner::Task | Owner::Support | Owner::SpinLoop => {
                    self.in_task |= owner == Owner::Task;
                    self.in_support &= owner == Owner::Support;
                    self.lnotes = Logical::Same(frame.code);
                    return Some(Association::OneToOne);
                }
                Owner::Scheduler if !self.in_task => {
                    self.idle = true;
                    self.finish(End::Root);
                }
                Owner::Scheduler => {
                    self.lnotes = Logical::Done;
                    return Some(Association::ManyToZero);
                }
                Owner::Runtime(_) => {
                    self.lnotes = Logical::Done;
                    return Some(Association::OneToZero);
                }
                Owner::Boundary(_) => {
                    self.lnotes = Logical::Spawner { yielded: false };
                    return Some(Association::OneToMany);
                }
                Owner::Profiler => self.advance(),
                Owner::ThreadStart => self.finish(End::Root),
            }
        }
        None
    }

    /// The next p-note of the bichord. The call that returns `None` has moved the physical
    /// cursor to the start of the next p-chord (the paper's asymmetry of p- and l-chords).
    #[inline]
    pub fn step_pnote(&mut self) -> Option<CodeAddress> {
        match self.pnotes {
            Physical::Pending(owner) => {
                self.pnotes = Physical::Yielded(owner);
                return Some(self.physical.frame().code);
            }
            Physical::Yielded(Owner::Boundary(i)) => self.enter_spawner(i),
            Physical::Yielded(Owner::Scheduler) => return self.step_below_scheduler(),
            Physical::Yielded(_) => self.advance(),
            Physical::Done => {}
        }
        self.pnotes = Physical::Done;
        None
    }

    /// Both notes of a 1 <-> 1 bichord at once, which is what most are: they are the same. Moves on to the
    /// next bichord, as the last [`Self::step_pnote`] would.
    #[inline]
    pub fn step_native(&mut self) -> CodeAddress {
        let code = self.physical.frame().code;
        self.pnotes = Physical::Done;
        self.lnotes = Logical::Done;
        self.advance();
        code
    }

    /// A further p-note of the M <-> 0 chord that begins with stock rayon's scheduler: it takes
    /// in the whole rest of the stack.
    fn step_below_scheduler(&mut self) -> Option<CodeAddress> {
        loop {
            self.advance();
            if self.end.is_some() {
                self.pnotes = Physical::Done;
                return None;
            }
            let frame = self.physical.frame();
            match Owner::from_number(frame.owner) {
                Owner::Profiler => {}
                Owner::ThreadStart => self.finish(End::Root),
                _ => return Some(frame.code),
            }
        }
    }

    /// The next l-note of the bichord.
    #[inline]
    pub fn step_lnote(&mut self) -> Option<CodeAddress> {
        match self.lnotes {
            Logical::Done => None,
            Logical::Same(code) => {
                self.lnotes = Logical::Done;
                Some(code)
            }
            Logical::Spawner { yielded } => self.step_spawner(yielded),
        }
    }

    /// An l-note of a 1 <-> M chord: the next user-level frame of the spawner's stack, across
    /// further boundaries, right up to the program's entry.
    fn step_spawner(&mut self, yielded: bool) -> Option<CodeAddress> {
        if yielded {
            self.advance();
        }
        while self.end.is_none() {
            let frame = self.physical.frame();
            match Owner::from_number(frame.owner) {
                Owner::Native
                | Owner::Scheduler
                | Owner::Task
                | Owner::SpinLoop
                | Owner::Support => {
                    self.lnotes = Logical::Spawner { yielded: true };
                    return Some(frame.code);
                }
                Owner::Runtime(_) | Owner::Profiler => self.advance(),
                Owner::Boundary(i) => self.enter_spawner(i),
                Owner::ThreadStart => self.finish(End::Root),
            }
        }
        self.lnotes = Logical::Done;
        None
    }

    #[inline]
    fn advance(&mut self) {
        if let Err(end) = self.physical.advance() {
            self.finish(end);
        }
    }

    #[cold]
    fn finish(&mut self, end: End) {
        let unknown = PathRoot::Partial(LossCause::UnknownThreadRoot);
        self.end = Some(match end {
            End::Root => root_at(self.physical.sp()).unwrap_or(unknown),
            End::Broken(cause) => PathRoot::Partial(cause),
        });
    }

    /// From a boundary's frame to the stack of the spawner of its task.
    fn enter_spawner(&mut self, runtime: u8) {
        let Some(table) = activity::runtime(usize::from(runtime)) else {
            self.end = Some(PathRoot::Partial(LossCause::UnknownSpawner));
            return;
        };
        match self.spawner(table) {
            Ok(registers) => {
                let bounds = stack::bounds_from(registers.sp());
                if let Err(end) = self.physical.restart(registers, bounds) {
                    self.finish(end);
                }
            }
            Err(root) => self.end = Some(root),
        }
    }

    fn spawner(&mut self, table: &RuntimeTable) -> Result<Registers, PathRoot> {
        let unreadable = PathRoot::Partial(LossCause::UnreadableStack);
        let slot = self.physical.sp().wrapping_add(table.task_slot as u64);
        let task = self.physical.read(slot).ok_or(unreadable)?;
        let physical = &mut self.physical;
        let found = spawner::of_task(task, |address| physical.peek(address));
        let found = found.ok_or(unreadable)?;
        let Spawner {
            site, sp, fp, ip, ..
        } = found;
        for (i, word) in [site, sp, fp].into_iter().enumerate() {
            let address = task + 8 * i as u64;
            self.physical.note(address, word, found.is_in_stack);
        }
        if ip != 0 {
            return Ok(Registers::new(ip, sp, fp));
        }
        Err(match sp {
            0 => PathRoot::Partial(LossCause::UnknownSpawner),
            handle => PathRoot::Anchor {
                thread: (handle >> 32) as u32,
                node: handle as u32,
            },
        })
    }
}

/// What a path that ends at this stack pointer hangs under.
fn root_at(sp: u64) -> Option<PathRoot> {
    match stack::root_of(sp) {
        StackRoot::Entry => Some(PathRoot::Entry),
        StackRoot::Thread(thread, node) => Some(PathRoot::Anchor { thread, node }),
        StackRoot::Unknown => None,
    }
}
