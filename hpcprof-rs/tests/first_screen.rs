//! The first screen: rows are the user's procedures, verdicts are given where the figures carry them, tasks
//! of unknown callers are said by runtime, and nothing from outside steers the terminal.

use crate::support::*;
use hpc_formats::address::CodeAddress;
use hpc_formats::loss::LossCause;
use hpc_formats::structure::Origin::{self, Runtime, System, User};
use hpc_formats::structure::ProcedureId;

const MS: u64 = 1_000_000;
const FILE: &str = "/src/app/main.cpp";

/// A program of procedures, each with sixteen bytes of code.
pub(crate) struct Program {
    pub(crate) run: Run,
    modules: Vec<(String, StructureBuilder, u64)>,
}

impl Program {
    pub(crate) fn new() -> Program {
        let mut program = Program { run: Run::new(), modules: Vec::new() };
        program.ends(1_000);
        program
    }

    /// A procedure of a module; with a line where there is a file.
    pub(crate) fn procedure(&mut self, module: &str, name: &str, file: &str, origin: Origin) -> CodeAddress {
        let known = self.modules.iter().position(|m| m.0 == module);
        let index = known.unwrap_or_else(|| {
            let id = self.modules.len() as u8 + 1;
            self.run.module(u16::from(id), module, &[id]);
            let structure = StructureBuilder::new(module, &[id]);
            self.modules.push((module.to_owned(), structure, 0x1000));
            self.modules.len() - 1
        });
        let (_, structure, next) = &mut self.modules[index];
        let line = 10 + (*next / 0x10) as u32 % 100;
        let declared = (!file.is_empty()).then_some((file, line));
        let procedure = structure.procedure(name, declared, origin);
        structure.span(*next, procedure, None, declared.unwrap_or(("", 0)), None);
        *next += 0x10;
        at(index as u16 + 1, *next - 0x10)
    }

    pub(crate) fn own(&mut self, name: &str) -> CodeAddress {
        self.procedure("/opt/app", name, FILE, User)
    }

    /// A procedure, and code of it in a loop whose name begins so.
    pub(crate) fn own_loop(&mut self, name: &str, kind: &str) -> [CodeAddress; 2] {
        let procedure = self.own(name);
        let (_, structure, next) = &mut self.modules[0];
        let id = ProcedureId(structure.structure.procedures.len() as u32 - 1);
        let around = structure.looping(id, None, (FILE, 90), User);
        structure.name_loop(around, &format!("{kind} main.cpp:90"));
        structure.span(*next, id, Some(around), (FILE, 90), None);
        *next += 0x10;
        [procedure, at(1, *next - 0x10)]
    }

    pub(crate) fn libc(&mut self, name: &str) -> CodeAddress {
        self.procedure("/lib/libc.so.6", name, "", System)
    }

    /// Samples of the first thread: so many of each path, while so many others were idle.
    pub(crate) fn sample(&mut self, path: &[CodeAddress], samples: u64, idle: f64) -> &mut Self {
        self.sample_by(1, path, samples, idle)
    }

    pub(crate) fn sample_by(
        &mut self,
        ordinal: u32,
        path: &[CodeAddress],
        samples: u64,
        idle: f64,
    ) -> &mut Self {
        let threads = &mut self.run.threads;
        let known = threads.iter().position(|t| t.ordinal == ordinal);
        let index = known.unwrap_or_else(|| {
            threads.push(ThreadBuilder::new(ordinal));
            threads.len() - 1
        });
        let thread = &mut threads[index];
        let entry = thread.entry();
        let node = thread.natives(entry, path);
        thread.sample(node, samples, idle);
        self
    }

    /// A thread that was created in a path, with samples in another.
    fn thread(&mut self, creator: &[CodeAddress], path: &[CodeAddress], samples: u64) -> &mut Self {
        let first = &mut self.run.threads[0];
        let entry = first.entry();
        let node = first.natives(entry, creator);
        let mut thread = ThreadBuilder::new(self.run.threads.len() as u32 + 1);
        let anchor = thread.anchor(1, node);
        let task = thread.natives(anchor, path);
        thread.sample(task, samples, 0.0);
        self.run.threads.push(thread);
        self
    }

