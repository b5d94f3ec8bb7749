//! Links that are used once: to claim the first account, to set a new password, to accept an invitation.
//!
//! A link carries a secret of 256 bits, of which only the digest is kept. A link that is shown where it is
//! made has its digest here. One that is mailed has none: its secret is made when the mail leaves
//! ([`crate::outbox`]), and the outbox has the digest, under the key that [`Link::notice_key`] names.
//!
//! What a link is used for and that it was used are one transaction: a crash leaves the link as it was or its
//! work done, and of any number of callers with the same link one has used it.

use sealog_core::id::{Hash, TenantId, Uuid};
use sealog_store::pool::Payer;

use crate::account::Account;
use crate::control::{Answer, Changed, Control};
use crate::db::{Db, DbError, Lock, Row, Table, all, count, one, params, table};
use crate::error::ChangeError;
use crate::membership::{self, Grants, Member, Membership, NewMember};
use crate::outbox::{self, NewNotice};
use crate::person::{self, NewPerson, Person, PersonId};
use crate::person_record::PersonRecords;
use crate::record::{self, NewRecord, Records};
use crate::role::Role;
use crate::{closed, sent, session, tenant};

/// Links to a new password that were mailed to a person and work at a time.
pub const RESETS_MAX: usize = 3;

impl Control {
    /// Keeps a link, with the notice that mails it if it is mailed. Links of the same kind for the same
    /// person, or for the same address in the same tenant, are worth nothing any more; of links to a new
    /// password that are mailed the newest [`RESETS_MAX`] work, since mails overtake each other and anybody
    /// can ask for one. Nothing, and no record, when there is no such person or tenant. A link of a person
    /// can concern several tenants, so each record names its own.
    pub fn create_link(
        &self,
        link: Link,
        notice: Option<NewNotice>,
        records: Vec<(TenantId, NewRecord)>,
    ) -> Answer<'_, Option<()>> {
        self.change(Lock::Order, move |db| {
            if !create(db, &link, notice)? {
                return Ok(None);
            }
            record::insert_all(db, &records).map(Some)
        })
    }

    /// A link that is neither used nor over, by the digest of its secret. An invitation whose sender is no
    /// member any more is over.
    pub fn link(&self, secret: Hash, now_ms: u64) -> Answer<'_, Option<Link>> {
        self.read_for(Payer::Stranger, move |db| find(db, secret, now_ms))
    }

    /// Whether there is a link by which somebody could still claim this account.
    pub fn has_claim(&self, person_id: PersonId, now_ms: u64) -> Answer<'_, bool> {
        self.read(move |db| {
            let sql =
                format!("{} WHERE person_id = ?1 AND purpose = 'claim' AND expires_at_ms > ?2", LINKS.select);
            Ok(one(db, &sql, params![person_id, now_ms], read)?.is_some())
        })
    }

    /// The invitations of a tenant that are neither accepted nor over, as [`Links::link`] has it, in the
    /// order in which they were made, at most so many.
    pub fn invitations(&self, tenant_id: TenantId, now_ms: u64, limit: usize) -> Answer<'_, Vec<Link>> {
        self.read(move |db| {
            let sql = format!("{} WHERE {} ORDER BY number LIMIT ?3", LINKS.select, open());
            all(db, &sql, params![tenant_id, now_ms, limit], read)
        })
    }

    /// Keeps an invitation, and the notice that mails it if it is mailed, on behalf of somebody who may give
    /// these roles. It takes the place of one of the same tenant to the same address, of which `records` are
    /// told, if that is for one of these roles, too. A tenant has at most `open_max` at a time. Refused,
    /// too, where the sender it names is no member who may give its role: what was looked up before the
    /// transaction may be over.
    pub fn invite(
        &self,
        link: Link,
        notice: Option<NewNotice>,
        may_give: Vec<Role>,
        open_max: u64,
        records: Records<Link>,
    ) -> Answer<'_, Invited> {
        let room = self.tenant_room();
        let made: Answer<'_, _> = self.change_of_tenant(Lock::Order, move |db| {
            let Some(invitation) = link.purpose.invitation().cloned() else {
                return Err(DbError::Refused("the link is not an invitation".into()));
            };
            let Invitation { tenant_id, email, .. } = &invitation;
            let tenant_id = *tenant_id;
            let sql = format!(
                "{} WHERE tenant_id = ?1 AND email_lower = ?2 AND expires_at_ms > ?3 AND {}",
                LINKS.select,
                sent::sender_stays("?3")
            );
            let before = all(db, &sql, params![tenant_id, email.to_lowercase(), link.created_at_ms], read)?;
            let not_made = |value| Ok(Some(Changed { tenant_id, value, records: Vec::new() }));
            if !before.iter().all(|replaced| replaced.is_for(&may_give))
                || !may_send(db, &invitation, link.created_at_ms)?
            {
                return not_made(Invited::Refused);
            }
            let sql = format!("SELECT count(*) AS count FROM {{links}} WHERE {}", open());
            let open = count(db, &sql, params![tenant_id, link.created_at_ms])?;
            if before.is_empty() && open >= open_max {
                return not_made(Invited::TooMany);
            }
            let made = create(db, &link, notice)?;
            room.check(db, tenant_id)?;
            let records = records.tell(before.first(), &link);
            Ok(made.then_some(Changed { tenant_id, value: Invited::Done, records }))
        });
        Box::pin(async move { Ok(made.await?.unwrap_or(Invited::Missing)) })
    }

    /// Takes an invitation of a tenant back, on behalf of somebody who may give these roles.
    pub fn withdraw_invitation(
        &self,
        tenant_id: TenantId,
        id: Uuid,
        may_give: Vec<Role>,
        records: Vec<NewRecord>,
    ) -> Answer<'_, Invited> {
        let made: Answer<'_, _> = self.change_of_tenant(Lock::Order, move |db| {
            let sql = format!("{} WHERE tenant_id = ?1 AND id = ?2 AND purpose = 'invitation'", LINKS.select);
            let Some(link) = one(db, &sql, params![tenant_id, id], read)? else { return Ok(None) };
            if !link.is_for(&may_give) {
                return Ok(Some(Changed { tenant_id, value: Invited::Refused, records: Vec::new() }));
            }
            db.execute("DELETE FROM {links} WHERE id = ?1", params![id])?;
            Ok(Some(Changed { tenant_id, value: Invited::Done, records }))
        });
        Box::pin(async move { Ok(made.await?.unwrap_or(Invited::Missing)) })
    }

    /// The person of a claim gets an address and a password. `Err(AlreadyExists)` if another has the address.
    pub fn claim(
        &self,
        secret: Hash,
        now_ms: u64,
        owner: Claimed,
        records: Records<Person>,
    ) -> Answer<'_, Option<Person>, ChangeError> {
        self.change_of_tenant(Lock::Order, move |db| {
            let Some(link) = take(db, secret, now_ms, |purpose| matches!(purpose, Purpose::Claim { .. }))?
            else {
                return Ok(None);
            };
            let Purpose::Claim { tenant_id, person_id } = link.purpose else { return Ok(None) };
            let person = person::set_account(db, person_id, &owner.email, &owner.password_hash)?;
            session::end_all::<Person>(db, person_id, None)?;
            let Some(person) = person else { return Ok(None) };
            let records = records.tell(None, &person);
            Ok(Some(Changed { tenant_id, value: person, records }))
        })
    }

    /// A new password, which ends all sessions of the person and all other links to a new password.
    pub fn reset_password(
        &self,
        secret: Hash,
        now_ms: u64,
        password_hash: String,
        records: PersonRecords,
    ) -> Answer<'_, Option<Person>> {
        self.change(Lock::Order, move |db| {
            let Some(link) = take(db, secret, now_ms, |purpose| matches!(purpose, Purpose::Reset { .. }))?
            else {
                return Ok(None);
            };
            let Purpose::Reset { person_id } = link.purpose else { return Ok(None) };
            person::set_password(db, person_id, &password_hash)?;
            session::end_all::<Person>(db, person_id, None)?;
            let sql = "DELETE FROM {links} WHERE person_id = ?1 AND purpose = 'reset'";
            db.execute(sql, params![person_id])?;
            records.insert(db, person_id)?;
            Person::find(db, person_id)
        })
    }

    /// Makes the person a member who has the address of the invitation, or who gets it here: `Guest`.
    /// `Err(AlreadyExists)` if the person is a member already, if the address belongs to somebody else than
    /// the one who accepts, or if that one was never shown to have it.
    pub fn accept_invitation(
        &self,
        secret: Hash,
        now_ms: u64,
        guest: Guest,
        records: Records<Member>,
    ) -> Answer<'_, Option<Member>, ChangeError> {
        self.change_of_tenant(Lock::Order, move |db| {
            let Some(link) = take(db, secret, now_ms, |purpose| matches!(purpose, Purpose::Invitation(_)))?
            else {
                return Ok(None);
            };
            let Purpose::Invitation(invitation) = link.purpose else { return Ok(None) };
            let (tenant_id, is_mailed) = (invitation.tenant_id, link.digest.is_none());
            let Some(member) = accept(db, invitation, guest, is_mailed, now_ms)? else { return Ok(None) };
            let records = records.tell(None, &member);
            Ok(Some(Changed { tenant_id, value: member, records }))
        })
    }
}

