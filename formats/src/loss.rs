//! Why a sample is lost (not in the tree) or partial (in the tree, but its path does not reach the program's
//! entry). Every such sample is counted and shown.

macro_rules! causes {
    ($(#[$doc:meta] $variant:ident = $value:literal, $name:literal, $partial:literal;)*) => {
        /// Why a sample was lost or is partial. The numbers are part of the profile format.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum LossCause { $(#[$doc] $variant = $value,)* }

        impl LossCause {
            /// Every cause, in the order of its number.
            pub const ALL: &'static [LossCause] = &[$(LossCause::$variant,)*];

            /// Stable name, as in the JSON views.
            pub const fn name(self) -> &'static str {
                match self { $(LossCause::$variant => $name,)* }
            }

            /// Whether the sample is still in the tree, under a partial root.
            pub const fn is_partial(self) -> bool {
                match self { $(LossCause::$variant => $partial,)* }
            }

            /// The cause with this number.
            pub fn from_number(n: u8) -> Option<LossCause> {
                Self::ALL.iter().copied().find(|c| *c as u8 == n)
            }
        }
    };
}

causes! {
    /// A signal arrived in a thread that the profiler has no state for.
    NoThreadState = 0, "no-thread-state", false;
    /// A signal arrived while the same thread was inside the profiler.
    Reentered = 1, "reentered", false;
    /// The tree could not grow: its address range is used up.
    TreeFull = 2, "tree-full", false;
    /// The profile file could not grow: the disk is full.
    DiskFull = 3, "disk-full", false;
    /// A frame's code lies in no known load module.
    UnknownModule = 4, "partial:unknown-module", true;
    /// A frame's code has no unwind information.
    NoUnwindInfo = 5, "partial:no-unwind-info", true;
    /// A frame's unwind information could not be evaluated.
    BadUnwindInfo = 6, "partial:bad-unwind-info", true;
    /// A stack word could not be read.
    UnreadableStack = 7, "partial:unreadable-stack", true;
    /// The stack pointer did not advance from one frame to the next.
    NoProgress = 8, "partial:no-progress", true;
    /// More frames than the profiler's buffer holds.
    TooDeep = 9, "partial:too-deep", true;
    /// A detached task whose spawner's context was not kept.
    UnknownSpawner = 10, "partial:unknown-spawner", true;
    /// The stack's root is neither the program's entry nor a thread whose creation was seen.
    UnknownThreadRoot = 11, "partial:unknown-thread-root", true;
    /// A signal frame whose saved registers could not be read.
    BadSignalFrame = 12, "partial:bad-signal-frame", true;
}

/// Counter slots reserved in the profile header.
pub const LOSS_SLOTS: usize = 32;
