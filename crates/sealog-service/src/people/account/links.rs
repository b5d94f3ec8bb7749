//! Links by which people get an account, a membership or a new password.
//!
//! The secret stands behind the `#` of a link: a browser sends it to no server and into no `Referer`, so it
//! is in no log. The page submits it in a form.

use std::sync::Arc;

use sealog_control::{
    ChangeError, Claimed, Control, Guest, Invitation, Invited, Link, Member, NewNotice, Person, PersonId,
    Purpose, Records, Role,
};
use sealog_core::id::{TenantId, Uuid};
use sealog_core::time::iso_ms;
use sealog_store::world::World;
use serde_json::{Value, json};

use super::kind::People;
use super::passwords::{PasswordError, check_chosen};
use super::records::about_member;
use crate::people::contact::Text;
use crate::people::contact::is_address;
use crate::people::organisation;
use crate::people::password;
use crate::people::sign_in::{Accounts, Failed, Limit, Token, Visitor, subject};
use crate::records::system_chain::{Actor, Recorder, actions};
use crate::secret::Secret;

const HOUR_MS: u64 = 60 * 60 * 1000;
pub const CLAIM_MS: u64 = 24 * HOUR_MS;
pub const RESET_MS: u64 = HOUR_MS;
pub const INVITATION_MS: u64 = 7 * 24 * HOUR_MS;
/// Invitations of one organisation that are open at a time; the page of members shows them all.
pub const INVITATIONS_MAX: u64 = 100;
/// Mails in an hour: nobody's address is flooded, by one organisation or by several, and no organisation
/// sends to the whole world.
const INVITATIONS_PER_ADDRESS: u64 = 5;
const INVITATIONS_PER_TENANT: u64 = 50;
const RESETS_PER_ADDRESS: u64 = 5;
/// The address of the owner that the first run makes, until somebody has claimed the account.
pub const OWNER: &str = "owner@localhost";

/// Names of templates in the outbox.
pub const RESET: &str = "reset";
pub const INVITATION: &str = "invitation";

#[derive(Debug)]
pub enum LinkError {
    /// Unknown, used, over, or for something else.
    Gone,
    /// The address is none that mail can be sent to.
    Email,
    /// Somebody else has the address.
    Taken,
    Password(PasswordError),
    /// As many mails as may be sent in an hour, to this address or for this organisation.
    TooManyMails,
    /// The organisation has settled on addresses of other domains.
    Domain,
    Failed(Failed),
}

#[derive(Debug)]
pub enum InvitationError {
    Gone,
    /// Somebody has an account with this address: that person has to sign in and accept.
    NeedsSignIn,
    /// The one who is signed in has another address, or has never shown to have this one.
    NotYours,
    AlreadyMember,
    /// The organisation has settled on addresses of other domains since.
    Domain,
    Password(PasswordError),
    Failed(Failed),
}

impl<E: Into<Failed>> From<E> for LinkError {
    fn from(error: E) -> LinkError {
        LinkError::Failed(error.into())
    }
}

impl<E: Into<Failed>> From<E> for InvitationError {
    fn from(error: E) -> InvitationError {
        InvitationError::Failed(error.into())
    }
}

/// What became of the wish for a new password, as far as anybody may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// If there is such an account, a mail is on its way.
    Accepted,
    TooMany,
}

impl Accounts<People> {
    pub async fn claim(&self, token: &Token, email: &str, password: Secret) -> Result<Person, LinkError> {
        let email = email.trim().to_owned();
        if !is_address(&email) || email.eq_ignore_ascii_case(OWNER) {
            return Err(LinkError::Email);
        }
        check_chosen(&password, &email).map_err(LinkError::Password)?;
        self.expect(token, |purpose| matches!(purpose, Purpose::Claim { .. })).await?;
        let password_hash = password::hash(&*self.world, password).await?;
        let claimed = Claimed { email, password_hash };
        let accounts = self.clone();
        let records = Records::told_by(move |_, person: &Person| {
            let resource = format!("member/{}", person.id.0);
            vec![accounts.recorder(person.id).record(&actions::ACCOUNT_CLAIMED, &resource, json!({}))]
        });
        let made = self.control.claim(token.digest(), self.world.now_ms(), claimed, records).await;
        self.kind.wake.wake();
        match made {
            Ok(person) => person.ok_or(LinkError::Gone),
            Err(ChangeError::AlreadyExists) => Err(LinkError::Taken),
            Err(ChangeError::Store(error)) => Err(error.into()),
        }
    }

