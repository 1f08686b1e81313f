//! Reads the few attributes that the walk needs, for the forms that compilers use.
//!
//! Input: an abbreviation, then the bytes of entries of it. Invariants: the layout is worked out
//! once for all entries of an abbreviation; whatever it cannot express (other forms, big-endian
//! files) is left to gimli; nothing beyond the unit's end is read.

use super::Reader;
use super::skip::{self, Step};
use gimli::{
    Abbreviation, AttributeValue, DebugAddrIndex, DebugInfoOffset, DebugRngListsIndex,
    DebugStrOffset, DwAt, DwForm, RawRangeListsOffset, UnitHeader, UnitOffset, constants,
};

/// The attributes that the walk needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Field {
    Name,
    Low,
    High,
    Ranges,
    Origin,
    CallFile,
    CallLine,
}

const FIELDS: usize = 7;

/// The layout of the entries of one abbreviation.
#[derive(Debug)]
pub(crate) struct Fields {
    takes: Vec<Take>,
    forms: [DwForm; FIELDS],
}

#[derive(Debug)]
enum Take {
    Skip(Step),
    /// A number of so many bytes, little-endian.
    Number(Field, usize),
    Leb(Field),
    /// The abbreviation has the value.
    Constant(Field, u64),
}

/// The values of one entry.
#[derive(Debug)]
pub(crate) struct Values<'f> {
    fields: &'f Fields,
    values: [u64; FIELDS],
    /// Which of them are there, as bits.
    present: u8,
    /// Where the entry ends.
    pub(crate) end: usize,
}

/// The field of an attribute.
fn field(name: DwAt) -> Option<Field> {
    Some(match name {
        constants::DW_AT_name => Field::Name,
        constants::DW_AT_low_pc => Field::Low,
        constants::DW_AT_high_pc => Field::High,
        constants::DW_AT_ranges => Field::Ranges,
        constants::DW_AT_abstract_origin => Field::Origin,
        constants::DW_AT_call_file => Field::CallFile,
        constants::DW_AT_call_line => Field::CallLine,
        _ => return None,
    })
}

impl Fields {
    /// The layout; `None` when entries have to be read in the general way.
    pub(crate) fn new(
        abbreviation: &Abbreviation,
        header: &UnitHeader<Reader<'_>>,
        little_endian: bool,
    ) -> Option<Fields> {
        let mut fields = Fields {
            takes: Vec::new(),
            forms: [DwForm(0); FIELDS],
        };
        for specification in abbreviation.attributes() {
            let form = specification.form();
            let size = specification.size(header);
            let take = match field(specification.name()) {
                None => match size {
                    Some(size) => Take::Skip(Step::Bytes(size)),
                    None => Take::Skip(skip::step_of(form)),
                },
                Some(field) => {
                    fields.forms[field as usize] = form;
                    match (specification.implicit_const_value(), size) {
                        (Some(value), _) => Take::Constant(field, u64::try_from(value).ok()?),
                        (None, Some(size @ (1 | 2 | 4 | 8))) => Take::Number(field, size),
                        (None, None) if skip::step_of(form) == Step::Leb => Take::Leb(field),
                        _ => return None,
                    }
                }
            };
            match (fields.takes.last_mut(), &take) {
                (_, Take::Skip(Step::Unknown)) => return None,
                (Some(Take::Skip(Step::Bytes(sum))), Take::Skip(Step::Bytes(size))) => *sum += size,
                _ => fields.takes.push(take),
            }
        }
        (little_endian && fields.is_understood()).then_some(fields)
    }

    /// Whether the forms are those that the accessors of [`Values`] know.
    fn is_understood(&self) -> bool {
        use Field::{CallFile, CallLine, High, Low, Name, Origin, Ranges};
        [Name, Low, High, Ranges, Origin, CallFile, CallLine]
            .into_iter()
            .all(|field| {
                let form = self.forms[field as usize];
                form == DwForm(0)
                    || match field {
                        Name => form == constants::DW_FORM_strp,
                        Low => address(form, 0).is_some(),
                        High => address(form, 0).is_some() || is_constant(form),
                        Ranges => ranges(form, 0).is_some(),
                        Origin => reference(form, 0).is_some(),
                        CallFile | CallLine => is_constant(form),
                    }
            })
    }

    /// Whether entries can have code.
    pub(crate) fn may_have_code(&self) -> bool {
        let has = |field: Field| self.forms[field as usize] != DwForm(0);
        has(Field::Low) || has(Field::Ranges)
    }

    /// Whether entries have a name.
    pub(crate) fn has_name(&self) -> bool {
        self.forms[Field::Name as usize] != DwForm(0)
    }

