//! The walk from a frame to the root of its logical call path (paper, section 4.3).
//!
//! For each frame, the agent that owns it makes one step. A step pushes a whole bichord by one of the verbs,
//! and moves on:
//!
//! | verb | bichord | goes on |
//! |---|---|---|
//! | [`Walk::program_frame`] | 1 <-> 1 | at the caller |
//! | [`Walk::runtime_frame`] | 1 <-> 0 | at the caller |
//! | [`Walk::runtime_rest`] | M <-> 0, with all frames further out | at the caller |
//! | [`Walk::continue_at`] | 1 <-> M, with all user-level frames further out | on the spawner's stack |
//! | [`Walk::continue_under`] | the same | nowhere: the root is known |
//! | [`Walk::skip_frame`] | none | at the caller |
//! | [`Walk::root`], [`Walk::wait`] | none | nowhere |
//!
//! Within a chord of many frames, a verb adds to that chord: each frame of a runtime to its p-chord, each
//! frame of the program to its l-chord. A step does not look ahead. Where the walk leaves a task
//! ([`crate::tasks`]), it goes on where the task was made, whichever agent owns the frame.
//!
//! Async-signal-safe.

use super::backtrace_cache::{BacktraceCache, Situation};
use super::path::{PathBuffer, PathRoot};
use crate::system;
use crate::tasks::{Chain, Context};
use crate::unwind::stack;
use crate::unwind::{Cursor, End, Frame, Registers};
use hpc_formats::address::CodeAddress;
use hpc_formats::loss::LossCause;
use hpc_formats::profile::Association;

/// Steps between two looks at the clock.
const STEPS: u32 = 64;
/// Nanoseconds of CPU time after which a walk ends.
const LONGEST: u64 = 50_000_000;

/// The walk has passed a frame of the program.
pub(super) const IN_PROGRAM: u64 = 1;

/// The chord that the next frame adds to.
#[derive(Clone, Copy, Debug)]
enum Chord {
    /// None: a frame has a bichord of its own.
    Own,
    /// The 1 <-> M chord of this p-note.
    Spawner(CodeAddress),
    /// The M <-> 0 chord of a runtime.
    Runtime,
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Waits,
    Root(PathRoot),
}

pub struct Walk<'a> {
    physical: Cursor<'a>,
    path: &'a mut PathBuffer,
    cache: &'a mut BacktraceCache,
    chord: Chord,
    /// What agents have noticed on the way: [`IN_PROGRAM`], and their own bits.
    noticed: u64,
    /// The tasks that the walk has not left yet.
    tasks: Chain,
    end: Option<Outcome>,
}