    /// Somebody says to have lost a password. What is said in return takes as long whoever it is: the mail is
    /// left to a task of its own.
    pub async fn request_reset(&self, email: &str, visitor: &Visitor) -> Result<Reset, Failed> {
        let email = email.trim().to_owned();
        let account = Limit::of_one(subject("reset", email.to_lowercase().as_bytes()));
        if !self.admits(&[account, Limit::of_address("address", visitor.address)]).await? {
            return Ok(Reset::TooMany);
        }
        let accounts = self.clone();
        tokio::spawn(async move {
            if let Err(Failed(error)) = accounts.mail_reset(email).await {
                tracing::error!(%error, "failed to queue a password link");
            }
        });
        Ok(Reset::Accepted)
    }

    async fn mail_reset(&self, email: String) -> Result<(), Failed> {
        let Some((person, _)) = self.control.person_by_email(email).await? else { return Ok(()) };
        if !is_address(&person.email) {
            return Ok(());
        }
        let limit = (subject("reset mail", person.email.to_lowercase().as_bytes()), RESETS_PER_ADDRESS);
        if !self.is_within([limit], HOUR_MS).await? {
            tracing::info!("did not mail a password link; the address has reached its hourly limit");
            return Ok(());
        }
        let now_ms = self.world.now_ms();
        let link = Link {
            id: new_id(&*self.world),
            digest: None,
            purpose: Purpose::Reset { person_id: person.id },
            created_at_ms: now_ms,
            expires_at_ms: now_ms.saturating_add(RESET_MS),
        };
        let notice = NewNotice {
            key: link.notice_key(),
            tenant_id: None,
            person_id: Some(person.id),
            to: person.email,
            template: RESET.into(),
            parameters: json!({}).to_string(),
            created_at_ms: now_ms,
        };
        self.control.create_link(link, Some(notice), Vec::new()).await?;
        Ok(())
    }

    pub async fn reset_password(
        &self,
        token: &Token,
        password: Secret,
        visitor: &Visitor,
    ) -> Result<Person, LinkError> {
        let purpose = self.expect(token, |purpose| matches!(purpose, Purpose::Reset { .. })).await?;
        let Purpose::Reset { person_id } = purpose else { return Err(LinkError::Gone) };
        let person = self.control.person(person_id).await?.ok_or(LinkError::Gone)?;
        check_chosen(&password, &person.email).map_err(LinkError::Password)?;
        let password_hash = password::hash(&*self.world, password).await?;
        let now_ms = self.world.now_ms();
        let records = self.records(person_id, &actions::PASSWORD_CHANGED, json!({ "by": "link" }));
        let person = self.control.reset_password(token.digest(), now_ms, password_hash, records).await?;
        self.kind.wake.wake();
        let person = person.ok_or(LinkError::Gone)?;
        // Whoever has guessed at the old password does not keep its owner out.
        for limit in self.strangers_limits(&person.email, visitor) {
            self.forget(limit).await?;
        }
        Ok(person)
    }

    /// Before a password is hashed for it: whoever makes links up costs no more than a look.
    async fn expect(&self, token: &Token, is_kind: fn(&Purpose) -> bool) -> Result<Purpose, LinkError> {
        let link = self.control.link(token.digest(), self.world.now_ms()).await?;
        link.map(|link| link.purpose).filter(is_kind).ok_or(LinkError::Gone)
    }

    /// Mails an invitation, on behalf of a member who may give these roles; or, on a server without mail
    /// (`is_shown`), returns the token of its link ([`invitation_url`]), which is to be shown once. An
    /// earlier one to the same address is withdrawn, if it is for one of them.
    pub async fn invite(
        &self,
        by: PersonId,
        may_give: Vec<Role>,
        invitation: Invitation,
        organisation: &str,
        is_shown: bool,
    ) -> Result<(Invited, Option<Token>), LinkError> {
        if !is_address(&invitation.email) {
            return Err(LinkError::Email);
        }
        if !self.allows(&invitation).await? {
            return Err(LinkError::Domain);
        }
        let whose = invitation.email.to_lowercase();
        let limits = [
            (subject("invitation mail", whose.as_bytes()), INVITATIONS_PER_ADDRESS),
            (subject("invitations of", &invitation.tenant_id.0.0), INVITATIONS_PER_TENANT),
        ];
        if !self.is_within(limits, HOUR_MS).await? {
            return Err(LinkError::TooManyMails);
        }
        let now_ms = self.world.now_ms();
        let invitation = Invitation { invited_by: Some(by), ..invitation };
        let (tenant_id, email, role) = (invitation.tenant_id, invitation.email.clone(), invitation.role);
        let shown = is_shown.then(|| Token::new(&*self.world));
        let link = Link {
            id: new_id(&*self.world),
            digest: shown.as_ref().map(Token::digest),
            purpose: Purpose::Invitation(invitation),
            created_at_ms: now_ms,
            expires_at_ms: now_ms.saturating_add(INVITATION_MS),
        };
        let notice = NewNotice {
            key: link.notice_key(),
            tenant_id: Some(tenant_id),
            person_id: None,
            to: email,
            template: INVITATION.into(),
            parameters: json!({ "organisation": organisation }).to_string(),
            created_at_ms: now_ms,
        };
        let recorder = self.recorder(by);
        let records = Records::told_by(move |replaced: Option<&Link>, link: &Link| {
            let withdrawn = replaced.map(|replaced| {
                let resource = invitation_resource(replaced.id);
                recorder.record(&actions::INVITATION_WITHDRAWN, &resource, json!({}))
            });
            let metadata = json!({ "role": role.as_str() });
            let invited = recorder.record(&actions::MEMBER_INVITED, &invitation_resource(link.id), metadata);
            withdrawn.into_iter().chain([invited]).collect()
        });
        let notice = shown.is_none().then_some(notice);
        let made = self.control.invite(link, notice, may_give, INVITATIONS_MAX, records).await?;
        self.kind.wake.wake();
        Ok((made, shown))
    }

