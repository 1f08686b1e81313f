//! Sandboxes that the program enters: which system calls are refused from then on, and are not made.
//!
//! A filter (`seccomp`) ends a program that makes a call beyond its list. So the program's filter is
//! evaluated here, before it is installed, for each call that the handler or a hook may make.
//! [`crate::system::call`] does not make a refused call, but fails as if it had been made. The filter of one
//! thread counts for all.
//!
//! Async-signal-safe: [`refuses`].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An instruction of a filter, `struct sock_filter`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    code: u16,
    on_true: u8,
    on_false: u8,
    k: u32,
}

const WORDS: usize = 8;

/// A bit for each system call that is refused.
static REFUSED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// Whether a system call would be refused.
#[inline]
pub fn refuses(number: i64) -> bool {
    let word = REFUSED.get(number as usize / 64);
    word.is_some_and(|word| word.load(Relaxed) >> (number % 64) & 1 == 1)
}

/// Whether a file in the measurement directory can be made, extended and written.
pub fn allows_files() -> bool {
    const NEEDED: [i64; 7] = [
        libc::SYS_readlink,
        libc::SYS_openat,
        libc::SYS_statx,
        libc::SYS_fstat,
        libc::SYS_write,
        libc::SYS_close,
        libc::SYS_prlimit64,
    ];
    !NEEDED.into_iter().any(refuses)
}

/// The refused calls, to be put back if the program's filter was not installed after all.
pub struct Refused([u64; WORDS]);

/// From now on, does not make the calls that this filter refuses, beside those of earlier filters. Returns
/// which were refused before.
pub fn enter(filter: &[Instruction]) -> Refused {
    let before = Refused([0, 1, 2, 3, 4, 5, 6, 7].map(|i: usize| REFUSED[i].load(Relaxed)));
    for (number, arguments) in OUR_CALLS {
        if !allows(filter, *number, *arguments) {
            REFUSED[*number as usize / 64].fetch_or(1 << (number % 64), Relaxed);
        }
    }
    before
}

/// Puts the refused calls back.
pub fn leave(before: &Refused) {
    for (word, before) in REFUSED.iter().zip(before.0) {
        word.store(before, Relaxed);
    }
}

/// A pointer, for a filter.
const SOME: u64 = 0x7fff_0000_0000;
const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
const NOWHERE: u64 = u64::MAX;
const FOLDER: u64 = libc::AT_FDCWD as u64;
const OPEN: u64 = (libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_CREAT) as u64;

