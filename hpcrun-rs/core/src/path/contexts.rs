//! The calling contexts of a thread's samples, for the critical path: which functions are in each.
//!
//! One duty: hand samples from the signal handler to the thread's next event ([`ThreadSamples::add`], which
//! is async-signal-safe), and tell the tracker the functions of a context then. A context that continues in
//! another thread's tree has the functions that were remembered when it was captured there.
//!
//! Invariant: a thread's tree is read by that thread alone, or when tracking is over by whoever completes its
//! profile, before that. Its records do not change once they are written, and stay mapped until then.

use super::functions::{self, Functions};
use critical_path::{Sampler, Samples, Site};
use hpc_formats::address::CodeAddress;
use hpc_formats::profile::{HEADER_SIZE, RECORD_SIZE, RecordKind, header};
use hpcrun_abi::SITE_CONTEXT;
use std::collections::{BTreeSet, HashMap};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Contexts whose functions a thread remembers; beyond, it looks all of them up again.
const MOST_KNOWN: usize = 1 << 16;

/// Captured contexts, by thread ordinal and record. Only a thread that has its own [`Known`] may lock it, so
/// a signal handler of the program that interrupts the holder does not wait for its own thread.
#[derive(Default)]
pub(super) struct Captured(Mutex<HashMap<(u32, u32), Context>>);

