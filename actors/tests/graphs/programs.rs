//! The constructs of the crate in programs whose paths are known.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use work_stealing_actors::{Address, Array, Context, Handle, MergePoint, Priority, Reduction};

use crate::{builder, spend};

#[derive(Clone)]
struct Run;

/// T5: eight tasks of 10, each of which gives a value to one actor that takes 12 for each.
struct Computer(Address<Buffer>);
struct Buffer;
struct Value;

impl Handle<Run> for Computer {
    fn handle(&mut self, _: Run, _: &mut Context<'_, Self>) {
        spend(10);
        self.0.send(Value);
    }
}

impl Handle<Value> for Buffer {
    fn handle(&mut self, _: Value, _: &mut Context<'_, Self>) {
        spend(12);
    }
}

#[test]
fn one_actor_is_serial_unless_only_messages_count() {
    for (order, span) in [(true, 106), (false, 22)] {
        for workers in [1, 2, 3] {
            let system = builder(workers).actor_order(order).build().expect("threads");
            let buffer = system.spawn(Buffer);
            let computers = system.array("computer", 8, |_, _| Computer(buffer.clone()));
            system.run(|| computers.broadcast(Run)).expect("no panic");
            let report = system.critical_path().report;
            assert_eq!((report.work, report.span), (176, span));
        }
    }
}

/// T15 as a reduction of the crate, twice.
struct Part(Reduction<u64>);

impl Handle<Run> for Part {
    fn handle(&mut self, _: Run, context: &mut Context<'_, Self>) {
        let time = context.index() as u64 + 1;
        spend(time);
        self.0.contribute(context.index(), time);
    }
}

#[test]
fn reductions_are_followed_along_their_tree() {
    for (order, workers) in [(true, 1), (true, 2), (false, 4)] {
        let system = builder(workers).actor_order(order).build().expect("threads");
        let results = Arc::new(Mutex::new(Vec::new()));
        let target = Arc::clone(&results);
        let combine = |a, b| {
            spend(1);
            a + b
        };
        let add = move |sum| target.lock().expect("no panic").push(sum);
        let reduction = system.reduction(8, combine, add);
        let parts = system.array("part", 8, |_, _| Part(reduction.clone()));
        for round in 1..=2 {
            system.run(|| parts.broadcast(Run)).expect("no panic");
            let report = system.critical_path().report;
            assert_eq!((report.work, report.span), (43, 11));
            assert_eq!(*results.lock().expect("no panic"), vec![36; round]);
        }
        system.run(|| (0..7).for_each(|n| parts[n].send(Run))).expect("no panic");
        assert_eq!(reduction.missing(), [7]);
    }
}

/// Results are combined in the order of the elements, whatever the order of the rounds.
struct Letter(Reduction<String>, usize);

impl Handle<Run> for Letter {
    fn handle(&mut self, _: Run, context: &mut Context<'_, Self>) {
        self.1 += 1;
        let letter = char::from(b'a' + context.index() as u8);
        self.0.contribute(context.index(), format!("{letter}{}", self.1));
    }
}

#[test]
fn reductions_keep_the_order_of_elements_and_rounds() {
    let system = builder(3).build().expect("threads");
    let results = Arc::new(Mutex::new(Vec::new()));
    let target = Arc::clone(&results);
    let add = move |text| target.lock().expect("no panic").push(text);
    let reduction = system.reduction(5, |a: String, b: String| a + &b, add);
    let letters = system.array("letter", 5, |_, _| Letter(reduction.clone(), 0));
    system.run(|| letters.iter().for_each(|l| (0..50).for_each(|_| l.send(Run)))).expect("no panic");
    let mut results = results.lock().expect("no panic").clone();
    results.sort_by_key(|text| text[1..].split('b').next().map(|n| n.parse::<u32>().expect("digits")));
    let expected: Vec<String> = (1..=50).map(|n| format!("a{n}b{n}c{n}d{n}e{n}")).collect();
    assert_eq!(results, expected);
}

/// A merge point that is used again in each round: two messages of 3 and 7, then a task of 1.
struct Joiner(MergePoint, u32, Array<Sender>, u32);
struct Sender(Option<Address<Joiner>>, u64);

impl Handle<Value> for Joiner {
    fn handle(&mut self, _: Value, context: &mut Context<'_, Self>) {
        self.1 += 1;
        if self.1 % 2 == 1 {
            context.add_to(&mut self.0);
            return;
        }
        context.depend_on(&mut self.0);
        spend(1);
        self.3 -= 1;
        if self.3 > 0 {
            self.2.broadcast(Run);
        }
    }
}

impl Handle<Run> for Sender {
    fn handle(&mut self, _: Run, _: &mut Context<'_, Self>) {
        spend(self.1);
        self.0.as_ref().expect("set by the first message").send(Value);
    }
}

impl Handle<Address<Joiner>> for Sender {
    fn handle(&mut self, joiner: Address<Joiner>, context: &mut Context<'_, Self>) {
        self.0 = Some(joiner);
        context.address().send(Run);
    }
}

