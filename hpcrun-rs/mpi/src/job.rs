//! What a process knows of its job: the communicators, and how strands travel to and from the other ranks.
//!
//! Between processes of one host they travel in rings of shared memory, between hosts in messages of their
//! own on a communicator that only this library has; and so they do in a host when a ring has had no room.
//! Both ways keep their order, and a strand leaves before its message does.

use crate::call::Observed;
use crate::collectives::Operations;
use crate::library::{Library, Statuses, at, pmpi};
use crate::matching::{Arrived, Found, Matching, Message, Strands};
use crate::requests::{self, Requests, wait_for};
use crate::ring::{Next, Ring};
use crate::start;
use crate::windows::Window;
use hpcrun_abi::{LOST_ROOM, LOST_UNKNOWN, RemoteStrand};
use std::cell::UnsafeCell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a strand of another host may be later than its message; after each that has not come, half of it.
const PATIENCE: Duration = Duration::from_millis(20);
/// The tag of strands that travel in messages of their own.
const TAG: usize = 0;

/// The job of this process.
pub(crate) struct Job {
    /// MPI's calls come from several threads at once.
    pub(crate) is_threaded: bool,
    pub(crate) operations: Operations,
    lock: Mutex<()>,
    state: UnsafeCell<State>,
}

/// What changes.
pub(crate) struct State {
    pub(crate) matching: Matching,
    pub(crate) world: World,
}

/// The processes, communicators and requests.
pub(crate) struct World {
    pub(crate) library: &'static Library,
    pub(crate) rank: u32,
    pub(crate) group: usize,
    /// Whether MPI's calls come from several threads at once.
    pub(crate) is_threaded: bool,
    pub(crate) comms: Vec<Comm>,
    /// Communicators that were made.
    pub(crate) made: u64,
    pub(crate) requests: Requests,
    pub(crate) windows: BTreeMap<usize, Window>,
    pub(crate) peers: Vec<Peer>,
    /// The communicator of strands that travel in messages.
    pub(crate) own: usize,
    /// Such messages on their way, and the last one that has come.
    pub(crate) sent: VecDeque<(usize, Box<Arrived>)>,
    pub(crate) late: Box<Arrived>,
}

pub(crate) struct Comm {
    handle: usize,
    /// Equal at all its processes.
    pub(crate) id: u64,
    /// The ranks in the job, by those in the communicator; between two groups, by those in the other one.
    pub(crate) ranks: Vec<u32>,
    pub(crate) is_inter: bool,
}

impl Comm {
    /// The job's rank of one in the communicator; `None` if it names no process.
    #[inline]
    pub(crate) fn rank(&self, rank: c_int) -> Option<u32> {
        self.ranks.get(usize::try_from(rank).ok()?).copied()
    }
}

/// The rings to and from a rank; without one, strands travel in messages.
pub(crate) struct Peer {
    to: Option<Ring>,
    from: Option<Ring>,
    patience: Duration,
}

impl Peer {
    pub(crate) fn new(to: Option<Ring>, from: Option<Ring>) -> Peer {
        Peer { to, from, patience: PATIENCE }
    }
}

static HAS_SESSIONS: AtomicBool = AtomicBool::new(false);

/// Processes meet in sessions of MPI, of whose messages nothing is known.
pub(crate) fn begin_sessions() {
    HAS_SESSIONS.store(true, Ordering::Relaxed);
}

pub(crate) fn has_sessions() -> bool {
    HAS_SESSIONS.load(Ordering::Relaxed)
}

static JOB: AtomicPtr<Job> = AtomicPtr::new(ptr::null_mut());

/// The process's job, while MPI runs and the path is tracked.
#[inline]
pub(crate) fn current() -> Option<&'static Job> {
    // SAFETY: null, or leaked by `set`.
    unsafe { JOB.load(Ordering::Acquire).as_ref() }
}

/// From now on, or until now, the process has a job.
pub(crate) fn set(job: Option<Job>) {
    let job = job.map_or(ptr::null_mut(), |job| Box::into_raw(Box::new(job)));
    JOB.store(job, Ordering::Release);
}

/// A thread's access to the state.
pub(crate) struct Access<'a> {
    state: &'a mut State,
    _lock: Option<MutexGuard<'a, ()>>,
}

