//! Why a sample is lost (not in the tree) or partial (in the tree, but its path does not reach the program's
//! entry). Every such sample is counted and shown.

use crate::numbered;

numbered! {
    /// Why a sample was lost or is partial. The numbers are part of the profile format.
    LossCause {
        /// A signal arrived in a thread that the profiler has no state for.
        NoThreadState = 0, "no-thread-state";
        /// A signal arrived while the same thread was inside the profiler.
        Reentered = 1, "reentered";
        /// The tree could not grow: its address range is used up.
        TreeFull = 2, "tree-full";
        /// The profile file could not grow: the disk, or the user's share of it, is full, or the program
        /// limits the size of files.
        DiskFull = 3, "disk-full";
        /// A frame's code lies in no known load module.
        UnknownModule = 4, "partial:unknown-module";
        /// A frame's code has no unwind information.
        NoUnwindInfo = 5, "partial:no-unwind-info";
        /// A frame's unwind information could not be evaluated.
        BadUnwindInfo = 6, "partial:bad-unwind-info";
        /// A stack word could not be read.
        UnreadableStack = 7, "partial:unreadable-stack";
        /// The stack pointer did not advance from one frame to the next.
        NoProgress = 8, "partial:no-progress";
        /// More frames than the profiler's buffer holds.
        TooDeep = 9, "partial:too-deep";
        /// A detached task whose spawner's context was not kept.
        UnknownSpawner = 10, "partial:unknown-spawner";
        /// The stack's root is neither the program's entry nor a thread whose creation was seen.
        UnknownThreadRoot = 11, "partial:unknown-thread-root";
        /// A signal frame whose saved registers could not be read.
        BadSignalFrame = 12, "partial:bad-signal-frame";
        /// The system refused the thread's timer, or the program took it away. Counted once a thread.
        NoTimer = 13, "no-timer";
        /// The profile file could not be made or opened.
        NoFile = 14, "no-file";
        /// The walk of the stack took too long.
        TooLong = 15, "partial:too-long";
        /// Time for which samples were held back: signals blocked, or the timer off. Its place is unknown.
        HeldBack = 16, "partial:held-back";
        /// Not lost: other samples stand for it. Each sample took too much of the thread's time, so that
        /// there were fewer.
        SlowSamples = 17, "slow-samples";
    }
}

impl LossCause {
    /// Whether the sample is still in the tree, under a partial root.
    pub fn is_partial(self) -> bool {
        self.name().starts_with("partial:")
    }

    /// Whether the sample is in no tree.
    pub fn is_lost(self) -> bool {
        !self.is_partial() && self != LossCause::SlowSamples
    }
}

/// Counter slots reserved in the profile header.
pub const LOSS_SLOTS: usize = 32;