    fn finished(&self) -> Run {
        let mut run = self.run.clone();
        run.structures = self.modules.iter().map(|m| m.1.structure.clone()).collect();
        run.end.as_mut().expect("an end").threads = run.threads.len() as u32;
        run
    }

    pub(crate) fn database(&self) -> Database {
        database(&self.finished())
    }

    fn screen(&self) -> String {
        self.database().screen.clone()
    }

    /// Until when the run lasted, in milliseconds from its start.
    pub(crate) fn ends(&mut self, ms: u64) {
        self.run.end.as_mut().expect("an end").monotonic_ns = IMAGE + ms * MS;
    }
}

/// The names in the rows.
fn rows(screen: &str) -> Vec<String> {
    let mut lines = screen.lines().skip_while(|l| !l.starts_with("file:line"));
    let head = lines.next().unwrap_or_default();
    let [from, to] = ["context", "effort %"].map(|column| head.find(column).unwrap_or_default());
    let rows = lines.take_while(|l| !l.is_empty() && !l.starts_with("high means"));
    let name = |line: &str| line.chars().skip(from).take(to - from).collect::<String>();
    rows.map(|line| name(line).trim().to_owned()).collect()
}

#[test]
fn eighty_columns_hold_places_names_and_verdicts() {
    let mut p = Program::new();
    let file = "/src/a_source_file_with_a_long_name.cpp";
    let main = p.own("main");
    let long = p.procedure("/opt/app", "space::a_procedure_with_a_long_name", file, User);
    let unnamed = p.procedure("/opt/app", "?0x15990", "", User);
    let inner = p.procedure("/lib/libinner.so.5", "?0x36a0", "", System);
    p.sample(&[main, long], 1234, 0.9).sample_by(2, &[main, unnamed, inner], 900, 0.0);
    p.ends(8_200);
    let database = p.database();
    let screen = tool_on_screen(80, &[text(&database)]).expect("a screen");
    for line in screen.lines() {
        assert!(line.chars().count() <= 80, "{line}\n{screen}");
    }
    has(&screen, "  verdict");
    // What it calls says more than an address.
    has(&screen, "mostly ");
    lacks(&screen, "15990");
}

#[test]
fn a_serial_program_is_told_so_and_nothing_else() {
    let mut p = Program::new();
    let (main, work) = (p.own("main"), p.own("work"));
    p.sample(&[main, work], 200, 1.0);
    let screen = p.screen();
    has(&screen, "serial: the program runs on one thread, so 1 of 2 cores idles all the time");
    lacks(&screen, "refine");
    lacks(&screen, "verdict");
    assert_eq!(rows(&screen), ["work"]);
    // Two threads that take turns.
    let other = p.own("other");
    p.sample_by(2, &[main, other], 100, 1.0);
    p.ends(1_500);
    let screen = p.screen();
    has(&screen, "serial: of 2 threads never more than one works at a time");
    lacks(&screen, "refine");
    // Once they work together, idleness is worth a verdict.
    p.sample_by(2, &[main, other], 30, 0.0);
    let screen = p.screen();
    lacks(&screen, "serial:");
    has(&screen, "refine");
}

#[test]
fn time_in_which_nobody_worked_comes_first() {
    let mut p = Program::new();
    let (main, a, b) = (p.own("main"), p.own("a"), p.own("b"));
    p.sample(&[main, a], 190, 0.0).sample_by(2, &[main, b], 190, 0.0);
    // 4.9 % of the wall time.
    p.ends(999);
    let screen = p.screen();
    has(&screen, "effective");
    lacks(&screen, "look there first");
    p.ends(1_001);
    let screen = p.screen();
    let line = screen.lines().nth(2).expect("a line");
    assert!(line.starts_with("unattributed wait: about 0.051 s of the wall time, 5.1 %"), "{screen}");
    lacks(&screen, "effective");
    lacks(&screen, "verdict");
    assert_eq!(screen.matches("unattributed wait").count(), 1);
    assert_eq!(rows(&screen), ["a", "b"]);
}

