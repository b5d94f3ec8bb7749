//! How operators sign in: a password, and always a code.

use sealog_control::Control;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sealog_control::{Code, OpsUser, Room, Session, Shown};
use sealog_core::id::Hash;
use sealog_store::world::World;

use crate::Secret;
use crate::password::{self, Asks};
use crate::people::totp::{self, SECRET_BYTES};
use crate::people::{
    CodeError, Failed, Limit, Offer, PasswordError, Refused, SignInCounts, SignInError, Throttle, Token,
    Visitor, check_chosen, offer, subject,
};

const MINUTE_MS: u64 = 60 * 1000;
/// Between a right password and the code that has to follow it.
const CODE_MS: u64 = 10 * MINUTE_MS;
/// Shorter than those of people: what is open here is open for all tenants.
const IDLE_MS: u64 = 30 * MINUTE_MS;
const ABSOLUTE_MS: u64 = 8 * 60 * MINUTE_MS;
/// How exactly it is known when a session was last used: each use would be a write otherwise.
const SEEN_EVERY_MS: u64 = MINUTE_MS;

/// What is done for operators who come through a browser.
#[derive(Clone)]
pub struct OpsAccounts {
    control: Arc<Control>,
    world: Arc<dyn World>,
    refused: Arc<Refused>,
    counts: Arc<SignInCounts>,
}

/// Who is signed in, with a code or still without one.
#[derive(Clone)]
pub struct SignedInOperator {
    pub session: Session<OpsUser>,
    pub user: OpsUser,
}

impl SignedInOperator {
    /// Whether a code was shown: nothing is open before.
    pub fn is_whole(&self) -> bool {
        !self.session.needs_code && self.user.is_enrolled()
    }
}

/// Why a link has not set a password.
#[derive(Debug)]
pub enum EnrolError {
    /// Unknown, used or over.
    Gone,
    TooMany,
    Password(PasswordError),
    Failed(Failed),
}

impl<E: Into<Failed>> From<E> for EnrolError {
    fn from(error: E) -> EnrolError {
        EnrolError::Failed(error.into())
    }
}

impl OpsAccounts {
    pub fn new(control: Arc<Control>, world: Arc<dyn World>) -> OpsAccounts {
        OpsAccounts { control, world, refused: Arc::default(), counts: Arc::default() }
    }

    /// Sets the password by a link that the host has made. The session that it begins asks for the
    /// authenticator, and opens nothing else.
    pub async fn enrol(
        &self,
        link: &Token,
        password: Secret,
        visitor: &Visitor,
    ) -> Result<Token, EnrolError> {
        check_chosen(&password, "").map_err(EnrolError::Password)?;
        self.throttle()
            .admit(&[Limit::of_account_at("ops link", "", visitor.address)], self.world.now_ms())
            .await
            .map_err(|error| match error {
                SignInError::Failed(failed) => EnrolError::Failed(failed),
                SignInError::TooMany | SignInError::Wrong | SignInError::Busy => EnrolError::TooMany,
            })?;
        let hash = password::hash(&*self.world, password).await?;
        let enrolled = self.control.enrol_ops_user(link.digest(), self.world.now_ms(), hash.clone()).await?;
        let user = enrolled.ok_or(EnrolError::Gone)?;
        tracing::info!(operator = %user.id.0, address = %visitor.address, "an operator has set a password by a link");
        self.begin_half(&user, hash, visitor, None).await?.ok_or(EnrolError::Gone)
    }

    /// A right password: a session that opens nothing until a code was shown.
    pub async fn sign_in(
        &self,
        email: &str,
        password: Secret,
        visitor: &Visitor,
        replaces: Option<&Token>,
    ) -> Result<Token, SignInError> {
        let email = email.trim();
        // Not by the day: the console knows no browsers, and a stranger would keep every operator out.
        let limits = [
            Limit::of_account_at("ops account", email, visitor.address),
            Limit::of_address("ops address", visitor.address),
        ];
        self.throttle().admit(&limits, self.world.now_ms()).await?;
        let known = self.control.account_by_email::<OpsUser>(email.to_owned()).await?;
        let (user, hash) = known.map_or((None, None), |(user, hash)| (Some(user), hash));
        // Whatever is known of the account, before anything is said of it. The console has a listener of its
        // own, and operators do not wait behind those who sign in to the dashboard.
        let checked = password::verify(hash.clone(), password, Asks::Known).await;
        let is_right = checked.map_err(SignInError::unchecked)?;
        let (Some(user), Some(hash)) = (user, hash.filter(|_| is_right)) else {
            self.counts.wrong_passwords.fetch_add(1, Ordering::Relaxed);
            // Where from, and not what was typed: that may be a password.
            tracing::warn!(address = %visitor.address, "somebody failed to sign in as an operator");
            return Err(SignInError::Wrong);
        };
        self.throttle().was_right(&limits).await?;
        // The password was changed, or the account removed, while it was being checked.
        let token = self.begin_half(&user, hash, visitor, replaces.map(Token::digest)).await?;
        token.ok_or(SignInError::Wrong)
    }

