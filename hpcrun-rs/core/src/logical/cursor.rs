//! The logical cursor: steps over bichords and their notes (paper, section 4.3).
//!
//! This fixed-size structure holds the state of every agent. No step looks ahead. Async-signal-safe.

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

/// The state of step-pnote.
#[derive(Clone, Copy, Debug)]
enum Physical {
    /// The frame at the physical cursor is the next p-note.
    Pending(Owner),
    /// The chord's first p-note was returned; the cursor still points at it.
    Yielded(Owner),
    /// The chord is complete; the cursor points at the next bichord (or the unwind ended).
    Done,
}

/// The state of step-lnote.
#[derive(Clone, Copy, Debug)]
enum Logical {
    /// The chord is complete.
    Done,
    /// The l-note is the same frame as the p-note.
    Same(CodeAddress),
    /// The chord consists of the frames of the spawner's stack. The physical cursor points there.
    Spawner {
        /// The current frame was returned, so move on first.
        yielded: bool,
    },
}

/// A logical unwind in progress.
#[derive(Debug)]
pub struct LogicalCursor<'a> {
    physical: Cursor<'a>,
    pnotes: Physical,
    lnotes: Logical,
    end: Option<PathRoot>,
    /// The unwind has passed a task that stock rayon's scheduler runs.
    in_task: bool,
    /// All frames so far belong to a runtime that has spin loops.
    in_support: bool,
    /// The thread waits: the unwind found stock rayon's scheduler without a task above it, or a spin loop
    /// without a frame of the program above it.
    idle: bool,
}

impl<'a> LogicalCursor<'a> {
    /// Makes a logical cursor that starts where the physical cursor starts.
    #[inline(always)] // large, so it is constructed in place
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

    /// Finds the first frame.
    #[inline]
    pub(super) fn start(&mut self) {
        if let Err(end) = self.physical.start() {
            self.finish(end);
        }
    }

    /// Whether the thread searches for a task or waits for one. There is no path then. Valid after
    /// step-bichord has returned `None`.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// The root of the path. Valid after step-bichord has returned `None`.
    pub fn root(&self) -> PathRoot {
        self.end.unwrap_or(PathRoot::Partial(LossCause::UnknownThreadRoot))
    }

    /// The state of the physical unwind; see [`Cursor::position`].
    #[inline]
    pub(super) fn position(&self) -> Option<Position> {
        self.physical.position()
    }

    /// The state that the rest of the logical unwind depends on, beside the physical one. Valid between
    /// bichords.
    #[inline]
    pub(super) fn context(&self) -> u64 {
        u64::from(self.in_task) | u64::from(self.in_support) << 1
    }

    /// The words that the unwind has read.
    #[inline]
    pub(super) fn words(&self) -> &ReadLog {
        self.physical.words()
    }

    /// See [`Cursor::generation`].
    #[inline]
    pub(super) fn generation(&self) -> Option<u32> {
        self.physical.generation()
    }

    /// Finds the next bichord; `None` when the unwind is complete.
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

    /// The next p-note of the bichord. When this returns `None`, it has moved the physical cursor to the
    /// start of the next p-chord (the paper's asymmetry of p-chords and l-chords).
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

    /// The single frame of a 1 <-> 1 bichord, which is both p-note and l-note. Moves to the next bichord,
    /// like the last [`Self::step_pnote`]. Most bichords are of this kind.
    #[inline]
    pub fn step_native(&mut self) -> CodeAddress {
        let code = self.physical.frame().code;
        self.pnotes = Physical::Done;
        self.lnotes = Logical::Done;
        self.advance();
        code
    }

    /// The next p-note of the M <-> 0 chord that starts with stock rayon's scheduler. The chord extends to
    /// the root of the stack.
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

    /// The next l-note of a 1 <-> M chord: the next user-level frame of the spawner's stack. The chord
    /// continues across further boundaries, to the program's entry.
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

    /// Moves from a boundary's frame to the stack of the spawner of its task.
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
        let Spawner { site, sp, fp, ip, .. } = found;
        for (i, word) in [site, sp, fp].into_iter().enumerate() {
            let address = task + 8 * i as u64;
            self.physical.note(address, word, found.is_in_stack);
        }
        if ip != 0 {
            return Ok(Registers::new(ip, sp, fp));
        }
        Err(match sp {
            0 => PathRoot::Partial(LossCause::UnknownSpawner),
            handle => PathRoot::Anchor { thread: (handle >> 32) as u32, node: handle as u32 },
        })
    }
}

/// The root of a path that ends at this stack pointer.
fn root_at(sp: u64) -> Option<PathRoot> {
    match stack::root_of(sp) {
        StackRoot::Entry => Some(PathRoot::Entry),
        StackRoot::Thread(thread, node) => Some(PathRoot::Anchor { thread, node }),
        StackRoot::Unknown => None,
    }
}
