//! What a process knows of its job: the ranks, the communicators, and how strands travel.
//!
//! Between processes of one host they travel in rings of shared memory, between hosts in messages of their
//! own on a communicator that only this library has. Both ways keep their order, and a strand leaves before
//! its message does.

use crate::call::{Observed, table};
use crate::collectives::Operations;
use crate::library::{Library, THREAD_MULTIPLE, at, library, pmpi};
use crate::matching::{Arrived, Found, Matching, Message, World};
use crate::requests::Requests;
use crate::ring::Ring;
use hpcrun_abi::{LOST_ROOM, LOST_UNKNOWN};
use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::fs::OpenOptions;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of all rings of a host, as far as that is possible with the fewest lines of a ring; and the most.
const ROOM: usize = 32 << 20;
const FEWEST: usize = 64;
const MOST: usize = 1024;
/// Strands that wait for room in a ring, for each receiver. Beyond, the rest of the run is lost there.
const MOST_WAITING: usize = 1 << 14;
/// How long a strand of another host may be later than its message.
const PATIENCE: Duration = Duration::from_millis(200);
/// The tag of strands that travel in messages of their own.
const TAG: usize = 0;

/// The job of this process.
pub(crate) struct Job {
    /// MPI's calls come from several threads at once.
    pub(crate) is_threaded: bool,
    pub(crate) operations: Operations,
    state: Mutex<State>,
}

/// What changes.
pub(crate) struct State {
    pub(crate) library: &'static Library,
    comms: Vec<Comm>,
    made: u64,
    rank: u32,
    world_group: usize,
    pub(crate) matching: Matching,
    pub(crate) requests: Requests,
    /// The strand that is about to leave, or has just come: it is large, so it is never moved.
    strand: Box<Arrived>,
    to: Vec<Outgoing>,
    /// Strands wait for room in a ring.
    waits: bool,
    from: Vec<Incoming>,
    /// The communicator of strands that travel in messages.
    own: usize,
    /// Such messages on their way.
    sent: VecDeque<(usize, Box<Arrived>)>,
    is_threaded: bool,
}

/// A communicator.
pub(crate) struct Comm {
    handle: usize,
    /// Equal at all its processes.
    pub(crate) id: u64,
    /// The ranks in the job, by those in the communicator.
    pub(crate) ranks: Vec<u32>,
}

/// How strands travel to a rank.
enum Outgoing {
    Ring(Ring, VecDeque<Arrived>),
    Message,
    /// There was no room: none travels any more.
    Closed,
}

/// How they come from a rank.
enum Incoming {
    Ring(Ring),
    Message,
}

static JOB: AtomicPtr<Job> = AtomicPtr::new(ptr::null_mut());

/// The process's job, while MPI runs and the path is tracked.
#[inline]
pub(crate) fn current() -> Option<&'static Job> {
    // SAFETY: null, or leaked by `begin`.
    unsafe { JOB.load(Ordering::Acquire).as_ref() }
}

/// MPI has started: finds the other processes.
pub(crate) fn begin() {
    let Some(table) = table().filter(|table| table.tracks && current().is_none()) else {
        return;
    };
    // SAFETY: MPI runs, and all processes of the world come here.
    let (job, id) = unsafe { meet() };
    {
        let state = job.state();
        (table.join)(id, state.rank, state.to.len() as u32);
    }
    JOB.store(Box::into_raw(Box::new(job)), Ordering::Release);
}

/// MPI is about to end.
pub(crate) fn end() {
    let Some(job) = current() else { return };
    JOB.store(ptr::null_mut(), Ordering::Release);
    // SAFETY: MPI still runs, and all processes of the world come here.
    unsafe {
        let mut state = job.state();
        // Whatever nobody has received must not be left in MPI's queues.
        if state
            .from
            .iter()
            .any(|from| matches!(from, Incoming::Message))
        {
            state.reap(true);
            pmpi!(Barrier(state.own));
            for source in 0..state.from.len() as u32 {
                state.matching(
                    |_, world, unused| {
                        while world.by_message(source, Duration::ZERO, unused) {}
                    },
                );
            }
        }
        job.operations.free();
        pmpi!(Comm_free(at(&mut state.own)));
    }
}

/// What the processes tell each other when they meet.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Hello {
    host: u64,
    random: u64,
}