#[test]
fn merge_points_are_reset() {
    let system = builder(2).actor_order(false).build().expect("threads");
    let senders = system.array("sender", 2, |n, _| Sender(None, [3, 7][n]));
    let joiner = system.spawn(Joiner(MergePoint::default(), 0, senders.clone(), 5));
    system.run(|| senders.broadcast(joiner.clone())).expect("no panic");
    let path = system.critical_path();
    assert_eq!((path.report.work, path.report.span), (55, 40));
    let phase = path.phase(5).expect("five rounds");
    assert_eq!((phase.starts.len(), phase.length), (5, 2));
}

/// Paths on demand: in a handler, from outside, and after `end_phase`.
struct Counter(Vec<(u64, u64)>);

impl Handle<u32> for Counter {
    fn handle(&mut self, left: u32, context: &mut Context<'_, Self>) {
        spend(10);
        let report = context.critical_path().expect("it is followed").report;
        self.0.push((report.work, report.span));
        if left == 5 {
            context.end_phase();
        }
        if left > 0 {
            context.address().send(left - 1);
        } else {
            assert_eq!(self.0[..5], [10, 20, 30, 40, 50].map(|t| (t, t)));
            assert_eq!(self.0[5..], [10, 20, 30, 40, 50].map(|t| (t, t)));
        }
    }
}

#[test]
fn a_path_is_there_on_demand() {
    let system = builder(1).build().expect("threads");
    let counter = system.spawn(Counter(Vec::new()));
    system.run(|| counter.send(9_u32)).expect("no panic");
    let report = system.critical_path();
    assert_eq!(report.report.span, 50);
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
    assert_eq!(json["schema"], "hpcprof-rs/critical-path/1");
    assert_eq!(json["segments"][0]["count"], 5);
    assert_eq!(json["procedures"][0]["name"], "graphs::programs::Counter::handle(u32)");
    assert!(report.to_string().contains("graphs::programs::Counter::handle(u32)"));
    assert_eq!(report.steps().len(), 5);
}

/// Tasks inside of a task: a handler that waits for a fork runs other messages meanwhile.
struct Forks(Address<Buffer>);

impl Handle<Run> for Forks {
    fn handle(&mut self, _: Run, _: &mut Context<'_, Self>) {
        spend(5);
        self.0.send(Value);
        // With one worker this is the message's only chance to run here.
        while work_stealing_rt::yield_now() == Some(work_stealing_rt::Yield::Executed) {}
        spend(5);
    }
}

#[test]
fn a_nested_task_is_no_part_of_the_outer_one() {
    let system = builder(2).build().expect("threads");
    let buffer = system.spawn(Buffer);
    let forks = system.array("forks", 4, |_, _| Forks(buffer.clone()));
    system.run(|| forks.broadcast(Run)).expect("no panic");
    let report = system.critical_path().report;
    assert_eq!((report.work, report.span), (4 * 10 + 4 * 12, 5 + 4 * 12));
}

/// A producer of four items and one long task after them, and a slow consumer with room for one.
struct Producer(Address<Consumer>);
struct Consumer;

impl Handle<u32> for Producer {
    fn handle(&mut self, item: u32, context: &mut Context<'_, Self>) {
        if item == 4 {
            return spend(20);
        }
        spend(1);
        self.0.send(Value);
        context.address().send(item + 1);
    }
}

impl Handle<Value> for Consumer {
    fn handle(&mut self, _: Value, _: &mut Context<'_, Self>) {
        spend(5);
    }
}

/// On one worker: the second item finds no room until the first is handled, the fourth until the third is.
#[test]
fn who_waits_for_room_depends_on_the_receiver() {
    let system = builder(1).build().expect("threads");
    let consumer = system.setup().mailbox(1).spawn(Consumer);
    let producer = system.spawn(Producer(consumer));
    system.run(|| producer.send(0_u32)).expect("no deadlock");
    let path = system.critical_path();
    assert_eq!((path.report.work, path.report.span), (44, 36));
    let of = |name: &str| {
        let mut all = path.report.procedures.iter();
        all.find(|p| p.name.to_string().contains(name)).map(|p| p.zeroed_span)
    };
    assert_eq!((of("Producer"), of("Consumer")), (Some(20), Some(24)));
}

/// The same for a program, which helps while it waits.
#[test]
fn a_program_that_waits_for_room_depends_on_the_receiver() {
    let system = builder(1).build().expect("threads");
    let consumer = system.setup().mailbox(1).spawn(Consumer);
    let program = || {
        for _ in 0..2 {
            spend(1);
            consumer.send(Value);
        }
        spend(20);
    };
    system.run(program).expect("no deadlock");
    let report = system.critical_path().report;
    assert_eq!((report.work, report.span), (32, 26));
}

