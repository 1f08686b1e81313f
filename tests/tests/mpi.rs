//! Critical paths through the processes of MPI programs, with Open MPI and MPICH: graphs of known activity,
//! whose nodes say what they really took. Without an MPI compiler a test says SKIPPED.

use hpcrun_tests::graph::{Graph, Node, Times};
use hpcrun_tests::run::{Database, Run};
use hpcrun_tests::tools::{exclusive_cores, folder, optional_program, tool};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// An MPI library, and the fixture built for it.
struct Mpi {
    name: &'static str,
    program: PathBuf,
}

/// Those that are installed.
fn libraries() -> &'static [Mpi] {
    static BUILT: OnceLock<Vec<Mpi>> = OnceLock::new();
    let built = |name: &'static str| {
        let compiler = format!("mpicc.{name}");
        // MPICH declares what may be null as arrays.
        let flags = ["-pthread", "-Wno-stringop-overflow"];
        let program = optional_program(&format!("mpi-{name}"), &compiler, "mpi.c", &flags)?;
        Some(Mpi { name, program })
    };
    BUILT.get_or_init(|| ["openmpi", "mpich"].into_iter().filter_map(built).collect())
}

impl Mpi {
    /// `mpirun` of so many ranks, each under `hpcrun-rs` with these options, in a fresh folder of a test.
    fn run(&self, test: &str, ranks: usize, options: &[&str], arguments: &[&str]) -> Run {
        self.run_in(test, ranks, options, arguments, |command| command)
    }

