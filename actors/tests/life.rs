//! Actors that stop, panic, fill their mailboxes and wait for each other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::TrySendError;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use work_stealing_actors::{Address, Array, Context, Handle, System};

fn system(workers: usize) -> System {
    System::new(workers).expect("threads")
}

/// Counts those alive, and does what it is told.
struct Servant(Arc<AtomicUsize>);

impl Servant {
    fn new(alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, SeqCst);
        Servant(Arc::clone(alive))
    }
}

impl Drop for Servant {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Order {
    Nothing,
    Stop,
    Panic,
}

impl Handle<Order> for Servant {
    fn handle(&mut self, order: Order, context: &mut Context<'_, Self>) {
        match order {
            Order::Nothing => {}
            Order::Stop => context.stop(),
            Order::Panic => panic!("as told"),
        }
    }
}

/// Lets a test keep a worker busy.
struct Gate(Arc<Barrier>);

impl Handle<()> for Gate {
    fn handle(&mut self, (): (), _: &mut Context<'_, Self>) {
        self.0.wait();
    }
}

#[test]
fn messages_to_a_stopped_actor_are_counted() {
    let (system, alive) = (system(2), Arc::default());
    let servant = system.spawn(Servant::new(&alive));
    let other = system.spawn(Servant::new(&alive));
    system.run(|| servant.send(Order::Stop)).expect("no panic");
    assert!(servant.is_stopped() && !other.is_stopped());
    assert_eq!((alive.load(SeqCst), system.undelivered()), (1, 0));
    system.run(|| (0..10).for_each(|_| servant.send(Order::Nothing))).expect("no panic");
    assert_eq!((system.undelivered(), system.messages()), (10, 1));
    assert_eq!(servant.try_send(Order::Panic), Err(TrySendError::Disconnected(Order::Panic)));
    // Those that wait when it stops count too.
    let gate = Arc::new(Barrier::new(2));
    let busy = system.array("gate", 2, |_, _| Gate(Arc::clone(&gate)));
    let before = system.undelivered();
    let send = || {
        busy.broadcast(());
        other.send(Order::Stop);
        (0..5).for_each(|_| other.send(Order::Nothing));
    };
    system.run(send).expect("no panic");
    assert_eq!((system.undelivered() - before, alive.load(SeqCst)), (5, 0));
}

#[test]
fn a_panic_stops_one_actor_and_is_reported() {
    for workers in [1, 2] {
        let (system, alive) = (system(workers), Arc::default());
        let servants = system.array("servant", 5, |_, _| Servant::new(&alive));
        let send = || {
            servants[3].send(Order::Panic);
            servants.broadcast(Order::Nothing);
            "result"
        };
        let error = system.run(send).expect_err("one panicked");
        let text = "servant[3] panicked in life::Servant::handle(Order): as told";
        assert_eq!(error.to_string(), text);
        assert_eq!((alive.load(SeqCst), system.undelivered()), (4, 1));
        assert_eq!(system.run(|| "again"), Ok("again"));
    }
}

/// Panics when it is dropped, as a message or as an actor.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

struct Shell(#[allow(dead_code)] Option<Bomb>);

impl Handle<Order> for Shell {
    fn handle(&mut self, _: Order, context: &mut Context<'_, Self>) {
        context.stop();
    }
}

impl Handle<Bomb> for Shell {
    fn handle(&mut self, bomb: Bomb, _: &mut Context<'_, Self>) {
        drop(bomb);
    }
}

#[test]
fn panics_of_destructors_are_contained() {
    let system = system(2);
    let shells = system.array("shell", 2, |n, _| Shell((n == 1).then(|| Bomb)));
    let send = || {
        shells[0].send(Bomb);
        shells[1].send(Order::Stop);
        // Dropped with the actor, if it is so fast.
        let _ = shells[1].try_send(Order::Stop);
    };
    let error = system.run(send).expect_err("two panicked");
    let mut panics: Vec<&str> = error.panics.iter().map(|p| p.actor.as_str()).collect();
    panics.sort_unstable();
    assert_eq!(panics, ["shell[0]", "shell[1]"]);
    // An actor and all its messages.
    let gate = Arc::new(Barrier::new(2));
    let busy = system.array("gate", 2, |_, _| Gate(Arc::clone(&gate)));
    let shell = system.spawn(Shell(Some(Bomb)));
    let send = || {
        busy.broadcast(());
        shell.send(Order::Stop);
        (0..3).for_each(|_| shell.send(Bomb));
    };
    assert_eq!(system.run(send).expect_err("four panicked").panics.len(), 4);
    assert!(shells.iter().all(Address::is_stopped));
}

#[test]
fn a_panic_of_the_program_resumes_after_quiescence() {
    let (system, done) = (system(2), Arc::new(AtomicBool::new(false)));
    let sleeper = system.spawn(Sleeper(Arc::clone(&done)));
    let run = std::panic::AssertUnwindSafe(|| {
        system.run(|| {
            sleeper.send(());
            panic!("program");
        })
    });
    let payload = std::panic::catch_unwind(run).expect_err("it panicked");
    assert_eq!(payload.downcast_ref(), Some(&"program"));
    assert!(done.load(SeqCst));
}

struct Sleeper(Arc<AtomicBool>);

impl Handle<()> for Sleeper {
    fn handle(&mut self, (): (), _: &mut Context<'_, Self>) {
        thread::sleep(Duration::from_millis(20));
        self.0.store(true, SeqCst);
    }
}

/// Actors that refer to each other are freed with their system.
struct Ring(#[allow(dead_code)] Array<Ring>, #[allow(dead_code)] Servant);

#[test]
fn nothing_outlives_its_system_and_nobody_is_kept_in_vain() {
    let alive = Arc::new(AtomicUsize::new(0));
    let first = system(2);
    drop(first.array("ring", 10, |_, array| Ring(array.clone(), Servant::new(&alive))));
    assert_eq!(alive.load(SeqCst), 10);
    for _ in 0..3000 {
        let servant = first.spawn(Servant::new(&alive));
        first.run(|| servant.send(Order::Nothing)).expect("no panic");
    }
    assert_eq!(alive.load(SeqCst), 10, "no address leads to the others");
    drop(first);
    assert_eq!(alive.load(SeqCst), 0);
}

/// A sender of many messages and a receiver with little room.
struct Source(u64, Address<Sink>);
struct Sink(u64, Arc<AtomicUsize>);
struct Item(Arc<AtomicUsize>);

impl Item {
    fn new(waiting: &Arc<AtomicUsize>, most: &AtomicUsize) -> Self {
        most.fetch_max(waiting.fetch_add(1, SeqCst) + 1, SeqCst);
        Item(Arc::clone(waiting))
    }
}

impl Handle<(Arc<AtomicUsize>, Arc<AtomicUsize>)> for Source {
    fn handle(
        &mut self,
        (waiting, most): (Arc<AtomicUsize>, Arc<AtomicUsize>),
        context: &mut Context<'_, Self>,
    ) {
        self.1.send(Item::new(&waiting, &most));
        self.0 -= 1;
        if self.0 > 0 {
            context.address().send((waiting, most));
        }
    }
}

impl Handle<Item> for Sink {
    fn handle(&mut self, item: Item, _: &mut Context<'_, Self>) {
        item.0.fetch_sub(1, SeqCst);
        self.0 += 1;
        self.1.store(self.0 as usize, SeqCst);
    }
}

#[test]
fn a_bounded_mailbox_holds_its_senders_back() {
    for workers in [1, 2, 4] {
        let system = system(workers);
        let [handled, waiting, most] = [0; 3].map(|_| Arc::new(AtomicUsize::new(0)));
        let sink = system.setup().mailbox(10).spawn(Sink(0, Arc::clone(&handled)));
        // Actors, then the program, then a thread from outside.
        let sources = system.array("source", 4, |_, _| Source(500, sink.clone()));
        let program = || {
            sources.broadcast((Arc::clone(&waiting), Arc::clone(&most)));
            (0..500).for_each(|_| sink.send(Item::new(&waiting, &most)));
        };
        system.run(program).expect("no deadlock");
        assert_eq!(handled.load(SeqCst), 2500);
        (0..500).for_each(|_| sink.send(Item::new(&waiting, &most)));
        system.run(|| ()).expect("no deadlock");
        assert_eq!((handled.load(SeqCst), waiting.load(SeqCst)), (3000, 0));
        let most = most.load(SeqCst);
        assert!(most <= 10 + 4 + 2, "room, a message of each source, those in hand: {most}");
        assert_eq!(system.undelivered(), 0);
    }
}

#[test]
fn a_full_mailbox_refuses() {
    let system = system(1);
    let (count, waiting) = (Arc::default(), Arc::default());
    let sink = system.setup().mailbox(2).spawn(Sink(0, count));
    let results = system.run(|| {
        let item = || Item(Arc::clone(&waiting));
        [0; 3].map(|_| sink.try_send(item()).is_ok())
    });
    // The only worker runs the program.
    assert_eq!(results, Ok([true, true, false]));
}

/// Each floods the next one's mailbox.
struct Flood(Array<Flood>, usize);

impl Handle<u32> for Flood {
    fn handle(&mut self, left: u32, _: &mut Context<'_, Self>) {
        if left > 0 {
            (0..4).for_each(|_| self.0[self.1].send(left - 1));
        }
    }
}

#[test]
fn a_deadlock_is_diagnosed_with_its_cycle() {
    for workers in [1, 2] {
        let system = system(workers);
        // 0 -> 1 -> 2 -> 3 -> 1: the first is no part of the circle.
        let next = |n: usize| if n == 3 { 1 } else { n + 1 };
        let setup = system.setup().name("flood").mailbox(2);
        let floods = setup.array(4, |n, array| Flood(array.clone(), next(n)));
        let other = system.array("other", 1, |_, array: &Array<Flood>| Flood(array.clone(), 0));
        let error = system.run(|| {
            floods[0].send(30_u32);
            other[0].send(5_u32);
        });
        let error = error.expect_err("a deadlock");
        assert!(error.panics.is_empty());
        let circle = error.deadlocks[0].join(" ");
        let circles = ["1 2 3 1", "2 3 1 2", "3 1 2 3"]
            .map(|c| c.split(' ').map(|n| format!("flood[{n}]")).collect::<Vec<_>>().join(" "));
        assert!(circles.contains(&circle), "{circle}");
        assert!(error.to_string().starts_with("deadlock, each waits for room"), "{error}");
        assert!(floods[1].is_stopped() && !floods[0].is_stopped() && !other[0].is_stopped());
        assert!(system.undelivered() > 0);
        system.run(|| other[0].send(3_u32)).expect("the others work on");
    }
}

/// A program whose receiver is deadlocked is not kept for ever.
#[test]
fn a_sender_outside_of_a_deadlock_goes_on() {
    let system = system(2);
    let setup = system.setup().mailbox(1);
    let floods = setup.array(2, |n, array| Flood(array.clone(), 1 - n));
    let error = system.run(|| (0..50).for_each(|_| floods[0].send(20_u32)));
    assert_eq!(error.expect_err("a deadlock").deadlocks[0].len(), 3);
}

#[test]
fn actors_can_be_made_by_actors_and_threads() {
    struct Parent(Arc<AtomicUsize>);
    impl Handle<u32> for Parent {
        fn handle(&mut self, depth: u32, context: &mut Context<'_, Self>) {
            self.0.fetch_add(1, SeqCst);
            for _ in 0..2 * depth.min(1) {
                let child = context.spawn(Parent(Arc::clone(&self.0)));
                child.send(depth - 1);
            }
        }
    }
    let (system, count) = (system(3), Arc::new(AtomicUsize::new(0)));
    let program = || {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| system.spawn(Parent(Arc::clone(&count))).send(9_u32));
            }
        });
    };
    system.run(program).expect("no panic");
    assert_eq!(count.load(SeqCst), 4 * 1023);
}