    /// Of whoever has no authenticator yet: what it has to be told. It counts from its first code on.
    pub fn offered(&self, who: &SignedInOperator) -> Option<Offer> {
        let secret = who.user.secret.as_ref().filter(|_| !who.user.is_enrolled())?;
        Some(offer(&who.user.email, secret))
    }

    /// The code beside the password, which also confirms an authenticator that is new. With the session that
    /// takes the place of the one that asked for it.
    pub async fn check_code(
        &self,
        asked: &SignedInOperator,
        code: &str,
        visitor: &Visitor,
    ) -> Result<Token, CodeError> {
        let (user, now_ms) = (&asked.user, self.world.now_ms());
        let attempts = Limit::of_one(subject("ops code", &user.id.0.0));
        self.throttle().admit(&[attempts], now_ms).await.map_err(|error| match error {
            SignInError::Failed(failed) => CodeError::Failed(failed),
            SignInError::TooMany | SignInError::Wrong | SignInError::Busy => CodeError::TooMany,
        })?;
        let secret = user.secret.clone().ok_or(CodeError::NotNow)?;
        let Some(step) = totp::step_of(&secret, code, now_ms) else {
            return Err(self.wrong_code(user, visitor));
        };
        let token = Token::new(&*self.world);
        let session = session(&token, user, now_ms, visitor, false);
        let shown = Shown::Code { asked_by: asked.session.token_digest, code: Code::Step { secret, step } };
        if !self.control.begin_session(session, shown, Room::Reserve).await? {
            return Err(self.wrong_code(user, visitor));
        }
        self.throttle().forget(attempts).await?;
        let enrolled = !user.is_enrolled();
        tracing::info!(operator = %user.id.0, address = %visitor.address, enrolled, "an operator signed in");
        Ok(token)
    }

    /// Who this token belongs to, if to anybody now; also whoever still has to show a code.
    pub async fn find(&self, token: &Token) -> Result<Option<SignedInOperator>, Failed> {
        let now_ms = self.world.now_ms();
        let Some(session) = self.control.session(token.digest(), now_ms).await? else {
            return Ok(None);
        };
        let Some(user) = self.control.account(session.account_id).await? else { return Ok(None) };
        if now_ms.saturating_sub(session.last_seen_at_ms) >= SEEN_EVERY_MS {
            self.control.touch_session::<OpsUser>(session.token_digest, now_ms).await?;
        }
        Ok(Some(SignedInOperator { session, user }))
    }

    pub async fn sign_out(&self, token: &Token) -> Result<(), Failed> {
        Ok(self.control.end_session::<OpsUser>(token.digest()).await?)
    }

    async fn begin_half(
        &self,
        user: &OpsUser,
        hash: String,
        visitor: &Visitor,
        replaces: Option<Hash>,
    ) -> Result<Option<Token>, Failed> {
        if !user.is_enrolled() && user.secret.is_none() {
            let mut secret = vec![0; SECRET_BYTES];
            self.world.fill_random(&mut secret);
            self.control.offer_ops_authenticator(user.id, secret).await?;
        }
        let token = Token::new(&*self.world);
        let session = session(&token, user, self.world.now_ms(), visitor, true);
        let shown = Shown::Password { hash, replaces };
        Ok(self.control.begin_session(session, shown, Room::Reserve).await?.then_some(token))
    }

    fn wrong_code(&self, user: &OpsUser, visitor: &Visitor) -> CodeError {
        self.counts.wrong_codes.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(operator = %user.id.0, address = %visitor.address, "a wrong code for an operator's account");
        CodeError::Wrong
    }

    fn throttle(&self) -> Throttle<'_> {
        Throttle { control: &self.control, refused: &self.refused, counts: &self.counts }
    }
}

fn session(
    token: &Token,
    user: &OpsUser,
    now_ms: u64,
    visitor: &Visitor,
    needs_code: bool,
) -> Session<OpsUser> {
    let lasts_ms = if needs_code { CODE_MS } else { ABSOLUTE_MS };
    Session {
        token_digest: token.digest(),
        account_id: user.id,
        needs_code,
        created_at_ms: now_ms,
        expires_at_ms: now_ms.saturating_add(lasts_ms),
        last_seen_at_ms: now_ms,
        idle_ms: IDLE_MS.min(lasts_ms),
        address: Some(visitor.address.to_string()),
        user_agent: None,
    }
}
