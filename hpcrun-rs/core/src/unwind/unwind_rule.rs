//! Unwind rules: a compact form of the most common call frame information.
//!
//! A rule applies when the canonical frame address (CFA) is the stack pointer or the frame pointer plus a
//! constant, the return address lies directly below the CFA, and the frame pointer is unchanged or saved.
//! Nearly all compiled code is of this form. A rule takes six bytes, is found once for an address, and needs
//! three registers to step.
//!
//! Async-signal-safe.

use super::End;
use super::registers::Pointers;
use super::stack::StackReader;
use hpc_formats::loss::LossCause;

/// A rule; distances are in words of 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct UnwindRule {
    /// From the base register up to the CFA, which is the caller's stack pointer.
    cfa: u16,
    /// From the saved frame pointer up to the CFA; 0 if the frame pointer is not saved.
    saved_fp: u16,
    /// Whether the base register is the frame pointer rather than the stack pointer.
    from_fp: bool,
}

impl UnwindRule {
    /// Makes a rule from distances in bytes: from the base register to the CFA, and from the CFA to the saved
    /// frame pointer. `None` when they do not fit.
    pub(super) fn new(from_fp: bool, cfa: i64, saved_fp: Option<i64>) -> Option<UnwindRule> {
        let words = |bytes: i64| if bytes % 8 == 0 { u16::try_from(bytes / 8).ok() } else { None };
        let saved_fp = match saved_fp {
            None => 0,
            Some(offset) => words(offset.checked_neg()?).filter(|words| *words != 0)?,
        };
        Some(UnwindRule { cfa: words(cfa)?, saved_fp, from_fp })
    }

    #[inline]
    pub(super) fn caller(self, callee: Pointers, stack: &mut StackReader) -> Result<Pointers, End> {
        let unreadable = End::Broken(LossCause::UnreadableStack);
        let base = if self.from_fp { callee.fp } else { callee.sp };
        let sp = base.wrapping_add(8 * u64::from(self.cfa));
        let ip = stack.read(sp.wrapping_sub(8)).ok_or(unreadable)?;
        let fp = match self.saved_fp {
            0 => callee.fp,
            words => {
                let at = sp.wrapping_sub(8 * u64::from(words));
                stack.read(at).ok_or(unreadable)?
            }
        };
        Ok(Pointers { ip, sp, fp })
    }
}

#[cfg(test)]
mod tests {
    use super::super::registers::number;
    use super::super::stack::StackBounds;
    use super::*;

    #[test]
    fn a_caller_is_found_from_either_register() {
        let stack: [u64; 6] = [10, 11, 12, 13, 14, 15];
        let low = stack.as_ptr() as u64;
        let bounds = StackBounds { low, high: low + 48 };
        let mut reader = StackReader::new().unwrap();
        reader.begin(bounds);
        let callee = Pointers { ip: 1, sp: low, fp: low + 16 };
        let from_sp = UnwindRule::new(false, 24, Some(-24)).unwrap();
        let expected = Pointers { ip: 12, sp: low + 24, fp: 10 };
        assert_eq!(from_sp.caller(callee, &mut reader), Ok(expected));
        let from_fp = UnwindRule::new(true, 32, None).unwrap();
        let expected = Pointers { ip: 15, sp: low + 48, fp: callee.fp };
        assert_eq!(from_fp.caller(callee, &mut reader), Ok(expected));
        let mut unknown = callee.alone();
        unknown.forget(number::RBP);
        let broken = End::Broken(LossCause::UnreadableStack);
        let caller = from_fp.caller(Pointers::of(&unknown), &mut reader);
        assert_eq!(caller, Err(broken), "the frame pointer is not known");
    }

    #[test]
    fn distances_that_do_not_fit_are_refused() {
        assert!(UnwindRule::new(false, 8 * 0xffff, Some(-8 * 0xffff)).is_some());
        for (cfa, saved) in [
            (8 * 0x10000, None),
            (-8, None),
            (12, None),
            (16, Some(0)),
            (16, Some(8)),
            (16, Some(-12)),
            (16, Some(i64::MIN)),
        ] {
            assert_eq!(UnwindRule::new(true, cfa, saved), None, "{cfa} {saved:?}");
        }
    }
}