#[test]
fn messages_between_two_actors_keep_their_order() {
    struct Check(u64, Arc<Mutex<u64>>);
    impl Handle<u64> for Check {
        fn handle(&mut self, n: u64, _: &mut Context<'_, Self>) {
            assert_eq!(n, self.0);
            self.0 += 1;
            *self.1.lock().expect("no panic") = self.0;
        }
    }
    struct Feed(Address<Check>, u64);
    impl Handle<()> for Feed {
        fn handle(&mut self, (): (), context: &mut Context<'_, Self>) {
            for n in self.1..self.1 + 3 {
                self.0.send(n);
            }
            self.1 += 3;
            if self.1 < 3000 {
                context.address().send(());
            }
        }
    }
    let system = system(3);
    let last = [0; 8].map(|_| Arc::new(Mutex::new(0)));
    let feeds: Vec<_> =
        last.iter().map(|last| system.spawn(Feed(system.spawn(Check(0, Arc::clone(last))), 0))).collect();
    system.run(|| feeds.iter().for_each(|feed| feed.send(()))).expect("in order");
    assert!(last.iter().all(|last| *last.lock().expect("no panic") == 3000));
}

#[test]
fn a_handler_must_not_wait_for_itself() {
    struct Runs(Arc<System>);
    impl Handle<()> for Runs {
        fn handle(&mut self, (): (), _: &mut Context<'_, Self>) {
            drop(self.0.run(|| ()));
        }
    }
    let system = Arc::new(system(1));
    let runs = system.spawn(Runs(Arc::clone(&system)));
    let error = system.run(|| runs.send(())).expect_err("it panicked");
    assert!(error.to_string().contains("none of them may call it"), "{error}");
}

