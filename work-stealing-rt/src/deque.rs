//! The split deque: where a worker keeps the tasks of its pending joins.
//!
//! One duty: a stack of task addresses whose owner pushes and pops without fences or atomic
//! read-modify-writes, and whose oldest part other workers may take from.
//!
//! ```text
//!   base        tail          split            head
//!    | stolen ... | shared ...  | private ...    |  free ...
//! ```
//!
//! * Slots below `tail` are taken by thieves; `tail..split` may be taken; `split..head` is the
//!   owner's alone. `tail` and `split` are packed into one word ([`Block::ends`]), so a
//!   thief's claim and the owner's retreat are decided by one compare-and-exchange.
//! * A slot is a [`Latch`] that carries the task's address: the thief sets it when the task is
//!   over. The slot stays the thief's until then, since the owner pops in LIFO order and waits.
//! * The first few slots are the *open zone*: a task pushed there is open to thieves at once. These are
//!   the large tasks of a divide-and-conquer program, whose owner may not push again for long.
//! * One comparison at a push detects three cases: thieves are hungry, the deque is full, the slot lies in
//!   the open zone. `limit` is the distance from the end of the open zone to the last usable slot, or 0 if
//!   the shared part ran empty (*attention*). The distance of a slot inside the open zone is negative, that
//!   is, huge as an unsigned number. Whoever empties the shared part stores the 0, so the oldest task is
//!   nearly always open to thieves.
//! * While the critical path is tracked, the whole deque is *open*: the owner leaves *attention* raised.
//! * `pace` is the owner's request that thieves look less often, if a steal costs it more than it gains.
//!
//! Pairing: the owner's publication (`Release` on `ends`) with a thief's claim (`Acquire` on
//! `ends`) makes slot and task visible. `limit` and `pace` are hints and
//! need no ordering.

use core::cell::Cell;
#[cfg(not(loom))]
use core::mem::align_of;
use core::mem::size_of;
use core::ptr;
// For `pace`, which orders nothing, so loom need not follow it.
use core::sync::atomic::AtomicU32;

use crossbeam_utils::CachePadded;

#[cfg(not(loom))]
use crate::block_memory;
use crate::latch::Latch;
use crate::primitives::{AtomicU64, AtomicUsize, Ordering};

/// Pending joins that a worker can have open to thieves; those beyond are run inline.
pub(crate) const CAPACITY: usize = if cfg!(loom) {
    4
} else if cfg!(miri) {
    1 << 7
} else {
    1 << 16
};

/// How many of the oldest pending joins are never private: the depth of a loop that splits in halves over all
/// workers, plus one. Deep recursions have few joins at these depths, so the two atomic operations of each do
/// not matter.
fn open_zone(workers: usize) -> usize {
    match workers {
        _ if cfg!(loom) => 1,
        1 => 0,
        workers => 2 + workers.ilog2() as usize,
    }
}

/// A place in a deque; `NONE` stands for a task that found no place.
pub(crate) type SlotPtr = *const Latch;
/// See [`SlotPtr`].
pub(crate) const NONE: SlotPtr = ptr::null();

/// `limit`'s value for "the shared part is empty".
const ATTENTION: usize = 0;

/// The deque; see the module. Methods marked *owner* are called by the owning worker alone.
pub(crate) struct SplitDeque {
    /// On cache lines that thieves do not read.
    owner: CachePadded<Owner>,
    block: *const Block,
}

/// The owner's part.
struct Owner {
    /// The next free slot.
    head: Cell<SlotPtr>,
    /// The owner's copy of `split`.
    split: Cell<SlotPtr>,
    /// The end of the open zone, less half a slot: no slot is at distance 0.
    zone: usize,
    /// There are no thieves: never ask for attention.
    solo: bool,
    /// Nothing is private; see [`SplitDeque::set_open`].
    open: Cell<bool>,
    /// `limit`'s value without attention.
    limit: Cell<usize>,
    /// The owner's copy of the address.
    block: *const Block,
}

/// The words that thieves write, and the slots. The first cache line also holds the oldest slots: a thief
/// that has read `ends` there finds the task and can ask for attention without another transfer between
/// cores, and the owner, which reads `limit` at each push, has the line in its cache.
#[repr(C)]
struct Block {
    limit: AtomicUsize,
    /// `tail` in the low half, `split` in the high half.
    ends: AtomicU64,
    /// See [`SplitDeque::set_pace`].
    pace: AtomicU32,
    slots: [Latch; CAPACITY],
}