/// The calls of the handler and of the hooks, with arguments as they are made.
const OUR_CALLS: &[(i64, [u64; 6])] = &[
    (libc::SYS_rt_sigreturn, [0; 6]),
    (libc::SYS_timer_settime, [0, 0, SOME, 0, 0, 0]),
    (libc::SYS_timer_create, [2, SOME, SOME, 0, 0, 0]),
    (libc::SYS_timer_delete, [0; 6]),
    (libc::SYS_perf_event_open, [SOME, 0, NOWHERE, NOWHERE, 8, 0]),
    (libc::SYS_ioctl, [1024, 0x4008_2404, SOME, 0, 0, 0]),
    (libc::SYS_fcntl, [3, libc::F_DUPFD_CLOEXEC as u64, 1024, 0, 0, 0]),
    (libc::SYS_clock_gettime, [2, SOME, 0, 0, 0, 0]),
    (libc::SYS_mmap, [0, 1 << 14, READ_WRITE, ANONYMOUS, NOWHERE, 0]),
    (libc::SYS_mmap, [0, 1 << 18, READ_WRITE, libc::MAP_SHARED as u64, 3, 0]),
    (libc::SYS_munmap, [SOME, 1 << 14, 0, 0, 0, 0]),
    (libc::SYS_madvise, [SOME, 1 << 14, libc::MADV_POPULATE_WRITE as u64, 0, 0, 0]),
    (libc::SYS_mincore, [SOME, 1 << 12, SOME, 0, 0, 0]),
    (libc::SYS_mprotect, [SOME, 1 << 12, 0, 0, 0, 0]),
    (libc::SYS_openat, [FOLDER, SOME, OPEN, 0o644, 0, 0]),
    (libc::SYS_openat, [FOLDER, SOME, (libc::O_RDONLY | libc::O_CLOEXEC) as u64, 0, 0, 0]),
    (libc::SYS_openat, [FOLDER, SOME, (libc::O_WRONLY | libc::O_APPEND) as u64, 0, 0, 0]),
    (libc::SYS_close, [3, 0, 0, 0, 0, 0]),
    (libc::SYS_fallocate, [3, 0, 0, 1 << 14, 0, 0]),
    (libc::SYS_prlimit64, [0, libc::RLIMIT_FSIZE as u64, 0, SOME, 0, 0]),
    (libc::SYS_statx, [3, SOME, 0x1000, 0xfff, SOME, 0]),
    (libc::SYS_fstat, [3, SOME, 0, 0, 0, 0]),
    (libc::SYS_write, [3, SOME, 100, 0, 0, 0]),
    (libc::SYS_read, [1024, SOME, 8, 0, 0, 0]),
    (libc::SYS_pread64, [3, SOME, 128, 0, 0, 0]),
    (libc::SYS_pwrite64, [3, SOME, 1 << 12, 0, 0, 0]),
    (libc::SYS_readlink, [SOME, SOME, 256, 0, 0, 0]),
    (libc::SYS_unlinkat, [FOLDER, SOME, 0, 0, 0, 0]),
    (libc::SYS_mkdirat, [1024, SOME, 0o700, 0, 0, 0]),
    (libc::SYS_fchown, [1024, 1, NOWHERE, 0, 0, 0]),
    (libc::SYS_fchownat, [1024, SOME, 1, NOWHERE, libc::AT_SYMLINK_NOFOLLOW as u64, 0]),
    (libc::SYS_renameat, [1024, SOME, 1025, SOME, 0, 0]),
    (libc::SYS_getdents64, [3, SOME, 1 << 15, 0, 0, 0]),
    (libc::SYS_process_vm_readv, [1, SOME, 1, SOME, 1, 0]),
    (libc::SYS_kill, [1, 0, 0, 0, 0, 0]),
    (libc::SYS_tgkill, [1, 1, 0, 0, 0, 0]),
    (libc::SYS_getpid, [0; 6]),
    (libc::SYS_gettid, [0; 6]),
    (libc::SYS_getrusage, [NOWHERE, SOME, 0, 0, 0, 0]),
    (libc::SYS_prctl, [libc::PR_GET_NAME as u64, SOME, 0, 0, 0, 0]),
    (libc::SYS_rt_sigprocmask, [libc::SIG_UNBLOCK as u64, SOME, 0, 8, 0, 0]),
    (libc::SYS_sigaltstack, [SOME, SOME, 0, 0, 0, 0]),
    (libc::SYS_sched_getaffinity, [1, 128, SOME, 0, 0, 0]),
    (libc::SYS_nanosleep, [SOME, 0, 0, 0, 0, 0]),
    (libc::SYS_membarrier, [8, 0, 0, 0, 0, 0]),
];

const RETURN_ALLOW: u32 = 0x7fff_0000;
const RETURN_LOG: u32 = 0x7ffc_0000;
const ARCHITECTURE: u32 = 0xc000_003e;

/// Whether a filter lets a system call pass. One that it does not understand refuses.
fn allows(filter: &[Instruction], number: i64, arguments: [u64; 6]) -> bool {
    let mut data = [0; 16];
    (data[0], data[1]) = (number as u32, ARCHITECTURE);
    for (halves, argument) in data[4..].chunks_exact_mut(2).zip(arguments) {
        halves.copy_from_slice(&[argument as u32, (argument >> 32) as u32]);
    }
    let action = evaluate(filter, &data).map(|result| result & 0xffff_0000);
    matches!(action, Some(RETURN_ALLOW | RETURN_LOG))
}