impl Deref for Access<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.state
    }
}

impl DerefMut for Access<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.state
    }
}

impl Job {
    pub(crate) fn new(operations: Operations, world: World) -> Job {
        let state = State { matching: Matching::new(world.peers.len()), world };
        Job {
            is_threaded: state.world.is_threaded,
            operations,
            lock: Mutex::new(()),
            state: UnsafeCell::new(state),
        }
    }

    /// A thread has one access at a time.
    #[inline]
    pub(crate) fn state(&self) -> Access<'_> {
        // Nothing panics with the lock held.
        let lock = || self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = self.is_threaded.then(lock);
        Access {
            // SAFETY: the lock is held; without one, the program has promised MPI that one thread at a time
            // calls it. No thread has two accesses.
            state: unsafe { &mut *self.state.get() },
            _lock: lock,
        }
    }

    /// A communicator was made from others, by all its processes.
    pub(crate) fn made(&self, handle: usize, observed: &Observed) {
        let mut state = self.state();
        let world = &mut state.world;
        if [0, world.library.no_comm].contains(&handle) {
            return;
        }
        world.made += 1;
        let mut id = u64::from(world.rank) << 32 | (world.made + 2);
        let (mut is_inter, mut size, mut group): (c_int, c_int, usize) = (0, 0, 0);
        pmpi!(Comm_test_inter(handle, at(&mut is_inter)));
        let is_inter = is_inter != 0;
        if is_inter {
            pmpi!(Comm_remote_size(handle, at(&mut size)));
            pmpi!(Comm_remote_group(handle, at(&mut group)));
        } else {
            pmpi!(Comm_size(handle, at(&mut size)));
            pmpi!(Comm_group(handle, at(&mut group)));
        }
        let ranks = world.ranks_of(group, size);
        pmpi!(Group_free(at(&mut group)));
        if !ranks.iter().all(|rank| (*rank as usize) < world.peers.len()) {
            // Processes that were started later are of another world.
            return observed.lose(LOST_UNKNOWN);
        }
        let library = world.library;
        drop(state);
        // The first one's number is all processes' number; of two groups' first ones, the larger number.
        if is_inter {
            let first = |mine: u64| start::gather(library, handle, mine, ranks.len())[0];
            let other = first(id);
            id = other.max(first(other));
        } else {
            pmpi!(Bcast(at(&mut id), size_of::<u64>(), library.byte, 0, handle));
        }
        self.state().world.add(handle, id, ranks, is_inter);
    }
}

impl State {
    /// Merges the strand of a message that a receive has got.
    #[inline]
    pub(crate) fn take(&mut self, number: Option<u64>, message: Message, observed: &Observed) {
        let State { matching, world } = self;
        match matching.take(number, message, world, |strand| observed.import(strand)) {
            Found::Strand => {}
            Found::Missing => observed.lose(LOST_ROOM),
            Found::Ambiguous => observed.lose(LOST_UNKNOWN),
        }
    }

    /// Merges the strand of a message that is there. The receive will count what cannot be told.
    pub(crate) fn peek(&mut self, message: Message, observed: &Observed) {
        let State { matching, world } = self;
        if let Some(strand) = matching.peek(message, world) {
            observed.import(strand);
        }
    }
}

impl World {
    pub(crate) fn add(&mut self, handle: usize, id: u64, ranks: Vec<u32>, is_inter: bool) {
        self.forget(handle);
        self.comms.push(Comm { handle, id, ranks, is_inter });
    }

    /// The ranks in the job of a group of so many processes.
    pub(crate) fn ranks_of(&self, group: usize, size: c_int) -> Vec<u32> {
        let mut own: Vec<c_int> = (0..size).collect();
        let mut ranks = vec![0_u32; own.len()];
        let from = own.as_mut_ptr().expose_provenance();
        let to = ranks.as_mut_ptr().expose_provenance();
        pmpi!(Group_translate_ranks(group, own.len(), from, self.group, to));
        ranks
    }

    /// A communicator is about to be freed.
    pub(crate) fn forget(&mut self, handle: usize) {
        self.windows.retain(|_, window| window.comm != handle);
        self.comms.retain(|comm| comm.handle != handle);
    }

