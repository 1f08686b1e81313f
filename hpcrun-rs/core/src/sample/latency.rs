//! Optional measurement of the handler's latency, for benchmarks.
//!
//! Async-signal-safe: [`keep`].

use crate::{image, memory};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

const CAPACITY: usize = 1 << 20;

static CYCLES: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);

pub fn enable() {
    if let Some(base) = memory::map_anonymous(CAPACITY * size_of::<AtomicU32>()) {
        CYCLES.store(base.as_ptr().cast(), Ordering::Release);
    }
}

pub use crate::arch::counter as now;

/// Records one latency, if they are measured; those beyond the first 2^20 are dropped.
#[inline]
pub fn keep(cycles: u64) {
    let base = CYCLES.load(Ordering::Relaxed);
    if base.is_null() {
        return;
    }
    let i = COUNT.fetch_add(1, Ordering::Relaxed);
    if i < CAPACITY {
        // SAFETY: `i` is within the mapping, which is never unmapped.
        unsafe { (*base.add(i)).store(cycles.min(u64::from(u32::MAX)) as u32, Ordering::Relaxed) };
    }
}

/// A one-line summary: number of samples, mean without the slowest hundredth (which were interrupted
/// themselves), and quantiles, in microseconds.
pub fn summary() -> Option<String> {
    let base = CYCLES.load(Ordering::Acquire);
    let n = COUNT.load(Ordering::Relaxed).min(CAPACITY);
    if base.is_null() || n == 0 {
        return None;
    }
    let mut all: Vec<u32> = (0..n)
        // SAFETY: `i < n <= CAPACITY`, and the mapping is never unmapped.
        .map(|i| unsafe { (*base.add(i)).load(Ordering::Relaxed) })
        .collect();
    all.sort_unstable();
    let us = |cycles: u64| image::nanoseconds(cycles) as f64 / 1000.0;
    let q = |p: f64| us(all[((n - 1) as f64 * p) as usize].into());
    let typical = &all[..n - n / 100];
    let sum: u64 = typical.iter().map(|cycles| u64::from(*cycles)).sum();
    Some(format!(
        "handler latency over {n} samples, us: mean {:.2} p10 {:.2} p50 {:.2} p90 {:.2} p99 {:.2} max {:.1}",
        us(sum) / typical.len() as f64,
        q(0.1),
        q(0.5),
        q(0.9),
        q(0.99),
        q(1.0)
    ))
}