impl Captured {
    fn with<T>(&self, _: &mut Known, act: impl FnOnce(&mut HashMap<(u32, u32), Context>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A context that a thread has captured.
    fn get(&self, known: &mut Known, thread: u32, record: u32) -> Context {
        self.with(known, |all| all.get(&(thread, record)).cloned()).unwrap_or_else(Context::empty)
    }
}

#[derive(Clone)]
struct Context {
    functions: Functions,
    /// A hash of its call path.
    path: u64,
    /// Its code is in a loop that only another thread can end.
    waits: bool,
}

impl Context {
    fn empty() -> Context {
        Context { functions: Arc::from([]), path: 0, waits: false }
    }
}

pub(crate) struct ThreadSamples {
    ordinal: u32,
    samples: Arc<Samples>,
    /// The header of the thread's profile; null until its first sample.
    profile: AtomicPtr<u8>,
    known: Mutex<Known>,
    captured: &'static Captured,
}

#[derive(Default)]
struct Known {
    contexts: HashMap<u32, Context>,
    functions: HashMap<u64, (Functions, bool)>,
}

/// A record of a profile under construction.
struct Record {
    kind: u32,
    parent: u32,
    ip: u64,
    lip: u64,
}

impl ThreadSamples {
    pub(super) fn new(
        ordinal: u32,
        samples: Arc<Samples>,
        captured: &'static Captured,
    ) -> Arc<ThreadSamples> {
        Arc::new(ThreadSamples {
            ordinal,
            samples,
            profile: AtomicPtr::new(ptr::null_mut()),
            known: Mutex::default(),
            captured,
        })
    }

    /// A sample of `time` nanoseconds was added to a record of the thread's profile. Async-signal-safe.
    #[inline]
    pub(crate) fn add(&self, profile: *mut u8, record: u32, time: u64) {
        self.profile.store(profile, Ordering::Relaxed);
        self.samples.add(record, time);
    }

    #[inline]
    pub(crate) fn wait(&self, time: u64) {
        self.samples.add_wait(time);
    }

    /// The context of a record of the thread's profile is captured, so that paths in other trees continue in
    /// it.
    pub(crate) fn capture(&self, profile: *mut u8, record: u32) {
        self.profile.store(profile, Ordering::Relaxed);
        if let Some(mut known) = self.known() {
            let context = self.context_of(&mut known, record);
            self.captured.with(&mut known, |all| all.insert((self.ordinal, record), context));
        }
    }

    /// `None` if a signal handler of the program has interrupted the thread's use of it.
    fn known(&self) -> Option<MutexGuard<'_, Known>> {
        match self.known.try_lock() {
            Ok(known) => Some(known),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Empty if the record does not exist.
    fn context_of(&self, known: &mut Known, record: u32) -> Context {
        if known.contexts.len() > MOST_KNOWN {
            known.contexts.clear();
        }
        // From the record outwards to one that is known, and back.
        let mut inner = Vec::new();
        let (mut at, mut context) = (record, Context::empty());
        while let Some(found) = self.record(at) {
            if let Some(known) = known.contexts.get(&at) {
                context = known.clone();
                break;
            }
            if found.kind == RecordKind::Anchor as u32 {
                context = self.captured.get(known, found.ip as u32, found.lip as u32);
            }
            inner.push((at, found.lip));
            if found.kind != RecordKind::Note as u32 {
                break;
            }
            at = found.parent;
        }
        for (at, lip) in inner.into_iter().rev() {
            let is_note = self.record(at).is_some_and(|r| r.kind == RecordKind::Note as u32);
            if is_note {
                let (functions, waits) = known.functions(CodeAddress(lip));
                (context.functions, context.waits) = (with(&context.functions, &functions), waits);
                context.path = (context.path.rotate_left(5) ^ lip).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
            known.contexts.insert(at, context.clone());
        }
        context
    }

    fn record(&self, index: u32) -> Option<Record> {
        let profile = self.profile.load(Ordering::Relaxed).cast_const();
        if profile.is_null() {
            return None;
        }
        // SAFETY: the header and the records that it counts are mapped (the module's invariant); fields may
        // be unaligned.
        unsafe {
            let count = profile.add(header::RECORDS).cast::<u64>().read_unaligned();
            if u64::from(index) >= count {
                return None;
            }
            let record = profile.add(HEADER_SIZE + index as usize * RECORD_SIZE);
            Some(Record {
                kind: record.cast::<u32>().read_unaligned() & 0xf,
                parent: record.add(4).cast::<u32>().read_unaligned(),
                ip: record.add(8).cast::<u64>().read_unaligned(),
                lip: record.add(16).cast::<u64>().read_unaligned(),
            })
        }
    }
}

impl Known {
    fn functions(&mut self, address: CodeAddress) -> (Functions, bool) {
        let known = self.functions.entry(address.0);
        known.or_insert_with(|| functions::at(address)).clone()
    }
}

fn with(functions: &Functions, more: &Functions) -> Functions {
    if more.iter().all(|f| functions.binary_search(f).is_ok()) {
        return Arc::clone(functions);
    }
    let both = functions.iter().chain(more.iter()).copied();
    Vec::from_iter(BTreeSet::from_iter(both)).into()
}

/// Tells the tracker of a thread's samples.
pub(super) struct Contexts(pub(super) Arc<ThreadSamples>);

impl Sampler for Contexts {
    fn profile(&self) -> u32 {
        self.0.ordinal
    }

    fn functions(&mut self, record: u32) -> Functions {
        let known = self.0.known();
        known.map_or(Arc::from([]), |mut known| self.0.context_of(&mut known, record).functions)
    }

    fn waits(&mut self, record: u32) -> bool {
        self.0.known().is_some_and(|mut known| self.0.context_of(&mut known, record).waits)
    }

    fn place(&mut self, site: Site) -> Site {
        if site.0 & SITE_CONTEXT == 0 {
            return site;
        }
        let (thread, record) = ((site.0 & !SITE_CONTEXT) >> 32, site.0 as u32);
        let context = self.0.known().map(|mut known| match thread == u64::from(self.0.ordinal) {
            true => self.0.context_of(&mut known, record),
            false => self.0.captured.get(&mut known, thread as u32, record),
        });
        Site(context.map_or(0, |context| context.path) | SITE_CONTEXT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A signal handler of the program that interrupts a capture may capture, too: it must not wait for the
    /// interrupted thread, which is its own.
    #[test]
    fn a_capture_inside_a_capture_does_not_wait() {
        let thread = critical_path::Tracker::new(critical_path::Settings::default());
        let (done, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let clock = critical_path::ThreadClock::new();
            let tracked = critical_path::Thread::new(&thread, clock, Site(0));
            let captured: &Captured = Box::leak(Box::default());
            let samples = ThreadSamples::new(1, tracked.samples(), captured);
            let known = samples.known().expect("nobody has it");
            let captured = captured.0.lock().unwrap();
            samples.capture(ptr::null_mut(), 7);
            let mut contexts = Contexts(Arc::clone(&samples));
            assert_eq!(contexts.place(Site(SITE_CONTEXT | 2 << 32 | 7)), Site(SITE_CONTEXT));
            drop((captured, known));
            done.send(()).unwrap();
        });
        end.recv_timeout(std::time::Duration::from_secs(10)).expect("it does not wait");
    }
}
