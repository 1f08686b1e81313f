//! The critical path through channels, under a profiler with a clock that the test moves: lengths are exact.
#![cfg(target_os = "linux")]

#[path = "../../api/tests/support/mod.rs"]
mod support;

use crossbeam_channel::{
    Receiver, Select, Sender, TrySendError, after, bounded, never, select, select_biased, tick, unbounded,
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, scope};
use std::time::{Duration, Instant};
use support::{begin_at, edges, length, live, lost, steady, track, work};

/// One test at a time, with the path tracked. At the end no strand is left, and no edge was lost.
struct Tracked<'a>(u64, #[allow(dead_code)] MutexGuard<'a, ()>);

fn tracked() -> Tracked<'static> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    begin_at(0);
    track(true);
    Tracked(lost(), guard)
}

impl Drop for Tracked<'_> {
    fn drop(&mut self) {
        track(false);
        steady(true);
        if !thread::panicking() {
            assert_eq!((lost() - self.0, live()), (0, 0), "lost edges, strands");
        }
    }
}

/// Runs parts as threads and returns the length of each at its end.
fn lengths<const N: usize>(parts: [Box<dyn FnOnce() + Send + '_>; N]) -> [u64; N] {
    scope(|scope| {
        let threads = parts.map(|part| {
            scope.spawn(|| {
                part();
                length()
            })
        });
        threads.map(|thread| thread.join().expect("it does not panic"))
    })
}

/// The lengths of a producer and a consumer of a channel, by the definition: send `i` ends when there is a
/// value to be sent and room for it, receive `i` when there is a value and somebody who wants it.
fn expected(capacity: Option<usize>, produce: &[u64], consume: &[u64]) -> [u64; 2] {
    let (mut producer, mut consumer, mut received) = (0, 0, Vec::new());
    for (i, (p, c)) in produce.iter().zip(consume).enumerate() {
        producer += p;
        match capacity {
            Some(0) => {
                producer = producer.max(consumer);
                consumer = producer;
            }
            Some(capacity) if i >= capacity => producer = producer.max(received[i - capacity]),
            _ => {}
        }
        consumer = consumer.max(producer);
        received.push(consumer);
        consumer += c;
    }
    [producer, consumer]
}

#[test]
fn t3_a_pipeline_of_three_stages() {
    let _tracked = tracked();
    let (s1, r1) = unbounded();
    let (s2, r2) = unbounded();
    let ends = lengths([
        Box::new(|| {
            for i in 0..20 {
                work(2);
                s1.send(i).unwrap();
            }
            drop(s1);
        }),
        Box::new(|| {
            for i in r1 {
                work(5);
                s2.send(i).unwrap();
            }
            drop(s2);
        }),
        Box::new(|| r2.into_iter().for_each(|_: i32| work(1))),
    ]);
    assert_eq!(ends, [40, 102, 103]);
}

#[test]
fn t4_a_full_channel_makes_its_producer_wait() {
    for (capacity, span) in [(None, 26), (Some(1), 36)] {
        let _tracked = tracked();
        let (s, r) = capacity.map_or_else(unbounded, bounded);
        let ends = lengths([
            Box::new(|| {
                for i in 0..5 {
                    work(1);
                    s.send(i).unwrap();
                }
                drop(s);
                work(20);
            }),
            Box::new(|| r.iter().for_each(|_| work(5))),
        ]);
        assert_eq!(ends.into_iter().max(), Some(span), "{capacity:?}");
    }
}

/// All ways to send and to receive, at random.
#[test]
fn a_producer_and_a_consumer_are_as_long_as_the_definition_says() {
    let mut random = 7_u64;
    let mut random = move |below: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 33) % below
    };
    for round in 0..200 {
        let capacity = [None, Some(0), Some(1), Some(2), Some(7)][round % 5];
        let produce: Vec<u64> = (0..40).map(|_| random(9)).collect();
        let consume: Vec<u64> = (0..40).map(|_| random(9)).collect();
        // Two that only ask whether the other is there never meet in a channel without room.
        let receives = if capacity == Some(0) { 5 } else { 7 };
        let ways: Vec<(u64, u64)> = (0..40).map(|_| (random(6), random(receives))).collect();
        let _tracked = tracked();
        let (s, r) = capacity.map_or_else(unbounded, bounded);
        let ends = lengths([
            Box::new(|| {
                for (i, time) in produce.iter().enumerate() {
                    work(*time);
                    send(&s, i, ways[i].0);
                }
            }),
            Box::new(|| {
                for (i, time) in consume.iter().enumerate() {
                    assert_eq!(receive(&r, ways[i].1), i);
                    work(*time);
                }
            }),
        ]);
        assert_eq!(ends, expected(capacity, &produce, &consume), "{capacity:?}");
    }
}

const LONG: Duration = Duration::from_secs(600);

