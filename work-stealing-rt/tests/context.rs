//! A stolen task's spawner can be found, frame by frame, from the task's stack.
//!
//! The test runs itself again with a small profiler preloaded (`support/profiler.c`, compiled
//! with `cc`). Each leaf of two random trees of joins then unwinds its own logical stack with
//! framehop, crossing the boundary by the headers, and checks the exact number of frames of its
//! own tree, that no frame of the other tree is in between, and that the path ends in the caller
//! of `install`. Invariant of the oracle: the trees' functions are in link sections of their own,
//! so that a frame is recognised by address alone.
#![cfg(all(target_os = "linux", target_arch = "x86_64", feature = "context"))]

use std::cell::RefCell;
use std::ffi::CStr;
use std::hint::black_box;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};
use hpcrun_abi::{RuntimeTable, TaskHeader, WORKER_WORKING};
use object::{Object, ObjectSection};
use work_stealing_rt::{SpawnContext, ThreadPoolBuilder, join, par_for_grain, scope};

const PRELOADED: &str = "WSRT_TEST_PRELOADED";

/// Runs `test` in a process of its own that has the profiler preloaded.
fn with_profiler(name: &str, test: fn()) {
    if std::env::var_os(PRELOADED).is_some() {
        return test();
    }
    let library = library();
    let output = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", name, "--nocapture"])
        .env(PRELOADED, "1")
        .env("LD_PRELOAD", library)
        .output()
        .expect("the test program runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stdout));
}

/// The compiled profiler.
fn library() -> &'static PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/profiler.c");
        let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("libtestprofiler-{}.so", std::process::id()));
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(source)
            .status()
            .expect("a C compiler named cc");
        assert!(status.success(), "cc failed");
        library
    })
}

fn symbol(name: &CStr) -> usize {
    // SAFETY: a NUL-terminated name; `dlsym` has no other precondition.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!symbol.is_null(), "{name:?} is not exported");
    symbol as usize
}

fn table() -> &'static RuntimeTable {
    // SAFETY: the function of `profiler.c` with this name and type.
    let get: extern "C" fn() -> *const RuntimeTable =
        unsafe { std::mem::transmute(symbol(c"test_profiler_table")) };
    // SAFETY: null, or the runtime's table, which it never frees.
    unsafe { get().as_ref() }.expect("the runtime has registered")
}

fn count(name: &CStr) -> i64 {
    // SAFETY: a function of `profiler.c` of this type.
    let get: extern "C" fn() -> i64 = unsafe { std::mem::transmute(symbol(name)) };
    get()
}

type StackUnwinder = UnwinderX86_64<Vec<u8>>;

/// An unwinder that knows all modules loaded now.
fn unwinder() -> &'static StackUnwinder {
    static UNWINDER: OnceLock<StackUnwinder> = OnceLock::new();
    UNWINDER.get_or_init(|| {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
        let mut modules: Vec<(String, Range<u64>)> = Vec::new();
        for line in maps.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let Some(path) = fields.get(5).filter(|path| path.starts_with('/')) else {
                continue;
            };
            let (start, end) = fields[0].split_once('-').expect("a range");
            let address = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
            match modules.iter_mut().find(|(known, _)| known == path) {
                Some((_, range)) => range.end = address(end),
                None => modules.push((path.to_string(), address(start)..address(end))),
            }
        }
        let mut unwinder = StackUnwinder::new();
        for (path, range) in modules {
            add_module(&mut unwinder, path, range);
        }
        unwinder
    })
}

fn add_module(unwinder: &mut StackUnwinder, path: String, range: Range<u64>) {
    let Ok(data) = std::fs::read(&path) else {
        return;
    };
    let Ok(file) = object::File::parse(&*data) else {
        return;
    };
    let section = |name| {
        let section = file.section_by_name(name)?;
        let range = section.address()..section.address() + section.size();
        Some((range, section.data().ok()?.to_vec()))
    };
    let (text, eh_frame, header) = (section(".text"), section(".eh_frame"), section(".eh_frame_hdr"));
    let info = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: text.as_ref().map(|(range, _)| range.clone()),
        text: text.map(|(_, data)| data),
        eh_frame_svma: eh_frame.as_ref().map(|(range, _)| range.clone()),
        eh_frame: eh_frame.map(|(_, data)| data),
        eh_frame_hdr_svma: header.as_ref().map(|(range, _)| range.clone()),
        eh_frame_hdr: header.map(|(_, data)| data),
        ..Default::default()
    };
    let base = range.start;
    unwinder.add_module(Module::new(path, range, base, info));
}

