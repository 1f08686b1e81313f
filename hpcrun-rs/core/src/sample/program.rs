//! The program's own action for our signal, and how its handler is entered.
//!
//! The program gets each signal of our number that is not a sample, as if the kernel had delivered it: with
//! its mask, its flags, and on its stack. A handler that leaves by `longjmp`, faults or never ends does what
//! it does without us.
//!
//! Async-signal-safe.

use super::entry::Begin;
use super::signal::{install_default, install_stand_in};
use super::stand_in;
use crate::sandbox::refuses;
use crate::system;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// An action as the program has set it. The mask is the kernel's 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Action {
    /// Its handler, or a number such as `SIG_DFL`.
    pub handler: usize,
    pub flags: i32,
    pub mask: u64,
}

impl Action {
    /// The action of a program that has set none.
    pub const DEFAULT: Action = Action { handler: libc::SIG_DFL, flags: 0, mask: 0 };
}

/// An action that was in use. It lives as long as the process, since a handler may hold it.
struct Kept {
    action: Action,
    next: *const Kept,
}

/// The program's action: one word, so that handler, flags and mask are always of the same call.
pub struct ProgramAction {
    /// A [`Kept`], plus [`IS_RESET`] if its handler has run once and is gone.
    current: AtomicUsize,
    /// All actions that were in use, for when they are again.
    all: AtomicPtr<Kept>,
}

pub static PROGRAM_ACTION: ProgramAction =
    ProgramAction { current: AtomicUsize::new(0), all: AtomicPtr::new(ptr::null_mut()) };

const IS_RESET: usize = 1;

impl ProgramAction {
    /// Stores a new action, and returns the previous one. Takes memory for an action that was never in use,
    /// so the handler must not call this.
    pub fn replace(&self, new: Action) -> Action {
        action_of(self.current.swap(self.keep(new) as usize, Ordering::AcqRel))
    }

    pub fn get(&self) -> Action {
        action_of(self.current.load(Ordering::Acquire))
    }

    fn keep(&self, action: Action) -> *mut Kept {
        let head = self.all.load(Ordering::Acquire);
        let mut at: *const Kept = head;
        // SAFETY: kept actions are never freed.
        while let Some(kept) = unsafe { at.as_ref() } {
            if kept.action == action {
                return at.cast_mut();
            }
            at = kept.next;
        }
        let new = Box::into_raw(Box::new(Kept { action, next: head }));
        // If another thread has kept one at the same time, the list lacks one of them, which is harmless.
        self.all.store(new, Ordering::Release);
        new
    }

    /// The action for one signal. A handler that is to be used once is gone then, as in the kernel.
    fn take(&self) -> Action {
        let current = self.current.load(Ordering::Acquire);
        let action = action_of(current);
        if action.flags & libc::SA_RESETHAND == 0 {
            return action;
        }
        let (taken, order) = (current | IS_RESET, Ordering::AcqRel);
        let result = self.current.compare_exchange(current, taken, order, Ordering::Acquire);
        result.map_or_else(action_of, |_| action)
    }
}

fn action_of(current: usize) -> Action {
    let kept = (current & !IS_RESET) as *const Kept;
    // SAFETY: null, or an action that is never freed.
    let mut action = unsafe { kept.as_ref() }.map_or(Action::DEFAULT, |kept| kept.action);
    if current & IS_RESET != 0 {
        action.handler = libc::SIG_DFL;
    }
    action
}