/// What a link opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The owner that the first run made has neither an address nor a password yet.
    Claim {
        tenant_id: TenantId,
        person_id: PersonId,
    },
    Reset {
        person_id: PersonId,
    },
    Invitation(Invitation),
}

impl Purpose {
    fn as_str(&self) -> &'static str {
        match self {
            Purpose::Claim { .. } => "claim",
            Purpose::Reset { .. } => "reset",
            Purpose::Invitation(_) => "invitation",
        }
    }

    fn tenant_id(&self) -> Option<TenantId> {
        match self {
            Purpose::Claim { tenant_id, .. } => Some(*tenant_id),
            Purpose::Reset { .. } => None,
            Purpose::Invitation(invitation) => Some(invitation.tenant_id),
        }
    }

    fn person_id(&self) -> Option<PersonId> {
        match self {
            Purpose::Claim { person_id, .. } | Purpose::Reset { person_id } => Some(*person_id),
            Purpose::Invitation(_) => None,
        }
    }

    fn invitation(&self) -> Option<&Invitation> {
        match self {
            Purpose::Invitation(invitation) => Some(invitation),
            _ => None,
        }
    }
}

/// The membership that whoever has the address may accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    pub tenant_id: TenantId,
    pub email: String,
    pub role: Role,
    pub grants: Grants,
    /// Of the membership.
    pub ends_at_ms: Option<u64>,
    /// Who has sent it; nothing of those that were sent before that was kept.
    pub invited_by: Option<PersonId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Chosen by the caller from randomness.
    pub id: Uuid,
    /// Of the secret; nothing for a link that is mailed.
    pub digest: Option<Hash>,
    pub purpose: Purpose,
    pub created_at_ms: u64,
    pub expires_at_ms: u64,
}