/// # Safety
/// As for [`begin`].
unsafe fn meet() -> (Job, u64) {
    let library = library();
    let (mut rank, mut size, mut level): (c_int, c_int, c_int) = (0, 0, 0);
    let (mut own, mut world_group) = (0, 0);
    // SAFETY: MPI's functions on locals; all processes of the world call the collective ones in this order.
    unsafe {
        pmpi!(Comm_rank(library.world, at(&mut rank)));
        pmpi!(Comm_size(library.world, at(&mut size)));
        pmpi!(Query_thread(at(&mut level)));
        pmpi!(Comm_dup(library.world, at(&mut own)));
        pmpi!(Comm_group(library.world, at(&mut world_group)));
        let mut hello = Hello {
            host: host(rank),
            random: RandomState::new().hash_one(std::process::id()),
        };
        let mut hellos = vec![Hello::default(); size as usize];
        let bytes = size_of::<Hello>();
        let to = hellos.as_mut_ptr().expose_provenance();
        pmpi!(Allgather(
            at(&mut hello),
            bytes,
            library.byte,
            to,
            bytes,
            library.byte,
            own
        ));
        let (to, from) = connect(library, own, rank as usize, &hellos);
        let mut state = State {
            library,
            comms: Vec::new(),
            made: 0,
            rank: rank as u32,
            world_group,
            matching: Matching::new(size as usize),
            requests: HashMap::default(),
            strand: Box::default(),
            to,
            waits: false,
            from,
            own,
            sent: VecDeque::new(),
            is_threaded: level >= THREAD_MULTIPLE,
        };
        state.add(library.world, 1, (0..size as u32).collect());
        state.add(library.own, 2, vec![rank as u32]);
        let job = Job {
            is_threaded: state.is_threaded,
            operations: Operations::new(library),
            state: Mutex::new(state),
        };
        (job, hellos[0].random)
    }
}