/// Does with a signal that is no sample what the program has asked for. True if its handler is to be entered:
/// as `begin` says.
///
/// # Safety
/// Must be called from the handler, with its own arguments; `begin` is the entry's.
#[cold]
pub(super) unsafe fn forward(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    begin: *mut Begin,
) -> bool {
    // SAFETY: the caller's promise.
    let frame = unsafe { Frame::of(info, context) };
    // SAFETY: the kernel's pointers (caller's promise).
    let is_trap = signal == libc::SIGTRAP && unsafe { (*info).si_code } > 0;
    // The stand-in comes when it is let in, if only while the thread waits.
    // SAFETY: as above.
    let was_held = unsafe { (*info).si_signo } == stand_in::STAND_IN;
    if !was_held && frame.mask() & stand_in::BIT != 0 {
        // A trap of the processor that is blocked ends the program.
        if is_trap {
            install_default(signal);
            send_again(signal, info);
        } else {
            hold(info);
        }
        return false;
    }
    let action = PROGRAM_ACTION.take();
    match action.handler {
        // The kernel does not ignore a trap of the processor.
        libc::SIG_IGN if !is_trap => false,
        libc::SIG_DFL if signal == libc::SIGURG => false,
        libc::SIG_IGN | libc::SIG_DFL => {
            install_default(signal);
            send_again(signal, info);
            false
        }
        handler => {
            // SAFETY: the kernel's information is the handler's own.
            unsafe { (*info).si_signo = signal };
            let moved = frame.moved_to(frame.wanted_by(action));
            let own = if action.flags & libc::SA_NODEFER == 0 { stand_in::BIT } else { 0 };
            let entered = Begin {
                handler,
                stack: moved.start,
                mask: moved.mask() | stand_in::to_kernel(action.mask, signal) | own,
                signal: signal as usize,
                info: moved.info,
                context: moved.context,
                sets_mask: usize::from(!refuses(libc::SYS_rt_sigprocmask)),
            };
            // SAFETY: the entry's room for this.
            unsafe { begin.write(entered) };
            true
        }
    }
}

/// Keeps a signal back until the program lets it in: as the pending stand-in, of the thread or of the
/// process. A signal that is pending is not pending twice.
fn hold(info: *mut libc::siginfo_t) {
    let mut pending = 0_u64;
    let arguments = [&raw mut pending as usize, 8, 0, 0, 0];
    // SAFETY: the kernel writes a set of eight bytes, which outlives the call.
    unsafe { system::call(libc::SYS_rt_sigpending, arguments) };
    if pending & stand_in::BIT != 0 {
        return;
    }
    install_stand_in();
    // SAFETY: the kernel's pointer.
    if unsafe { (*info).si_code } == SI_TKILL {
        send_again(stand_in::STAND_IN, info);
        return;
    }
    let process = system::process_id().unwrap_or(0) as usize;
    // SAFETY: the kernel reads the information, which outlives the call.
    unsafe {
        let arguments = [process, stand_in::STAND_IN as usize, info as usize, 0, 0];
        system::call(libc::SYS_rt_sigqueueinfo, arguments);
    }
}

/// `si_code` of a signal that was sent to one thread.
const SI_TKILL: i32 = -6;

/// Sends the signal to the calling thread again, as it came.
fn send_again(signal: i32, info: *mut libc::siginfo_t) {
    let process = system::process_id().unwrap_or(0) as usize;
    // SAFETY: the kernel reads the information, which outlives the call.
    unsafe {
        let arguments = [process, system::thread_id() as usize, signal as usize, info as usize, 0];
        system::call(libc::SYS_rt_tgsigqueueinfo, arguments);
    }
}

/// The start of the kernel's `struct rt_sigframe`: the address that the handler returns to, the context, and
/// the information. The floating-point state lies above.
#[repr(C)]
struct Layout {
    returns_to: usize,
    context: [u8; CONTEXT],
    info: [u8; 128],
}

/// Size of the kernel's `struct ucontext`; libc's is longer.
const CONTEXT: usize = 304;
/// Offsets in it: the pointer to the floating-point state, the mask.
const FLOATS: usize = 224;
const MASK: usize = 296;
const _: () = assert!(offset_of!(libc::ucontext_t, uc_stack) == 16);
const _: () = assert!(offset_of!(libc::ucontext_t, uc_sigmask) == MASK);
/// Size of the floating-point state without extensions; with them, where their size is, behind a number.
const PLAIN_FLOATS: usize = 512;
const EXTENDED: usize = 464;
const EXTENDED_MAGIC: u32 = 0x4650_5853;
/// What a function may use below its stack pointer.
const RED_ZONE: usize = 128;
const SS_AUTODISARM: i32 = 1 << 31;

/// The frame of a signal on a stack.
#[derive(Clone, Copy)]
struct Frame {
    start: usize,
    info: usize,
    context: usize,
}

impl Frame {
    /// The frame that the kernel has made.
    ///
    /// # Safety
    /// Both must be the handler's arguments.
    unsafe fn of(info: *mut libc::siginfo_t, context: *mut libc::c_void) -> Frame {
        let (info, context) = (info as usize, context as usize);
        Frame { start: context - size_of::<usize>(), info, context }
    }

