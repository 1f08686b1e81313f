//! Graphs whose results are known, as programs.
//!
//! The expected numbers were computed by hand or by another evaluator, not by this crate's tests.

use critical_path::{Edge, ProcedureName, ProcedureTimes, Report, Site};
use hpc_formats::critical_path::Start;

use crate::world::{Fiber, Pipe, Shared, World};

/// Work, span, and for each procedure its time on the path and the span without it.
fn check(world: &World, work: u64, span: u64, procedures: &[(&str, u64, u64)]) -> Report {
    let report = world.check();
    assert_eq!((report.work, report.span), (work, span));
    let is_mark = |p: &&ProcedureTimes| matches!(p.name, ProcedureName::Mark(_));
    let marks = report.procedures.iter().filter(is_mark).count();
    assert_eq!(marks, procedures.len());
    for (name, on_path, zeroed) in procedures {
        let found = report.procedures.iter().find(|p| p.name == *name);
        let found = found.expect("it is reported");
        assert_eq!((found.on_path, found.zeroed_span), (*on_path, *zeroed), "{name}");
    }
    report
}

fn end(fiber: Fiber<'_>) {
    drop(fiber.end());
}

#[test]
fn t1_the_longer_half_of_a_join() {
    let world = World::new();
    let mut main = world.root();
    main.spin("pre", 10);
    main.both(|f| f.spin("A", 30), |f| f.spin("B", 50));
    main.spin("post", 5);
    end(main);
    let procedures = [("pre", 10, 55), ("A", 0, 65), ("B", 50, 45), ("post", 5, 60)];
    let report = check(&world, 95, 65, &procedures);
    let edges: Vec<(Edge, u64)> = report.segments.iter().map(|s| (s.edge, s.time)).collect();
    assert_eq!(edges, [(Edge::Start, 10), (Edge::Spawn, 50), (Edge::Join, 5)]);
    assert_eq!(report.procedures[0].name, "B");
    assert_eq!(report.burdened_span, 65 + 7 + 3);
    let two = report.prediction(2);
    assert_eq!((two.lower, two.time, two.upper), (65.0, 65.0, 80.0));
}

#[test]
fn t2_a_balanced_tree_of_joins() {
    fn tree(fiber: &mut Fiber<'_>, depth: u32) {
        if depth == 0 {
            fiber.spin("leaf", 4);
            return;
        }
        fiber.both(|f| tree(f, depth - 1), |f| tree(f, depth - 1));
        fiber.spin("merge", 2);
    }
    let world = World::new();
    let mut main = world.root();
    tree(&mut main, 4);
    end(main);
    let report = check(&world, 94, 12, &[("leaf", 4, 8), ("merge", 8, 4)]);
    // 16 leaves, then 8, 4, 2 and 1 merges.
    let time = |workers| report.prediction(workers).time;
    assert_eq!([1, 2, 4].map(time), [94.0, 48.0, 26.0]);
    assert_eq!(report.prediction(2).upper, 53.0);
}

#[test]
fn t3_a_pipeline() {
    let world = World::new();
    let mut stages = [world.root(), world.root(), world.root()];
    let mut pipes = [Pipe::new(None), Pipe::new(None)];
    for _ in 0..20 {
        for (at, (name, time)) in [("S1", 2), ("S2", 5), ("S3", 1)].into_iter().enumerate() {
            if at > 0 {
                stages[at].receive(&mut pipes[at - 1]);
            }
            stages[at].spin(name, time);
            if at < 2 {
                stages[at].send(&mut pipes[at]);
            }
        }
    }
    stages.into_iter().for_each(end);
    let report = check(&world, 160, 103, &[("S1", 2, 101), ("S2", 100, 41), ("S3", 1, 102)]);
    // The second stage is on the path without a break.
    assert_eq!(report.segments.len(), 3);
}

/// A producer that sends five values, and then goes on; a slow consumer.
fn bounded(capacity: Option<usize>) -> World {
    let world = World::new();
    {
        let (mut producer, mut consumer) = (world.root(), world.root());
        let mut pipe = Pipe::new(capacity);
        let (mut sent, mut received) = (0, 0);
        while received < 5 {
            if sent < 5 && pipe.can_send() {
                producer.spin("produce", 1);
                producer.send(&mut pipe);
                sent += 1;
            } else {
                consumer.receive(&mut pipe);
                consumer.spin("consume", 5);
                received += 1;
            }
        }
        producer.spin("tail", 20);
        end(producer);
        end(consumer);
    }
    world
}

#[test]
fn t4_room_in_a_bounded_channel() {
    let procedures = [("produce", 1, 35), ("consume", 15, 25), ("tail", 20, 26)];
    check(&bounded(Some(1)), 50, 36, &procedures);
    let procedures = [("produce", 1, 25), ("consume", 25, 25), ("tail", 0, 26)];
    check(&bounded(None), 50, 26, &procedures);
}