/// A number of this host, and of this process if strands are to travel as between hosts.
fn host(rank: c_int) -> u64 {
    if std::env::var_os("HPCRUN_RS_SEPARATE").is_some() {
        return rank as u64;
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut name = [0_u8; 256];
    // SAFETY: libc writes at most the length that it is told.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) };
    let text = boot.bytes().chain(name);
    text.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The ways to and from each rank.
///
/// # Safety
/// As for [`begin`].
unsafe fn connect(
    library: &Library,
    own: usize,
    rank: usize,
    hellos: &[Hello],
) -> (Vec<Outgoing>, Vec<Incoming>) {
    let local: Vec<usize> = (0..hellos.len())
        .filter(|other| hellos[*other].host == hellos[rank].host)
        .collect();
    let me = local.iter().position(|other| *other == rank).unwrap_or(0);
    let rings = local.len() * local.len();
    let lines = (ROOM / rings / Ring::bytes(1)).clamp(FEWEST, MOST);
    let lines = 1 << lines.ilog2();
    let bytes = Ring::bytes(lines);
    let path = format!("/dev/shm/hpcrun-{:016x}", hellos[local[0]].random);
    let is_first = me == 0;
    // SAFETY: as for `begin`.
    let barrier = || unsafe { pmpi!(Barrier(own)) };
    let mut memory = is_first
        .then(|| share(&path, true, rings * bytes))
        .flatten();
    barrier();
    if !is_first {
        memory = share(&path, false, rings * bytes);
    }
    barrier();
    if is_first {
        // Nobody needs the name any more.
        let _ = std::fs::remove_file(&path);
    }
    // All of a host, or none.
    let mut has = [u8::from(memory.is_some())];
    let mut all = vec![0_u8; hellos.len()];
    let to = all.as_mut_ptr().expose_provenance();
    // SAFETY: as for `begin`.
    unsafe {
        pmpi!(Allgather(
            at(&mut has),
            1,
            library.byte,
            to,
            1,
            library.byte,
            own
        ))
    };
    let memory = memory.filter(|_| local.iter().all(|other| all[*other] == 1));
    let ring = |from: usize, to: usize| {
        let memory = memory?;
        let start = memory.wrapping_add((from * local.len() + to) * bytes);
        // SAFETY: zeros from the system, aligned to lines, and never unmapped.
        Some(unsafe { Ring::new(start, lines) })
    };
    let mut ways = (Vec::new(), Vec::new());
    for other in 0..hellos.len() {
        let place = local.iter().position(|local| *local == other);
        let is_separate = hellos[other].host != hellos[rank].host;
        let pair = place
            .filter(|_| !is_separate)
            .and_then(|place| Some((ring(me, place)?, ring(place, me)?)));
        match pair {
            Some((to, from)) => {
                ways.0.push(Outgoing::Ring(to, VecDeque::new()));
                ways.1.push(Incoming::Ring(from));
            }
            None => {
                ways.0.push(Outgoing::Message);
                ways.1.push(Incoming::Message);
            }
        }
    }
    ways
}

/// Maps memory that processes share by the name of a file.
fn share(path: &str, create: bool, bytes: usize) -> Option<*const u8> {
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create_new(create)
        .mode(0o600);
    let file = file.open(path).ok()?;
    // SAFETY: a descriptor of ours, and a new mapping. The room is taken now, or not at all: a mapping beyond
    // it would be deadly.
    unsafe {
        let fd = file.as_raw_fd();
        if create && libc::posix_fallocate(fd, 0, bytes as i64) != 0 {
            return None;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let memory = libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0);
        (memory != libc::MAP_FAILED).then_some(memory.cast())
    }
}

impl Job {
    #[inline]
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics with the lock held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A communicator was made from others, by all its processes.
    pub(crate) fn made(&self, handle: usize, observed: Observed) {
        let mut state = self.state();
        if [0, state.library.no_comm].contains(&handle) {
            return;
        }
        state.made += 1;
        let mut id = u64::from(state.rank) << 32 | (state.made + 2);
        let (world_group, byte) = (state.world_group, state.library.byte);
        drop(state);
        let (mut is_inter, mut size, mut group): (c_int, c_int, usize) = (0, 0, 0);
        // SAFETY: MPI's functions on locals; all processes of the communicator have just made it.
        let ranks = unsafe {
            pmpi!(Comm_test_inter(handle, at(&mut is_inter)));
            if is_inter != 0 {
                return observed.lose(LOST_UNKNOWN);
            }
            pmpi!(Comm_size(handle, at(&mut size)));
            pmpi!(Comm_group(handle, at(&mut group)));
            let mut own: Vec<c_int> = (0..size).collect();
            let mut ranks = vec![0_u32; size as usize];
            let from = own.as_mut_ptr().expose_provenance();
            let to = ranks.as_mut_ptr().expose_provenance();
            pmpi!(Group_translate_ranks(
                group,
                size as usize,
                from,
                world_group,
                to
            ));
            pmpi!(Group_free(at(&mut group)));
            // The first one's number is all processes' number.
            pmpi!(Bcast(at(&mut id), size_of::<u64>(), byte, 0, handle));
            ranks
        };
        let mut state = self.state();
        let is_known = ranks.iter().all(|rank| (*rank as usize) < state.to.len());
        match is_known {
            true => state.add(handle, id, ranks),
            // Processes that were started later are of another world.
            false => observed.lose(LOST_UNKNOWN),
        }
    }

    /// A communicator is about to be freed.
    pub(crate) fn freed(&self, handle: usize) {
        self.state().comms.retain(|comm| comm.handle != handle);
    }
}

impl State {
    fn add(&mut self, handle: usize, id: u64, ranks: Vec<u32>) {
        self.comms.retain(|comm| comm.handle != handle);
        self.comms.push(Comm { handle, id, ranks });
    }

    /// A communicator; `None` if it is not known.
    #[inline]
    pub(crate) fn comm(&mut self, handle: usize) -> Option<&Comm> {
        let at = self.comms.iter().position(|comm| comm.handle == handle)?;
        // Those that are used come to the front.
        self.comms.swap(at, at / 2);
        self.comms.get(at / 2)
    }

    /// The job's rank of a communicator's; `None` if it names no process.
    #[inline]
    pub(crate) fn rank(comm: &Comm, rank: c_int) -> Option<u32> {
        usize::try_from(rank)
            .ok()
            .and_then(|rank| comm.ranks.get(rank))
            .copied()
    }

    /// Sends the strand beside the message that follows.
    #[inline]
    pub(crate) fn send(&mut self, (comm, tag): (u64, c_int), to: u32, observed: Observed) {
        (self.strand.comm, self.strand.tag) = (comm, tag);
        observed.export(&mut self.strand.strand);
        match &mut self.to[to as usize] {
            Outgoing::Ring(ring, waiting) if waiting.is_empty() => {
                if !ring.send(&self.strand) {
                    waiting.push_back(*self.strand);
                    self.waits = true;
                }
            }
            Outgoing::Ring(ring, waiting) => {
                waiting.push_back(*self.strand);
                flush(ring, waiting);
                if waiting.len() > MOST_WAITING {
                    waiting.clear();
                    self.to[to as usize] = Outgoing::Closed;
                    observed.lose(LOST_ROOM);
                }
            }
            Outgoing::Message => {
                self.reap(false);
                let mut strand = self.strand.clone();
                let mut request = 0;
                let bytes = size_of::<Arrived>();
                // SAFETY: the buffer lives until the request is complete.
                unsafe {
                    pmpi!(Isend(
                        at(&mut *strand),
                        bytes,
                        self.library.byte,
                        to as usize,
                        TAG,
                        self.own,
                        at(&mut request)
                    ));
                }
                self.sent.push_back((request, strand));
            }
            Outgoing::Closed => observed.lose(LOST_ROOM),
        }
    }

    /// Sends what has waited for room.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if self.waits {
            let rings = self.to.iter_mut().filter_map(|to| match to {
                Outgoing::Ring(ring, waiting) => Some((ring, waiting)),
                _ => None,
            });
            let left = rings.map(|(ring, waiting)| {
                flush(ring, waiting);
                waiting.len()
            });
            self.waits = left.sum::<usize>() > 0;
        }
    }

    /// Forgets the messages with strands that have left.
    fn reap(&mut self, wait: bool) {
        while let Some((request, _)) = self.sent.front_mut() {
            let mut done: c_int = 1;
            let mut status = [0; 6];
            // SAFETY: MPI's functions on a request of ours.
            unsafe {
                match wait {
                    true => pmpi!(Wait(at(request), at(&mut status))),
                    false => pmpi!(Test(at(request), at(&mut done), at(&mut status))),
                };
            }
            if done == 0 {
                return;
            }
            self.sent.pop_front();
        }
    }

    /// Calls `find` with the matching, what it asks, and where it puts a strand.
    #[inline]
    fn matching<R>(
        &mut self,
        find: impl FnOnce(&mut Matching, &mut Arrivals<'_>, &mut Arrived) -> R,
    ) -> R {
        let mut arrivals = Arrivals {
            from: &mut self.from,
            comms: &self.comms,
            requests: &self.requests,
            library: self.library,
            own: self.own,
            is_threaded: self.is_threaded,
        };
        find(&mut self.matching, &mut arrivals, &mut self.strand)
    }

    /// Merges the strand of a message that a receive has got.
    #[inline]
    pub(crate) fn take(&mut self, number: Option<u64>, message: Message, observed: Observed) {
        match self.matching(|matching, world, to| matching.take(number, message, world, to)) {
            Found::Strand => observed.import(&self.strand.strand),
            Found::Missing => observed.lose(LOST_ROOM),
            Found::Ambiguous => observed.lose(LOST_UNKNOWN),
        }
    }

    /// Merges the strand of a message that is there. The receive will count what cannot be told.
    pub(crate) fn peek(&mut self, message: Message, observed: Observed) {
        let found = self.matching(|matching, world, to| matching.peek(message, world, to));
        if found == Found::Strand {
            observed.import(&self.strand.strand);
        }
    }
}

/// What matching asks.
struct Arrivals<'a> {
    from: &'a mut Vec<Incoming>,
    comms: &'a [Comm],
    requests: &'a Requests,
    library: &'static Library,
    own: usize,
    is_threaded: bool,
}