/// Of 1 s of wall time nobody worked for 0.05 s. Verdicts stay where that changes none of them.
#[test]
fn who_had_the_cores_is_told_from_nobody_worked() {
    let mut p = Program::new();
    let (main, a, b) = (p.own("main"), p.own("a"), p.own("b"));
    p.sample(&[main, a], 190, 0.0).sample_by(2, &[main, b], 190, 0.0);
    p.ends(1_001);
    let ran_late = |p: &mut Program, ms: u64| {
        p.run.end.as_mut().expect("an end").cpu.run_delay_ns = ms * 1_000_000;
    };
    // Others had the cores for nearly all of it: the figures of the rest stand.
    ran_late(&mut p, 45);
    let screen = p.screen();
    has(&screen, "others had the cores for 0.045 s");
    has(&screen, "run again on a");
    has(&screen, "effective");
    lacks(&screen, "look there first");
    // More threads than cores, which waited for each other.
    p.sample_by(3, &[main, b], 1, 0.0);
    ran_late(&mut p, 2_000);
    let screen = p.screen();
    has(&screen, "oversubscription: 3 threads compete for 2 cores: they waited 1.9");
    assert_eq!(screen.matches("oversubscription").count(), 1);
}

#[test]
fn wrappers_closures_and_libraries_are_no_rows() {
    let mut p = Program::new();
    let main = p.own("app::main");
    let build = p.procedure("/opt/app", "pool::Builder::build", "/h/.cargo/registry/src/x/pool/lib.rs", User);
    let scope =
        p.procedure("/opt/app", "crossbeam::Scope::spawn", "/h/.cargo/registry/src/x/cb/lib.rs", User);
    let invoke = p.own("std::thread::_Invoker<std::tuple<main::{lambda()#1}> >::operator()");
    let lambda = p.own("app::solve::{lambda(int)#1}::operator()(int) const");
    let closure = p.own("app::main::{closure#0}");
    let (one, two) = (p.own("app::one"), p.own("app::two"));
    let dependency = p.procedure("/usr/lib/libfft.so", "fft_run", "", User);
    p.sample(&[main, build, closure], 60, 0.0)
        .sample(&[main, scope, one, dependency], 60, 0.0)
        .sample(&[main, invoke, lambda], 60, 0.0)
        .sample_by(2, &[main, two], 200, 0.0);
    let mut found = rows(&p.screen());
    found.sort();
    assert_eq!(found, ["app::main", "app::one (mostly fft_run)", "app::solve", "app::two"]);
}

#[test]
fn a_program_of_libraries_has_their_rows() {
    let mut p = Program::new();
    p.run.start.executable = "/usr/bin/python3.12".to_owned();
    let python = |p: &mut Program, name| p.procedure("/usr/bin/python3.12", name, "", User);
    let (run_main, eval) = (python(&mut p, "Py_RunMain"), python(&mut p, "_PyEval_EvalFrameDefault"));
    let gemm = p.procedure("/usr/lib/python3/site-packages/x.so", "dgemm", "", User);
    let fft = p.procedure("/usr/lib/python3/site-packages/x.so", "fft", "", User);
    p.sample(&[run_main, eval, gemm], 100, 0.0).sample(&[run_main, eval, fft], 60, 0.0).sample_by(
        2,
        &[run_main, eval],
        40,
        0.0,
    );
    assert_eq!(rows(&p.screen()), ["dgemm", "fft", "python3.12 itself"]);
    // The interpreter alone: not its entry.
    let mut p = Program::new();
    let entry = python(&mut p, "Py_RunMain");
    let (eval, end) = (python(&mut p, "_PyEval_EvalFrameDefault"), python(&mut p, "Py_FinalizeEx"));
    p.sample(&[entry, eval], 200, 0.0).sample_by(2, &[entry, eval], 150, 0.0).sample_by(
        2,
        &[entry, end],
        50,
        0.0,
    );
    let screen = p.screen();
    assert_eq!(rows(&screen), ["_PyEval_EvalFrameDefault", "Py_FinalizeEx"]);
}