const NOTICE_KEY: &str = "link/";

impl Link {
    /// The key of the notice that mails it.
    pub fn notice_key(&self) -> String {
        format!("{NOTICE_KEY}{}", self.id)
    }

    /// Whether it invites for one of these roles.
    fn is_for(&self, roles: &[Role]) -> bool {
        self.purpose.invitation().is_some_and(|invitation| roles.contains(&invitation.role))
    }
}

/// What became of a change of invitations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invited {
    Done,
    /// There is no such tenant, or no such invitation.
    Missing,
    /// An invitation for a role that the one who asks may not give stays as it is.
    Refused,
    /// There are as many as a tenant may have open at a time.
    TooMany,
}

/// What an owner chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub email: String,
    pub password_hash: String,
}

/// Who accepts an invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guest {
    /// Somebody who has no account. The address is theirs if the link was mailed to it.
    New { id: PersonId, password_hash: String },
    /// Somebody who is signed in.
    Known(PersonId),
}

const LINKS: Table = table!(
    "links",
    "id",
    "id, digest, purpose, person_id, tenant_id, email, email_lower, role, projects, from_ms, until_ms, \
     ends_at_ms, invited_by, created_at_ms, expires_at_ms"
);

/// Invitations of the tenant `?1` that are open at `?2`.
fn open() -> String {
    format!(
        "tenant_id = ?1 AND purpose = 'invitation' AND expires_at_ms > ?2 AND {}",
        sent::sender_stays("?2")
    )
}