// SAFETY: the cells are touched by owner methods only, which the callers (the worker that owns
// the deque) confine to one thread; everything else is atomic or immutable. A panic cannot leave
// the cells inconsistent, since no method calls foreign code.
unsafe impl Sync for SplitDeque {}
// SAFETY: the deque owns its slots, and is bound to no thread before its owner starts.
unsafe impl Send for SplitDeque {}

/// What a thief found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steal {
    /// Nothing is shared.
    Empty,
    /// The task in this slot is the caller's; it must set the slot when the task is over.
    Taken(SlotPtr),
}

#[inline(always)]
fn pack(tail: u64, split: u64) -> u64 {
    tail | split << 32
}

#[inline(always)]
fn unpack(ends: u64) -> (u64, u64) {
    (ends & 0xffff_ffff, ends >> 32)
}

impl SplitDeque {
    /// The deque of one of `workers` workers.
    pub(crate) fn new(workers: usize) -> Self {
        let block = Block::allocate();
        // SAFETY: just allocated.
        let base = unsafe { &raw const (*block).slots }.cast::<Latch>();
        let open = open_zone(workers) * size_of::<Latch>();
        let deque = SplitDeque {
            owner: CachePadded::new(Owner {
                head: Cell::new(base),
                split: Cell::new(base),
                zone: base as usize + open + size_of::<Latch>() / 2,
                solo: workers == 1,
                open: Cell::new(false),
                limit: Cell::new(0),
                block,
            }),
            block,
        };
        deque.owner.limit.set(deque.most());
        deque
    }

    /// What thieves share, for the owner.
    #[inline(always)]
    fn own(&self) -> &Block {
        // SAFETY: the deque owns the block, which is freed with it.
        unsafe { &*self.owner.block }
    }

    /// What thieves share.
    #[inline(always)]
    fn shared(&self) -> &Block {
        // SAFETY: as above.
        unsafe { &*self.block }
    }

    #[inline(always)]
    fn base(&self) -> SlotPtr {
        // SAFETY: the address of a field of the block; the slots are reached through the whole
        // block's pointer, so all of them are in bounds.
        unsafe { &raw const (*self.block).slots }.cast::<Latch>()
    }

    #[inline(always)]
    fn last(&self) -> SlotPtr {
        // SAFETY: stays within the array of `CAPACITY` slots.
        unsafe { self.base().add(CAPACITY - 1) }
    }

    #[inline(always)]
    fn index(&self, slot: SlotPtr) -> u64 {
        // SAFETY: both point into the one allocation.
        unsafe { slot.offset_from(self.base()) as u64 }
    }

    /// Owner: pushes `task` (an address, a multiple of 4). `Err`: [`SplitDeque::finish_push`] must be
    /// called with the slot before anything else.
    #[inline(always)]
    pub(crate) fn push(&self, task: usize) -> Result<SlotPtr, SlotPtr> {
        let slot = self.owner.head.get();
        // SAFETY: `head <= last` always (`finish_push` ensures it), and a free slot is the owner's.
        let next = unsafe {
            (*slot).rearm(task);
            slot.add(1)
        };
        self.owner.head.set(next);
        if (next as usize).wrapping_sub(self.owner.zone) > self.own().limit.load(Ordering::Relaxed) {
            Err(slot)
        } else {
            Ok(slot)
        }
    }

    /// Owner: the slow half of a push into `slot`: publishes half of the private part (in the open
    /// zone all of it), or takes the task out again (returning [`NONE`]) when the deque is full.
    #[inline(always)]
    pub(crate) fn finish_push(&self, slot: SlotPtr) -> SlotPtr {
        let open = self.owner.open.get();
        if self.own().limit.load(Ordering::Relaxed) == ATTENTION && !open {
            let limit = self.owner.limit.get();
            self.own().limit.store(limit, Ordering::Relaxed);
        }
        let mut slot = slot;
        if slot == self.last() {
            self.owner.head.set(slot);
            slot = NONE;
        }
        if !self.owner.solo || open {
            let head = self.owner.head.get();
            let private = self.index(head) - self.index(self.owner.split.get());
            if (head as usize) < self.owner.zone || open {
                self.publish(private);
            } else {
                self.publish(private.div_ceil(2));
            }
        }
        slot
    }