/// What a logical path consists of.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
struct Path {
    /// Frames of the oracle's functions by section: tree a, tree b, tree c, the root.
    frames: [usize; 4],
    /// Boundaries that were crossed.
    crossed: usize,
    /// Frames of the runtime's own out-of-line code.
    runtime: usize,
    /// The captured context in which the path ends, if it does.
    captured: Option<usize>,
    /// Did the path end at the entry of a thread?
    rooted: bool,
}

mod bounds {
    //! The limits of the oracle's sections, defined by the linker.
    unsafe extern "C" {
        #[link_name = "__start_oracle_a"]
        pub(super) static A: u8;
        #[link_name = "__stop_oracle_a"]
        pub(super) static A_END: u8;
        #[link_name = "__start_oracle_b"]
        pub(super) static B: u8;
        #[link_name = "__stop_oracle_b"]
        pub(super) static B_END: u8;
        #[link_name = "__start_oracle_c"]
        pub(super) static C: u8;
        #[link_name = "__stop_oracle_c"]
        pub(super) static C_END: u8;
        #[link_name = "__start_oracle_root"]
        pub(super) static ROOT: u8;
        #[link_name = "__stop_oracle_root"]
        pub(super) static ROOT_END: u8;
    }

    pub(super) fn sections() -> [std::ops::Range<usize>; 4] {
        [
            (&raw const A).addr()..(&raw const A_END).addr(),
            (&raw const B).addr()..(&raw const B_END).addr(),
            (&raw const C).addr()..(&raw const C_END).addr(),
            (&raw const ROOT).addr()..(&raw const ROOT_END).addr(),
        ]
    }
}

fn read(address: u64) -> Result<u64, ()> {
    if address < 4096 || address % 8 != 0 {
        return Err(());
    }
    // SAFETY: the unwinder asks for stack slots of frames that are live while it runs: this
    // thread's, and those of spawners that wait for it.
    Ok(unsafe { std::ptr::read_volatile(address as *const u64) })
}

/// The logical path of the caller.
#[inline(never)]
fn logical_path() -> Path {
    let (ip, sp, bp): (u64, u64, u64);
    // SAFETY: reads registers only.
    unsafe {
        std::arch::asm!(
            "lea {ip}, [rip]", "mov {sp}, rsp", "mov {bp}, rbp",
            ip = out(reg) ip, sp = out(reg) sp, bp = out(reg) bp,
            options(nomem, nostack, preserves_flags),
        );
    }
    thread_local! {
        static CACHE: RefCell<CacheX86_64> = RefCell::new(CacheX86_64::new());
    }
    CACHE.with_borrow_mut(|cache| walk(ip, sp, bp, cache))
}

fn walk(ip: u64, sp: u64, bp: u64, cache: &mut CacheX86_64) -> Path {
    let table = table();
    let text = table.text_start..table.text_end;
    let mut path = Path::default();
    let mut regs = UnwindRegsX86_64::new(ip, sp, bp);
    let mut address = FrameAddress::from_instruction_pointer(ip);
    for _ in 0..100_000 {
        let lookup = address.address_for_lookup() as usize;
        for (section, frames) in bounds::sections().iter().zip(&mut path.frames) {
            *frames += usize::from(section.contains(&lookup));
        }
        path.runtime += usize::from(text.contains(&lookup));
        if address.is_return_address() && address.address() as usize == table.boundary_return {
            let slot = regs.sp() + table.task_slot as u64;
            let header = read(slot).expect("an aligned slot") as *const TaskHeader;
            // SAFETY: the task is live while the boundary's frame exists.
            let (ip, sp, fp) = unsafe { ((*(*header).site).ip, (*header).sp, (*header).fp) };
            path.crossed += 1;
            if ip == 0 {
                path.captured = Some(sp);
                return path;
            }
            regs = UnwindRegsX86_64::new(ip as u64, sp as u64, fp as u64);
            address = FrameAddress::from_instruction_pointer(ip as u64);
            continue;
        }
        match unwinder().unwind_frame(address, &mut regs, cache, &mut read) {
            Ok(Some(next)) => match FrameAddress::from_return_address(next) {
                Some(next) => address = next,
                None => break,
            },
            Ok(None) => break,
            Err(_) => return path,
        }
    }
    path.rooted = true;
    path
}

