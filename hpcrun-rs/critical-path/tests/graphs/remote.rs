//! Processes that exchange messages, each with a tracker of its own, against the evaluator.

use std::collections::HashMap;

use critical_path::{Edge, Segment, Settings, Site, Thread, Tracker, key_of};
use hpcrun_abi::{RemoteStrand, SITE_REMOTE};

use crate::dag::Dag;
use crate::random::Random;
use crate::world::{MESSAGE_COST, Simulated};

/// Less than a message has savings for.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

fn trackers(count: usize, edges: bool) -> Vec<Tracker> {
    let mut settings = Settings::default();
    settings.message_cost = MESSAGE_COST;
    settings.edges = edges;
    (0..count).map(|_| Tracker::new(settings)).collect()
}

/// A process, whose only thread it is.
struct Process<'t> {
    clock: Simulated,
    thread: Thread<'t, Simulated>,
    rank: u32,
    /// Its last node.
    node: usize,
}

impl Process<'_> {
    fn spin(&mut self, dag: &mut Dag, procedure: usize, tracker: &Tracker, time: u64) {
        let outer = self.thread.enter(tracker.procedure(NAMES[procedure]));
        self.clock.advance(time);
        self.thread.enter(outer);
        self.node = dag.node(Some(procedure), time, &[(self.node, 0)]);
    }

    fn send(&mut self) -> (RemoteStrand, usize) {
        self.thread.pause();
        // The call itself is no activity.
        self.clock.advance(5);
        let strand = *self.thread.export(Site(10), self.rank);
        self.thread.resume();
        (strand, self.node)
    }

    fn receive(&mut self, dag: &mut Dag, (strand, node): &(RemoteStrand, usize)) {
        self.thread.pause();
        if node % 2 == 0 {
            self.thread.resume_after(strand, Site(11));
        } else {
            self.thread.import(strand, Site(11));
            self.thread.resume();
        }
        self.node = dag.node(None, 0, &[(self.node, 0), (*node, MESSAGE_COST)]);
    }
}

fn processes<'t>(trackers: &'t [Tracker], dag: &mut Dag) -> Vec<Process<'t>> {
    let process = |(rank, tracker): (usize, &'t Tracker)| {
        let clock = Simulated::default();
        Process {
            thread: Thread::new(tracker, clock.clone(), Site(1)),
            clock,
            rank: rank as u32,
            node: dag.node(None, 0, &[]),
        }
    };
    trackers.iter().enumerate().map(process).collect()
}

/// Follows the path from process to process: the segments of each part, from the end.
fn parts(trackers: &[Tracker], last: usize) -> Vec<(usize, Vec<Segment>)> {
    let mut at = last;
    let mut segments = trackers[at].report().segments;
    let mut parts = Vec::new();
    loop {
        let Site(begin) = segments.first().expect("a path has segments").begin;
        if begin & SITE_REMOTE == 0 {
            parts.push((at, segments));
            return parts;
        }
        let before = segments.remove(0);
        assert_eq!((before.edge, before.thread), (Edge::Message, None));
        parts.push((at, segments));
        at = ((begin & !SITE_REMOTE) >> 32) as usize;
        let exported = trackers[at].exported();
        let export = &exported.exports[(begin as u32 - exported.first) as usize];
        assert_eq!(export.length, before.time, "the length goes with the message");
        segments = vec![export.last];
        let mut next = export.before;
        while let Some((before, segment)) = next.map(|index| exported.segments[index as usize]) {
            segments.push(segment);
            next = before;
        }
        segments.reverse();
    }
}

