//! What a message costs: kernels for this crate and for tasks of rayon, and the table.
//!
//! * `token`: one message goes around in a ring of 64 actors.
//! * `tokens`: 64 messages do.
//! * `fan-in`: a program sends to one actor.
//!
//! Rounds are interleaved; the table has medians and middle halves, in nanoseconds of wall time a message.

use std::hint::black_box;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use work_stealing_actors::{Array, Context, Handle, System};

/// Actors in a ring.
pub(crate) const RING: usize = 64;

/// Seconds for so many messages: name of the kernel, workers, messages.
pub(crate) type Run = fn(Kernel, usize, u64) -> f64;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kernel {
    Token,
    Tokens,
    FanIn,
}

impl Kernel {
    pub(crate) fn tokens(self) -> usize {
        if self == Kernel::Token { 1 } else { RING }
    }
}

/// Seconds that `run` takes.
pub(crate) fn seconds(run: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    run();
    begun.elapsed().as_secs_f64()
}

struct Ring(Array<Ring>, u64);
struct Token(u64);

impl Handle<Token> for Ring {
    fn handle(&mut self, Token(left): Token, context: &mut Context<'_, Self>) {
        if left > 0 {
            self.0[(context.index() + 1) % RING].send(Token(left - 1));
        }
    }
}

impl Handle<u64> for Ring {
    fn handle(&mut self, value: u64, _: &mut Context<'_, Self>) {
        self.1 += black_box(value);
    }
}

fn run_actors(kernel: Kernel, workers: usize, messages: u64, path: bool) -> f64 {
    let builder = System::builder().workers(workers).critical_path(path);
    let system = builder.build().expect("threads");
    let ring = system.array("ring", RING, |_, ring| Ring(ring.clone(), 0));
    let tokens = kernel.tokens();
    let program = || match kernel {
        Kernel::FanIn => (0..messages).for_each(|n| ring[0].send(n)),
        _ => (0..tokens).for_each(|n| ring[n].send(Token(messages / tokens as u64))),
    };
    system.run(|| ring[0].send(Token(1000))).expect("no panic");
    seconds(|| system.run(program).expect("no panic"))
}

fn plain(kernel: Kernel, workers: usize, messages: u64) -> f64 {
    run_actors(kernel, workers, messages, false)
}

fn followed(kernel: Kernel, workers: usize, messages: u64) -> f64 {
    run_actors(kernel, workers, messages, true)
}

fn hop(left: u64, done: Sender<()>) {
    if left > 0 {
        rayon::spawn(move || hop(left - 1, done));
    } else {
        done.send(()).expect("the main thread waits");
    }
}

/// A task for each message; nothing keeps their order, or an actor to one of them at a time.
fn tasks(kernel: Kernel, workers: usize, messages: u64) -> f64 {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build().expect("threads");
    let (done, wait) = channel();
    let tokens = kernel.tokens();
    seconds(|| {
        pool.install(|| match kernel {
            Kernel::FanIn => rayon::scope(|scope| {
                for n in 0..messages {
                    scope.spawn(move |_| {
                        black_box(n);
                    });
                }
            }),
            _ => (0..tokens).for_each(|_| hop(messages / tokens as u64, done.clone())),
        });
        drop(done);
        while wait.recv().is_ok() {}
    })
}

/// This crate, and rayon.
pub(crate) const OURS: [(&str, Run); 3] =
    [("actors", plain), ("actors, path followed", followed), ("rayon, a task a message", tasks)];

/// Measures and prints the table. Arguments: `--messages N`, `--rounds N`, `--only ROW`.
pub(crate) fn table(rows: &[(&str, Run)]) {
    let argument = |name: &str| std::env::args().skip_while(|argument| argument != name).nth(1);
    let number = |name, default| argument(name).map_or(default, |n| n.parse().expect("a number"));
    let (messages, rounds) = (number("--messages", 1_000_000), number("--rounds", 9));
    let only = argument("--only").unwrap_or_default();
    println!("{:28} {:>24}{:>24}{:>24}", "ns a message, wall", "token", "tokens", "fan-in");
    for workers in [1, 2] {
        let mut times = vec![[const { Vec::new() }; 3]; rows.len()];
        for _ in 0..rounds {
            for ((name, run), times) in rows.iter().zip(&mut times) {
                for (kernel, times) in [Kernel::Token, Kernel::Tokens, Kernel::FanIn].into_iter().zip(times) {
                    if name.contains(&only) {
                        times.push(run(kernel, workers, messages) * 1e9 / messages as f64);
                    }
                }
            }
        }
        for ((name, _), mut times) in rows.iter().zip(times) {
            print!("{name:26} {workers:1} ");
            for times in times.iter_mut().filter(|times| !times.is_empty()) {
                times.sort_by(f64::total_cmp);
                let [low, middle, high] = [1, 2, 3].map(|n| times[(times.len() - 1) * n / 4]);
                print!("{:>24}", format!("{middle:.0} [{low:.0}, {high:.0}]"));
            }
            println!();
        }
    }
}