impl<'a> Walk<'a> {
    /// Starts where the physical cursor starts, in these tasks. Stores the notes in `path`, innermost first,
    /// up to the notes that it shares with the previous path.
    #[inline(always)] // large, so it is constructed in place
    pub fn new(
        physical: Cursor<'a>,
        tasks: Chain,
        path: &'a mut PathBuffer,
        cache: &'a mut BacktraceCache,
    ) -> Walk<'a> {
        let (chord, noticed, end) = (Chord::Own, 0, None);
        Walk { physical, path, cache, chord, noticed, tasks, end }
    }

    /// The paper's Algorithm 1: makes a `step` for each frame, by the frame's owner. Returns the root of the
    /// path, the parent of its outermost note; `None` if the thread waits.
    #[inline]
    pub fn run(mut self, step: impl Fn(&mut Walk<'a>, u8)) -> Option<PathRoot> {
        self.path.clear();
        self.cache.begin(self.physical.generation());
        let started = self.physical.start();
        self.follow(started);
        let (mut steps, mut patience) = (0_u32, Patience::default());
        while self.end.is_none() {
            steps += 1;
            if steps % STEPS == 0 && patience.is_over() {
                self.finish(End::Broken(LossCause::TooLong));
                break;
            }
            if !self.tasks.contains(self.physical.sp()) && self.leave_task() {
                continue;
            }
            let owner = self.physical.frame().owner;
            step(&mut self, owner);
        }
        let Some(Outcome::Root(root)) = self.end else { return None };
        let is_whole = match self.chord {
            Chord::Own => true,
            Chord::Spawner(_) => self.path.close(Association::OneToMany),
            Chord::Runtime => self.path.close(Association::ManyToZero),
        };
        let root = if is_whole { root } else { PathRoot::Partial(LossCause::TooDeep) };
        if let PathRoot::Partial(LossCause::TooDeep | LossCause::TooLong) = root {
            self.path.keep_innermost();
        }
        self.cache.end(root, &self.physical.stack.words, self.path.notes().len());
        Some(root)
    }

    #[inline]
    pub fn frame(&self) -> Frame {
        self.physical.frame()
    }

    /// A word of the current stack, at a distance from the frame's stack pointer. The path depends on it.
    #[inline]
    pub fn word(&mut self, distance: u64) -> Option<u64> {
        let address = self.physical.sp().wrapping_add(distance);
        self.physical.stack.read(address)
    }

    /// A word of any memory, if it is readable.
    #[inline]
    pub fn peek(&mut self, address: u64) -> Option<u64> {
        self.physical.stack.peek(address)
    }

    /// The path depends on this word; `is_stack`: it lies in a known stack.
    #[inline]
    pub fn depends_on(&mut self, address: u64, value: u64, is_stack: bool) {
        self.physical.stack.note(address, value, is_stack);
    }

    /// Keeps a bit of an agent for its further steps.
    #[inline]
    pub fn notice(&mut self, bit: u64) {
        self.noticed |= bit;
    }

    /// Whether the walk is still on the thread's own stack and has not noticed this.
    #[inline]
    pub fn has_not_noticed(&self, bit: u64) -> bool {
        matches!(self.chord, Chord::Own) && self.noticed & bit == 0
    }

    #[inline]
    pub fn program_frame(&mut self) {
        self.noticed |= IN_PROGRAM;
        let code = self.physical.frame().code;
        if self.is_known() {
            return;
        }
        let has_room = match self.chord {
            Chord::Own => self.path.push_native(code),
            Chord::Spawner(_) => self.path.push_lnote(code),
            Chord::Runtime => self.path.push_pnote(code),
        };
        self.move_on(has_room);
    }

    #[inline]
    pub fn runtime_frame(&mut self) {
        let code = self.physical.frame().code;
        let has_room = match self.chord {
            Chord::Own => {
                self.path.open();
                self.path.push_pnote(code) && self.path.close(Association::OneToZero)
            }
            Chord::Spawner(_) => true,
            Chord::Runtime => self.path.push_pnote(code),
        };
        self.move_on(has_room);
    }

    /// A frame of a runtime that says nothing of what is further out.
    pub fn runtime_rest(&mut self) {
        match self.chord {
            Chord::Own => {
                self.path.open();
                self.chord = Chord::Runtime;
                self.runtime_frame();
            }
            // The spawner's stack is all that is known of it.
            Chord::Spawner(_) | Chord::Runtime => self.program_frame(),
        }
    }

    /// A frame without a note.
    #[inline]
    pub fn skip_frame(&mut self) {
        self.move_on(true);
    }

    /// The frame is a task's boundary, and these are the registers at its spawn.
    pub fn continue_at(&mut self, registers: Registers) {
        let is_same = |a, b| stack::bounds_from(a).high == stack::bounds_from(b).high;
        let tasks = self.tasks.outside_of(registers.sp(), is_same, |a| self.physical.stack.peek(a));
        self.jump(registers, tasks);
    }

    /// The frame is a task's boundary, and its spawner's path is known.
    pub fn continue_under(&mut self, root: PathRoot) {
        if self.enter_spawner() {
            self.end = Some(Outcome::Root(root));
        } else {
            self.runtime_frame();
        }
    }

    /// The frame is the outermost one of its thread.
    pub fn root(&mut self) {
        self.finish(End::Root);
    }

    /// The frame is the outermost one of a stack that any thread of the program may run.
    pub fn entry(&mut self) {
        self.end = Some(Outcome::Root(PathRoot::Entry));
    }

    /// The thread searches for a task or waits for one. There is no path.
    pub fn wait(&mut self) {
        self.end = Some(Outcome::Waits);
    }

    /// Opens the chord of a spawner's frames, unless it is open; false in a chord of a runtime.
    fn enter_spawner(&mut self) -> bool {
        if let Chord::Own = self.chord {
            let code = self.physical.frame().code;
            self.path.open();
            self.path.push_pnote(code);
            self.chord = Chord::Spawner(code);
        }
        matches!(self.chord, Chord::Spawner(_))
    }

    fn jump(&mut self, registers: Registers, tasks: Chain) {
        if !self.enter_spawner() {
            return self.runtime_frame();
        }
        self.tasks = tasks;
        let bounds = stack::bounds_from(registers.sp());
        let placed = self.physical.restart(registers, bounds);
        self.follow(placed);
    }

    /// The frame is outside of the innermost task, so the walk goes on where that was made. False if the
    /// frame is on another stack.
    #[cold]
    #[inline(never)]
    fn leave_task(&mut self) -> bool {
        let (sp, mark) = (self.physical.sp(), self.tasks.mark());
        if stack::bounds_from(sp).high != stack::bounds_from(mark).high {
            return false;
        }
        let Some((task, outer)) = self.tasks.leave(|address| self.physical.stack.peek(address)) else {
            return false;
        };
        if let Chord::Runtime = self.chord {
            self.tasks = outer;
            return true;
        }
        let (words, is_kept) = (task.words(), task.is_kept());
        let is_readable = is_kept || stack::bounds_from(words.as_ptr() as u64).high != 0;
        for word in words {
            self.depends_on(std::ptr::from_ref(word) as u64, *word, is_readable);
        }
        match task.context() {
            Context::Site { registers: [ip, sp, fp], tasks } => {
                let tasks = Chain::of(tasks, |address| self.physical.stack.peek(address));
                self.jump(Registers::new(ip, sp, fp), tasks);
            }
            Context::Captured { thread, node } => {
                self.continue_under(PathRoot::Anchor { thread, node });
            }
            Context::Unknown => {
                self.continue_under(PathRoot::Partial(LossCause::UnknownSpawner));
            }
        }
        true
    }

    /// Looks the frame up in the cache. On a hit, the path shares the rest of its notes with the previous
    /// path, and has its root.
    #[inline]
    fn is_known(&mut self) -> bool {
        let so_far = match self.chord {
            Chord::Own => self.noticed,
            Chord::Spawner(code) => code.0,
            Chord::Runtime => return false,
        };
        let Some(position) = self.physical.position() else { return false };
        let situation = Situation { so_far, tasks: self.tasks };
        let (words, notes) = (self.physical.stack.words.len(), self.path.reached());
        let Some((root, outer)) = self.cache.look_up(position, situation, words, notes) else {
            return false;
        };
        self.path.share(outer);
        self.end = Some(Outcome::Root(root));
        true
    }

    #[inline]
    fn move_on(&mut self, has_room: bool) {
        if has_room {
            let moved = self.physical.advance();
            self.follow(moved);
        } else {
            self.end = Some(Outcome::Root(PathRoot::Partial(LossCause::TooDeep)));
        }
    }

    #[inline]
    fn follow(&mut self, moved: Result<(), End>) {
        if let Err(end) = moved {
            self.finish(end);
        }
    }

    #[cold]
    fn finish(&mut self, end: End) {
        self.end = Some(Outcome::Root(match end {
            End::Root => PathRoot::from(stack::root_of(self.physical.sp())),
            End::Broken(cause) => PathRoot::Partial(cause),
        }));
    }
}

/// How long a walk may take. The real time is read without a system call. Only if the walk takes long by it,
/// the CPU clock tells whether the thread had a core.
#[derive(Default)]
struct Patience {
    /// When to look at the CPU clock; 0: not yet known.
    next_look: u64,
    /// The CPU clock at the first such look; 0: there was none.
    first_look: u64,
}

impl Patience {
    #[cold]
    #[inline(never)]
    fn is_over(&mut self) -> bool {
        let now = system::clock(libc::CLOCK_MONOTONIC);
        if now <= self.next_look {
            return false;
        }
        let is_first = std::mem::replace(&mut self.next_look, now + LONGEST) == 0;
        if is_first {
            return false;
        }
        let used = system::clock(libc::CLOCK_THREAD_CPUTIME_ID);
        match self.first_look {
            0 => self.first_look = used,
            first => return used == 0 || used.saturating_sub(first) > LONGEST,
        }
        false
    }
}
