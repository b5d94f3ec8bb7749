//! People as a kind of account: how long their sessions last, and what their organisations demand of them.

use sealog_control::{Membership, NewNotice, Person, PersonId, Role, Room, Session, Wrong};
use sealog_core::id::{Hash, TenantId};

use super::devices::new_device_notice;
use crate::people::organisation::SessionDemands;
use crate::people::password::Asks;
use crate::people::sign_in::{Accounts, Failed, Kind, Terms, Visitor};
use crate::records::system_chain::Wake;

const HOUR_MS: u64 = 60 * 60 * 1000;
/// Without being used.
const IDLE_MS: u64 = 12 * HOUR_MS;
/// In all.
const ABSOLUTE_MS: u64 = 7 * 24 * HOUR_MS;
/// In all, for a person who is an auditor anywhere.
const AUDITOR_MS: u64 = 8 * HOUR_MS;

#[derive(Clone)]
pub struct People {
    /// Tells the drain of the system chains that there are records.
    pub wake: Wake,
}

/// A person who is signed in.
#[derive(Clone, Debug)]
pub struct SignedInPerson {
    pub session: Session<Person>,
    pub person: Person,
    /// Those that have not ended.
    pub memberships: Vec<Membership>,
    /// One of the organisations needs an authenticator, and the person has none: nothing else is to be done
    /// before there is one.
    pub must_enrol: Option<TenantId>,
}

impl Kind for People {
    type Account = Person;
    type Who = SignedInPerson;
    const ATTEMPTS: &'static str = "";
    const STRANGER: Asks = Asks::Stranger;

    fn session(who: &SignedInPerson) -> &Session<Person> {
        &who.session
    }

    fn account(who: &SignedInPerson) -> &Person {
        &who.person
    }

    async fn terms(accounts: &Accounts<People>, id: PersonId) -> Result<Terms, Failed> {
        let memberships = accounts.memberships(id).await?;
        let demands = accounts.demands(id, &memberships).await?;
        let (idle_ms, lasts_ms) = lengths_ms(&memberships, &demands);
        Ok(Terms { idle_ms, lasts_ms, room: room_of(&memberships) })
    }

    async fn who(
        accounts: &Accounts<People>,
        session: Session<Person>,
        person: Person,
    ) -> Result<Option<SignedInPerson>, Failed> {
        let now_ms = accounts.world.now_ms();
        let memberships = accounts.memberships(person.id).await?;
        // The person may have become an auditor, or an organisation have changed its rules, since it began.
        let demands = accounts.demands(person.id, &memberships).await?;
        let (idle_ms, lasts_ms) = lengths_ms(&memberships, &demands);
        let is_over = now_ms.saturating_sub(session.created_at_ms) >= lasts_ms
            // How long it may be unused without that is kept with the session.
            || demands.idle_ms.is_some() && now_ms.saturating_sub(session.last_seen_at_ms) >= idle_ms;
        if is_over {
            return Ok(None);
        }
        let must_enrol = match demands.totp_required_by {
            Some(tenant_id) => {
                let factor = accounts.control.second_factor::<Person>(person.id).await?;
                Some(tenant_id).filter(|_| !factor.is_some_and(|factor| factor.is_confirmed))
            }
            None => None,
        };
        Ok(Some(SignedInPerson { session, person, memberships, must_enrol }))
    }

    fn failed(accounts: &Accounts<People>, person: Option<&Person>, what: Wrong, visitor: &Visitor) {
        accounts.note_failure(person.map(|person| person.id), what, visitor);
    }

    async fn signed_in(
        accounts: &Accounts<People>,
        person: &Person,
        with_code: bool,
        _: &Visitor,
    ) -> Result<(), Failed> {
        accounts.record_sign_in(person.id, with_code).await
    }

    fn new_browser_notice(
        person: &Person,
        device: Hash,
        now_ms: u64,
        visitor: &Visitor,
    ) -> Option<NewNotice> {
        Some(new_device_notice(person, device, now_ms, visitor))
    }
}

impl Accounts<People> {
    /// The organisation, of those that the person is a member of, that needs an authenticator.
    pub async fn authenticator_required_by(&self, who: &SignedInPerson) -> Result<Option<TenantId>, Failed> {
        Ok(self.demands(who.person.id, &who.memberships).await?.totp_required_by)
    }

    /// Those that have not ended.
    async fn memberships(&self, id: PersonId) -> Result<Vec<Membership>, Failed> {
        let now_ms = self.world.now_ms();
        let mut memberships = self.control.memberships(id).await?;
        memberships.retain(|membership| !membership.has_ended(now_ms));
        Ok(memberships)
    }

    async fn demands(&self, id: PersonId, memberships: &[Membership]) -> Result<SessionDemands, Failed> {
        let settings = self.control.settings_for(id, SessionDemands::NAMES.to_vec()).await?;
        Ok(SessionDemands::of(&settings, memberships))
    }
}

/// Without being used, and in all.
fn lengths_ms(memberships: &[Membership], demands: &SessionDemands) -> (u64, u64) {
    let audits = memberships.iter().any(|membership| membership.role == Role::Auditor);
    let lasts_ms = if audits { AUDITOR_MS } else { ABSOLUTE_MS };
    let lasts_ms = demands.absolute_ms.map_or(lasts_ms, |wanted_ms| wanted_ms.min(lasts_ms));
    let idle_ms = demands.idle_ms.map_or(IDLE_MS, |wanted_ms| wanted_ms.min(IDLE_MS));
    (idle_ms.min(lasts_ms), lasts_ms)
}

/// What a person may use of a full disk to sign in: a person who can revoke a key gets in.
pub(super) fn room_of(memberships: &[Membership]) -> Room {
    let may_revoke = memberships.iter().any(|known| matches!(known.role, Role::Owner | Role::Admin));
    if may_revoke { Room::Reserve } else { Room::Ordinary }
}