/// The result of a filter (classic BPF) on `struct seccomp_data`. Jumps lead forward only, so it ends.
fn evaluate(filter: &[Instruction], data: &[u32; 16]) -> Option<u32> {
    let (mut a, mut x, mut at) = (0_u32, 0_u32, 0_usize);
    let mut memory = [0_u32; 16];
    loop {
        let Instruction { code, on_true, on_false, k } = *filter.get(at)?;
        at += 1;
        let operand = if code & 0x08 == 0 { k } else { x };
        match code & 0x07 {
            // Loads: a word of the data, a constant, a word of memory, the length.
            class @ (0 | 1) => {
                let value = match code & 0xe0 {
                    0x20 if class == 0 && k % 4 == 0 => *data.get(k as usize / 4)?,
                    0x00 => k,
                    0x60 => *memory.get(k as usize)?,
                    0x80 => 64,
                    _ => return None,
                };
                if class == 0 { a = value } else { x = value }
            }
            2 => *memory.get_mut(k as usize)? = a,
            3 => *memory.get_mut(k as usize)? = x,
            4 => {
                a = match code & 0xf0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x20 => a.wrapping_mul(operand),
                    0x30 => a.checked_div(operand)?,
                    0x40 => a | operand,
                    0x50 => a & operand,
                    0x60 => a.checked_shl(operand).unwrap_or(0),
                    0x70 => a.checked_shr(operand).unwrap_or(0),
                    0x80 => a.wrapping_neg(),
                    0xa0 => a ^ operand,
                    _ => return None,
                }
            }
            5 => {
                let is_taken = match code & 0xf0 {
                    0x00 => {
                        at = at.checked_add(k as usize)?;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    0x40 => a & operand != 0,
                    _ => return None,
                };
                at += usize::from(if is_taken { on_true } else { on_false });
            }
            6 => return Some(if code & 0x18 == 0x10 { a } else { k }),
            _ if code & 0xf8 == 0x80 => a = x,
            _ => x = a,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(list: &[(u16, u8, u8, u32)]) -> Vec<Instruction> {
        let one = |(code, on_true, on_false, k)| Instruction { code, on_true, on_false, k };
        list.iter().copied().map(one).collect()
    }

    #[test]
    fn a_list_allows_what_is_on_it() {
        let list = filter(&[
            (0x20, 0, 0, 4),
            (0x15, 1, 0, ARCHITECTURE),
            (0x06, 0, 0, 0),
            (0x20, 0, 0, 0),
            (0x15, 2, 0, libc::SYS_openat as u32),
            (0x15, 0, 5, libc::SYS_mmap as u32),
            (0x05, 0, 0, 3),
            // `openat` for reading only.
            (0x20, 0, 0, 32),
            (0x54, 0, 0, libc::O_ACCMODE as u32),
            (0x15, 0, 1, libc::O_RDONLY as u32),
            (0x06, 0, 0, RETURN_ALLOW),
            (0x06, 0, 0, 0x0005_0001),
        ]);
        let read = [0, 0, libc::O_RDONLY as u64, 0, 0, 0];
        let write = [0, 0, libc::O_RDWR as u64, 0, 0, 0];
        assert!(allows(&list, libc::SYS_openat, read));
        assert!(!allows(&list, libc::SYS_openat, write));
        assert!(allows(&list, libc::SYS_mmap, [0; 6]));
        assert!(!allows(&list, libc::SYS_kill, [0; 6]));
        assert!(!allows(&[], libc::SYS_kill, [0; 6]), "a filter without an end");
    }

    #[test]
    fn what_a_filter_computes_is_computed() {
        // mem[1] = 6; a = (mem[1] * 7 - 2) / 4 ^ 1, shifted left by x = 2; returned.
        let list = filter(&[
            (0x00, 0, 0, 6),
            (0x02, 0, 0, 1),
            (0x01, 0, 0, 2),
            (0x60, 0, 0, 1),
            (0x24, 0, 0, 7),
            (0x1c, 0, 0, 0),
            (0x34, 0, 0, 4),
            (0xa4, 0, 0, 1),
            (0x6c, 0, 0, 0),
            (0x16, 0, 0, 0),
        ]);
        assert_eq!(evaluate(&list, &[0; 16]), Some(11 << 2));
    }
}