/// Several programs at the same time, in one system.
#[test]
fn programs_may_overlap() {
    let (system, alive) = (system(2), Arc::default());
    let servants = system.array("servant", 20, |_, _| Servant::new(&alive));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    system.run(|| servants.broadcast(Order::Nothing)).expect("no panic");
                }
            });
        }
    });
    assert_eq!(system.messages(), 4 * 50 * 20);
}

/// An actor that sends to itself until it is told that the other one's wait is over.
struct Busy(Arc<AtomicUsize>, Arc<AtomicBool>);

impl Handle<()> for Busy {
    fn handle(&mut self, (): (), context: &mut Context<'_, Self>) {
        self.0.fetch_add(1, SeqCst);
        if !self.1.load(SeqCst) {
            context.address().send(());
        }
    }
}

struct Joins(Address<Busy>, Arc<AtomicUsize>, Arc<AtomicBool>);

impl Handle<()> for Joins {
    fn handle(&mut self, (): (), _: &mut Context<'_, Self>) {
        let stolen = AtomicBool::new(false);
        let wait = |is_over: &dyn Fn() -> bool| {
            while !is_over() {
                thread::yield_now();
            }
        };
        // The other worker keeps the second half until this one, which waits, has handled messages.
        let other = || {
            stolen.store(true, SeqCst);
            self.0.send(());
            wait(&|| self.1.load(SeqCst) > 10);
        };
        work_stealing_rt::join(|| wait(&|| stolen.load(SeqCst)), other);
        self.2.store(true, SeqCst);
    }
}

