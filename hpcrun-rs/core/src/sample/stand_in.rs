//! The stand-in: a signal that nobody uses, whose bit in the kernel's masks says that the program blocks our
//! signal. Our own is never blocked, so that samples come.
//!
//! A signal of our number that is no sample, and comes while the program blocks it, is sent again as the
//! stand-in. The kernel holds that back until the program lets our signal in, and then it is forwarded.
//!
//! Async-signal-safe.

/// The number of the signal. It is shown as blocked if its neighbour is, too.
pub const STAND_IN: i32 = 55;
/// Its bit in a mask.
pub const BIT: u64 = 1 << (STAND_IN - 1);
const NEIGHBOUR: u64 = BIT >> 1;

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// A mask of the program as the kernel is to have it.
pub fn to_kernel(mask: u64, ours: i32) -> u64 {
    let stand_in = if mask & bit(ours) != 0 { BIT } else { 0 };
    mask & !(bit(ours) | BIT) | stand_in
}

/// A mask of the kernel as the program is to see it.
pub fn to_program(mask: u64, ours: i32) -> u64 {
    let own = if mask & BIT != 0 { bit(ours) } else { 0 };
    let stand_in = if mask & NEIGHBOUR != 0 { BIT } else { 0 };
    mask & !BIT | own | stand_in
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_sees_what_it_has_set() {
        let ours = libc::SIGURG;
        for others in [0, bit(1), !bit(ours)] {
            for set in [others, others | bit(ours)] {
                let kernel = to_kernel(set, ours);
                assert_eq!(kernel & bit(ours), 0);
                assert_eq!(to_program(kernel, ours), set);
            }
        }
    }
}
