//! The processes of a job meet when MPI has started, and leave before it ends.

use crate::call::table;
use crate::collectives::Operations;
use crate::job::{self, Job, Peer, World};
use crate::library::{Library, THREAD_MULTIPLE, at, library, pmpi};
use crate::requests::Requests;
use crate::ring::Ring;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::fs::OpenOptions;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::ptr;

/// Bytes of all rings of a host, as far as that is possible with the fewest lines of a ring; and the most.
const ROOM: usize = 32 << 20;
const FEWEST: usize = 64;
const MOST: usize = 1024;

/// MPI has started: finds the other processes. All processes of the world come here.
pub(crate) fn begin() {
    let Some(table) = table().filter(|table| table.tracks && job::current().is_none()) else {
        return;
    };
    let library = library();
    let (mut rank, mut size, mut level): (c_int, c_int, c_int) = (0, 0, 0);
    let (mut own, mut group) = (0, 0);
    pmpi!(Comm_rank(library.world, at(&mut rank)));
    pmpi!(Comm_size(library.world, at(&mut size)));
    pmpi!(Query_thread(at(&mut level)));
    pmpi!(Comm_dup(library.world, at(&mut own)));
    pmpi!(Comm_group(library.world, at(&mut group)));
    let (rank, size) = (rank as usize, size as usize);
    let random = RandomState::new().hash_one(std::process::id());
    let hellos: Vec<[u64; 2]> = gather(library, own, [host(rank), random], size);
    let mut world = World {
        library,
        rank: rank as u32,
        group,
        is_threaded: level >= THREAD_MULTIPLE,
        comms: Vec::new(),
        made: 0,
        requests: Requests::default(),
        windows: BTreeMap::new(),
        peers: connect(library, own, rank, &hellos),
        own,
        sent: VecDeque::new(),
        late: Box::default(),
    };
    world.add(library.world, 1, (0..size as u32).collect(), false);
    world.add(library.own, 2, vec![rank as u32], false);
    (table.join)(hellos[0][1], rank as u32, size as u32);
    job::set(Some(Job::new(Operations::new(library), world)));
}

/// MPI is about to end. All processes of the world come here.
pub(crate) fn end() {
    if let Some(job) = job::current() {
        job::set(None);
        job.state().world.end();
        job.operations.free();
    }
}

/// What each of `size` processes of a communicator has given.
pub(crate) fn gather<T: Copy + Default>(library: &Library, own: usize, mut mine: T, size: usize) -> Vec<T> {
    let mut all = vec![T::default(); size];
    let (to, bytes, byte) = (all.as_mut_ptr().expose_provenance(), size_of::<T>(), library.byte);
    pmpi!(Allgather(at(&mut mine), bytes, byte, to, bytes, byte, own));
    all
}

/// A number of this host, and of this process if strands are to travel as between hosts.
fn host(rank: usize) -> u64 {
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

/// The ways to and from each rank: rings to those of the same host.
fn connect(library: &Library, own: usize, rank: usize, hellos: &[[u64; 2]]) -> Vec<Peer> {
    let is_here = |other: &usize| hellos[*other][0] == hellos[rank][0];
    let here: Vec<usize> = (0..hellos.len()).filter(is_here).collect();
    let rings = here.len() * here.len();
    let lines = (ROOM / rings / Ring::bytes(1)).clamp(FEWEST, MOST);
    let lines = 1 << lines.ilog2();
    let bytes = Ring::bytes(lines);
    let path = format!("/dev/shm/hpcrun-{:016x}", hellos[here[0]][1]);
    let is_first = here[0] == rank;
    let mut memory = is_first.then(|| share(&path, true, rings * bytes)).flatten();
    pmpi!(Barrier(own));
    if !is_first {
        memory = share(&path, false, rings * bytes);
    }
    let has = gather(library, own, memory.is_some(), hellos.len());
    if is_first {
        // Nobody needs the name any more.
        let _ = std::fs::remove_file(&path);
    }
    // All of a host, or none.
    let memory = memory.filter(|_| here.iter().all(|other| has[*other]));
    let place = |rank: usize| here.iter().position(|here| *here == rank);
    let ring = |from: usize, to: usize| {
        let start = memory?.wrapping_add((place(from)? * here.len() + place(to)?) * bytes);
        // SAFETY: zeros from the system, aligned to lines, and never unmapped.
        Some(unsafe { Ring::new(start, lines, from as u32) })
    };
    let peer = |other| Peer::new(ring(rank, other), ring(other, rank));
    (0..hellos.len()).map(peer).collect()
}

/// Maps memory that processes share by the name of a file.
fn share(path: &str, create: bool, bytes: usize) -> Option<*const u8> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(create).mode(0o600).open(path).ok()?;
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
