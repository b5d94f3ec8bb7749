//! The states of a case, and what may follow what: one table.

use sealog_control::{Case, CaseState};

use CaseState::{
    Approved, Closed, Delivered, Extended, IdentityCheck, InProgress, Paused, Received, Refused, Review,
    Withdrawn,
};

/// What a step asks for besides a person and a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// The identity of the requester is confirmed: nothing is disclosed before.
    Identity,
    /// Also how the answer went.
    Delivery,
    /// A ground, which the requester is told.
    Ground,
    /// A reason that the law names, and a requester who was told within the first period.
    Extension,
    /// The clock goes on in the state in which it stopped.
    SameState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    pub from: CaseState,
    pub to: CaseState,
    pub needs: Needs,
}

const fn step(from: CaseState, to: CaseState, needs: Needs) -> Transition {
    Transition { from, to, needs }
}

/// In the order in which they are offered: the way forward first.
pub static TRANSITIONS: &[Transition] = &[
    step(Received, IdentityCheck, Needs::Nothing),
    step(Received, InProgress, Needs::Identity),
    step(Received, Paused, Needs::Nothing),
    step(Received, Extended, Needs::Extension),
    step(Received, Refused, Needs::Ground),
    step(Received, Withdrawn, Needs::Nothing),
    step(IdentityCheck, InProgress, Needs::Identity),
    step(IdentityCheck, Paused, Needs::Nothing),
    step(IdentityCheck, Extended, Needs::Extension),
    step(IdentityCheck, Refused, Needs::Ground),
    step(IdentityCheck, Withdrawn, Needs::Nothing),
    step(InProgress, Review, Needs::Nothing),
    step(InProgress, IdentityCheck, Needs::Nothing),
    step(InProgress, Paused, Needs::Nothing),
    step(InProgress, Extended, Needs::Extension),
    step(InProgress, Refused, Needs::Ground),
    step(InProgress, Withdrawn, Needs::Nothing),
    step(Review, Approved, Needs::Identity),
    step(Review, InProgress, Needs::Nothing),
    step(Review, Paused, Needs::Nothing),
    step(Review, Extended, Needs::Extension),
    step(Review, Refused, Needs::Ground),
    step(Review, Withdrawn, Needs::Nothing),
    step(Approved, Delivered, Needs::Delivery),
    step(Approved, Review, Needs::Nothing),
    step(Approved, Withdrawn, Needs::Nothing),
    step(Extended, Review, Needs::Nothing),
    step(Extended, InProgress, Needs::Identity),
    step(Extended, IdentityCheck, Needs::Nothing),
    step(Extended, Paused, Needs::Nothing),
    step(Extended, Refused, Needs::Ground),
    step(Extended, Withdrawn, Needs::Nothing),
    step(Paused, Received, Needs::SameState),
    step(Paused, IdentityCheck, Needs::SameState),
    step(Paused, InProgress, Needs::SameState),
    step(Paused, Review, Needs::SameState),
    step(Paused, Extended, Needs::SameState),
    step(Paused, Refused, Needs::Ground),
    step(Paused, Withdrawn, Needs::Nothing),
    step(Delivered, Closed, Needs::Nothing),
    step(Refused, Closed, Needs::Nothing),
    step(Withdrawn, Closed, Needs::Nothing),
];

/// The way of a case that nothing happens to.
pub const MAIN_WAY: [CaseState; 7] =
    [Received, IdentityCheck, InProgress, Review, Approved, Delivered, Closed];

pub fn find(from: CaseState, to: CaseState) -> Option<Transition> {
    TRANSITIONS.iter().copied().find(|known| known.from == from && known.to == to)
}

/// Those that lead on from where a case is, whether or not it has what they need.
pub fn from(case: &Case) -> impl Iterator<Item = Transition> + '_ {
    let own = TRANSITIONS.iter().copied().filter(|known| known.from == case.state);
    own.filter(|known| known.needs != Needs::SameState || case.state_before_pause == Some(known.to))
        // An extension is announced once.
        .filter(|known| known.needs != Needs::Extension || case.extension.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_reached_and_only_a_closed_case_stays_as_it_is() {
        for state in CaseState::ALL.iter().copied() {
            let leads_on = TRANSITIONS.iter().any(|known| known.from == state);
            assert_eq!(leads_on, state != Closed, "{state:?}");
            assert!(state == Received || TRANSITIONS.iter().any(|known| known.to == state), "{state:?}");
        }
        for (at, one) in TRANSITIONS.iter().enumerate() {
            assert!(
                !TRANSITIONS[..at].iter().any(|other| (other.from, other.to) == (one.from, one.to)),
                "{one:?}"
            );
            assert_ne!(one.from, one.to);
        }
    }

    #[test]
    fn nothing_leads_to_disclosure_past_the_identity_check() {
        for known in TRANSITIONS.iter().filter(|known| matches!(known.to, Approved | Delivered)) {
            assert!(matches!(known.needs, Needs::Identity | Needs::Delivery), "{known:?}");
        }
        assert_eq!(find(InProgress, Approved), None);
        assert_eq!(find(Review, Delivered), None);
        assert_eq!(find(Closed, Received), None);
    }
}