    /// Owner: from now on every task is open to thieves at once, as if all slots lay in the open zone, or not
    /// any more. The owner then takes the slow half of every push, and of every take-back.
    #[inline(always)]
    pub(crate) fn set_open(&self, open: bool) {
        self.owner.open.set(open);
        self.owner.limit.set(self.most());
        self.raise_attention();
    }

    /// Owner: as `set_open(false)`, but the owner takes the slow half of pushes beyond so many further slots.
    pub(crate) fn set_open_beyond(&self, slots: usize) {
        self.set_open(false);
        let end = self.owner.head.get() as usize + slots * size_of::<Latch>();
        let limit = end.saturating_sub(self.owner.zone).max(1);
        self.owner.limit.set(limit.min(self.most()));
    }

    /// The distance of the last usable slot.
    #[inline(always)]
    fn most(&self) -> usize {
        self.last() as usize - self.owner.zone
    }

    /// Owner: whether every task is open.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.owner.open.get()
    }

    /// Owner: opens the whole private part to thieves; true when there was any.
    #[inline(always)]
    pub(crate) fn publish_all(&self) -> bool {
        let private = self.index(self.owner.head.get()) - self.index(self.owner.split.get());
        self.publish(private);
        private != 0
    }

    #[inline(always)]
    fn publish(&self, count: u64) {
        if count != 0 {
            // SAFETY: `split + count <= head`, within the allocation.
            self.owner.split.set(unsafe { self.owner.split.get().add(count as usize) });
            // Releases slots and tasks; sequentially consistent for `Sleep::notify_after_rmw`.
            self.own().ends.fetch_add(count << 32, Ordering::SeqCst);
        }
    }

    /// Owner: takes the youngest task, which is in `slot`, back without any atomic operation.
    /// False: try [`SplitDeque::pop_shared`].
    #[inline(always)]
    pub(crate) fn pop_private(&self, slot: SlotPtr) -> bool {
        let private = slot >= self.owner.split.get();
        if private {
            self.owner.head.set(slot);
        }
        private
    }

    /// Owner: takes the youngest task, which is in `slot` and not private, back from the shared
    /// part. False: a thief has it, and the owner must wait for the slot.
    #[inline(always)]
    pub(crate) fn pop_shared(&self, slot: SlotPtr) -> bool {
        if slot == NONE {
            return true;
        }
        let mut ends = self.own().ends.load(Ordering::Relaxed);
        loop {
            let (tail, split) = unpack(ends);
            debug_assert_eq!(split, self.index(slot) + 1);
            if tail >= split {
                return false;
            }
            let retreat = pack(tail, split - 1);
            match self.own().ends.compare_exchange_weak(ends, retreat, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    self.owner.split.set(slot);
                    self.owner.head.set(slot);
                    if tail == split - 1 && !self.owner.solo {
                        self.raise_attention();
                    }
                    return true;
                }
                Err(now) => ends = now,
            }
        }
    }

    /// Owner: forgets the stolen task in `slot`, whose event has happened.
    #[inline(always)]
    pub(crate) fn forget_stolen(&self, slot: SlotPtr) {
        let index = self.index(slot);
        debug_assert_eq!(unpack(self.own().ends.load(Ordering::Relaxed)), (index + 1, index + 1));
        self.owner.head.set(slot);
        self.owner.split.set(slot);
        self.own().ends.store(pack(index, index), Ordering::Release);
    }

    /// Anyone: the slot's number, below [`CAPACITY`].
    #[inline(always)]
    pub(crate) fn number(&self, slot: SlotPtr) -> usize {
        self.index(slot) as usize
    }

    /// Owner: the number of the next slot.
    #[inline(always)]
    pub(crate) fn next(&self) -> usize {
        self.number(self.owner.head.get())
    }

    /// Anyone: whether the slot belongs to this deque.
    pub(crate) fn has_slot(&self, slot: SlotPtr) -> bool {
        (self.base()..=self.last()).contains(&slot)
    }

    /// Anyone: whether there is a shared task.
    #[inline(always)]
    pub(crate) fn has_shared(&self) -> bool {
        let (tail, split) = unpack(self.shared().ends.load(Ordering::Acquire));
        tail < split
    }

    /// Owner: whether there are tasks that nobody has taken.
    pub(crate) fn has_tasks(&self) -> bool {
        let (tail, split) = unpack(self.own().ends.load(Ordering::Relaxed));
        self.owner.head.get() != self.owner.split.get() || tail < split
    }

    /// Owner: whether other workers look for tasks.
    #[inline(always)]
    pub(crate) fn is_hungry(&self) -> bool {
        !self.owner.solo && self.own().limit.load(Ordering::Relaxed) == ATTENTION
    }

    /// Asks the owner to publish at its next push.
    #[inline(always)]
    pub(crate) fn raise_attention(&self) {
        if self.shared().limit.load(Ordering::Relaxed) != ATTENTION {
            self.shared().limit.store(ATTENTION, Ordering::Relaxed);
        }
    }

    /// Owner: asks thieves to wait for this many pauses before they look for a task here.
    #[inline(always)]
    pub(crate) fn set_pace(&self, pauses: u32) {
        if self.pace() != pauses {
            self.own().pace.store(pauses, Ordering::Relaxed);
        }
    }

    /// Anyone: the pauses that thieves are asked to wait.
    #[inline(always)]
    pub(crate) fn pace(&self) -> u32 {
        self.shared().pace.load(Ordering::Relaxed)
    }

    /// Anyone: takes the oldest shared task.
    #[inline(always)]
    pub(crate) fn steal(&self) -> Steal {
        let mut ends = self.shared().ends.load(Ordering::Acquire);
        loop {
            let (tail, split) = unpack(ends);
            if tail >= split {
                return Steal::Empty;
            }
            let claim = pack(tail + 1, split);
            match self.shared().ends.compare_exchange_weak(ends, claim, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    if tail + 1 == split {
                        self.raise_attention();
                    }
                    // SAFETY: `tail < split <= CAPACITY`, within the allocation.
                    return Steal::Taken(unsafe { self.base().add(tail as usize) });
                }
                Err(now) => ends = now,
            }
        }
    }
}