impl Arrivals<'_> {
    /// The next strand that comes in a message from a rank, if it comes in time.
    fn by_message(&mut self, source: u32, patience: Duration, into: &mut Arrived) -> bool {
        let begin = Instant::now();
        let (source, byte) = (source as usize, self.library.byte);
        let mut status = [0; 6];
        loop {
            let mut is_there: c_int = 0;
            // SAFETY: MPI's functions on locals, and a communicator of ours.
            unsafe {
                pmpi!(Iprobe(
                    source,
                    TAG,
                    self.own,
                    at(&mut is_there),
                    at(&mut status)
                ));
                if is_there != 0 {
                    let bytes = size_of::<Arrived>();
                    pmpi!(Recv(
                        at(into),
                        bytes,
                        byte,
                        source,
                        TAG,
                        self.own,
                        at(&mut status)
                    ));
                    return true;
                }
            }
            if begin.elapsed() >= patience {
                return false;
            }
            std::thread::yield_now();
        }
    }
}

fn flush(ring: &mut Ring, waiting: &mut VecDeque<Arrived>) {
    while waiting.front().is_some_and(|first| ring.send(first)) {
        waiting.pop_front();
    }
}

impl World for Arrivals<'_> {
    #[inline]
    fn arrival(&mut self, source: u32, into: &mut Arrived) -> bool {
        match &mut self.from[source as usize] {
            Incoming::Ring(ring) => ring.receive(into),
            Incoming::Message => self.by_message(source, PATIENCE, into),
        }
    }

    fn completed(&mut self, number: u64) -> Result<Message, ()> {
        // With several threads, another one may free the request meanwhile.
        if self.is_threaded {
            return Err(());
        }
        let (handle, receive) = crate::requests::receive(self.requests, number).ok_or(())?;
        let (mut flag, mut status): (c_int, [c_int; 6]) = (0, [0; 6]);
        // SAFETY: a request that the program has, as none of its waits has completed it.
        let (source, tag) = unsafe {
            pmpi!(Request_get_status(handle, at(&mut flag), at(&mut status)));
            self.library.source_and_tag(status.as_ptr())
        };
        let comm = self
            .comms
            .iter()
            .find(|comm| comm.handle == receive)
            .ok_or(())?;
        let source = State::rank(comm, source).filter(|_| flag != 0).ok_or(())?;
        Ok(Message {
            comm: comm.id,
            source,
            tag,
        })
    }
}