#[test]
fn helpers_that_spin_by_the_clock_are_no_rows() {
    let mut p = Program::new();
    let (main, a, b) = (p.own("main"), p.own("phase_a"), p.own("phase_b"));
    let (helper, now) = (p.own("w"), p.own("cpu_now"));
    let (spin, clock) = (p.own("spin"), p.libc("clock_gettime"));
    p.sample(&[main, a, helper, now, clock], 100, 0.0)
        .sample(&[main, b, helper, now, clock], 90, 0.0)
        .sample_by(2, &[main, helper, now, clock], 110, 0.0)
        .sample_by(2, &[main, spin, clock], 80, 0.0);
    let mut found = rows(&p.screen());
    found.sort();
    assert_eq!(found, ["main", "phase_a", "phase_b"].map(|name| format!("{name} (mostly clock_gettime)")));
}

#[test]
fn spinning_in_a_sleep_is_named_as_what_it_is() {
    let mut p = Program::new();
    let (main, group) = (p.own("app::main"), p.own("app::group"));
    let ticker = p.procedure("/opt/app", "bar::ticker", "/h/.cargo/registry/src/x/bar/lib.rs", User);
    let (sleep, nanosleep) = (p.libc("sleep"), p.libc("clock_nanosleep@@GLIBC_2.17"));
    p.sample(&[main, group], 170, 0.0).sample(&[main, ticker], 10, 0.0).sample_by(
        2,
        &[main, ticker, sleep, nanosleep],
        210,
        0.0,
    );
    let screen = p.screen();
    for (name, verdict) in [
        ("bar::ticker", "spins in sleep: wait for an event instead"),
        ("app::group", "effective: tune serial code"),
    ] {
        let row = screen.lines().rfind(|l| l.contains(name)).expect("a row");
        assert!(row.ends_with(verdict), "{screen}");
    }
    // A user's own procedure of that name is none of libc's.
    let mut p = Program::new();
    let (main, own) = (p.own("main"), p.own("poll"));
    p.sample(&[main, own], 200, 0.0).sample_by(2, &[main, own], 200, 0.0);
    assert!(!p.screen().contains("spins"));
}

/// A worker of each runtime as its stack shows it, below the place where its thread was created.
#[test]
fn tasks_without_their_callers_are_said_by_runtime() {
    for (module, root, origin, runtime) in [
        ("/usr/lib/libgomp.so.1", "?0x1d000", Runtime, "libgomp"),
        ("/opt/app", "gomp_thread_start", Runtime, "libgomp"),
        ("/usr/lib/libomp.so.5", "__kmp_launch_worker(void*)", Runtime, "libomp"),
        ("/usr/lib/libiomp5.so", "?0x10", User, "libomp"),
        ("/opt/app", "tbb::detail::r1::rml::private_worker::run()", Runtime, "TBB"),
        ("/usr/lib/libtbb.so.12", "?0x77", Runtime, "TBB"),
        ("/usr/lib/libopenblas.so.0", "blas_thread_server", User, "OpenBLAS"),
    ] {
        let mut p = Program::new();
        let (main, init, body) = (p.own("main"), p.own("init"), p.own("body"));
        let start = p.libc("start_thread");
        let root = p.procedure(module, root, "", origin);
        let inner = p.procedure(module, "inner", "", origin);
        p.sample(&[main, body], 100, 0.0);
        p.thread(&[main, init], &[start, root, inner, body], 60);
        // The runtime's own code is no task.
        p.thread(&[main, init], &[start, root], 40);
        let database = p.database();
        let view = view(&database, "top-down", &[]);
        assert_eq!(view["quality"]["spawnerless"], 60, "{runtime}");
        assert_eq!(view["quality"]["spawnerless_by"], serde_json::json!({runtime: 60}));
        let line = format!(
            "{runtime} ran these tasks: 30.0 % of samples stand under the place where its threads \
             were created"
        );
        has(&database.screen, &line);
        lacks(&database.screen, "cargo hpcrun");
        let may_be_static = database.screen.contains("statically");
        assert_eq!(may_be_static, runtime != "OpenBLAS", "{}", database.screen);
        let may_be_disabled = database.screen.contains("OMP_TOOL=disabled");
        assert_eq!(may_be_disabled, runtime == "libomp", "{}", database.screen);
    }
}