#[test]
fn messages_do_not_keep_a_handler_that_waits_for_a_fork() {
    let (system, handled, done) = (system(2), Arc::default(), Arc::default());
    let busy = system.spawn(Busy(Arc::clone(&handled), Arc::clone(&done)));
    let joins = system.spawn(Joins(busy, handled, Arc::clone(&done)));
    system.run(|| joins.send(())).expect("no panic");
    assert!(done.load(SeqCst));
}

/// Long: `cargo test --release -p work-stealing-actors --test life -- --ignored`.
#[test]
#[ignore = "takes a minute"]
fn a_hundred_million_messages_take_little_memory() {
    struct Pass(Array<Pass>);
    impl Handle<u64> for Pass {
        fn handle(&mut self, left: u64, context: &mut Context<'_, Self>) {
            if left > 0 {
                self.0[(context.index() + 1) % self.0.len()].send(left - 1);
            }
        }
    }
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
        let pages: u64 = statm.split(' ').nth(1).expect("a field").parse().expect("a number");
        pages * 4096
    };
    let system = System::builder().workers(2).critical_path(true).build().expect("threads");
    let ring = system.setup().mailbox(64).array(1000, |_, array| Pass(array.clone()));
    system.run(|| ring.iter().for_each(|pass| pass.send(1000_u64))).expect("no deadlock");
    let before = resident();
    system.run(|| ring.iter().for_each(|pass| pass.send(99_999_u64))).expect("no deadlock");
    assert_eq!(system.messages(), 1000 * (1001 + 100_000));
    let grown = resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more");
    let report = system.critical_path().report;
    assert_eq!(report.segments.iter().map(|s| s.time).sum::<u64>(), report.span);
}