fn send(s: &Sender<usize>, value: usize, way: u64) {
    match way {
        0 => s.send(value).unwrap(),
        1 => s.send_timeout(value, LONG).unwrap(),
        2 => s.send_deadline(value, Instant::now() + LONG).unwrap(),
        3 => {
            while let Err(error) = s.try_send(value) {
                assert_eq!(error, TrySendError::Full(value));
                thread::yield_now();
            }
        }
        4 => {
            let mut select = Select::new();
            select.recv(never_usize());
            let index = select.send(s);
            let operation = select.select();
            assert_eq!(operation.index(), index);
            operation.send(s, value).unwrap();
        }
        _ => select! {
            send(s, value) -> sent => sent.unwrap(),
            recv(after(LONG)) -> _ => panic!("it takes too long"),
        },
    }
}

fn never_usize() -> &'static Receiver<usize> {
    static NEVER: Receiver<usize> = never();
    &NEVER
}

fn receive(r: &Receiver<usize>, way: u64) -> usize {
    match way {
        0 => r.recv().unwrap(),
        1 => r.recv_timeout(LONG).unwrap(),
        2 => r.recv_deadline(Instant::now() + LONG).unwrap(),
        3 => r.iter().next().unwrap(),
        4 => select_biased! {
            recv(never_usize()) -> value => value.unwrap(),
            recv(r) -> value => value.unwrap(),
            default(LONG) => panic!("it takes too long"),
        },
        5 => {
            let mut select = Select::new_biased();
            select.recv(r);
            assert_eq!(select.ready_timeout(LONG), Ok(0));
            select.select_timeout(LONG).unwrap().recv(r).unwrap()
        }
        _ => loop {
            if let Some(value) = r.try_iter().next() {
                return value;
            }
            thread::yield_now();
        },
    }
}

/// Receive 1 comes after send 1, which comes after receive 0, even if that was another thread's. Who shares a
/// receiver without a clone is known only from the second thread's first receive on.
#[test]
fn a_value_in_room_that_another_made_comes_after_that() {
    for is_cloned in [true, false] {
        let mut tracked = tracked();
        let (s, r) = bounded(1);
        let clone = is_cloned.then(|| r.clone());
        let second = clone.as_ref().unwrap_or(&r);
        s.send(0).unwrap();
        let receive = |r: &Receiver<i32>, time| {
            work(time);
            r.recv().unwrap();
        };
        assert_eq!(lengths([Box::new(|| receive(&r, 100))]), [100]);
        s.send(1).unwrap();
        assert_eq!(length(), 100, "the send has waited for room");
        let length_of_second = if is_cloned { 100 } else { 3 };
        assert_eq!(lengths([Box::new(|| receive(second, 3))]), [length_of_second]);
        begin_at(0);
        s.send(2).unwrap();
        assert_eq!(lengths([Box::new(|| receive(&r, 0))]), [length_of_second]);
        tracked.0 += u64::from(!is_cloned);
    }
}

#[test]
fn timers_and_failed_operations_are_no_edges() {
    let _tracked = tracked();
    work(1);
    let before = edges().len();
    assert!(after(Duration::from_millis(1)).recv().is_ok());
    assert!(tick(Duration::from_millis(1)).recv_timeout(LONG).is_ok());
    let (s, r) = bounded(1);
    s.send(String::from("a")).unwrap();
    assert_eq!(s.try_send("b".into()), Err(TrySendError::Full("b".into())));
    let error = s.send_timeout("c".into(), Duration::from_millis(1)).unwrap_err();
    assert!(error.is_timeout());
    assert_eq!(error.into_inner(), "c");
    drop(r);
    assert_eq!(s.send("d".into()).unwrap_err().0, "d");
    assert_eq!(live(), 1, "of the value in the channel alone");
    drop(s);
    assert_eq!(edges().len(), before);
    assert_eq!(length(), 1);
}

/// Whoever sends and receives, and whenever the tracking begins and ends: all values arrive, nothing blocks.
#[test]
fn many_senders_and_receivers_at_any_time() {
    for capacity in [None, Some(0), Some(1), Some(3)] {
        let mut tracked = tracked();
        steady(false);
        let (s, r) = capacity.map_or_else(unbounded, bounded);
        let received = scope(|scope| {
            for i in 0..3 {
                let s = s.clone();
                scope.spawn(move || {
                    for k in 0..2000 {
                        work(1);
                        send(&s, i * 2000 + k, [0, 1, 4, 5][k % 4]);
                    }
                });
            }
            drop(s);
            let receivers = [(); 3].map(|()| {
                let r = r.clone();
                scope.spawn(move || {
                    work(1);
                    r.iter().collect::<Vec<usize>>()
                })
            });
            for turn in 0..40 {
                thread::sleep(Duration::from_micros(300));
                track(turn % 2 == 1);
            }
            receivers.map(|receiver| receiver.join().expect("it does not panic"))
        });
        drop(r);
        let mut all = received.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..6000), "{capacity:?}");
        tracked.0 = lost();
    }
}