#[test]
fn t5_an_actor_handles_messages_one_by_one() {
    let world = World::new();
    let mut actor = world.root();
    let mut mailbox = Pipe::new(None);
    for _ in 0..8 {
        let mut sender = world.root();
        sender.spin("compute", 10);
        sender.send(&mut mailbox);
        end(sender);
    }
    for _ in 0..8 {
        actor.receive(&mut mailbox);
        actor.spin("buffer", 12);
    }
    end(actor);
    check(&world, 176, 106, &[("compute", 10, 96), ("buffer", 96, 10)]);
}

#[test]
fn t5_messages_without_an_order() {
    let world = World::new();
    for _ in 0..8 {
        let (mut sender, mut handler) = (world.root(), world.root());
        let mut message = Pipe::new(None);
        sender.spin("compute", 10);
        sender.send(&mut message);
        handler.receive(&mut message);
        handler.spin("buffer", 12);
        end(sender);
        end(handler);
    }
    check(&world, 176, 22, &[("compute", 10, 12), ("buffer", 12, 10)]);
}

#[test]
fn t6_one_rank_creates_the_data() {
    let world = World::new();
    let mut ranks: Vec<Fiber<'_>> = (0..4).map(|_| world.root()).collect();
    let mut message = Pipe::new(None);
    ranks[0].spin("create_seq", 42);
    for _ in 1..4 {
        ranks[0].send(&mut message);
    }
    ranks[0].spins(&[("bench", 56), ("do_rank", 2)]);
    for rank in &mut ranks[1..] {
        rank.spin("do_rank", 12);
        rank.receive(&mut message);
        rank.spin("bench", 56);
    }
    let mut barrier = Shared::default();
    ranks.iter_mut().for_each(|rank| rank.arrive(&mut barrier));
    for rank in &mut ranks {
        rank.acquire(&barrier, Edge::Barrier);
    }
    ranks.into_iter().for_each(end);
    let procedures = [("create_seq", 42, 68), ("bench", 56, 44), ("do_rank", 2, 98)];
    let report = check(&world, 304, 100, &procedures);
    // The other ranks are 2 shorter since they received.
    assert_eq!((report.near[0].slack, report.near[0].time), (2, 56));
}

#[test]
fn t7_a_large_share_and_a_small_gain() {
    let world = World::new();
    let mut main = world.root();
    main.spin("P", 20);
    let mut task = main.spawn();
    main.spin("A", 30);
    task.spin("D", 28);
    main.join(task.end());
    main.spin("E", 25);
    end(main);
    let procedures = [("P", 20, 55), ("A", 30, 73), ("D", 0, 75), ("E", 25, 50)];
    let report = check(&world, 103, 75, &procedures);
    assert_eq!(report.procedures[0].name, "E");
    let procedure_a = report.procedures.iter().find(|p| p.name == "A");
    assert_eq!(report.share(procedure_a.expect("reported").on_path), 0.4);
}

#[test]
fn t8_one_procedure_in_both_branches() {
    let world = World::new();
    let mut main = world.root();
    main.both(|f| f.spins(&[("f", 40), ("g", 5)]), |f| f.spins(&[("f", 10), ("h", 30)]));
    end(main);
    check(&world, 85, 45, &[("f", 40, 30), ("g", 5, 40), ("h", 0, 45)]);
}

#[test]
fn t9_nearly_critical_branches() {
    let world = World::new();
    let mut main = world.root();
    main.spin("pre", 10);
    main.both(
        |f| f.both(|f| f.spin("a", 100), |f| f.spin("b", 98)),
        |f| f.both(|f| f.spin("c", 95), |f| f.spin("d", 50)),
    );
    main.spin("post", 10);
    end(main);
    let procedures =
        [("pre", 10, 110), ("a", 100, 118), ("b", 0, 120), ("c", 0, 120), ("d", 0, 120), ("post", 10, 110)];
    let report = check(&world, 363, 120, &procedures);
    let near: Vec<(u64, u64)> = report.near.iter().map(|n| (n.time, n.slack)).collect();
    assert_eq!(near, [(98, 2), (95, 5)]);
    // Four for 50, three for 45, two for 3, one for 2, between 10 and 10.
    let time = |workers| report.prediction(workers).time;
    assert_eq!([2, 3, 4].map(time), [215.0, 170.0, 120.0]);
}

/// The branches beside a branch are branches beside the path, with both slacks.
#[test]
fn t9_nested_the_other_way() {
    let world = World::new();
    let mut main = world.root();
    main.spin("pre", 10);
    main.both(
        |f| f.spin("a", 100),
        |f| {
            f.both(|f| f.spin("b", 98), |f| f.both(|f| f.spin("c", 95), |f| f.spin("d", 50)));
        },
    );
    end(main);
    let report = world.check();
    let near: Vec<(u64, u64)> = report.near.iter().map(|n| (n.time, n.slack)).collect();
    assert_eq!(near, [(98, 2), (95, 5)]);
}

