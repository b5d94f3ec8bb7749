//! Sessions: how long they last, and who is behind a token.

use sealog_control::{Membership, Person, PersonId, Role, Room, Session, Shown};
use sealog_core::id::TenantId;

use super::accounts::{Accounts, Failed, Visitor};
use super::token::Token;
use crate::organisation::SessionDemands;

const MINUTE_MS: u64 = 60 * 1000;
/// Between a right password and the code that has to follow it.
const CODE_MS: u64 = 10 * MINUTE_MS;
/// How exactly it is known when a session was last used: each use would be a write otherwise.
const SEEN_EVERY_MS: u64 = MINUTE_MS;
/// Most that is kept of what a browser says of itself.
const USER_AGENT_SCALARS_MAX: usize = 200;

/// Who is signed in.
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

impl Accounts {
    /// Who this token belongs to, if to anybody now. Also whoever still has to show a code: see
    /// [`Session::needs_code`].
    pub async fn find(&self, token: &Token) -> Result<Option<SignedInPerson>, Failed> {
        let Some(who) = self.look(token).await? else { return Ok(None) };
        let now_ms = self.world.now_ms();
        if now_ms.saturating_sub(who.session.last_seen_at_ms) >= SEEN_EVERY_MS {
            self.control.touch_session::<Person>(who.session.token_digest, now_ms).await?;
        }
        Ok(Some(who))
    }

    /// As [`Accounts::find`], without counting as use of the session.
    pub async fn look(&self, token: &Token) -> Result<Option<SignedInPerson>, Failed> {
        let now_ms = self.world.now_ms();
        let Some(session) = self.control.session(token.digest(), now_ms).await? else { return Ok(None) };
        let Some(person) = self.control.person(session.account_id).await? else { return Ok(None) };
        let mut memberships = self.control.memberships(person.id).await?;
        memberships.retain(|membership| !membership.has_ended(now_ms));
        // Somebody may have become an auditor, or an organisation have settled on something else, since it
        // began.
        let demands = self.demands(person.id, &memberships).await?;
        let (idle_ms, lasts_ms) = self.lengths_ms(&memberships, &demands);
        let is_over = now_ms.saturating_sub(session.created_at_ms) >= lasts_ms
            // How long it may be unused without that is kept with the session.
            || demands.idle_ms.is_some() && now_ms.saturating_sub(session.last_seen_at_ms) >= idle_ms;
        if is_over {
            self.control.end_session::<Person>(session.token_digest).await?;
            return Ok(None);
        }
        let must_enrol = match demands.totp_required_by {
            Some(tenant_id) => {
                let authenticator = self.control.authenticator(person.id).await?;
                let has_one = authenticator.is_some_and(|authenticator| authenticator.is_confirmed());
                Some(tenant_id).filter(|_| !has_one)
            }
            None => None,
        };
        Ok(Some(SignedInPerson { session, person, memberships, must_enrol }))
    }

    /// The organisation, of those that the person is a member of, that needs an authenticator.
    pub async fn authenticator_required_by(&self, who: &SignedInPerson) -> Result<Option<TenantId>, Failed> {
        Ok(self.demands(who.person.id, &who.memberships).await?.totp_required_by)
    }

    async fn demands(
        &self,
        person_id: PersonId,
        memberships: &[Membership],
    ) -> Result<SessionDemands, Failed> {
        let settings = self.control.settings_for(person_id, SessionDemands::NAMES.to_vec()).await?;
        Ok(SessionDemands::of(&settings, memberships))
    }

    /// Without being used, and in all.
    fn lengths_ms(&self, memberships: &[Membership], demands: &SessionDemands) -> (u64, u64) {
        let lasts_ms = self.rules.lasts_ms(memberships);
        let lasts_ms = demands.absolute_ms.map_or(lasts_ms, |wanted_ms| wanted_ms.min(lasts_ms));
        let idle_ms =
            demands.idle_ms.map_or(self.rules.idle_ms, |wanted_ms| wanted_ms.min(self.rules.idle_ms));
        (idle_ms.min(lasts_ms), lasts_ms)
    }

    pub async fn sign_out(&self, token: &Token) -> Result<(), Failed> {
        Ok(self.control.end_session::<Person>(token.digest()).await?)
    }

    /// Begins a session, if what was shown for it still holds.
    pub(super) async fn begin_session(
        &self,
        person_id: PersonId,
        visitor: &Visitor,
        needs_code: bool,
        shown: Shown,
    ) -> Result<Option<Token>, Failed> {
        let now_ms = self.world.now_ms();
        let mut memberships = self.control.memberships(person_id).await?;
        memberships.retain(|membership| !membership.has_ended(now_ms));
        let demands = self.demands(person_id, &memberships).await?;
        let (idle_ms, lasts_ms) = self.lengths_ms(&memberships, &demands);
        let lasts_ms = if needs_code { CODE_MS } else { lasts_ms };
        let token = Token::new(&*self.world);
        let user_agent = visitor.user_agent.as_ref();
        let session = Session::<Person> {
            token_digest: token.digest(),
            account_id: person_id,
            needs_code,
            created_at_ms: now_ms,
            expires_at_ms: now_ms.saturating_add(lasts_ms),
            last_seen_at_ms: now_ms,
            idle_ms: idle_ms.min(lasts_ms),
            address: Some(visitor.address.to_string()),
            user_agent: user_agent.map(|text| text.chars().take(USER_AGENT_SCALARS_MAX).collect()),
        };
        Ok(self.control.begin_session(session, shown, room_of(&memberships)).await?.then_some(token))
    }
}

/// What somebody may use of a full disk to sign in: whoever can revoke a key gets in.
pub(super) fn room_of(memberships: &[Membership]) -> Room {
    let may_revoke = memberships.iter().any(|known| matches!(known.role, Role::Owner | Role::Admin));
    if may_revoke { Room::Reserve } else { Room::Ordinary }
}