/// Whether the sender is a member who may give its role. There may be none that is known.
fn may_send(db: &mut dyn Db, invitation: &Invitation, now_ms: u64) -> Result<bool, DbError> {
    let Some(by) = invitation.invited_by else { return Ok(true) };
    let sender = membership::find(db, invitation.tenant_id, by)?.map(|member| member.membership);
    Ok(sender.is_some_and(|sender| !sender.has_ended(now_ms) && sender.role.may_give(invitation.role)))
}

pub(crate) fn create(db: &mut dyn Db, link: &Link, notice: Option<NewNotice>) -> Result<bool, DbError> {
    db.execute("DELETE FROM {links} WHERE expires_at_ms <= ?1", params![link.created_at_ms])?;
    let replaced = match &link.purpose {
        Purpose::Claim { person_id, .. } | Purpose::Reset { person_id } => {
            if Person::find(db, *person_id)?.is_none() {
                return Ok(false);
            }
            // Only the host makes a link with a digest, and means it to be the only one.
            let is_mailed_reset = link.digest.is_none() && matches!(link.purpose, Purpose::Reset { .. });
            let kept = if is_mailed_reset { RESETS_MAX - 1 } else { 0 };
            let sql = "DELETE FROM {links} WHERE person_id = ?1 AND purpose = ?2 AND id NOT IN
                       (SELECT id FROM {links} WHERE person_id = ?1 AND purpose = ?2 ORDER BY number DESC LIMIT ?3)";
            db.execute(sql, params![*person_id, link.purpose.as_str(), kept])
        }
        Purpose::Invitation(Invitation { tenant_id, email, .. }) => {
            if tenant::find(db, *tenant_id)?.is_none() {
                return Ok(false);
            }
            let sql = "DELETE FROM {links} WHERE tenant_id = ?1 AND email_lower = ?2";
            db.execute(sql, params![*tenant_id, email.to_lowercase()])
        }
    };
    replaced?;
    insert(db, link)?;
    if let Some(notice) = notice {
        outbox::enqueue(db, NewNotice { key: link.notice_key(), ..notice })?;
    }
    Ok(true)
}

fn insert(db: &mut dyn Db, link: &Link) -> Result<(), DbError> {
    let invitation = link.purpose.invitation();
    let email = invitation.map(|invitation| invitation.email.clone());
    let grants = invitation.map(|invitation| invitation.grants.clone()).unwrap_or_default();
    LINKS
        .insert(
            db,
            params![
                link.id,
                link.digest,
                link.purpose.as_str(),
                link.purpose.person_id(),
                link.purpose.tenant_id(),
                &email,
                email.as_deref().map(str::to_lowercase),
                invitation.map(|invitation| invitation.role.as_str()),
                membership::project_ids(&grants),
                grants.from_ms,
                grants.until_ms,
                invitation.and_then(|invitation| invitation.ends_at_ms),
                invitation.and_then(|invitation| invitation.invited_by),
                link.created_at_ms,
                link.expires_at_ms,
            ],
            "",
        )
        .map(drop)
}