#[test]
fn kernels_in_the_module_of_their_workers_are_tasks_and_users_threads_are_none() {
    let mut p = Program::new();
    let (main, init) = (p.own("main"), p.own("init"));
    let start = p.libc("start_thread");
    let blas = |p: &mut Program, name| p.procedure("/x/libscipy_openblas64_.so", name, "", User);
    let (server, kernel) = (blas(&mut p, "blas_thread_server"), blas(&mut p, "dgemm_kernel"));
    let gomp = p.procedure("/usr/lib/libgomp.so.1", "GOMP_parallel", "", Runtime);
    p.sample(&[main, init], 100, 0.0);
    p.thread(&[main, init], &[start, server, kernel], 50);
    // A thread of the user's own that calls a runtime has its callers.
    let (own, body) = (p.own("own_thread"), p.own("body"));
    p.thread(&[main, init], &[start, own, gomp, body], 50);
    let view = view(&p.database(), "top-down", &[]);
    assert_eq!(view["quality"]["spawnerless_by"], serde_json::json!({"OpenBLAS": 50}));
}

#[test]
fn few_rooted_samples_name_what_was_lost() {
    let mut p = Program::new();
    let main = p.own("main");
    p.sample(&[main], 50, 0.0);
    let thread = &mut p.run.threads[0];
    let partial = thread.partial(LossCause::NoUnwindInfo);
    let node = thread.native(partial, main);
    thread.sample(node, 150, 0.0);
    let screen = p.screen();
    has(&screen, "fewer than 80 % of the samples are rooted (partial:no-unwind-info 150)");
}

#[test]
fn nothing_from_outside_steers_the_terminal() {
    const EVIL: &str = "\u{1b}]0;owned\u{7}\n\u{9b}31m\u{202e}";
    let mut p = Program::new();
    p.run.start.arguments = vec!["./app".to_owned(), format!("arg{EVIL}")];
    let file = format!("/src/{EVIL}.cpp");
    let main = p.own("main");
    let evil = p.procedure("/opt/app", &format!("work{EVIL}"), &file, User);
    let other = p.procedure(&format!("/opt/lib{EVIL}.so"), &format!("f{EVIL}"), "", User);
    p.sample(&[main, evil], 150, 0.0).sample_by(2, &[main, evil, other], 150, 0.0);
    let evil_name = "\u{1b}[2J\nx";
    p.run.threads[0].name = evil_name.to_owned();
    p.run.threads[0].cpu_ns = 2_000 * MS;
    let database = p.database();
    let mut outputs = vec![database.screen.clone()];
    for name in ["top-down", "bottom-up", "flat"] {
        for format in ["text", "csv", "folded"] {
            let line = format!("{name} --format {format} --lines");
            outputs.push(show(&database, &line));
        }
        let json = show(&database, &format!("{name} --format json"));
        assert!(json.contains("\\u001b]0;owned"), "JSON keeps it, escaped");
        outputs.push(json);
    }
    let steers = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
    for output in outputs {
        assert!(!output.contains(steers), "{output:?}");
        assert!(!output.contains("\n\u{9b}") && !output.contains("\n31m"), "{output:?}");
    }
}

#[test]
fn warnings_about_modules_are_one() {
    let mut p = Program::new();
    let main = p.own("main");
    p.sample(&[main], 1_000, 0.0);
    for (index, samples) in [1, 2, 40, 3].into_iter().enumerate() {
        let id = 10 + index as u16;
        p.run.module(id, &format!("/opt/lib{index}.so"), &[id as u8]);
        p.sample(&[main, at(id, 0x10)], samples, 0.0);
    }
    let temp = TempDir::new();
    p.finished().write(&temp.join("m"));
    let warnings = stderr(&command(temp.path(), &["m", "-o", "db", "--no-cache"]));
    assert_eq!(warnings.lines().count(), 1, "{warnings}");
    let said = "4 % of the samples are in code without names or source lines, of";
    let all = "lib2.so, lib3.so, lib1.so and 1 more (-v has all)";
    has(&warnings, &format!("{said} {all}; /opt/lib2.so: "));
    // 60 more in one of them.
    p.sample(&[main, at(10, 0x10)], 60, 0.0);
    p.finished().write(&temp.join("n"));
    let warnings = stderr(&command(temp.path(), &["n", "-o", "db2", "--no-cache"]));
    assert_eq!(warnings.lines().count(), 1, "{warnings}");
    has(&warnings, " lib0.so, lib2.so, lib3.so and 1 more");
    let all = stderr(&command(temp.path(), &["n", "-o", "db3", "--no-cache", "-v"]));
    let details = |n: usize| all.contains(&format!("hpcprof-rs: /opt/lib{n}.so: "));
    assert!((0..4).all(details), "{all}");
}

