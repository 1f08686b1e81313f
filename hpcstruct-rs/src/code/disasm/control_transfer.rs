//! What the decoder reports: the instructions that change the flow of control.
//!
//! [`super::x86`] appends [`Transfer`]s sorted by address; everything between two of them falls through.

use super::loaded_image::LoadedImage;
use std::ops::Range;

/// Where control goes after an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ControlTransfer {
    /// To an address.
    Jump(u64),
    /// To an address, or on.
    Branch(u64),
    /// Calls an address.
    Call(u64),
    /// Calls the address that a word of memory holds (a linkage table's slot).
    CallThrough(u64),
    /// Calls an address that only the run knows.
    CallAnywhere,
    /// To the address that a word of memory holds.
    JumpThrough(u64),
    /// To one of the addresses `first..first + count` of [`Decoded::targets`].
    Table {
        /// Index of the first target.
        first: u32,
        count: u32,
    },
    /// To an address that only the run knows.
    Indirect,
    /// To the caller.
    Return,
    /// Nowhere: a trap, or what is no instruction.
    Stop,
    /// On, but nothing leads here: the space before aligned code.
    Padding,
}

impl ControlTransfer {
    /// Whether it is a call: control comes back behind it, or an exception does to a handler.
    pub(crate) fn is_call(self) -> bool {
        matches!(
            self,
            ControlTransfer::Call(_) | ControlTransfer::CallThrough(_) | ControlTransfer::CallAnywhere
        )
    }
}

/// An instruction that changes the flow of control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transfer {
    /// One past its last byte, from the start of the range, in bytes.
    pub(crate) end: u32,
    pub(crate) length: u8,
    pub(crate) flow: ControlTransfer,
}

/// What a decoder found in a range of code; reused from range to range.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    /// In the order of addresses.
    pub(crate) transfers: Vec<Transfer>,
    /// Targets of all jump tables.
    pub(crate) targets: Vec<u64>,
    /// Entries of tables that may still be read: what is read does not outgrow the code.
    budget: usize,
}

impl Decoded {
    /// Forgets everything, keeps the memory. Next come `bytes` bytes of code.
    pub(crate) fn start(&mut self, bytes: usize) {
        self.transfers.clear();
        self.targets.clear();
        self.budget = bytes.saturating_mul(16).saturating_add(1 << 12);
    }
}

/// More targets than any table has.
const MAX_TABLE: u64 = 1 << 16;

/// How the entries of a jump table are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// Addresses of eight bytes, relocated where the module is position-independent.
    Absolute,
    /// A signed number of `bytes` bytes, 4 or 8, added to `base`.
    Relative { base: u64, bytes: u8 },
}

impl Entry {
    fn size(self) -> u64 {
        match self {
            Entry::Absolute => 8,
            Entry::Relative { bytes, .. } => u64::from(bytes),
        }
    }

    fn target(self, memory: &LoadedImage<'_>, address: u64) -> Option<u64> {
        match self {
            Entry::Absolute => memory.pointer(address),
            Entry::Relative { base, bytes } => {
                let raw = memory.number(address, bytes)?;
                let unused = 64 - 8 * u32::from(bytes);
                Some(base.wrapping_add(((raw << unused) as i64 >> unused) as u64))
            }
        }
    }
}

/// A jump table, as far as the code around its jump describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Table {
    pub(crate) address: u64,
    /// Form of the entries.
    pub(crate) entry: Entry,
    /// Number of entries, where a comparison before the jump bounds the index.
    pub(crate) count: Option<u64>,
}

/// The code that the targets of a table must lie in: the ranges of one procedure, sorted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within<'a>(pub(crate) &'a [Range<u64>]);

impl Within<'_> {
    /// Whether an address belongs to the procedure.
    pub(crate) fn holds(self, address: u64) -> bool {
        let next = self.0.partition_point(|r| r.end <= address);
        self.0.get(next).is_some_and(|r| r.start <= address)
    }
}

/// Reads a table's distinct targets into `out`; returns how many; 0 = it is no table.
///
/// It ends at its bound, before the address `limit` (where another table begins), or at the first
/// entry that leads out of the procedure. A table with a bound that does not hold up to it is
/// none.
pub(crate) fn read_table(
    memory: &LoadedImage<'_>,
    table: &Table,
    within: Within<'_>,
    limit: u64,
    out: &mut Decoded,
) -> u32 {
    let Decoded { targets, budget, .. } = out;
    let first = targets.len();
    let size = table.entry.size();
    let most = table.count.unwrap_or(MAX_TABLE).min(MAX_TABLE);
    let mut read = 0;
    let mut address = table.address;
    while read < most && *budget > 0 && (read == 0 || address < limit) {
        *budget -= 1;
        let target = table.entry.target(memory, address);
        let Some(target) = target.filter(|t| within.holds(*t)) else {
            break;
        };
        targets.push(target);
        read += 1;
        let Some(next) = address.checked_add(size) else {
            break;
        };
        address = next;
    }
    let mut fresh = targets.split_off(first);
    fresh.sort_unstable();
    fresh.dedup();
    targets.append(&mut fresh);
    (targets.len() - first) as u32
}
