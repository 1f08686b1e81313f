//! The names and the declaration of a procedure entry, followed through abstract origins and
//! specifications, across units where need be.

use super::{Debug, EntryRef, Reader};
use gimli::AttributeValue;

/// Longest chain of origins that is followed; real ones have two links.
const MAX_LINKS: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Description<'d> {
    pub(crate) linkage: Option<Text<'d>>,
    /// Plain name.
    pub(crate) name: Option<Text<'d>>,
    /// Unit and index of the declaring file, and the line.
    pub(crate) declared: Option<(u32, u64, u32)>,
    /// The last entry of the chain, which lies in its namespaces.
    pub(crate) root: Option<EntryRef>,
}

/// A string attribute that is not looked up yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'d> {
    unit: u32,
    value: AttributeValue<Reader<'d>>,
}

impl<'d> Text<'d> {
    /// The text; absent when it is damaged or no UTF-8.
    pub(crate) fn get(&self, debug: &Debug<'d>) -> Option<&'d str> {
        debug.text(self.unit, self.value)
    }
}

/// Describes `entry`; what cannot be read is absent.
pub(crate) fn describe<'d>(debug: &Debug<'d>, entry: EntryRef) -> Description<'d> {
    let mut out = Description::default();
    let mut next = Some(entry);
    for _ in 0..MAX_LINKS {
        let Some(entry) = next else { break };
        out.root = Some(entry);
        next = read(debug, entry, &mut out);
    }
    out
}

/// Adds what `entry` itself says; returns its origin or specification.
fn read<'d>(debug: &Debug<'d>, entry: EntryRef, out: &mut Description<'d>) -> Option<EntryRef> {
    let unit = debug.units.get(entry.unit as usize)?;
    let mut entries = unit.entries_raw(Some(entry.offset)).ok()?;
    let abbreviation = entries.read_abbreviation().ok()??;
    let mut link = None;
    let mut file = None;
    let mut line = 0;
    for specification in abbreviation.attributes() {
        let attribute = entries.read_attribute(*specification).ok()?;
        let value = || attribute.raw_value();
        let text = || Text { unit: entry.unit, value: attribute.raw_value() };
        match attribute.name() {
            gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                out.linkage = out.linkage.or(Some(text()));
            }
            gimli::DW_AT_name => out.name = out.name.or(Some(text())),
            gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                link = debug.reference(entry.unit, value());
            }
            gimli::DW_AT_decl_file => {
                file = value().udata_value();
            }
            gimli::DW_AT_decl_line => {
                let stated = value().udata_value();
                line = stated.and_then(|l| u32::try_from(l).ok()).unwrap_or(0);
            }
            _ => {}
        }
    }
    if out.declared.is_none() {
        out.declared = file.map(|file| (entry.unit, file, line));
    }
    link.filter(|link| *link != entry)
}