#[test]
fn t10_tasks_for_which_nobody_waits() {
    let world = World::new();
    let (mut x, mut y) = (world.root(), world.root());
    x.spins(&[("x0", 10), ("x1", 70)]);
    y.spin("y0", 10);
    for _ in 0..16 {
        let mut leaf = y.spawn();
        leaf.spin("leaf", 5);
        end(leaf);
    }
    end(x);
    end(y);
    let procedures = [("x0", 10, 70), ("x1", 70, 15), ("y0", 0, 80), ("leaf", 0, 80)];
    let report = check(&world, 170, 80, &procedures);
    let exposing: Vec<_> = report.exposing().cloned().collect();
    let expected = Start { place: Site(101), edge: Edge::Spawn, first: 10, count: 16, time: 80, beside: 80 };
    assert_eq!(exposing, [expected]);
}

/// What a message, the end of a barrier or a spawn begins counts up to the next event that the strand has to
/// wait for. What is on the path is not beside it.
#[test]
fn what_others_have_started_may_be_beside_the_path() {
    let world = World::new();
    let mut main = world.root();
    main.spin("a", 10);
    let (mut left, mut right) = (main.spawn(), main.spawn());
    left.spin("b", 5);
    right.spin("b", 3);
    let (mut to_left, mut to_right) = (Pipe::new(None), Pipe::new(None));
    main.spin("a", 10);
    main.send(&mut to_left);
    main.send(&mut to_right);
    for (fiber, pipe, time) in [(&mut left, &mut to_left, 30), (&mut right, &mut to_right, 20)] {
        fiber.receive(pipe);
        fiber.spin("c", time);
    }
    let mut barrier = Shared::default();
    left.arrive(&mut barrier);
    right.arrive(&mut barrier);
    // The later one goes on after itself.
    left.acquire(&barrier, Edge::Barrier);
    right.acquire(&barrier, Edge::Barrier);
    left.spin("d", 1);
    right.spin("d", 2);
    for fiber in [left, right] {
        main.join(fiber.end());
    }
    main.spin("e", 4);
    end(main);
    let report = world.check();
    assert_eq!((report.work, report.span), (85, 56));
    let of = |s: &Start<Site>| (s.place.0, s.first, s.count, s.time, s.beside);
    let starts = Vec::from_iter(report.starts.iter().map(of));
    // Main (100) has spawned for 5 and 3 and sent for 31 and 20, left (101) has ended the barrier for 2.
    assert_eq!(starts, [(100, 10, 4, 59, 29), (101, 50, 1, 2, 0)]);
}

#[test]
fn t11_a_different_rank_is_slow_in_each_round() {
    let world = World::new();
    let mut ranks: Vec<Fiber<'_>> = (0..4).map(|_| world.root()).collect();
    let mut barriers = [Shared::default(), Shared::default()];
    for round in 0..8 {
        let barrier = &mut barriers[round % 2];
        for (rank, fiber) in ranks.iter_mut().enumerate() {
            if rank == round % 4 {
                fiber.spin("slow", 10);
            } else {
                fiber.spin("fast", 2);
            }
            fiber.arrive(barrier);
        }
        for fiber in &mut ranks {
            fiber.acquire(barrier, Edge::Barrier);
        }
    }
    ranks.into_iter().for_each(end);
    check(&world, 128, 80, &[("slow", 80, 16), ("fast", 0, 80)]);
}

#[test]
fn t12_a_broadcast_has_a_direction() {
    let world = World::new();
    let mut root = world.root();
    let mut message = Pipe::new(None);
    root.spin("root_work", 10);
    for _ in 0..3 {
        root.send(&mut message);
    }
    root.spin("root_tail", 25);
    for _ in 0..3 {
        let mut leaf = world.root();
        leaf.spin("leaf_work", 30);
        leaf.receive(&mut message);
        leaf.spin("leaf_tail", 1);
        end(leaf);
    }
    end(root);
    let procedures =
        [("root_work", 10, 31), ("root_tail", 25, 31), ("leaf_work", 0, 35), ("leaf_tail", 0, 35)];
    check(&world, 128, 35, &procedures);
}

#[test]
fn t17_tasks_that_are_equal() {
    let world = World::new();
    let mut main = world.root();
    let mut tasks = [(); 4].map(|()| main.spawn());
    for task in &mut tasks {
        task.spin("task", 50);
    }
    tasks.into_iter().for_each(|task| main.join(task.end()));
    end(main);
    let report = check(&world, 200, 50, &[("task", 50, 0)]);
    let time = |workers| report.prediction(workers).time;
    assert_eq!([1, 2, 3, 4, 8].map(time), [200.0, 100.0, 100.0, 50.0, 50.0]);
    assert_eq!(report.prediction(2).upper, 125.0);
}

#[test]
fn waits_are_no_activity() {
    let world = World::new();
    let mut main = world.root();
    main.spin("a", 10);
    main.wait(1_000_000);
    main.spin("a", 10);
    end(main);
    check(&world, 20, 20, &[("a", 20, 0)]);
}
