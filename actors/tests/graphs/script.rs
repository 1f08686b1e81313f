//! Bodies that wait for messages in an order, against an evaluator that knows only what follows what.

use std::sync::Arc;

use fastrand::Rng;
use work_stealing_actors::{Address, Begin, Context, Handle, Inbox, Part, Script};

use crate::{builder, spend};

/// A body.
#[derive(Debug)]
enum Flow {
    Spend(u64),
    /// Waits for the message of this number.
    When(usize),
    Sequence(Vec<Flow>),
    Overlap(Vec<Flow>),
}

use Flow::{Overlap, Sequence, Spend, When};

impl Flow {
    /// Any body, whose waits are for the next numbers.
    fn random(random: &mut Rng, depth: u32, messages: &mut usize) -> Flow {
        let kind = random.usize(0..if depth == 0 { 4 } else { 8 });
        let parts = |random: &mut Rng, messages: &mut usize| -> Vec<Flow> {
            (0..random.usize(1..5)).map(|_| Flow::random(random, depth - 1, messages)).collect()
        };
        match kind {
            0 | 1 => Spend(random.u64(0..100)),
            2 | 3 => {
                *messages += 1;
                When(*messages - 1)
            }
            4 | 5 => Sequence(parts(random, messages)),
            _ => Overlap(parts(random, messages)),
        }
    }

    /// When it ends if it begins then, and messages come at these times.
    fn end(&self, begin: u64, arrivals: &[u64]) -> u64 {
        match self {
            Spend(time) => begin + time,
            When(message) => begin.max(arrivals[*message]),
            Sequence(parts) => parts.iter().fold(begin, |at, part| part.end(at, arrivals)),
            Overlap(parts) => parts.iter().map(|part| part.end(begin, arrivals)).max().unwrap_or(begin),
        }
    }

    fn work(&self) -> u64 {
        match self {
            Spend(time) => *time,
            When(_) => 0,
            Sequence(parts) | Overlap(parts) => parts.iter().map(Flow::work).sum(),
        }
    }

    fn run<'f>(&'f self, inbox: &'f Inbox) -> Part<'f> {
        Box::pin(async move {
            match self {
                Spend(time) => spend(*time),
                When(message) => {
                    let Value(number) = inbox.when(*message as u64).await;
                    assert_eq!(number, *message);
                }
                Sequence(parts) => {
                    for part in parts {
                        part.run(inbox).await;
                    }
                }
                Overlap(parts) => inbox.overlap(parts.iter().map(|part| part.run(inbox)).collect()).await,
            }
        })
    }
}

struct Value(usize);

/// Sends a message of some number after some time.
struct Sender(usize, u64, Address<Script>);
#[derive(Clone)]
struct Go;

impl Handle<Go> for Sender {
    fn handle(&mut self, _: Go, _: &mut Context<'_, Self>) {
        spend(self.1);
        self.2.send((self.0 as u64, Value(self.0)));
    }
}

/// Runs a body; its senders are started in this order, and the body before so many of them. Returns work and
/// span.
fn run(flow: &Arc<Flow>, times: &[u64], order: &[usize], begin: usize, is_serial: bool) -> (u64, u64) {
    let system = builder(1 + times.len() % 3).actor_order(is_serial).build().expect("threads");
    let body = Arc::clone(flow);
    let script = system.spawn(Script::new(|inbox| async move { body.run(&inbox).await }));
    let to = script.clone();
    let senders = system.array("sender", times.len(), |n, _| Sender(n, times[n], to.clone()));
    let start = || {
        for (n, sender) in order.iter().enumerate() {
            if n == begin {
                script.send(Begin);
            }
            senders[*sender].send(Go);
        }
        if begin >= order.len() {
            script.send(Begin);
        }
    };
    system.run(start).expect("no panic");
    assert!(script.is_stopped(), "{flow:?}");
    let report = system.critical_path().report;
    assert_eq!(report.segments.iter().map(|s| s.time).sum::<u64>(), report.span);
    (report.work, report.span)
}

/// In the paper's figures 5 and 6: two parts that overlap, one of which waits for two messages in an order.
#[test]
fn a_wait_depends_on_its_messages_and_on_what_was_before() {
    let first = Sequence(vec![When(0), Spend(20), When(1), Spend(2)]);
    let second = Sequence(vec![When(2), Spend(30)]);
    let flow = Arc::new(Sequence(vec![Spend(5), Overlap(vec![first, second]), Spend(4)]));
    for (times, span) in [([10, 1, 3], 39), ([10, 50, 3], 56), ([0, 0, 0], 39), ([16, 38, 9], 44)] {
        for (order, begin) in [([0, 1, 2], 0), ([2, 1, 0], 0), ([1, 0, 2], 2), ([1, 2, 0], 3)] {
            let work = 61 + times.iter().sum::<u64>();
            assert_eq!(run(&flow, &times, &order, begin, false), (work, span), "{order:?} {begin}");
        }
    }
}

/// If the actor's tasks depend on each other, as they run one after the other, its parts cannot overlap.
#[test]
fn parts_of_a_serial_actor_are_serial() {
    let flow = Arc::new(Overlap(vec![Spend(7), Sequence(vec![When(0), Spend(8)]), Spend(9)]));
    assert_eq!(run(&flow, &[0], &[0], 0, true).1, 24);
    assert_eq!(run(&flow, &[0], &[0], 0, false).1, 9);
}

#[test]
fn any_body_has_the_path_that_its_order_says() {
    let mut random = Rng::with_seed(35);
    let mut overlapping = 0;
    for _ in 0..400 {
        let mut messages = 0;
        let flow = Arc::new(Flow::random(&mut random, 4, &mut messages));
        let times: Vec<u64> = (0..messages).map(|_| random.u64(0..300)).collect();
        let mut order: Vec<usize> = (0..messages).collect();
        random.shuffle(&mut order);
        let begin = random.usize(0..=messages);
        let work = flow.work() + times.iter().sum::<u64>();
        let span = times.iter().copied().fold(flow.end(0, &times), u64::max);
        assert_eq!(run(&flow, &times, &order, begin, false), (work, span), "{flow:?} {times:?}");
        let (serial_work, serial) = run(&flow, &times, &order, begin, true);
        assert!(serial_work == work && serial >= span && serial >= flow.work());
        overlapping += u32::from(serial > span);
    }
    assert!(overlapping > 50, "{overlapping}");
}

/// Messages of one number are taken in the order in which they came, and of each type for itself.
#[test]
fn messages_wait_by_type_and_number() {
    struct Other(usize);
    let system = builder(1).build().expect("threads");
    let script = system.spawn(Script::new(|inbox| async move {
        let Other(other) = inbox.when(7).await;
        let (Value(one), Value(two)) = (inbox.when(7).await, inbox.when(7).await);
        let Value(three) = inbox.when(8).await;
        assert_eq!((one, two, three, other), (1, 2, 3, 4));
    }));
    let start = || {
        script.send((8, Value(3)));
        script.send(Begin);
        (1..3).for_each(|n| script.send((7, Value(n))));
        script.send((7, Other(4)));
    };
    system.run(start).expect("no panic");
    assert_eq!((script.is_stopped(), system.undelivered()), (true, 0));
}
