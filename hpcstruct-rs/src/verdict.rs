//! Which overhead category a piece of code has, decided over its chain of inlined scopes.
//!
//! The chain is walked from the innermost frame outwards, the procedure last. The first tagged
//! frame wins, unless user code lies between it and the instruction: within a runtime's or the
//! standard library's tagged code a frame of another crate, and anywhere a closure that is not
//! tagged itself, is the work of a task. Frames of the standard libraries are transparent. C has no crates: there only
//! lambdas and function objects are such a boundary.

use crate::frames::Frame;
use hpc_formats::structure::{Origin, StringId};

/// One step of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// The frame.
    pub(crate) frame: Frame,
    /// Tag of the source file in which this frame makes the call that leads inwards; `None`
    /// without such a tag and for the innermost frame, whose own line is judged apart.
    pub(crate) call_tag: Option<StringId>,
}

/// The category of code whose innermost frame is the first of `chain`.
pub(crate) fn category(chain: impl Iterator<Item = Step>) -> Option<StringId> {
    let mut user: Option<StringId> = None;
    let mut mixed = false;
    for Step { frame, call_tag } in chain {
        if let Some(tag) = call_tag.or(frame.tag) {
            // In a program's own tagged module every crate's inlined helpers serve the tag.
            let foreign = frame.origin != Origin::User
                && frame.owner.is_some()
                && (mixed || user.is_some_and(|u| Some(u) != frame.owner));
            return (!foreign).then_some(tag);
        }
        if frame.origin == Origin::System {
            continue;
        }
        if frame.is_closure && frame.origin == Origin::User {
            return None;
        }
        if let Some(owner) = frame.owner {
            mixed |= user.is_some_and(|u| u != owner);
            user = Some(owner);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const APP: Option<StringId> = Some(StringId(100));
    const RT: Option<StringId> = Some(StringId(101));
    const STD: Option<StringId> = Some(StringId(102));
    const SYNC: Option<StringId> = Some(StringId(1));
    const SCHED: Option<StringId> = Some(StringId(2));

    fn step(origin: Origin, owner: Option<StringId>, tag: Option<StringId>) -> Step {
        Step {
            frame: Frame {
                name: StringId(0),
                linkage: StringId(0),
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
        step.frame.is_closure = true;
        step
    }

    fn of(chain: &[Step]) -> Option<StringId> {
        category(chain.iter().copied())
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
    fn a_task_that_the_runtime_runs_is_user_work() {
        let tagged = step(Runtime, RT, SCHED);
        assert_eq!(of(&[step(User, APP, None), tagged]), None);
        assert_eq!(
            of(&[step(System, STD, None), step(User, APP, None), tagged]),
            None
        );
        let own_closure = closure(step(Runtime, RT, None));
        assert_eq!(of(&[own_closure, tagged]), SCHED);
        assert_eq!(of(&[step(User, APP, None), own_closure, tagged]), None);
    }

    #[test]
    fn a_crate_that_tags_its_own_module_keeps_helpers_but_not_closures() {
        let tagged = step(User, APP, SYNC);
        assert_eq!(of(&[step(User, APP, None), tagged]), SYNC);
        assert_eq!(of(&[closure(step(User, APP, None)), tagged]), None);
        assert_eq!(of(&[closure(step(User, APP, SYNC)), tagged]), SYNC);
        let helper_crate = step(User, RT, None);
        assert_eq!(of(&[helper_crate, tagged]), SYNC);
    }

    #[test]
    fn c_knows_only_files() {
        let tagged = step(User, None, SYNC);
        let helper = step(User, None, None);
        assert_eq!(of(&[helper, tagged]), SYNC);
        let mut caller = step(User, None, None);
        caller.call_tag = SCHED;
        assert_eq!(of(&[helper, caller]), SCHED);
        assert_eq!(of(&[closure(helper), tagged]), None);
    }
}