static LEAVES: AtomicUsize = AtomicUsize::new(0);
static CROSSED: AtomicUsize = AtomicUsize::new(0);

/// Checks the path of a leaf of tree `tree` at `depth`; `aligned` frames of tree c are above.
#[inline(never)]
fn leaf(tree: usize, depth: usize, aligned: usize) {
    let path = logical_path();
    let mut frames = [0, 0, aligned, 1];
    frames[tree] += depth + 1;
    assert!(path.rooted, "lost at {path:?}");
    assert_eq!(path.frames, frames, "tree {tree}, depth {depth}: {path:?}");
    assert!(path.runtime >= path.crossed, "{path:?}");
    LEAVES.fetch_add(1, Relaxed);
    CROSSED.fetch_add(path.crossed, Relaxed);
    // Time for the other workers to steal.
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(3) {
        std::hint::spin_loop();
    }
}

#[inline(never)]
#[unsafe(link_section = "oracle_a")]
fn tree_a(n: usize, depth: usize) -> usize {
    if n < 2 {
        leaf(0, depth, 0);
        return 1;
    }
    let (x, y) = join(|| tree_a(n - 1, depth + 1), || tree_a(n - 2, depth + 1));
    x + y
}

#[inline(never)]
#[unsafe(link_section = "oracle_b")]
fn tree_b(n: usize, depth: usize, aligned: usize) -> usize {
    if n < 2 {
        leaf(1, depth, aligned);
        return 1;
    }
    if n % 3 == 0 {
        // Some spawns with much state in the frame.
        let big = black_box([n; 100]);
        let (x, y) = join(
            || tree_b(big[black_box(n)] - 1, depth + 1, aligned),
            || tree_b(big[black_box(1)] - 2, depth + 1, aligned),
        );
        return black_box(big)[0] - n + x + y;
    }
    let (x, y) = join(|| tree_b(n - 1, depth + 1, aligned), || tree_b(n - 2, depth + 1, aligned));
    x + y
}

#[derive(Clone, Copy)]
#[repr(align(256))]
struct Aligned([usize; 4]);

/// A spawner whose frame is aligned beyond the stack's own alignment.
#[inline(never)]
#[unsafe(link_section = "oracle_c")]
fn tree_c(n: usize) -> usize {
    let mut state = black_box(Aligned([n; 4]));
    let inner = black_box(&mut state);
    let (x, y) = join(|| tree_b(n, 0, 1), || tree_b(n - 1, 0, 1));
    inner.0[0] += 1;
    assert_eq!(std::ptr::from_ref(inner).addr() % 256, 0);
    x + y + black_box(state).0[0] - n - 1
}

/// The only frame of the root section: it blocks in `install`.
#[inline(never)]
#[unsafe(link_section = "oracle_root")]
fn root(pool: &work_stealing_rt::ThreadPool, run: fn() -> usize) -> usize {
    black_box(pool.install(run))
}

fn forest() -> usize {
    let (a, (b, c)) = join(|| tree_a(14, 0), || join(|| tree_b(14, 0, 0), || tree_c(13)));
    a + b + c
}

fn check_forests() {
    for threads in [1, 2, 4, 8] {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        LEAVES.store(0, Relaxed);
        CROSSED.store(0, Relaxed);
        let leaves = (0..3).map(|_| root(&pool, forest)).sum::<usize>();
        assert_eq!(LEAVES.load(Relaxed), leaves);
        // Each path crosses the boundary of `install` at least.
        let crossed = CROSSED.load(Relaxed);
        assert!(crossed >= leaves);
        if threads > 1 {
            assert!(crossed > leaves, "nothing was stolen");
        }
    }
}

#[test]
fn leaves_find_their_spawners_through_steals() {
    with_profiler("leaves_find_their_spawners_through_steals", check_forests);
}