    /// Takes an invitation of an organisation back, on behalf of a member who may give these roles.
    pub async fn withdraw(
        &self,
        by: PersonId,
        may_give: Vec<Role>,
        tenant_id: TenantId,
        id: Uuid,
    ) -> Result<Invited, Failed> {
        let resource = invitation_resource(id);
        let records = vec![self.recorder(by).record(&actions::INVITATION_WITHDRAWN, &resource, json!({}))];
        let withdrawn = self.control.withdraw_invitation(tenant_id, id, may_give, records).await?;
        self.kind.wake.wake();
        Ok(withdrawn)
    }

    /// The invitation that a token stands for, and whether somebody has an account with its address.
    pub async fn invitation(&self, token: &Token) -> Result<Option<(Invitation, bool)>, Failed> {
        let link = self.control.link(token.digest(), self.world.now_ms()).await?;
        let Some(Purpose::Invitation(invitation)) = link.map(|link| link.purpose) else { return Ok(None) };
        let known = self.control.person_by_email(invitation.email.clone()).await?.is_some();
        Ok(Some((invitation, known)))
    }

    /// Somebody without an account.
    pub async fn accept_as_new(&self, token: &Token, password: Secret) -> Result<Member, InvitationError> {
        let (invitation, known) = self.invitation(token).await?.ok_or(InvitationError::Gone)?;
        check_chosen(&password, &invitation.email).map_err(InvitationError::Password)?;
        if known {
            return Err(InvitationError::NeedsSignIn);
        }
        if !self.allows(&invitation).await? {
            return Err(InvitationError::Domain);
        }
        let password_hash = password::hash(&*self.world, password).await?;
        let guest = Guest::New { id: PersonId(new_id(&*self.world)), password_hash };
        self.accept(token, guest, InvitationError::NeedsSignIn).await
    }

    /// Somebody who is signed in.
    pub async fn accept_as(&self, token: &Token, person: &Person) -> Result<Member, InvitationError> {
        let (invitation, _) = self.invitation(token).await?.ok_or(InvitationError::Gone)?;
        if invitation.email.to_lowercase() != person.email.to_lowercase() || !person.verified {
            return Err(InvitationError::NotYours);
        }
        if !self.allows(&invitation).await? {
            return Err(InvitationError::Domain);
        }
        self.accept(token, Guest::Known(person.id), InvitationError::AlreadyMember).await
    }

    /// Whether the organisation takes people with such an address.
    async fn allows(&self, invitation: &Invitation) -> Result<bool, Failed> {
        let domains = self.control.setting(invitation.tenant_id, organisation::EMAIL_DOMAINS.into()).await?;
        let domains = domains.as_deref().map(organisation::domains).unwrap_or_default();
        Ok(organisation::allows(&domains, &invitation.email))
    }

    async fn accept(
        &self,
        token: &Token,
        guest: Guest,
        if_exists: InvitationError,
    ) -> Result<Member, InvitationError> {
        let now_ms = self.world.now_ms();
        let accounts = self.clone();
        let records = Records::told_by(move |_, member: &Member| {
            let (person_id, role) = (member.person.id, member.membership.role);
            let resource = format!("member/{}", person_id.0);
            let metadata = json!({ "role": role.as_str(), "by": "invitation" });
            vec![accounts.recorder(person_id).record(&actions::MEMBER_ADDED, &resource, metadata)]
        });
        let made = self.control.accept_invitation(token.digest(), now_ms, guest, records).await;
        self.kind.wake.wake();
        match made {
            Ok(member) => member.ok_or(InvitationError::Gone),
            Err(ChangeError::AlreadyExists) => Err(if_exists),
            Err(ChangeError::Store(error)) => Err(error.into()),
        }
    }
}