    /// Reads the entry whose attributes begin at `at`.
    pub(crate) fn read(&self, data: &[u8], at: usize) -> Option<Values<'_>> {
        let mut values = [0; FIELDS];
        let mut present = 0;
        let mut end = at;
        for take in &self.takes {
            let (field, value) = match take {
                Take::Skip(step) => {
                    end = step.end(data, end)?;
                    continue;
                }
                Take::Number(field, size) => {
                    let value = number(data, end, *size)?;
                    end += size;
                    (*field, value)
                }
                Take::Leb(field) => {
                    let (value, after) = skip::leb(data, end)?;
                    end = after;
                    (*field, value)
                }
                Take::Constant(field, value) => (*field, *value),
            };
            values[field as usize] = value;
            present |= 1 << field as u8;
        }
        (end <= data.len()).then_some(Values {
            fields: self,
            values,
            present,
            end,
        })
    }
}

/// A little-endian number of 1, 2, 4 or 8 bytes.
fn number(data: &[u8], at: usize, size: usize) -> Option<u64> {
    let rest = data.get(at..)?;
    match rest.first_chunk() {
        // Mostly there is more behind it.
        Some(wide) => Some(u64::from_le_bytes(*wide) & (u64::MAX >> (64 - 8 * size))),
        None => {
            let bytes = rest.get(..size)?;
            Some(bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
        }
    }
}

impl Values<'_> {
    fn get<'d>(
        &self,
        field: Field,
        meaning: fn(DwForm, u64) -> Option<AttributeValue<Reader<'d>>>,
    ) -> Option<AttributeValue<Reader<'d>>> {
        meaning(self.fields.forms[field as usize], self.number(field)?)
    }

    /// A plain number.
    pub(crate) fn number(&self, field: Field) -> Option<u64> {
        let is_there = self.present >> field as u8 & 1 == 1;
        is_there.then_some(self.values[field as usize])
    }

    /// The name.
    pub(crate) fn name<'d>(&self) -> Option<AttributeValue<Reader<'d>>> {
        self.get(Field::Name, |_, v| {
            Some(AttributeValue::DebugStrRef(DebugStrOffset(offset(v)?)))
        })
    }

    /// The first address.
    pub(crate) fn low<'d>(&self) -> Option<AttributeValue<Reader<'d>>> {
        self.get(Field::Low, address)
    }

    /// The end address, or the size.
    pub(crate) fn high<'d>(&self) -> Option<AttributeValue<Reader<'d>>> {
        self.get(Field::High, |form, v| {
            address(form, v).or(Some(AttributeValue::Udata(v)))
        })
    }

    /// The list of ranges.
    pub(crate) fn ranges<'d>(&self) -> Option<AttributeValue<Reader<'d>>> {
        self.get(Field::Ranges, ranges)
    }

    /// The entry that describes the procedure.
    pub(crate) fn origin<'d>(&self) -> Option<AttributeValue<Reader<'d>>> {
        self.get(Field::Origin, reference)
    }
}

fn offset(value: u64) -> Option<usize> {
    usize::try_from(value).ok()
}

fn is_constant(form: DwForm) -> bool {
    matches!(
        form,
        constants::DW_FORM_data1
            | constants::DW_FORM_data2
            | constants::DW_FORM_data4
            | constants::DW_FORM_data8
            | constants::DW_FORM_udata
            | constants::DW_FORM_implicit_const
    )
}

fn address<'d>(form: DwForm, value: u64) -> Option<AttributeValue<Reader<'d>>> {
    match form {
        constants::DW_FORM_addr => Some(AttributeValue::Addr(value)),
        constants::DW_FORM_addrx
        | constants::DW_FORM_addrx1
        | constants::DW_FORM_addrx2
        | constants::DW_FORM_addrx4
        | constants::DW_FORM_GNU_addr_index => Some(AttributeValue::DebugAddrIndex(
            DebugAddrIndex(offset(value)?),
        )),
        _ => None,
    }
}

fn ranges<'d>(form: DwForm, value: u64) -> Option<AttributeValue<Reader<'d>>> {
    let value = offset(value)?;
    match form {
        constants::DW_FORM_sec_offset | constants::DW_FORM_data4 | constants::DW_FORM_data8 => {
            Some(AttributeValue::RangeListsRef(RawRangeListsOffset(value)))
        }
        constants::DW_FORM_rnglistx => Some(AttributeValue::DebugRngListsIndex(
            DebugRngListsIndex(value),
        )),
        _ => None,
    }
}

fn reference<'d>(form: DwForm, value: u64) -> Option<AttributeValue<Reader<'d>>> {
    let value = offset(value)?;
    match form {
        constants::DW_FORM_ref1
        | constants::DW_FORM_ref2
        | constants::DW_FORM_ref4
        | constants::DW_FORM_ref8
        | constants::DW_FORM_ref_udata => Some(AttributeValue::UnitRef(UnitOffset(value))),
        constants::DW_FORM_ref_addr => Some(AttributeValue::DebugInfoRef(DebugInfoOffset(value))),
        constants::DW_FORM_GNU_ref_alt
        | constants::DW_FORM_ref_sup4
        | constants::DW_FORM_ref_sup8 => {
            Some(AttributeValue::DebugInfoRefSup(DebugInfoOffset(value)))
        }
        _ => None,
    }
}
