//! What a message costs. `--only KERNEL`, `--rounds N`.

use actors::{Address, Array, Context, Handle, System, SystemBuilder};
use std::hint::black_box;
use std::time::Instant;

#[derive(Clone)]
struct Token(u64);
struct Ring(Option<Array<Ring>>);
impl Handle<Token> for Ring {
    fn handle(&mut self, Token(left): Token, context: &mut Context<'_, Self>) {
        if left > 0 {
            let ring = self.0.as_ref().unwrap();
            let next = context.index() + 1;
            ring[if next == ring.len() { 0 } else { next }].send(Token(left - 1));
        }
    }
}
struct Sink(u64);
impl Handle<u64> for Sink {
    fn handle(&mut self, n: u64, _: &mut Context<'_, Self>) {
        self.0 = self.0.wrapping_add(black_box(n));
    }
}
fn ring(b: SystemBuilder, hops: u64, tokens: u64) -> f64 {
    let s = b.build().unwrap();
    let ring = s.array("ring", 64, |_, a| Ring(Some(a.clone())));
    s.run(|| ring[0].send(Token(1000))).unwrap();
    let t = Instant::now();
    s.run(|| {
        for k in 0..tokens {
            ring[(k * 7 % 64) as usize].send(Token(hops / tokens))
        }
    })
    .unwrap();
    t.elapsed().as_nanos() as f64 / hops as f64
}
fn fan(b: SystemBuilder, n: u64, actors: usize) -> f64 {
    let s = b.build().unwrap();
    let a = s.array("sink", actors, |_, _| Sink(0));
    let t = Instant::now();
    s.run(|| {
        for k in 0..n {
            a[k as usize % actors].send(k)
        }
    })
    .unwrap();
    t.elapsed().as_nanos() as f64 / n as f64
}
fn main() {
    let _: Option<Address<Sink>> = None;
    let mut rows: Vec<(String, Vec<f64>)> = Vec::new();
    let only = std::env::args().skip_while(|a| a != "--only").nth(1);
    for round in 0..if only.is_some() { 1 } else { 5 } {
        let mut i = 0;
        let mut add = |name: String, v: f64| {
            if round == 0 {
                rows.push((name, vec![v]))
            } else {
                rows[i].1.push(v)
            }
            i += 1;
        };
        for workers in [1, 2] {
            for path in [false, true] {
                let b = || System::builder().workers(workers).critical_path(path);
                if only.is_none() || workers == 1 && !path {
                    add(
                        format!("ring 1 token   workers {workers} path {path}"),
                        ring(
                            b(),
                            if only.is_some() {
                                30_000_000
                            } else {
                                5_000_000
                            },
                            1,
                        ),
                    );
                }
                if only.is_some() {
                    continue;
                }
                add(
                    format!("ring 64 tokens workers {workers} path {path}"),
                    ring(b(), 5_000_000, 64),
                );
                add(
                    format!("fan 1          workers {workers} path {path}"),
                    fan(b(), 5_000_000, 1),
                );
                add(
                    format!("fan 64         workers {workers} path {path}"),
                    fan(b(), 5_000_000, 64),
                );
            }
        }
    }
    for (n, mut v) in rows {
        v.sort_by(f64::total_cmp);
        println!(
            "{n}: {:.1} ns [{:.1} {:.1}]",
            v[v.len() / 2],
            v[v.len() / 4],
            v[3 * v.len() / 4]
        );
    }
}