fn check_loop() {
    let pool = ThreadPoolBuilder::new().num_threads(4).build().expect("threads");
    fn run() -> usize {
        par_for_grain(0..400, 1, |i| {
            if i % 2 == 0 {
                tree_a(3, 0);
            } else {
                tree_b(3, 0, 0);
            }
        });
        0
    }
    root(&pool, run);
    assert_eq!(LEAVES.load(Relaxed), 400 * 3);
}

#[test]
fn loop_bodies_find_the_loop() {
    with_profiler("loop_bodies_find_the_loop", check_loop);
}

fn check_captures() {
    let pool = ThreadPoolBuilder::new().num_threads(2).build().expect("threads");
    let captured = AtomicUsize::new(0);
    for round in 1..=20 {
        pool.scope(|s| {
            s.spawn(|_| {
                let path = logical_path();
                assert_eq!(path.crossed, 1, "{path:?}");
                captured.store(path.captured.unwrap_or(0), Relaxed);
            });
        });
        assert_eq!(captured.load(Relaxed), 1000 + round);
    }
    // A join inside a spawned task leads to the spawned task's context.
    pool.install(|| {
        scope(|s| {
            s.spawn(|_| {
                let stolen = AtomicBool::new(false);
                join(
                    || {
                        while !stolen.load(Relaxed) {
                            std::hint::spin_loop()
                        }
                    },
                    || {
                        let path = logical_path();
                        assert_eq!((path.crossed, path.captured), (2, Some(1021)), "{path:?}");
                        stolen.store(true, Relaxed);
                    },
                );
            });
        });
    });
    // The handler of a message of another runtime leads to its sender; its panic goes on.
    pool.install(|| {
        let sender = SpawnContext::capture();
        let path = sender.enter(logical_path);
        assert_eq!((path.crossed, path.captured), (1, Some(1022)), "{path:?}");
        let panicked = std::panic::catch_unwind(|| sender.enter(|| panic!("handler")));
        assert!(panicked.is_err());
    });
}

#[test]
fn spawned_tasks_carry_a_captured_context() {
    with_profiler("spawned_tasks_carry_a_captured_context", check_captures);
}

fn check_table() {
    let pool = ThreadPoolBuilder::new().num_threads(3).build().expect("threads");
    let table = table();
    let text = table.text_start..table.text_end;
    assert_eq!(table.size as usize, size_of::<RuntimeTable>());
    assert_eq!(table.version, hpcrun_abi::ABI_VERSION);
    assert!(text.contains(&table.boundary_return));
    assert!(!text.contains(&(root as fn(_, _) -> _ as usize)));
    // SAFETY: the name and the counters are statics of the runtime.
    let (name, n_working, n_workers) =
        unsafe { (CStr::from_ptr(table.name), &*table.n_working, &*table.n_workers) };
    assert_eq!(name, c"work-stealing-rt");
    assert_eq!(WORKER_WORKING, 1);
    let within = |condition: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(10), "it does not come true");
            std::thread::yield_now();
        }
    };
    within(&|| n_workers.load(Relaxed) == 3 && count(c"test_profiler_enters") == 3);
    assert_eq!(n_working.load(Relaxed), 0);
    assert_eq!(pool.install(|| n_working.load(Relaxed)), 1);
    // The worker that did this counts until it rests.
    within(&|| n_working.load(Relaxed) == 0);
    pool.install(|| {
        let stolen = AtomicBool::new(false);
        join(
            || {
                while !stolen.load(Relaxed) {
                    std::hint::spin_loop()
                }
            },
            || {
                assert_eq!(n_working.load(Relaxed), 2);
                stolen.store(true, Relaxed);
                // The first half waits for this one now: it is idle.
                let start = Instant::now();
                while n_working.load(Relaxed) != 1 {
                    assert!(start.elapsed() < Duration::from_secs(10), "a waiter counts as working");
                }
            },
        );
    });
    within(&|| n_working.load(Relaxed) == 0);
    drop(pool);
    within(&|| n_workers.load(Relaxed) == 0 && count(c"test_profiler_leaves") == 3);
}

#[test]
fn the_table_describes_the_runtime() {
    with_profiler("the_table_describes_the_runtime", check_table);
}