    /// The same, where `adjust` changes the command.
    fn run_in(
        &self,
        test: &str,
        ranks: usize,
        options: &[&str],
        arguments: &[&str],
        adjust: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Run {
        let folder = folder(&format!("mpi-{test}-{}", self.name));
        let measurements = folder.join("measurements");
        let mut command = self.command(ranks, &folder);
        command.args(["-o", "measurements", "--cores", "2"]).args(options).arg(&self.program).args(arguments);
        let output = adjust(&mut command).output().expect("mpirun runs");
        Run { folder, measurements, output }
    }

    /// `mpirun` of `hpcrun-rs`.
    fn command(&self, ranks: usize, folder: &Path) -> Command {
        let mut command = Command::new(format!("mpirun.{}", self.name));
        command
            .current_dir(folder)
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .args((self.name == "openmpi").then_some("--oversubscribe"))
            .args(["-n", &ranks.to_string()])
            .arg(tool("hpcrun-rs").get_program());
        command
    }
}

/// The nodes that all ranks have printed, one a line.
fn times(run: &Run) -> Times {
    let node = |line: &str| {
        let node: Value = serde_json::from_str(line).expect("a node");
        let number = node[1].as_u64().expect("a number") as usize;
        let name = node[0].as_str().expect("a name").to_owned();
        ((name, number), node[2].as_f64().expect("a time") * 1e-9)
    };
    let text = run.stdout();
    Times(text.lines().filter(|line| line.starts_with('[')).map(node).collect())
}

/// The joined path as JSON.
fn path(database: &Database) -> Value {
    let json = database.text("critical-path", &["--format", "json"]);
    let path: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(path["others"], Value::Array(Vec::new()), "one path of all ranks");
    path
}

fn seconds(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a time"))
}

fn sum(values: &Value, field: &str) -> f64 {
    values.as_array().expect("a list").iter().map(|value| seconds(&value[field])).sum()
}

/// What it takes a rank at most to start and end MPI, without the constructors of its libraries, seconds.
const START: f64 = 5e-3;

/// Runs a graph and compares everything with what its nodes took: within 2 %, and what it takes to start and
/// end MPI.
fn check(graph: &Graph, run: &Run, lost: &[(&str, u64)]) -> Value {
    assert!(run.output.status.success(), "{}{}", run.stdout(), run.stderr());
    let path = path(&run.database());
    let times = times(run);
    let mut faults = Vec::new();
    let ranks = path["ranks"].as_array().map_or(1, Vec::len) as f64;
    let mut close = |what: &str, found: f64, truth: f64| {
        let starts = match what {
            "work" => ranks,
            _ if what.ends_with("'s work") => 0.1,
            _ => 1.0,
        };
        if (found - truth).abs() > 0.02 * truth + 1e-3 + starts * START {
            faults.push(format!("{what}: {found:.6} s, truth {truth:.6} s"));
        }
    };
    let (span, on_path) = graph.longest(&times, None);
    close("work", seconds(&path["work"]), times.total(None));
    close("span", seconds(&path["span"]), span);
    let names: BTreeSet<&str> = graph.0.iter().map(|((name, _), _)| *name).collect();
    for name in names {
        let all = path["procedures"].as_array().expect("a list");
        let procedure = all.iter().find(|p| p["name"] == name);
        let field = |field| procedure.map_or(0.0, |p| seconds(&p[field]));
        let own = on_path.iter().filter(|node| node.0 == name);
        let own: f64 = own.map(|node| times.of(*node)).sum();
        close(&format!("{name}'s work"), field("work"), times.total(Some(name)));
        close(&format!("{name} on the path"), field("on_path"), own);
        let zeroed = graph.longest(&times, Some(name)).0;
        close(&format!("the span without {name}"), field("zeroed_span"), zeroed);
    }
    assert!(faults.is_empty(), "{}\n{path:#}", faults.join("\n"));
    let span = seconds(&path["span"]);
    for parts in [sum(&path["segments"], "seconds"), sum(&path["ranks"], "on_path")] {
        assert!((parts - span).abs() < 1e-8, "{parts} of {span}");
    }
    let expected: serde_json::Map<String, Value> =
        lost.iter().map(|(cause, n)| ((*cause).to_owned(), (*n).into())).collect();
    let mut found = path["quality"]["lost_edges"].clone();
    // On a busy machine a thread of MPI's own may wait for what nobody saw.
    if found["wait"] == 1 && !expected.contains_key("wait") {
        found.as_object_mut().expect("causes").remove("wait");
    }
    assert_eq!(found, Value::Object(expected));
    path
}

/// The path goes through these ranks, in this order. What ends MPI may take a rank more than a millisecond,
/// and is then the path's end.
fn assert_ranks(path: &Value, expected: &[u64]) {
    let found = ranks(path);
    let is_so = found.starts_with(expected) && found.len() <= expected.len() + 1;
    assert!(is_so, "{found:?}, not {expected:?}");
}

/// The ranks of the path's segments, equal neighbours once.
fn ranks(path: &Value) -> Vec<u64> {
    let segments = path["segments"].as_array().expect("a list").iter();
    let long = segments.filter(|s| seconds(&s["seconds"]) > 1e-3);
    let mut ranks: Vec<u64> = long.map(|s| s["rank"].as_u64().expect("a rank")).collect();
    ranks.dedup();
    ranks
}

fn is() -> Graph {
    let graph = Graph::default().chain(&[("create_seq", 0), ("bench", 0), ("do_rank", 0)], &[]);
    (1..4).fold(graph, |graph, rank| {
        let graph = graph.node(("do_rank", rank), &[]);
        graph.node(("bench", rank), &[("do_rank", rank), ("create_seq", 0)])
    })
}

fn rotating() -> Graph {
    let name = |round, rank| if rank == round % 4 { "slow" } else { "fast" };
    let mut graph = Graph::default();
    let mut before: Vec<Node> = Vec::new();
    for round in 0..8_usize {
        let nodes: Vec<Node> = (0..4).map(|rank| (name(round, rank), 4 * round + rank)).collect();
        graph = nodes.iter().fold(graph, |graph, node| graph.node(*node, &before));
        before = nodes;
    }
    graph
}

fn bcast() -> Graph {
    let graph = Graph::default().chain(&[("root_work", 0), ("root_tail", 0)], &[]);
    (1..4).fold(graph, |graph, rank| {
        let graph = graph.node(("leaf_work", rank), &[]);
        graph.node(("leaf_tail", rank), &[("leaf_work", rank), ("root_work", 0)])
    })
}

fn ibcast() -> Graph {
    let mut graph = Graph::default().chain(&[("root_work", 0), ("root_tail", 0), ("end", 0)], &[]);
    for rank in 1..4 {
        graph = graph.chain(&[("leaf_work", rank), ("leaf_tail", rank)], &[]);
        graph = graph.node(("end", rank), &[("leaf_tail", rank), ("root_work", 0)]);
    }
    graph
}

fn irecv() -> Graph {
    let mut graph = Graph::default().node(("overlap", 0), &[]);
    for rank in 1..4 {
        graph = graph.node(("produce", rank), &[]);
    }
    graph.node(("use", 0), &[("overlap", 0), ("produce", 1), ("produce", 2), ("produce", 3)])
}

fn wave() -> Graph {
    let node = |round: usize, rank: usize| (if rank == 1 { "slow" } else { "step" }, 4 * round + rank);
    let mut graph = Graph::default();
    for round in 0..12 {
        for rank in 0..4_usize {
            let neighbours = rank.saturating_sub(1)..=(rank + 1).min(3);
            let before: Vec<Node> = match round {
                0 => Vec::new(),
                _ => neighbours.map(|other| node(round - 1, other)).collect(),
            };
            graph = graph.node(node(round, rank), &before);
        }
    }
    graph
}

fn tree() -> Graph {
    let graph = (0..4).fold(Graph::default(), |graph, rank| graph.node(("work", rank), &[]));
    let graph = graph.node(("combine", 8), &[("work", 0), ("work", 1)]);
    let graph = graph.node(("combine", 10), &[("work", 2), ("work", 3)]);
    graph.node(("combine", 16), &[("combine", 8), ("combine", 10)])
}

fn directions() -> Graph {
    let mut graph = Graph::default();
    for rank in 0..4 {
        graph = graph.node(("first", rank), &[]);
    }
    let first: Vec<Node> = (0..4).map(|rank| ("first", rank)).collect();
    for rank in 0..3 {
        graph = graph.node(("second", rank), &[("first", rank)]);
    }
    graph = graph.node(("second", 3), &first);
    for rank in 0..4 {
        let before: Vec<Node> = (0..=rank).map(|lower| ("second", lower)).collect();
        graph = graph.node(("third", rank), &before);
    }
    let third: Vec<Node> = (0..4).map(|rank| ("third", rank)).collect();
    for rank in [0, 2, 3] {
        graph = graph.node(("fourth", rank), &[("third", rank)]);
    }
    graph.node(("fourth", 1), &third)
}

fn order() -> Graph {
    let sends: Vec<Node> = (0..6).map(|number| ("send", number)).collect();
    let graph = Graph::default().chain(&sends, &[]);
    let graph = graph.node(("fourth", 0), &[("send", 4)]);
    let graph = graph.node(("others", 0), &[("fourth", 0), ("send", 1)]);
    graph.node(("last", 0), &[("others", 0), ("send", 2), ("send", 5)])
}

fn threads() -> Graph {
    let mut graph = Graph::default();
    for name in ["a", "b"] {
        for item in 0..20_usize {
            let last = |number: usize| item.checked_sub(1).map(|_| (name, number - 1));
            let before: Vec<Node> = last(item).into_iter().collect();
            graph = graph.node((name, item), &before);
            let sent = item.checked_sub(1).map(|item| (name, item));
            let before: Vec<Node> = last(100 + item).into_iter().chain(sent).collect();
            graph = graph.node((name, 100 + item), &before);
        }
    }
    graph
}

/// Rounds in which each rank waits for itself and for others, which are known by round and rank.
fn rounds(rounds: usize, others: impl Fn(usize, usize) -> Vec<usize>) -> Graph {
    let name = |round, rank| (if rank == round % 4 { "slow" } else { "fast" }, 4 * round + rank);
    let mut graph = (0..4).fold(Graph::default(), |graph, rank| graph.node(name(0, rank), &[]));
    for round in 0..rounds {
        for rank in 0..4 {
            let before = others(round, rank).into_iter().chain([rank]);
            let before: Vec<Node> = before.map(|rank| name(round, rank)).collect();
            graph = graph.node(name(round + 1, rank), &before);
        }
    }
    graph
}

/// Others by how many places they are before in the ring.
fn forms(is_mpi_4: bool) -> Graph {
    const BEFORE: [&[usize]; 7] = [&[1, 3], &[1, 3], &[1], &[1, 2, 3], &[1], &[1, 2, 3], &[1]];
    rounds(if is_mpi_4 { 7 } else { 4 }, |round, rank| {
        BEFORE[round].iter().map(|before| (rank + 4 - before) % 4).collect()
    })
}

fn groups(is_mpi_4: bool) -> Graph {
    const OTHERS: [[&[usize]; 4]; 5] = [
        [&[1, 3], &[0, 2], &[1, 3], &[0, 2]],
        [&[1], &[0], &[3], &[2]],
        [&[1], &[], &[1], &[]],
        [&[1, 3], &[0, 2], &[1, 3], &[0, 2]],
        [&[3], &[0], &[1], &[2]],
    ];
    rounds(if is_mpi_4 { 5 } else { 4 }, |round, rank| OTHERS[round][rank].to_vec())
}

/// Workers do one level of `rotating` after the other: in each round, all four ranks up to the end of the
/// first, three up to that of the second, and so on.
fn check_prediction(path: &Value, times: &Times) {
    let mut truth = [(1, 0.0), (2, 0.0), (4, 0.0)];
    for round in 0..8_usize {
        let of = |rank| times.of((if rank == round % 4 { "slow" } else { "fast" }, 4 * round + rank));
        let mut ranks = [0, 1, 2, 3].map(of);
        ranks.sort_by(f64::total_cmp);
        let times = [ranks.iter().sum(), ranks[1] + ranks[3], ranks[3]];
        truth.iter_mut().zip(times).for_each(|((_, sum), time)| *sum += time);
    }
    let predicted = path["prediction"].as_array().expect("a list");
    for (workers, truth) in truth {
        let found = predicted.iter().find(|p| p["workers"] == workers).expect("a prediction");
        let found = seconds(&found["seconds"]);
        let start = START * f64::from(4 / workers);
        assert!((0.98 * truth..1.02 * truth + start).contains(&found), "{workers}: {found} s, not {truth} s");
    }
    let sum = |field| sum(&path["levels"], field);
    for (found, truth) in [(sum("seconds"), &path["span"]), (sum("work"), &path["work"])] {
        assert!((found - seconds(truth)).abs() < 1e-6, "{found} s, not {truth} s");
    }
}

#[test]
fn all_forms_of_operations_are_followed_or_counted_as_lost() {
    let _cores = exclusive_cores();
    for mpi in libraries() {
        let run = mpi.run("forms", 4, &["--critical-path"], &["forms"]);
        check(&forms(mpi.name == "mpich"), &run, &[("unknown", 4)]);
        let run = mpi.run("groups", 4, &["--critical-path"], &["groups"]);
        check(&groups(mpi.name == "mpich"), &run, &[]);
    }
}

#[test]
fn messages_and_collective_operations_carry_the_path() {
    let _cores = exclusive_cores();
    for mpi in libraries() {
        let run = |name| mpi.run(name, 4, &["--critical-path"], &[name]);
        let path = check(&is(), &run("is"), &[]);
        assert_ranks(&path, &[0]);
        let slow = run("rotating");
        let path = check(&rotating(), &slow, &[]);
        assert_ranks(&path, &[0, 1, 2, 3, 0, 1, 2, 3]);
        check_prediction(&path, &times(&slow));
        check(&bcast(), &run("bcast"), &[]);
        check(&ibcast(), &run("ibcast"), &[]);
        let path = check(&irecv(), &run("irecv"), &[]);
        assert_ranks(&path, &[2, 0]);
        check(&wave(), &run("wave"), &[]);
        check(&directions(), &run("directions"), &[]);
        let path = check(&tree(), &run("tree"), &[("synchronous", 3)]);
        assert_ranks(&path, &[3, 2, 0]);
    }
}

#[test]
fn messages_that_are_waited_for_in_another_order_have_their_own_strands() {
    let _cores = exclusive_cores();
    for mpi in libraries() {
        let path = check(&order(), &mpi.run("order", 4, &["--critical-path"], &["order"]), &[]);
        assert_ranks(&path, &[3, 0]);
        check(&threads(), &mpi.run("threads", 4, &["--critical-path"], &["threads"]), &[]);
    }
}

/// A chain of 30 ms and three times 20 ms.
#[test]
fn programs_in_fortran_are_observed() {
    let _cores = exclusive_cores();
    let modules = [("old", &["-cpp"][..]), ("new", &["-cpp", "-DMODERN"])];
    let all = ["openmpi", "mpich"].into_iter().flat_map(|name| modules.map(|of| (name, of)));
    // Of MPICH's modern module, what has been completed by an index is not followed.
    let is_followed = |(name, (module, _)): &(&str, (&str, _))| (*name, *module) != ("mpich", "new");
    for (name, (module, flags)) in all.filter(is_followed) {
        let compiler = format!("mpif90.{name}");
        let program = format!("mpi-fortran-{module}-{name}");
        let Some(program) = optional_program(&program, &compiler, "mpi.f90", flags) else {
            continue;
        };
        let run = Mpi { name, program }.run("fortran", 4, &["--critical-path"], &[]);
        assert!(run.output.status.success(), "{}", run.stderr());
        let path = path(&run.database());
        let span = seconds(&path["span"]);
        assert!((span - 0.09).abs() < 1e-3 + START, "{span} s");
        assert_ranks(&path, &[0, 1, 2, 3]);
        assert_eq!(path["quality"]["lost_edges"], serde_json::json!({}));
    }
}

/// As between hosts: every rank counts as one.
#[test]
fn strands_travel_in_messages_of_their_own_where_no_memory_is_shared() {
    let _cores = exclusive_cores();
    for mpi in libraries() {
        for (name, graph) in [("is", is()), ("order", order()), ("wave", wave())] {
            let run = mpi.run_in(&format!("separate-{name}"), 4, &["--critical-path"], &[name], |command| {
                command.env("HPCRUN_RS_SEPARATE", "1")
            });
            check(&graph, &run, &[]);
        }
    }
}

#[test]
fn strands_without_room_go_another_way() {
    let _cores = exclusive_cores();
    for mpi in libraries() {
        let run = mpi.run("flood", 2, &["--critical-path"], &["flood"]);
        assert!(run.output.status.success(), "{}", run.stderr());
        let paths = run.critical_paths();
        let receiver = paths.iter().find(|path| path.rank.as_ref().is_some_and(|r| r.rank == 1));
        let quality = &receiver.expect("rank 1 has a path").quality;
        // The libraries that MPI loads may have edges of their own before `main`.
        assert!((3001..3200).contains(&quality.exact_edges), "{quality:?}");
        assert_eq!(quality.lost_edges, [], "{quality:?}");
    }
}

/// The start travels with messages: what comes from after it starts its receiver, and what was sent before
/// belongs to no path, wherever it comes.
#[test]
fn one_rank_starts_the_tracking_of_all() {
    let _cores = exclusive_cores();
    let graph = Graph::default().chain(&[("first", 0), ("second", 0)], &[]);
    let graph = graph.node(("A", 0), &[("first", 0)]);
    let graph = graph.node(("tail", 0), &[("A", 0)]).node(("B", 0), &[("A", 0)]);
    let graph = graph.node(("last", 0), &[("second", 0), ("B", 0)]);
    for mpi in libraries() {
        let path = check(&graph, &mpi.run("midway", 3, &["--critical-path=signal:USR2"], &["midway"]), &[]);
        assert_ranks(&path, &[0, 1, 2, 0]);
    }
}

/// By calls that never wait, again and again. Neither these are activity, nor the way from one to the next.
#[test]
fn a_rank_that_polls_does_little_else() {
    let _cores = exclusive_cores();
    let graph = Graph::default().chain(&[("pre", 0), ("pre", 1)], &[]);
    let graph = graph.node(("A", 0), &[("pre", 0)]).node(("A", 1), &[("A", 0), ("pre", 1)]);
    for mpi in libraries() {
        let run = mpi.run("polls", 2, &["--critical-path"], &["polls"]);
        let (path, times) = (path(&run.database()), times(&run));
        assert_ranks(&path, &[0, 1]);
        let (span, truth) = (seconds(&path["span"]), graph.longest(&times, None).0);
        assert!((span - truth).abs() < 0.02 * truth + START, "{span} s, not {truth} s");
        let polled = times.total(Some("pre")) - times.of(("A", 0));
        let (work, truth) = (seconds(&path["work"]), times.total(None));
        assert!((truth..truth + 0.03 * polled + 2.0 * START).contains(&work), "{work} s, not {truth} s");
        assert_eq!(path["quality"]["lost_edges"], serde_json::json!({}));
    }
}

/// Rank 1 does nothing but wait, by polling or yielding: its core's time is idleness of what rank 0 does.
#[test]
fn a_rank_that_waits_in_a_call_is_idle() {
    let _cores = exclusive_cores();
    for mpi in libraries() {
        for (name, options) in [("tracked", &["--critical-path"][..]), ("sampled", &[][..])] {
            let run = mpi.run(&format!("wait-{name}"), 2, options, &["wait"]);
            assert!(run.output.status.success(), "{}", run.stderr());
            let view = run.database().view("top-down", &["--metric", "mpi-wait"]);
            let [work, idle] = ["work", "idleness"].map(|metric| view.inclusive("node", metric));
            assert!((work - 0.4).abs() < 0.04, "{name}: {work} s");
            assert!((idle - work).abs() < 0.05 * work, "{name}: idle {idle} s of {work} s");
            // By the clock, and however busy the machine is: no shorter than the work.
            let waited = view.inclusive("main", "mpi-wait");
            assert!(waited > 0.98 * work, "{name}: waited {waited} s for {work} s");
            assert_eq!(view.inclusive("node", "mpi-wait"), 0.0, "{name}");
        }
    }
}

#[test]
fn ranks_share_a_directory_and_no_other_job_gets_it() {
    let _cores = exclusive_cores();
    for mpi in libraries() {
        let run = mpi.run("shared", 3, &["--critical-path"], &["none"]);
        assert!(run.output.status.success(), "{}", run.stderr());
        assert_eq!(run.processes().len(), 3);
        let said = run.stderr();
        assert_eq!(said.matches("critical path of 3 ranks").count(), 1, "{said}");
        assert_eq!(said.matches("measurements kept in").count(), 1, "{said}");
        // The same directory once more.
        let mut again = mpi.command(1, &run.folder);
        let again = again.args(["-o", "measurements", "true"]).output().expect("mpirun runs");
        let said = String::from_utf8_lossy(&again.stderr).into_owned();
        assert!(!again.status.success() && said.contains("is not empty"), "{said}");
        // Without a name, a job has one directory.
        let folder = run.folder.join("default");
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        let mut command = mpi.command(3, &folder);
        let output = command.args(["-q", "sleep", "0.1"]).output().expect("mpirun runs");
        assert!(output.status.success(), "{output:?}");
        let made = std::fs::read_dir(&folder).expect("it is readable").count();
        assert_eq!(made, 1);
    }
}

/// The launcher ends the others when a rank dies. What was measured is kept, and what is missing is said.
#[test]
fn a_rank_that_dies_leaves_its_samples() {
    let _cores = exclusive_cores();
    for mpi in libraries() {
        let run = mpi.run("die", 4, &["--critical-path"], &["die"]);
        assert!(!run.output.status.success());
        assert_eq!(run.processes().len(), 4);
        let database = run.database();
        let work = database.top_down().inclusive("node", "work");
        assert!(work > 0.1, "{work} s of 0.16 s");
        let paths = run.critical_paths().len();
        assert!(paths < 4);
        let said = String::from_utf8_lossy(&database.output.stderr).into_owned();
        if paths > 0 {
            assert!(said.contains("of 4 ranks"), "{said}");
        }
    }
}
