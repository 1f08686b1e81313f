//! Perf's task clock: exact rates, and no EINTR in system calls where it comes as a synchronous SIGTRAP. A
//! descriptor, which a program may close.
//!
//! Async-signal-safe: [`set`], [`claims`].

use super::jitter::Pace;
use super::{Order, SIGNAL, word_at};
use crate::config::SourceKind;
use crate::descriptors::open_above_limit;
use crate::sandbox::refuses;
use crate::system::{self, close};

/// The words of `struct perf_event_attr` up to `sig_data` (PERF_ATTR_SIZE_VER7).
type Attributes = [u64; 16];
/// Type and size of the structure, half a word each.
const KIND_AND_SIZE: usize = 0;
const CONFIG: usize = 1;
const SAMPLE_PERIOD: usize = 2;
const FLAGS: usize = 5;
const WAKEUP_EVENTS: usize = 6;
const SIG_DATA: usize = 15;

const PERF_TYPE_SOFTWARE: u64 = 1;
const PERF_COUNT_SW_TASK_CLOCK: u64 = 1;
const FLAG_DISABLED: u64 = 1;
const FLAG_REMOVE_ON_EXEC: u64 = 1 << 36;
const FLAG_SIGTRAP: u64 = 1 << 37;
const PERF_FLAG_FD_CLOEXEC: usize = 8;
const PERF_EVENT_IOC_ENABLE: u64 = 0x2400;
/// `_IOW('$', 4, __u64)`.
const PERF_EVENT_IOC_PERIOD: u64 = 0x4008_2404;
const PERF_EVENT_IOC_ID: u64 = 0x8008_2407;
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;
/// `si_code` of a synchronous SIGTRAP.
pub(super) const TRAP_PERF: i32 = 6;
const SI_POLL_IN: i32 = 1;
/// Number of samples between two draws of a distance. Setting a distance is a system call. If it brings the
/// next interrupt forward, the kernel reprograms the processor's timer, which takes some 10 us on a virtual
/// machine.
const SAMPLES_A_DRAW: u64 = 16;

/// A thread's event: its descriptor, and the kernel's id of it.
#[derive(Clone, Copy)]
pub(super) struct Event {
    pub(super) descriptor: i32,
    pub(super) id: u64,
}

/// Samples may be any distance apart.
pub(super) fn pace(period: u64) -> Pace {
    Pace { period, tick: 0, samples_a_draw: SAMPLES_A_DRAW }
}

/// Opens the calling thread's event, which does not count yet. Errors are those of the operating system.
pub(super) fn open(order: &Order) -> Result<Event, i32> {
    if [libc::SYS_ioctl, libc::SYS_fcntl, libc::SYS_clock_gettime].into_iter().any(refuses) {
        return Err(libc::EPERM);
    }
    let mut attributes: Attributes = [0; 16];
    attributes[KIND_AND_SIZE] = PERF_TYPE_SOFTWARE | (size_of::<Attributes>() as u64) << 32;
    attributes[CONFIG] = PERF_COUNT_SW_TASK_CLOCK;
    attributes[SAMPLE_PERIOD] = order.period;
    attributes[FLAGS] = FLAG_DISABLED;
    attributes[WAKEUP_EVENTS] = 1;
    if order.kind == SourceKind::PerfSigtrap {
        attributes[FLAGS] |= FLAG_REMOVE_ON_EXEC | FLAG_SIGTRAP;
        attributes[SIG_DATA] = order.cookie;
    }
    // This thread, any CPU, no group.
    let none = -1_isize as usize;
    let arguments = [&raw const attributes as usize, 0, none, none, PERF_FLAG_FD_CLOEXEC];
    // SAFETY: `attributes` is an initialised structure of the size that it states, and outlives the call.
    let open = || unsafe { system::call(libc::SYS_perf_event_open, arguments) as i32 };
    let descriptor = open_above_limit(open)?;
    Ok(Event { descriptor, id: id_of(descriptor).unwrap_or(0) })
}

/// Starts to count. Errors are those of the operating system.
pub(super) fn start(event: Event, order: &Order) -> Result<(), i32> {
    let fd = event.descriptor;
    // SAFETY: `fd` is our perf event; `owner` is `struct f_owner_ex {F_OWNER_TID, tid}` and outlives the
    // call.
    let ok = unsafe {
        let owner = [0i32, order.tid as i32];
        let signalled = order.kind != SourceKind::PerfSignal
            || (libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK) == 0
                && libc::fcntl(fd, F_SETSIG, SIGNAL) == 0
                && libc::fcntl(fd, F_SETOWN_EX, owner.as_ptr()) == 0);
        signalled && libc::ioctl(fd, PERF_EVENT_IOC_ENABLE as _, 0) == 0
    };
    if ok { Ok(()) } else { Err(system::last_error()) }
}

#[inline]
pub(super) fn set(descriptor: i32, distance: u64) {
    let at = &raw const distance as usize;
    let arguments = [descriptor as usize, PERF_EVENT_IOC_PERIOD as usize, at, 0, 0];
    // SAFETY: the kernel reads one word, which outlives the call. If it refuses, the distance is unchanged.
    unsafe { system::call(libc::SYS_ioctl, arguments) };
}

/// The time that the event has counted, nanoseconds.
pub(super) fn count(descriptor: i32) -> Option<u64> {
    let mut count = 0_u64;
    let arguments = [descriptor as usize, &raw mut count as usize, size_of::<u64>(), 0, 0];
    // SAFETY: the kernel writes one word, which outlives the call.
    let read = unsafe { system::call(libc::SYS_read, arguments) };
    (read == size_of::<u64>() as isize).then_some(count)
}

/// Whether a signal is a sample of this event.
#[inline]
pub(super) fn claims(info: &libc::siginfo_t, kind: SourceKind, descriptor: i32, cookie: u64) -> bool {
    match info.si_code {
        TRAP_PERF => word_at(info, 24) == cookie,
        SI_POLL_IN.. if kind == SourceKind::PerfSignal => word_at(info, 24) as u32 == descriptor as u32,
        _ => false,
    }
}

/// Closes the event. False if the program has closed it: the number may belong to another file then.
pub(super) fn end(event: Event) -> bool {
    let is_own = id_of(event.descriptor) == Some(event.id);
    if is_own {
        close(event.descriptor);
    }
    is_own || refuses(libc::SYS_ioctl)
}

/// The kernel's unique id of a perf event; `None` if the descriptor is not one.
fn id_of(descriptor: i32) -> Option<u64> {
    let mut id = 0_u64;
    // SAFETY: the kernel writes one word to `id`, or refuses the descriptor.
    let result = unsafe {
        let arguments = [descriptor as usize, PERF_EVENT_IOC_ID as usize, &raw mut id as usize, 0, 0];
        system::call(libc::SYS_ioctl, arguments)
    };
    (result == 0).then_some(id)
}

/// Whether the kernel defers a SIGTRAP while the program blocks the signal. Before Linux 5.18 the kernel
/// killed the program instead.
pub(super) fn holds_back_sigtrap() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    kernel_version(&release).is_none_or(|version| version >= (5, 18))
}

fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_compared_by_number() {
        for (release, version) in [
            ("6.18.44-fc-v669\n", Some((6, 18))),
            ("5.4.0", Some((5, 4))),
            ("5.18+", Some((5, 18))),
            ("", None),
        ] {
            assert_eq!(kernel_version(release), version, "{release}");
        }
    }

    #[test]
    fn a_descriptor_that_is_not_a_perf_event_has_no_id() {
        assert_eq!(id_of(0), None);
        assert_eq!(id_of(-1), None);
    }
}