/// A path along an actor's own tasks has all of them as steps.
#[test]
fn the_tasks_of_a_slow_actor_are_steps() {
    let system = builder(2).build().expect("threads");
    let buffer = system.spawn(Buffer);
    let computers = system.array("computer", 8, |_, _| Computer(buffer.clone()));
    system.run(|| computers.broadcast(Run)).expect("no panic");
    let path = system.critical_path();
    let steps = path.steps();
    let of = |name: &str| steps.iter().filter(|(_, entry)| entry.contains(name)).count();
    assert_eq!((of("Computer"), of("Buffer")), (1, 8));
    assert_eq!(path.phase(6).map(|phase| phase.period), Some(1));
}

/// Hand-set priorities order the messages of one actor, and actors.
struct Log(Arc<Mutex<Vec<i32>>>);

impl Handle<i32> for Log {
    fn handle(&mut self, level: i32, _: &mut Context<'_, Self>) {
        self.0.lock().expect("no panic").push(level);
    }
}

#[test]
fn urgent_messages_come_first() {
    let levels = [0, 5, -5, 31, 5, 0, -32];
    for actors in [1, levels.len()] {
        let system = builder(1).build().expect("threads");
        let log = Arc::new(Mutex::new(Vec::new()));
        let logs = system.array("log", actors, |_, _| Log(Arc::clone(&log)));
        let send = || {
            for (n, level) in levels.into_iter().enumerate() {
                logs[n % actors].send_with(Priority::new(level), level);
            }
        };
        system.run(send).expect("no panic");
        assert_eq!(*log.lock().expect("no panic"), [31, 5, 5, 0, 0, -5, -32]);
    }
}

/// Two actors of which one ends a phase, or asks for its path, after which the other one goes on.
struct Independent(Arc<Mutex<Vec<u64>>>);
#[derive(Clone, Copy)]
enum Do {
    Spend(u64),
    EndPhase,
    Path,
}

impl Handle<Do> for Independent {
    fn handle(&mut self, what: Do, context: &mut Context<'_, Self>) {
        match what {
            Do::Spend(time) => spend(time),
            Do::EndPhase => context.end_phase(),
            Do::Path => {
                let report = context.critical_path().expect("it is followed").report;
                let segments: u64 = report.segments.iter().map(|segment| segment.time).sum();
                assert_eq!(segments, report.span);
                self.0.lock().expect("no panic").push(report.span);
            }
        }
    }
}

/// A phase has what was done in it, whatever length the paths of other actors had before.
#[test]
fn phases_of_independent_actors_begin_with_the_phase() {
    let system = builder(2).build().expect("threads");
    let spans = Arc::new(Mutex::new(Vec::new()));
    let [long, short] = [0; 2].map(|_| system.spawn(Independent(Arc::clone(&spans))));
    let steps = [
        (&long, Do::Spend(1000)),
        (&short, Do::Spend(100)),
        (&long, Do::EndPhase),
        (&short, Do::Spend(50)),
        (&short, Do::Path),
        (&short, Do::EndPhase),
        (&long, Do::Spend(10)),
        (&long, Do::Path),
        (&short, Do::Spend(7)),
        (&short, Do::Path),
    ];
    let program = || {
        for (actor, step) in steps {
            let handled = system.messages();
            actor.send(step);
            while system.messages() == handled {
                std::thread::yield_now();
            }
        }
    };
    system.run(program).expect("no panic");
    assert_eq!(*spans.lock().expect("no panic"), [50, 10, 7]);
    assert_eq!(system.critical_path().report.span, 10);
}

/// An actor's own last task is no message: the path of T5 has two.
#[test]
fn an_actors_own_order_costs_no_message() {
    let cost = critical_path::Settings::default().message_cost;
    for (order, tasks) in [(true, 10 + 8 * 12), (false, 22)] {
        let system = builder(2).actor_order(order).build().expect("threads");
        let buffer = system.spawn(Buffer);
        let computers = system.array("computer", 8, |_, _| Computer(buffer.clone()));
        system.run(|| computers.broadcast(Run)).expect("no panic");
        let report = system.critical_path().report;
        assert_eq!((report.span, report.burdened_span), (tasks, tasks + 2 * cost));
    }
}

/// Sends messages to itself, and then ends a phase.
struct Chain(Duration);

impl Handle<u32> for Chain {
    fn handle(&mut self, left: u32, context: &mut Context<'_, Self>) {
        if left == 1 {
            let begin = cpu_time();
            context.end_phase();
            self.0 = cpu_time() - begin;
        } else if left == 0 {
            let next = context.critical_path().expect("it is followed").report.work;
            let analysis = self.0.as_nanos() as u64;
            assert!(next < analysis / 4, "{next} ns after an analysis of {analysis} ns");
            return;
        }
        context.address().send(left - 1);
    }
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills a local.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Priorities are learnt from a phase of many tasks; that is no part of the next one.
#[test]
fn the_analysis_of_a_phase_is_no_part_of_the_next() {
    let builder = work_stealing_actors::System::builder().workers(1);
    let system = builder.critical_path(true).automatic_priorities(true).build().expect("threads");
    let chain = system.spawn(Chain(Duration::ZERO));
    system.run(|| chain.send(30_000_u32)).expect("it is no part");
}