#[test]
fn random_messages_between_processes() {
    for seed in 1..300 {
        let mut random = Random(seed * 0x9e37_79b9);
        let has_costs = seed % 2 == 0;
        let trackers = trackers(1 + random.below(4), has_costs);
        let mut dag = Dag::with_costs(has_costs);
        let mut all = processes(&trackers, &mut dag);
        let mut sent: Vec<(usize, (RemoteStrand, usize))> = Vec::new();
        for _ in 0..random.below(200) {
            let at = random.below(all.len());
            let process = &mut all[at];
            match random.below(3) {
                0 => {
                    let time = random.below(30) as u64;
                    process.spin(&mut dag, random.below(NAMES.len()), &trackers[at], time);
                }
                1 => {
                    let message = process.send();
                    sent.push((random.below(trackers.len()), message));
                }
                _ => {
                    if let Some(found) = sent.iter().position(|(to, _)| *to == at) {
                        let (_, message) = sent.remove(found);
                        process.receive(&mut dag, &message);
                    }
                }
            }
        }
        all.iter_mut().for_each(|process| process.thread.publish(Site(12)));
        check(&trackers, &dag);
    }
}

fn check(trackers: &[Tracker], dag: &Dag) {
    let reports: Vec<_> = trackers.iter().map(Tracker::report).collect();
    let last = (0..reports.len()).max_by_key(|at| reports[*at].span).expect("a process");
    let span = reports[last].span;
    assert_eq!(span, dag.longest(None, false).length, "span");
    let burdened = reports.iter().map(|report| report.burdened_span).max();
    assert_eq!(burdened, Some(dag.longest(None, true).length));
    let work: u64 = reports.iter().map(|report| report.work).sum();
    assert_eq!(work, dag.work(None), "work");
    let parts = parts(trackers, last);
    let sum: u64 = parts.iter().flat_map(|(_, part)| part).map(|segment| segment.time).sum();
    assert_eq!(sum, span, "the parts are the path");
    // Every process's end counts.
    let savings = trackers.iter().map(|tracker| {
        let savings = tracker.savings().0;
        savings.into_iter().map(|saving| (saving.procedure, saving.time)).collect()
    });
    let savings: Vec<HashMap<u64, u64>> = savings.collect();
    for (number, name) in NAMES.iter().enumerate() {
        let of = |at: usize| {
            let saving = savings[at].get(&key_of(name)).copied().unwrap_or(0);
            span - reports[at].span + saving
        };
        let saving = (0..trackers.len()).map(of).min().expect("a process");
        let zeroed = dag.longest(Some(number), false).length;
        assert_eq!(span - saving, zeroed, "span without {name}");
    }
}

#[test]
fn a_procedure_that_is_known_from_a_message_is_marked_later() {
    let trackers = trackers(2, false);
    let mut dag = Dag::default();
    let mut all = processes(&trackers, &mut dag);
    all[0].spin(&mut dag, 3, &trackers[0], 50);
    let message = all[0].send();
    all[1].receive(&mut dag, &message);
    assert_eq!(trackers[1].report().procedures, [], "it has no name here");
    all[1].spin(&mut dag, 3, &trackers[1], 20);
    all.iter_mut().for_each(|process| process.thread.publish(Site(12)));
    check(&trackers, &dag);
    let report = trackers[1].report();
    assert_eq!(report.procedures.len(), 1);
    let procedure = &report.procedures[0];
    assert_eq!((&*procedure.name.to_string(), procedure.work), ("d", 20));
    assert_eq!((procedure.on_path, procedure.zeroed_span), (20, 0));
}

#[test]
fn the_oldest_exports_are_forgotten() {
    const MESSAGES: u64 = 70_000;
    let trackers = trackers(2, false);
    let mut dag = Dag::default();
    let mut all = processes(&trackers, &mut dag);
    let mut last = None;
    for _ in 0..MESSAGES {
        all[0].clock.advance(1);
        last = Some(all[0].send());
    }
    all[1].receive(&mut dag, &last.expect("there are messages"));
    all[1].thread.publish(Site(12));
    let exported = trackers[0].exported();
    assert_eq!(u64::from(exported.first) + exported.exports.len() as u64, MESSAGES);
    assert_eq!(exported.exports.len(), 1 << 16);
    assert_eq!(trackers[1].report().span, MESSAGES);
}