/// A row goes down to where the time divides, names who has it, and is one for all paths to it.
#[test]
fn rows_divide_the_time() {
    let mut p = Program::new();
    let [main, run, one, two, walk] = ["main", "run", "one", "two", "walk"].map(|name| p.own(name));
    let [system, other] = ["statx", "grow"].map(|name| p.libc(name));
    p.sample(&[main, run, one], 300, 0.0).sample(&[main, run, two], 200, 0.0);
    // The same by two paths through a library.
    p.sample(&[main, run, other, walk, system], 150, 0.0);
    p.sample(&[main, run, system, other, walk, system], 150, 0.0);
    let screen = &p.database().screen;
    let rows = screen.lines().skip_while(|line| !line.starts_with("file:line"));
    let rows: Vec<Vec<&str>> = rows.map(|line| line.split_whitespace().collect()).collect();
    let row = |n: usize| rows[n][1..].join(" ");
    assert!(row(1).starts_with("one 37.5 "), "{screen}");
    assert!(row(2).starts_with("walk (mostly statx) 37.5 "), "{screen}");
    assert!(row(3).starts_with("two 25.0 "), "{screen}");
}

#[test]
fn regions_with_one_thread_and_modules_without_names_are_said() {
    let mut p = Program::new();
    let (main, body) = (p.own("main"), p.own("body"));
    let entry = p.procedure("/opt/app", "tbb::detail::d1::parallel_for<int, F>", "", Runtime);
    let unnamed = p.procedure("/lib/libz.so.1", "?0x4970", "", System);
    p.sample(&[main, entry, body], 150, 1.0).sample(&[main, unnamed], 50, 1.0);
    let words = |p: &Program| p.screen().split_whitespace().collect::<Vec<_>>().join(" ");
    let screen = words(&p);
    has(&screen, "idles all the time; 75.0 % of the effort is in parallel regions with one thread");
    has(&screen, "no names in libz.so.1 (25.0 % of the work): build with -g");
    p.sample_by(2, &[main, entry, body], 150, 0.0);
    lacks(&words(&p), "with one thread");
}

#[test]
fn headlines_fit_the_screen() {
    let mut p = Program::new();
    let long = format!("ns::solve<{}>", "std::vector<int, std::allocator<int> >, ".repeat(200));
    let main = p.own(&format!("ns::run<{}>", "std::map<char, int>, ".repeat(100)));
    let leaf = p.own(&long);
    p.sample(&[main, leaf], 200, 0.0).sample_by(2, &[main], 200, 0.0);
    let database = p.database();
    for columns in [60, 80, 140] {
        let shown = show_on(columns, &database, "bottom-up");
        let headline = shown.lines().find(|line| line.starts_with("effort is in ns::")).expect("a headline");
        assert!(headline.ends_with('%') && headline.contains('…'), "{headline}");
        let length = headline.chars().count();
        assert!(length <= columns && length > columns - 20, "{length}: {headline}");
    }
}

/// A program may be started by a link or a script, which leads to another file.
#[test]
fn a_program_is_called_what_was_typed() {
    let temp = TempDir::new();
    let (measurements, database) = (temp.join("m"), temp.join("db"));
    let mut p = Program::new();
    let main = p.own("main");
    p.sample(&[main], 10, 0.0).finished().write(&measurements);
    std::fs::write(measurements.join("command"), "/opt/links/server\0--port\x007").expect("a file");
    let screen = tool(&[text(&measurements), "-o", text(&database)]).expect("build");
    assert_eq!(screen.lines().next(), Some("server --port 7"));
}
