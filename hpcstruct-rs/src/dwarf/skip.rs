//! How to step over entries without reading them: most entries describe types and variables.
//!
//! Input: the abbreviations of a unit. Invariants: a step is the sum of the sizes that the forms
//! state; a form that this file does not know, or bytes beyond the unit's end, is `None`.

use gimli::{Abbreviation, DwForm, UnitHeader, constants};

use super::Reader;

/// How to step over the attributes of one abbreviation.
#[derive(Debug)]
pub(crate) enum Skip {
    /// All forms have fixed sizes.
    Fixed(usize),
    /// Some depend on the bytes.
    Steps(Vec<Step>),
}

/// A run of attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// So many bytes.
    Bytes(usize),
    /// A LEB128 number.
    Leb,
    /// A length of so many bytes, then the block.
    Block(usize),
    /// A LEB128 length, then the block.
    LebBlock,
    /// A string with its zero.
    Text,
    /// A form that its own bytes state: left to gimli.
    Unknown,
}

impl Skip {
    /// For the attributes of `abbreviation` in the unit of `header`.
    pub(crate) fn new(abbreviation: &Abbreviation, header: &UnitHeader<Reader<'_>>) -> Skip {
        let mut steps: Vec<Step> = Vec::new();
        for specification in abbreviation.attributes() {
            let step = match specification.size(header) {
                Some(size) => Step::Bytes(size),
                None => step_of(specification.form()),
            };
            match (steps.last_mut(), step) {
                (Some(Step::Bytes(sum)), Step::Bytes(size)) => *sum += size,
                (_, Step::Bytes(0)) => {}
                _ => steps.push(step),
            }
        }
        match steps.as_slice() {
            [] => Skip::Fixed(0),
            [Step::Bytes(size)] => Skip::Fixed(*size),
            _ => Skip::Steps(steps),
        }
    }

    /// The position after the attributes that begin at `at`.
    pub(crate) fn end(&self, data: &[u8], at: usize) -> Option<usize> {
        let end = match self {
            Skip::Fixed(size) => at.checked_add(*size)?,
            Skip::Steps(steps) => steps.iter().try_fold(at, |at, step| step.end(data, at))?,
        };
        (end <= data.len()).then_some(end)
    }
}

impl Step {
    /// The position after the run that begins at `at`.
    pub(crate) fn end(self, data: &[u8], at: usize) -> Option<usize> {
        match self {
            Step::Bytes(size) => at.checked_add(size),
            Step::Leb => leb_end(data, at),
            Step::Block(width) => {
                let stated = data.get(at..at.checked_add(width)?)?;
                let size = stated.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
                (at + width).checked_add(size)
            }
            Step::LebBlock => {
                let (size, at) = leb(data, at)?;
                at.checked_add(usize::try_from(size).ok()?)
            }
            Step::Text => {
                let rest = data.get(at..)?;
                Some(at + rest.iter().position(|b| *b == 0)? + 1)
            }
            Step::Unknown => None,
        }
    }
}

/// The step over a form without a fixed size.
pub(crate) fn step_of(form: DwForm) -> Step {
    match form {
        constants::DW_FORM_block1 => Step::Block(1),
        // Longer lengths depend on the byte order; compilers do not use these forms any more.
        constants::DW_FORM_block | constants::DW_FORM_exprloc => Step::LebBlock,
        constants::DW_FORM_string => Step::Text,
        constants::DW_FORM_udata
        | constants::DW_FORM_sdata
        | constants::DW_FORM_ref_udata
        | constants::DW_FORM_strx
        | constants::DW_FORM_GNU_str_index
        | constants::DW_FORM_addrx
        | constants::DW_FORM_GNU_addr_index
        | constants::DW_FORM_loclistx
        | constants::DW_FORM_rnglistx => Step::Leb,
        _ => Step::Unknown,
    }
}

/// The position after a LEB128 number.
fn leb_end(data: &[u8], at: usize) -> Option<usize> {
    let rest = data.get(at..)?;
    Some(at + rest.iter().position(|b| b & 0x80 == 0)? + 1)
}

/// An unsigned LEB128 number and the position after it.
pub(crate) fn leb(data: &[u8], at: usize) -> Option<(u64, usize)> {
    let first = *data.get(at)?;
    if first & 0x80 == 0 {
        return Some((u64::from(first), at + 1));
    }
    let mut value = 0u64;
    for (i, byte) in data.get(at..)?.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f).checked_shl(7 * i as u32)?;
        if byte & 0x80 == 0 {
            return Some((value, at + i + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_with_their_last_byte() {
        assert_eq!(leb(&[0x7f, 9], 0), Some((0x7f, 1)));
        assert_eq!(leb(&[0xe5, 0x8e, 0x26], 0), Some((624_485, 3)));
        assert_eq!(leb(&[0x80], 0), None);
        assert_eq!(leb(&[0xff; 11], 0), None);
        assert_eq!(leb(&[], 0), None);
        assert_eq!(leb_end(&[0x80, 0x80, 0], 0), Some(3));
    }

    #[test]
    fn steps_stop_at_the_end_of_the_data() {
        let data = [2, 7, 7, b'a', 0, 0x81, 0, 9];
        assert_eq!(Step::Block(1).end(&data, 0), Some(3));
        assert_eq!(Step::LebBlock.end(&data, 0), Some(3));
        assert_eq!(Step::Text.end(&data, 3), Some(5));
        assert_eq!(Step::Leb.end(&data, 5), Some(7));
        assert_eq!(Step::Text.end(&data, 7), None);
        assert_eq!(Step::Leb.end(&data, 8), None);
        let steps = Skip::Steps(vec![Step::Block(1), Step::Bytes(6)]);
        assert_eq!(steps.end(&data, 0), None);
        assert_eq!(Skip::Fixed(8).end(&data, 0), Some(8));
        assert_eq!(Skip::Fixed(8).end(&data, 1), None);
        assert_eq!(Skip::Fixed(1).end(&data, usize::MAX), None);
    }
}