    /// A communicator; `None` if it is not known.
    #[inline]
    pub(crate) fn comm(&mut self, handle: usize) -> Option<&Comm> {
        let at = self.comms.iter().position(|comm| comm.handle == handle)?;
        if at > 0 {
            // Those that are used come to the front.
            self.comms.swap(at, at / 2);
        }
        self.comms.get(at / 2)
    }

    /// Sends the strand beside the message that follows.
    #[inline]
    pub(crate) fn send(&mut self, (comm, tag): (u64, c_int), to: u32, strand: &RemoteStrand) {
        let ring = &mut self.peers[to as usize].to;
        let is_sent = ring.as_mut().is_some_and(|ring| ring.send(comm, tag, strand));
        if !is_sent {
            ring.take().inspect(Ring::close);
            self.send_message(Arrived { comm, tag, strand: *strand }, to);
        }
    }

    #[cold]
    fn send_message(&mut self, strand: Arrived, to: u32) {
        self.reap(false);
        let (mut strand, mut request) = (Box::new(strand), 0);
        let (from, byte, to, own) = (at(&mut *strand), self.library.byte, to as usize, self.own);
        pmpi!(Isend(from, size_of::<Arrived>(), byte, to, TAG, own, at(&mut request)));
        self.sent.push_back((request, strand));
    }

    /// Forgets the messages with strands that have left.
    fn reap(&mut self, wait: bool) {
        while let Some((request, _)) = self.sent.front_mut() {
            let (mut done, mut status): (c_int, [c_int; 6]) = (1, [0; 6]);
            match wait {
                true => wait_for(*request),
                false => drop(pmpi!(Test(at(request), at(&mut done), at(&mut status)))),
            }
            if done == 0 {
                return;
            }
            self.sent.pop_front();
        }
    }

    /// Nobody sends any more: whatever nobody has received must not be left in MPI's queues.
    pub(crate) fn end(&mut self) {
        self.reap(true);
        pmpi!(Barrier(self.own));
        let any = self.library.any_source as usize;
        while self.by_message(any, Duration::ZERO) {}
        pmpi!(Comm_free(at(&mut self.own)));
    }

    /// Whether the next strand that comes in a message from a rank comes in time.
    #[cold]
    fn by_message(&mut self, source: usize, patience: Duration) -> bool {
        let begin = Instant::now();
        let (own, byte, mut status) = (self.own, self.library.byte, [0; 6]);
        let status = at(&mut status);
        loop {
            let mut is_there: c_int = 0;
            pmpi!(Iprobe(source, TAG, own, at(&mut is_there), status));
            if is_there != 0 {
                pmpi!(Recv(at(&mut *self.late), size_of::<Arrived>(), byte, source, TAG, own, status));
                return true;
            }
            if begin.elapsed() >= patience {
                return false;
            }
            std::thread::yield_now();
        }
    }
}

impl Strands for World {
    #[inline]
    fn arrival(&mut self, source: u32) -> Option<&Arrived> {
        let place = source as usize;
        let ring = self.peers[place].from.as_mut();
        match ring.map_or(Next::Closed, Ring::receive) {
            Next::Entry => self.peers[place].from.as_ref().map(Ring::entry),
            Next::Nothing => None,
            Next::Closed => {
                self.peers[place].from = None;
                let patience = self.peers[place].patience;
                let is_there = self.by_message(place, patience);
                self.peers[place].patience = if is_there { patience } else { patience / 2 };
                is_there.then_some(&*self.late)
            }
        }
    }

    fn completed(&mut self, number: u64) -> Result<Message, ()> {
        // With several threads, another one may free the request meanwhile.
        if self.is_threaded {
            return Err(());
        }
        let (handle, comm) = requests::receive(&self.requests, number).ok_or(())?;
        let (mut flag, mut status): (c_int, [c_int; 6]) = (0, [0; 6]);
        // A request that the program has, as none of its waits has completed it.
        pmpi!(Request_get_status(handle, at(&mut flag), at(&mut status)));
        let (source, tag) = Statuses::at(at(&mut status)).source_and_tag();
        let comm = self.comm(comm).ok_or(())?;
        let source = comm.rank(source).filter(|_| flag != 0).ok_or(())?;
        Ok(Message { comm: comm.id, source, tag })
    }
}