/// By the digest that is here, or by that of the mail that it left with.
fn find(db: &mut dyn Db, secret: Hash, now_ms: u64) -> Result<Option<Link>, DbError> {
    let (select, stays) = (LINKS.select, sent::sender_stays("?2"));
    let sql = format!("{select} WHERE digest = ?1 AND expires_at_ms > ?2 AND {stays}");
    if let Some(link) = one(db, &sql, params![secret, now_ms], read)? {
        return Ok(Some(link));
    }
    let mailed = outbox::key_by_secret(db, secret)?;
    let id = mailed.as_deref().and_then(|key| key.strip_prefix(NOTICE_KEY)).and_then(Uuid::parse);
    let Some(id) = id else { return Ok(None) };
    let sql = format!("{select} WHERE id = ?1 AND digest IS NULL AND expires_at_ms > ?2 AND {stays}");
    one(db, &sql, params![id, now_ms], read)
}

/// Uses a link up. Of another kind it stays as it was.
fn take(
    db: &mut dyn Db,
    secret: Hash,
    now_ms: u64,
    is_kind: impl FnOnce(&Purpose) -> bool,
) -> Result<Option<Link>, DbError> {
    let Some(link) = find(db, secret, now_ms)?.filter(|link| is_kind(&link.purpose)) else { return Ok(None) };
    let was_there = db.execute("DELETE FROM {links} WHERE id = ?1", params![link.id])? > 0;
    outbox::spend(db, secret)?;
    Ok(was_there.then_some(link))
}

fn accept(
    db: &mut dyn Db,
    invitation: Invitation,
    guest: Guest,
    is_mailed: bool,
    now_ms: u64,
) -> Result<Option<Member>, DbError> {
    let Invitation { tenant_id, email, role, grants, ends_at_ms, invited_by: _ } = invitation;
    if closed::is_closed(db, tenant_id)? {
        return Ok(None);
    }
    let owner = Person::by_email(db, &email)?.map(|(person, _)| person);
    match (guest, owner) {
        (Guest::New { id, password_hash }, None) => {
            let person = NewPerson {
                id,
                email,
                password_hash: Some(password_hash),
                // A link that was shown says nothing about who has the address.
                verified: is_mailed,
                created_at_ms: now_ms,
            };
            let new = NewMember { tenant_id, person, role, grants, ends_at_ms, created_at_ms: now_ms };
            membership::add(db, new)
        }
        (Guest::Known(person_id), Some(person)) if person.id == person_id && person.verified => {
            let membership =
                Membership { tenant_id, person_id, role, grants, ends_at_ms, created_at_ms: now_ms };
            if membership::insert(db, &membership)? == 0 {
                return Err(DbError::AlreadyExists);
            }
            Ok(Some(Member { person, membership }))
        }
        _ => Err(DbError::AlreadyExists),
    }
}

fn read(row: &Row) -> Result<Link, DbError> {
    let purpose = match row.get::<String>("purpose")?.as_str() {
        "claim" => Purpose::Claim { tenant_id: row.get("tenant_id")?, person_id: row.get("person_id")? },
        "reset" => Purpose::Reset { person_id: row.get("person_id")? },
        "invitation" => Purpose::Invitation(Invitation {
            tenant_id: row.get("tenant_id")?,
            email: row.get("email")?,
            role: row.word("role", &Role::ALL, Role::as_str)?,
            grants: membership::read_grants(row)?,
            ends_at_ms: row.get("ends_at_ms")?,
            invited_by: row.get("invited_by")?,
        }),
        other => return Err(crate::db::damaged("purpose", &format!("has the unknown word {other:?}"))),
    };
    Ok(Link {
        id: row.get("id")?,
        digest: row.get("digest")?,
        purpose,
        created_at_ms: row.get("created_at_ms")?,
        expires_at_ms: row.get("expires_at_ms")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<Link>, DbError> {
    LINKS.all(db, read)
}

pub(crate) fn import(db: &mut dyn Db, links: &[Link]) -> Result<(), DbError> {
    links.iter().try_for_each(|link| insert(db, link))
}
