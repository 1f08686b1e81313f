//! Loops of every kind in Rust. A comment marks the line that must name a loop: `f.1` is a loop
//! of the function `f`, `f.1.1` the first in it.

use std::collections::BTreeMap;
use std::hint::black_box;

#[no_mangle]
pub fn ranges(n: usize) -> usize {
    let mut s = 0;
    for i in 0..n { // ranges.1
        for j in i..n { // ranges.1.1
            s += black_box(i ^ j);
        }
    }
    s
}

#[no_mangle]
pub fn slices(a: &[Vec<u64>]) -> u64 {
    let mut s = 0;
    for v in a { // slices.1
        for x in v { // slices.1.1
            if *x == 7 {
                continue;
            }
            s += black_box(*x);
        }
    }
    s
}

#[no_mangle]
pub fn sum(a: &[u32]) -> u32 {
    a.iter().map(|x| black_box(x ^ 5)).sum() // sum
}

#[no_mangle]
pub fn checked(a: &[u32], at: &[usize]) -> u32 {
    let mut s = 0;
    for i in at { // checked
        s ^= black_box(a[*i]);
    }
    s
}

#[no_mangle]
pub fn while_some(mut stack: Vec<u64>) -> u64 {
    let mut s = 0;
    while let Some(top) = stack.pop() { // while_some
        s ^= black_box(top);
        if top > 100 {
            stack.push(top / 2);
        }
    }
    s
}

#[no_mangle]
pub fn search(a: &[&str], key: &str) -> Option<usize> {
    for (i, x) in a.iter().enumerate() { // search
        if black_box(*x) == key {
            return Some(i);
        }
    }
    None
}

#[no_mangle]
pub fn labelled(a: &[Vec<i32>]) -> Option<i32> {
    'outer: for v in a { // labelled.1
        for x in v { // labelled.1.1
            if black_box(*x) < 0 {
                continue 'outer;
            }
            if *x == 99 {
                return Some(*x);
            }
        }
    }
    None
}

pub enum Op {
    Add(u64),
    Sub(u64),
    Mul(u64),
    Xor(u64),
    Rotate(u32),
    Repeat(u64),
    Stop,
}

#[no_mangle]
pub fn interpret(code: &[Op], mut s: u64) -> u64 {
    for op in code { // interpret.1
        match op {
            Op::Add(n) => s = black_box(s + n),
            Op::Sub(n) => s = black_box(s.wrapping_sub(*n)),
            Op::Mul(n) => s = black_box(s.wrapping_mul(*n)),
            Op::Xor(n) => s = black_box(s ^ n),
            Op::Rotate(n) => s = black_box(s.rotate_left(*n)),
            Op::Repeat(n) => {
                for i in 0..*n { // interpret.1.1
                    s ^= black_box(i);
                }
            }
            Op::Stop => break,
        }
    }
    s
}

#[inline(always)]
fn repeat<F: FnMut(u64)>(n: u64, mut f: F) {
    for i in 0..n { // repeat
        f(i);
    }
}

#[no_mangle]
pub fn closures(n: u64) -> u64 {
    let mut s = 0;
    repeat(n, |i| s ^= black_box(i));
    s
}

#[no_mangle]
pub fn table(n: u64) -> BTreeMap<u64, Vec<String>> {
    let mut map: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for i in 0..n { // table
        map.entry(i % 7).or_default().push(i.to_string());
    }
    map
}

#[no_mangle]
pub fn sorted(mut a: Vec<(u32, String)>) -> Vec<(u32, String)> {
    a.sort_by(|x, y| y.cmp(x));
    a.dedup_by_key(|x| x.0);
    a.retain(|x| !x.1.is_empty());
    a
}

#[no_mangle]
pub fn text(t: &str) -> Vec<String> {
    t.lines().flat_map(|l| l.split_whitespace()).filter(|w| w.len() > 3).map(str::to_uppercase).collect()
}