impl Drop for SplitDeque {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, and not used any more.
        unsafe { Block::free(self.block) };
    }
}

/// A block begins at a multiple of this, the size of a pair of cache lines that are fetched
/// together.
#[cfg(not(loom))]
const ALIGNMENT: usize = 128;

#[cfg(not(loom))]
impl Block {
    /// Room for a block, and for what lies before its first aligned address: that address, then the
    /// one of the allocation. Not aligned by the allocator, which would write to all of it.
    fn layout() -> std::alloc::Layout {
        let size = size_of::<Block>() + 2 * ALIGNMENT;
        std::alloc::Layout::from_size_align(size, align_of::<Block>()).expect("constants that fit")
    }

    /// An empty block, of which what is not touched is not committed.
    fn allocate() -> *const Block {
        let start = block_memory::allocate(Self::layout());
        if start.is_null() {
            std::alloc::handle_alloc_error(Self::layout());
        }
        let gap = ALIGNMENT + (ALIGNMENT - start.addr() % ALIGNMENT) % ALIGNMENT;
        // SAFETY: `gap` is from `ALIGNMENT` to twice that, so the block fits, and there is room for
        // a pointer before it. The slots are integer atomics, for which zeros and what an earlier
        // deque left are valid; each is rearmed before it is looked at.
        unsafe {
            let block = start.add(gap).cast::<Block>();
            block.cast::<*mut u8>().sub(1).write(start);
            (&raw mut (*block).limit).write(AtomicUsize::new(ATTENTION));
            (&raw mut (*block).ends).write(AtomicU64::new(0));
            (&raw mut (*block).pace).write(AtomicU32::new(0));
            block.cast_const()
        }
    }

    /// Frees a block.
    ///
    /// # Safety
    /// Made by `allocate`, and not used any more.
    unsafe fn free(block: *const Block) {
        // SAFETY: the allocation's address lies before the block. Latches need no drop.
        unsafe {
            let start = block.cast::<*mut u8>().sub(1).read();
            block_memory::free(start, Self::layout());
        }
    }
}

#[cfg(loom)]
impl Block {
    fn allocate() -> *const Block {
        Box::into_raw(Box::new(Block {
            limit: AtomicUsize::new(ATTENTION),
            ends: AtomicU64::new(0),
            pace: AtomicU32::new(0),
            slots: core::array::from_fn(|_| Latch::new()),
        }))
    }

    /// # Safety
    /// As above.
    unsafe fn free(block: *const Block) {
        // SAFETY: made by `allocate`.
        drop(unsafe { Box::from_raw(block.cast_mut()) });
    }
}