/// The link with which the owner that the first run makes is claimed, and what is kept of it.
pub fn claim_link(
    world: &dyn World,
    app_url: &str,
    tenant_id: TenantId,
    person_id: PersonId,
) -> (Link, Secret) {
    let token = Token::new(world);
    let now_ms = world.now_ms();
    let link = Link {
        id: new_id(world),
        digest: Some(token.digest()),
        purpose: Purpose::Claim { tenant_id, person_id },
        created_at_ms: now_ms,
        expires_at_ms: now_ms.saturating_add(CLAIM_MS),
    };
    (link, url(app_url, "claim", &token))
}

/// A link that was made on the host, for the one who sees it there.
#[derive(Debug)]
pub struct HostLink {
    pub url: Secret,
    pub expires_at_ms: u64,
    /// It claims the account of the first owner, and is no link to a new password.
    pub is_claim: bool,
}

/// A link to a new password for whoever has this address, for a command on the host where there is no mail;
/// or, for an owner whom nobody has claimed yet, another link to claim the account. Nothing when there is no
/// such person. Whoever has the link has the account, so the system chains of all of the person's
/// organisations tell of it.
pub async fn make_reset_link(
    control: &Control,
    world: &Arc<dyn World>,
    app_url: &str,
    email: &str,
) -> Result<Option<HostLink>, Failed> {
    let Some((person, hash)) = control.person_by_email(email.trim().to_owned()).await? else {
        return Ok(None);
    };
    let is_claim = person.email == OWNER && hash.is_none();
    let (link, url) = if is_claim {
        let Some(owned) = control.memberships(person.id).await?.into_iter().next() else { return Ok(None) };
        claim_link(&**world, app_url, owned.tenant_id, person.id)
    } else {
        reset_link(&**world, app_url, person.id)
    };
    let expires_at_ms = link.expires_at_ms;
    let recorder = Recorder::new(Actor::Host, Arc::clone(world));
    let metadata = json!({ "expires_at": iso_ms(expires_at_ms) });
    let records = about_member(control, &recorder, person.id, &actions::RESET_LINK_MADE, metadata).await?;
    let made = control.create_link(link, None, records).await?;
    Ok(made.map(|()| HostLink { url, expires_at_ms, is_claim }))
}

fn reset_link(world: &dyn World, app_url: &str, person_id: PersonId) -> (Link, Secret) {
    let (token, now_ms) = (Token::new(world), world.now_ms());
    let link = Link {
        id: new_id(world),
        digest: Some(token.digest()),
        purpose: Purpose::Reset { person_id },
        created_at_ms: now_ms,
        expires_at_ms: now_ms.saturating_add(RESET_MS),
    };
    (link, url(app_url, "reset", &token))
}

pub(crate) fn invitation_resource(id: Uuid) -> String {
    format!("invitation/{id}")
}

/// The link of an invitation that is shown instead of mailed.
pub fn invitation_url(app_url: &str, token: &Token) -> Secret {
    url(app_url, "invitation", token)
}

fn url(app_url: &str, page: &str, token: &Token) -> Secret {
    Secret(format!("{app_url}/{page}#{}", token.0.0))
}

fn new_id(world: &dyn World) -> Uuid {
    let mut bytes = [0; 16];
    world.fill_random(&mut bytes);
    Uuid::from_random(bytes)
}

/// The mails, with the secret that was made for them.
pub(crate) fn reset_text(app_url: &str, token: &Token) -> Text {
    let link = url(app_url, "reset", token);
    Text {
        subject: "Set a new password for Sealog".into(),
        body: format!(
            "We received a request for a new password for your account at {app_url}.

Set it here within an hour:

{}

The link works once. If you did not ask for it, ignore this e-mail. Your password stays the same.
",
            link.0
        ),
    }
}

pub(crate) fn invitation_text(parameters: &Value, app_url: &str, token: &Token) -> Option<Text> {
    // A name is one line, whatever was put into it.
    let name = parameters["organisation"].as_str()?;
    let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let link = invitation_url(app_url, token);
    Some(Text {
        subject: format!("{name} invites you to Sealog"),
        body: format!(
            "{name} invites you to its audit event log at {app_url}.

Accept the invitation here within seven days:

{}

The link works once. If you did not expect this invitation, ignore this e-mail.
",
            link.0
        ),
    })
}