    fn context(&self) -> &libc::ucontext_t {
        // SAFETY: the kernel's, or our copy of it. It is shorter than libc's, whose last fields we don't
        // read.
        unsafe { &*(self.context as *const libc::ucontext_t) }
    }

    fn mask(&self) -> u64 {
        // SAFETY: as above; the kernel's mask has eight bytes.
        unsafe { ((self.context + MASK) as *const u64).read() }
    }

    /// The upper end of the stack where an action wants the frame; `None` if it is right where it is.
    fn wanted_by(&self, action: Action) -> Option<usize> {
        let is_kernels = self.info == self.context + CONTEXT;
        let stack = &self.context().uc_stack;
        let disabled = stack.ss_size == 0 || stack.ss_flags & libc::SS_DISABLE != 0;
        if disabled || !is_kernels {
            return None;
        }
        let low = stack.ss_sp as usize;
        let is_on = |sp: usize| sp > low && sp - low <= stack.ss_size;
        let interrupted = self.context().uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
        let moves = action.flags & libc::SA_ONSTACK != 0 && !is_on(interrupted);
        match (moves, is_on(self.start)) {
            (true, false) => Some(low + stack.ss_size),
            (false, true) if !is_on(interrupted) => Some(interrupted - RED_ZONE),
            _ => None,
        }
    }

    /// Copies the frame below `top`, aligned as the kernel aligns it.
    fn moved_to(self, top: Option<usize>) -> Frame {
        let Some(top) = top else { return self };
        let floats = self.context().uc_mcontext.fpregs as usize;
        // SAFETY: the kernel's state of at least 512 bytes.
        let (magic, extended) = unsafe {
            let at = (floats + EXTENDED) as *const u32;
            if floats == 0 { (0, 0) } else { (at.read(), at.add(1).read() as usize) }
        };
        let size = if magic == EXTENDED_MAGIC { extended } else { PLAIN_FLOATS };
        let copy = (top - size) & !63;
        let start = ((copy - size_of::<Layout>()) & !15) - 8;
        let (context, info) = (start + 8, start + 8 + CONTEXT);
        let moved = Frame { start, info, context };
        // SAFETY: below `top` is the stack that the program has asked for, of which nothing is in use; the
        // kernel would write there as well. The source is the kernel's frame of the same layout.
        unsafe {
            if floats != 0 {
                ptr::copy_nonoverlapping(floats as *const u8, copy as *mut u8, size);
            }
            let (from, to) = (self.start as *const u8, start as *mut u8);
            ptr::copy_nonoverlapping(from, to, size_of::<Layout>());
            if floats != 0 {
                ((context + FLOATS) as *mut usize).write(copy);
            }
        }
        if moved.context().uc_stack.ss_flags & SS_AUTODISARM != 0 {
            disable_alternate_stack();
        }
        moved
    }
}

/// Does what the kernel does when it enters a stack with SS_AUTODISARM. The frame brings it back.
fn disable_alternate_stack() {
    // SAFETY: zeros are a valid `stack_t`.
    let mut none: libc::stack_t = unsafe { std::mem::zeroed() };
    none.ss_flags = libc::SS_DISABLE;
    // SAFETY: the kernel reads a structure that outlives the call.
    unsafe { system::call(libc::SYS_sigaltstack, [&raw const none as usize, 0, 0, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_one_value() {
        static ACTIONS: ProgramAction =
            ProgramAction { current: AtomicUsize::new(0), all: AtomicPtr::new(ptr::null_mut()) };
        let of = |n: usize| Action { handler: n, flags: n as i32 & !libc::SA_RESETHAND, mask: n as u64 };
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for n in 0..100_000 {
                    ACTIONS.replace(of(16 + n % 5));
                }
            });
            for _ in 0..100_000 {
                let seen = ACTIONS.get();
                assert!(seen == Action::DEFAULT || seen == of(seen.handler), "{seen:?}");
            }
        });
        let once = Action { handler: 99, flags: libc::SA_RESETHAND, mask: 1 };
        ACTIONS.replace(once);
        let reset = Action { handler: libc::SIG_DFL, ..once };
        assert_eq!([ACTIONS.take(), ACTIONS.take()], [once, reset]);
    }
}
