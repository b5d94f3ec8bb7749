//! Sessions: how they begin, whose a token is, and how they end.

use sealog_control::{Account, Session, Shown};
use sealog_store::StoreError;

use super::accounts::{Accounts, Failed, Kind, Terms, Visitor};
use super::token::Token;

const MINUTE_MS: u64 = 60 * 1000;
/// Between a right password and the code that has to follow it.
const CODE_MS: u64 = 10 * MINUTE_MS;
/// How exactly it is known when a session was last used: each use would be a write otherwise.
const SEEN_EVERY_MS: u64 = MINUTE_MS;
/// Most that is kept of what a browser says of itself.
const USER_AGENT_SCALARS_MAX: usize = 200;

impl<K: Kind> Accounts<K> {
    /// Whose token this is now. Also for a session that still needs a code: see [`Session::needs_code`].
    pub async fn find(&self, token: &Token) -> Result<Option<K::Who>, Failed> {
        let Some(who) = self.look(token).await? else { return Ok(None) };
        let (session, now_ms) = (K::session(&who), self.world.now_ms());
        if now_ms.saturating_sub(session.last_seen_at_ms) >= SEEN_EVERY_MS {
            match self.control.touch_session::<K::Account>(session.token_digest, now_ms).await {
                // A full disk ends no session: the use of it is not noted.
                Err(StoreError::NoRoom) => {}
                touched => touched?,
            }
        }
        Ok(Some(who))
    }

    /// As [`Accounts::find`], without counting as use of the session.
    pub async fn look(&self, token: &Token) -> Result<Option<K::Who>, Failed> {
        let Some(session) = self.control.session(token.digest(), self.world.now_ms()).await? else {
            return Ok(None);
        };
        let Some(account) = self.control.account(session.account_id).await? else { return Ok(None) };
        let who = K::who(self, session, account).await?;
        if who.is_none() {
            self.sign_out(token).await?;
        }
        Ok(who)
    }

    pub async fn sign_out(&self, token: &Token) -> Result<(), Failed> {
        Ok(self.control.end_session::<K::Account>(token.digest()).await?)
    }

    /// Begins a session, if what was shown for it still holds.
    pub(crate) async fn begin_session(
        &self,
        id: <K::Account as Account>::Id,
        visitor: &Visitor,
        needs_code: bool,
        shown: Shown,
    ) -> Result<Option<Token>, Failed> {
        let Terms { idle_ms, lasts_ms, room } = K::terms(self, id).await?;
        let lasts_ms = if needs_code { CODE_MS } else { lasts_ms };
        let (token, now_ms) = (Token::new(&*self.world), self.world.now_ms());
        let user_agent = visitor.user_agent.as_ref();
        let session = Session::<K::Account> {
            token_digest: token.digest(),
            account_id: id,
            needs_code,
            created_at_ms: now_ms,
            expires_at_ms: now_ms.saturating_add(lasts_ms),
            last_seen_at_ms: now_ms,
            idle_ms: idle_ms.min(lasts_ms),
            address: Some(visitor.address.to_string()),
            user_agent: user_agent.map(|text| text.chars().take(USER_AGENT_SCALARS_MAX).collect()),
        };
        Ok(self.control.begin_session(session, shown, room).await?.then_some(token))
    }
}
