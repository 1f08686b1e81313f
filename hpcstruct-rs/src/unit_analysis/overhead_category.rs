//! The overhead category of a piece of code, decided over its chain of inlined procedures.
//!
//! The chain is walked outwards; the procedure with the code is its last element.
//! 1. The first tagged element wins, unless rule 2 or 3 finds user code further in.
//! 2. A closure of user code that is not tagged itself is a task's work.
//! 3. Within tagged code of a runtime or the standard library, an element of another crate is a
//!    task's work. Within other tagged code, an element of a crate that also calls it is.
//! 4. Elements of the standard libraries are transparent.
//!
//! C has no crates: there only lambdas and function objects are such a boundary.

use crate::unit_analysis::classify::OverheadTag;
use crate::unit_analysis::function_info::FunctionInfo;
use hpc_formats::structure::{Origin, StringId};

/// One step of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) info: FunctionInfo,
    /// The tag of the source file in which this procedure makes the call that leads inwards; `None`
    /// without such a tag and for the innermost procedure, whose own line is classified apart.
    pub(crate) call_tag: Option<OverheadTag>,
}

/// The tag of code whose innermost info is the first of `chain`.
pub(crate) fn tag(chain: impl Iterator<Item = Step>) -> Option<OverheadTag> {
    let mut chain = chain;
    let mut inner: Vec<StringId> = Vec::new();
    while let Some(Step { info, call_tag }) = chain.next() {
        if let Some(tag) = call_tag.or(info.tag) {
            let foreign = |owner: StringId| info.owner.is_some_and(|own| own != owner);
            let is_task = match info.origin {
                // A program's own tagged code: helpers of any crate serve the tag, but a crate
                // that calls the tagged code and is called back by it does its own work.
                Origin::User => chain.any(|outer| {
                    let owner = outer.info.owner;
                    owner.is_some_and(|o| foreign(o) && inner.contains(&o))
                }),
                Origin::Runtime | Origin::System => inner.iter().any(|owner| foreign(*owner)),
            };
            return (!is_task).then_some(tag);
        }
        if info.origin == Origin::System {
            continue;
        }
        if info.is_closure && info.origin == Origin::User {
            return None;
        }
        inner.extend(info.owner);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const APP: Option<StringId> = Some(StringId(100));
    const RT: Option<StringId> = Some(StringId(101));
    const STD: Option<StringId> = Some(StringId(102));
    const SYNC: Option<OverheadTag> = Some(tag_of(1));
    const SCHED: Option<OverheadTag> = Some(tag_of(2));

    const fn tag_of(number: u32) -> OverheadTag {
        OverheadTag(std::num::NonZeroU32::MIN.saturating_add(number))
    }

    fn step(origin: Origin, owner: Option<StringId>, tag: Option<OverheadTag>) -> Step {
        Step {
            info: FunctionInfo {
                name: StringId(0),
                linkage: None,
                declared: None,
                origin,
                tag,
                owner,
                is_closure: false,
            },
            call_tag: None,
        }
    }

    fn closure(mut step: Step) -> Step {
        step.info.is_closure = true;
        step
    }

    fn of(chain: &[Step]) -> Option<OverheadTag> {
        tag(chain.iter().copied())
    }

    use Origin::{Runtime, System, User};

    #[test]
    fn the_innermost_tag_wins_through_the_standard_library() {
        let core = step(System, STD, None);
        let lock = step(System, STD, SYNC);
        let steal = step(Runtime, RT, SCHED);
        assert_eq!(of(&[core, lock, steal]), SYNC);
        assert_eq!(of(&[core, core, steal]), SCHED);
        assert_eq!(of(&[core]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_crate_that_tags_its_own_module_keeps_helpers_but_not_closures() {
        let tagged = step(User, APP, SYNC);
        assert_eq!(of(&[step(User, APP, None), tagged]), SYNC);
        assert_eq!(of(&[closure(step(User, APP, None)), tagged]), None);
        assert_eq!(of(&[closure(step(User, APP, SYNC)), tagged]), SYNC);
        let helper_crate = step(User, RT, None);
        let caller = step(User, APP, None);
        assert_eq!(of(&[helper_crate, tagged]), SYNC);
        assert_eq!(of(&[helper_crate, tagged, caller]), SYNC);
    }

    #[test]
    fn a_crate_that_is_called_back_does_its_own_work() {
        let tagged = step(User, RT, SYNC);
        let task = step(User, APP, None);
        assert_eq!(of(&[task, tagged, task]), None);
        assert_eq!(of(&[step(User, RT, None), tagged, task]), SYNC);
    }
}
