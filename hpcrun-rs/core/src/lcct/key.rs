//! Decides whether two notes under one parent are the same node.
//!
//! The paper's appendix shares two notes if ip, lip and note-id are equal and their associations are in a
//! common class. Its classes overlap: 1 <-> 1 is the base case of both M <-> 1 and 1 <-> M. So sharing is not
//! transitive, and the tree depends on the order of insertion. Here the classes are a partition: {1<->0,
//! M<->0}, {1<->1, M<->1}, {1<->M}. The only difference is that a native frame is not shared with the base of
//! a 1 <-> M chord. A scheduler frame that stands for user-level frames is never also a user-level frame, so
//! nothing is lost in practice.

use crate::logical::Note;
use hpc_formats::profile::Association;

/// A class of associations; equality of classes is an equivalence relation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum Class {
    /// Run-time support.
    Zero = 1,
    /// One user-level frame.
    One = 2,
    /// One frame for several user-level frames.
    Many = 3,
}

pub const fn class_of(association: Association) -> Class {
    match association {
        Association::OneToZero | Association::ManyToZero => Class::Zero,
        Association::OneToOne | Association::ManyToOne => Class::One,
        Association::OneToMany => Class::Many,
    }
}

/// The class by an association's number in a record; 0 for records that are not notes.
const CLASS_BY_NUMBER: [u32; 16] = {
    let mut table = [0; 16];
    table[Association::OneToOne as usize] = class_of(Association::OneToOne) as u32;
    table[Association::OneToZero as usize] = class_of(Association::OneToZero) as u32;
    table[Association::ManyToZero as usize] = class_of(Association::ManyToZero) as u32;
    table[Association::ManyToOne as usize] = class_of(Association::ManyToOne) as u32;
    table[Association::OneToMany as usize] = class_of(Association::OneToMany) as u32;
    table
};

/// Kind, class and note-id of a record's first word: the part that sharing compares.
#[inline]
fn comparable(meta: u32) -> u32 {
    (meta & !0xf0) | CLASS_BY_NUMBER[(meta >> 4 & 0xf) as usize] << 4
}

/// Whether two notes under one parent are the same node (the paper's `sharable?`).
#[inline]
pub fn sharable(a: &Note, b: &Note) -> bool {
    a.ip == b.ip && a.lip == b.lip && (a.meta == b.meta || comparable(a.meta) == comparable(b.meta))
}

/// The hash of a path, from the hash of the parent's path; equal for sharable notes.
#[inline]
pub fn hash(parent: u32, note: &Note) -> u32 {
    let h = note.ip.0 ^ note.lip.0.rotate_left(32) ^ u64::from(comparable(note.meta)) << 20;
    let h = (h ^ u64::from(parent)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((h ^ h >> 29) >> 17) as u32
}

/// Whether `association` is the base case that a shared node must carry (the appendix's implicit base-case
/// flag): one physical frame instead of several.
#[inline]
pub fn is_base_case(association: u32) -> bool {
    association == Association::OneToOne as u32 || association == Association::OneToZero as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use hpc_formats::address::CodeAddress;
    use hpc_formats::profile::{RecordKind, meta};

    const ALL: [Association; 5] = [
        Association::OneToOne,
        Association::OneToZero,
        Association::ManyToZero,
        Association::ManyToOne,
        Association::OneToMany,
    ];

    fn note(association: Association, note_id: u32, ip: u64, lip: u64) -> Note {
        Note {
            ip: CodeAddress(ip),
            lip: CodeAddress(lip),
            meta: meta(RecordKind::Note, association as u8, note_id),
        }
    }

    /// All combinations of small values.
    fn universe() -> Vec<Note> {
        let mut notes = Vec::new();
        for a in ALL {
            for id in 1..3 {
                for ip in 0..3 {
                    for lip in 0..3 {
                        notes.push(note(a, id, ip, lip));
                    }
                }
            }
        }
        notes
    }

    #[test]
    fn sharing_is_an_equivalence_relation() {
        let all = universe();
        for a in &all {
            assert!(sharable(a, a));
            for b in &all {
                assert_eq!(sharable(a, b), sharable(b, a));
                if sharable(a, b) {
                    assert_eq!(hash(7, a), hash(7, b));
                    for c in &all {
                        assert_eq!(sharable(a, c), sharable(b, c));
                    }
                }
            }
        }
    }

    #[test]
    fn base_cases_share_with_their_own_class_only() {
        let x = |a| note(a, 1, 5, 5);
        assert!(sharable(&x(Association::OneToOne), &x(Association::ManyToOne)));
        assert!(sharable(&x(Association::OneToZero), &x(Association::ManyToZero)));
        assert!(!sharable(&x(Association::OneToOne), &x(Association::OneToMany)));
        assert!(!sharable(&x(Association::OneToOne), &x(Association::OneToZero)));
    }
}
