//! Memberships: what a person is in a tenant, and what the person may see there.

use sealog_core::id::{ProjectId, TenantId, Uuid};

use crate::control::{Answer, Changed, Control, set};
use crate::db::{
    Db, DbError, ListPage, Lock, Room, Row, Table, Value, all, count, damaged, one, params, readable,
};
use crate::error::ChangeError;
use crate::person::{self, NewPerson, Person, PersonId};
use crate::record::Records;
use crate::role::Role;
use crate::{closed, sent, session, tenant};

impl Control {
    /// Makes a person a member. An e-mail address that somebody has, in any case, adds a membership to that
    /// person, of whom nothing else is changed. `Err(AlreadyExists)` if that person is a member of the
    /// tenant. Nothing when there is no such tenant, or it was closed.
    pub fn add_member(
        &self,
        new: NewMember,
        records: Records<Member>,
    ) -> Answer<'_, Option<Member>, ChangeError> {
        let room = self.tenant_room();
        self.change_of_tenant(Lock::Order, move |db| {
            let Some(member) = add(db, new)? else { return Ok(None) };
            room.check(db, member.membership.tenant_id)?;
            let records = records.tell(None, &member);
            Ok(Some(Changed { tenant_id: member.membership.tenant_id, value: member, records }))
        })
    }

    /// Nothing when the person is no member of the tenant. A tenant that has an owner whose membership does
    /// not end keeps one, unless it was closed. A person whose last membership ends by it has no sessions any
    /// more. Invitations that the person has sent and may not send any more are withdrawn, and so are all of
    /// a membership that had ended.
    pub fn update_member(
        &self,
        tenant_id: TenantId,
        person_id: PersonId,
        change: MemberChange,
        records: Records<Updated>,
    ) -> Answer<'_, Option<MemberChanged>> {
        let ends =
            matches!(change.ends_at_ms, Some(Some(_))) && change.role.is_none() && change.grants.is_none();
        let room = if ends { Room::Reserve } else { Room::Ordinary };
        self.change_of_tenant_in(room, Lock::Order, move |db| {
            let Some(before) = find(db, tenant_id, person_id)? else { return Ok(None) };
            let now_ms = change.now_ms;
            let value = update(db, &before, change)?;
            let records = match &value {
                MemberChanged::Done(after) => {
                    let withdrawn = withdraw(db, &before.membership, &after.membership, now_ms)?;
                    let before = Updated { member: before, withdrawn: Vec::new() };
                    records.tell(Some(&before), &Updated { member: after.clone(), withdrawn })
                }
                MemberChanged::NotGiven | MemberChanged::LastOwner | MemberChanged::Closed => Vec::new(),
            };
            Ok(Some(Changed { tenant_id, value, records }))
        })
    }

    pub fn member(&self, tenant_id: TenantId, person_id: PersonId) -> Answer<'_, Option<Member>> {
        self.read(move |db| find(db, tenant_id, person_id))
    }

    /// By the ids of their persons, in the order in which they became members; those whose membership has
    /// ended included.
    pub fn members(&self, tenant_id: TenantId, page: ListPage) -> Answer<'_, Vec<Member>> {
        self.read(move |db| MEMBERS.page(db, Some(("tenant_id", tenant_id.into())), page, read_member))
    }

    /// The addresses of those among these persons who are members of the tenant, or were.
    pub fn member_addresses(
        &self,
        tenant_id: TenantId,
        person_ids: Vec<PersonId>,
    ) -> Answer<'_, Vec<(PersonId, String)>> {
        self.read(move |db| {
            if person_ids.is_empty() {
                return Ok(Vec::new());
            }
            let places: Vec<String> = (0..person_ids.len()).map(|at| format!("?{}", at + 2)).collect();
            let sql = format!(
                "SELECT id, email FROM {{persons}} WHERE id IN ({})
                 AND id IN (SELECT person_id FROM {{memberships}} WHERE tenant_id = ?1)",
                places.join(", ")
            );
            let tenant = Value::from(tenant_id);
            let params: Vec<Value> =
                [tenant].into_iter().chain(person_ids.into_iter().map(Value::from)).collect();
            all(db, &sql, &params, |row| Ok((row.get("id")?, row.get("email")?)))
        })
    }

    /// Those with one of these roles whose membership has not ended, in the order in which they became
    /// members.
    pub fn members_with_roles(
        &self,
        tenant_id: TenantId,
        roles: Vec<Role>,
        now_ms: u64,
        limit: usize,
    ) -> Answer<'_, Vec<Member>> {
        self.read(move |db| {
            // Words of ours, none of anybody else's.
            let roles: Vec<String> = roles.into_iter().map(|role| format!("'{}'", role.as_str())).collect();
            if roles.is_empty() {
                return Ok(Vec::new());
            }
            let sql = format!(
                "{} WHERE tenant_id = ?1 AND (ends_at_ms IS NULL OR ends_at_ms > ?2) AND role IN ({})
                 ORDER BY memberships.number LIMIT ?3",
                MEMBERS.select,
                roles.join(", ")
            );
            all(db, &sql, params![tenant_id, now_ms, limit], read_member)
        })
    }

    /// All of a person's, in the order in which they began.
    pub fn memberships(&self, person_id: PersonId) -> Answer<'_, Vec<Membership>> {
        self.read(move |db| {
            let sql = format!("{} WHERE person_id = ?1 ORDER BY memberships.number", MEMBERS.select);
            all(db, &sql, params![person_id], read)
        })
    }
}

/// What a member may see. Everything, unless something narrows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Nothing for all of them, also those to come.
    pub projects: Option<Vec<ProjectId>>,
    /// Events from this time on.
    pub from_ms: Option<u64>,
    /// Events before this time.
    pub until_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMember {
    pub tenant_id: TenantId,
    /// What is used of it if somebody has the address is the address alone.
    pub person: NewPerson,
    pub role: Role,
    pub grants: Grants,
    /// From when on the person is no member any more.
    pub ends_at_ms: Option<u64>,
    pub created_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub tenant_id: TenantId,
    pub person_id: PersonId,
    pub role: Role,
    pub grants: Grants,
    pub ends_at_ms: Option<u64>,
    pub created_at_ms: u64,
}

impl Membership {
    /// An organisation always keeps one.
    fn is_lasting_owner(&self) -> bool {
        self.role == Role::Owner && self.ends_at_ms.is_none()
    }

    pub fn has_ended(&self, now_ms: u64) -> bool {
        self.ends_at_ms.is_some_and(|end| end <= now_ms)
    }
}

/// A membership with the person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub person: Person,
    pub membership: Membership,
}

/// A member, and what a change has done besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Updated {
    pub member: Member,
    /// Invitations that the person had sent.
    pub withdrawn: Vec<Uuid>,
}

/// Each field is left alone unless it is given; an inner `None` clears it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberChange {
    pub role: Option<Role>,
    pub grants: Option<Grants>,
    pub ends_at_ms: Option<Option<u64>>,
    /// The roles that whoever asks may give and take; nothing for all.
    pub may_give: Option<Vec<Role>>,
    pub now_ms: u64,
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChanged {
    Done(Member),
    /// The role that the member has, or is to have, is not for the one who asks to give.
    NotGiven,
    /// Nobody else is an owner whose membership does not end.
    LastOwner,
    /// The tenant was closed: memberships end there, and none begins again.
    Closed,
}

const MEMBERS: Table = Table {
    select: "SELECT tenant_id, person_id, role, projects, from_ms, until_ms, ends_at_ms, memberships.created_at_ms AS since_ms,
                    email, verified, persons.created_at_ms AS person_since_ms
             FROM {memberships} JOIN {persons} ON persons.id = person_id",
    columns: "tenant_id, person_id, role, projects, from_ms, until_ms, ends_at_ms, created_at_ms",
    table: "memberships",
    id: "person_id",
};

pub(crate) fn add(db: &mut dyn Db, new: NewMember) -> Result<Option<Member>, DbError> {
    if tenant::find(db, new.tenant_id)?.is_none() || closed::is_closed(db, new.tenant_id)? {
        return Ok(None);
    }
    let NewMember { tenant_id, person, role, grants, ends_at_ms, created_at_ms } = new;
    let person = person::find_or_create(db, person)?;
    let membership = Membership { tenant_id, person_id: person.id, role, grants, ends_at_ms, created_at_ms };
    if insert(db, &membership)? == 0 {
        return Err(DbError::AlreadyExists);
    }
    Ok(Some(Member { person, membership }))
}

pub(crate) fn insert(db: &mut dyn Db, membership: &Membership) -> Result<u64, DbError> {
    let Membership { tenant_id, person_id, role, grants, ends_at_ms, created_at_ms } = membership;
    MEMBERS.insert(
        db,
        params![
            *tenant_id,
            *person_id,
            role.as_str(),
            project_ids(grants),
            grants.from_ms,
            grants.until_ms,
            *ends_at_ms,
            *created_at_ms,
        ],
        "ON CONFLICT (person_id, tenant_id) DO NOTHING",
    )
}

fn update(db: &mut dyn Db, before: &Member, change: MemberChange) -> Result<MemberChanged, DbError> {
    let Membership { tenant_id, person_id, .. } = before.membership;
    let mut member = before.clone();
    let membership = &mut member.membership;
    set(&mut membership.role, change.role);
    set(&mut membership.grants, change.grants);
    set(&mut membership.ends_at_ms, change.ends_at_ms);
    let given = change.may_give.as_ref();
    let may_give = |role| given.is_none_or(|given| given.contains(&role));
    if !may_give(before.membership.role) || !may_give(membership.role) {
        return Ok(MemberChanged::NotGiven);
    }
    let is_closed = closed::is_closed(db, tenant_id)?;
    if is_closed && !membership.has_ended(change.now_ms) {
        return Ok(MemberChanged::Closed);
    }
    if !is_closed && before.membership.is_lasting_owner() && !membership.is_lasting_owner() {
        let sql = "SELECT count(*) AS count FROM {memberships}
                   WHERE tenant_id = ?1 AND person_id <> ?2 AND role = 'owner' AND ends_at_ms IS NULL";
        if count(db, sql, params![tenant_id, person_id])? == 0 {
            return Ok(MemberChanged::LastOwner);
        }
    }
    let Membership { role, grants, ends_at_ms, .. } = membership;
    db.execute(
        "UPDATE {memberships} SET role = ?3, projects = ?4, from_ms = ?5, until_ms = ?6, ends_at_ms = ?7
         WHERE tenant_id = ?1 AND person_id = ?2",
        params![
            tenant_id,
            person_id,
            role.as_str(),
            project_ids(grants),
            grants.from_ms,
            grants.until_ms,
            *ends_at_ms,
        ],
    )?;
    if member.membership.has_ended(change.now_ms) && tenants_of(db, person_id, change.now_ms)?.is_empty() {
        session::end_all::<Person>(db, person_id, None)?;
    }
    Ok(MemberChanged::Done(member))
}

/// Auditors in the order in which their memberships end: see [`crate::ending`].
pub(crate) fn auditors_ending(db: &mut dyn Db, params: &[Value]) -> Result<Vec<Member>, DbError> {
    let sql = format!(
        "{} WHERE ends_at_ms <= ?3 AND (ends_at_ms, person_id) >= (?1, ?2) AND role = 'auditor'
         ORDER BY ends_at_ms, person_id, tenant_id LIMIT ?4",
        MEMBERS.select
    );
    readable(db, &sql, params, read_member)
}

/// What the person has sent for roles that are not theirs to give any more, or all of it where the membership
/// has ended: one that begins again brings nothing back.
fn withdraw(
    db: &mut dyn Db,
    before: &Membership,
    after: &Membership,
    now_ms: u64,
) -> Result<Vec<Uuid>, DbError> {
    let has_ended = before.has_ended(now_ms) || after.has_ended(now_ms);
    let lost = Role::ALL.into_iter().filter(|given| has_ended || !after.role.may_give(*given));
    let lost: Vec<&str> = lost.map(Role::as_str).collect();
    sent::withdraw(db, after.tenant_id, after.person_id, &lost)
}

/// Where somebody is a member, in the order in which that began.
pub(crate) fn tenants_of(
    db: &mut dyn Db,
    person_id: PersonId,
    now_ms: u64,
) -> Result<Vec<TenantId>, DbError> {
    let sql = "SELECT tenant_id FROM {memberships}
               WHERE person_id = ?1 AND (ends_at_ms IS NULL OR ends_at_ms > ?2) ORDER BY number";
    all(db, sql, params![person_id, now_ms], |row| row.get("tenant_id"))
}

pub(crate) fn find(
    db: &mut dyn Db,
    tenant_id: TenantId,
    person_id: PersonId,
) -> Result<Option<Member>, DbError> {
    let sql = format!("{} WHERE tenant_id = ?1 AND person_id = ?2", MEMBERS.select);
    one(db, &sql, params![tenant_id, person_id], read_member)
}

/// A JSON array of ids, or nothing for all projects.
pub(crate) fn project_ids(grants: &Grants) -> Value {
    let ids = |projects: &Vec<ProjectId>| projects.iter().map(ProjectId::to_string).collect::<Vec<_>>();
    grants.projects.as_ref().map_or(Value::Null, |projects| crate::db::names(&ids(projects)))
}

fn read_member(row: &Row) -> Result<Member, DbError> {
    let person = Person {
        id: row.get("person_id")?,
        email: row.get("email")?,
        verified: row.get("verified")?,
        created_at_ms: row.get("person_since_ms")?,
    };
    Ok(Member { person, membership: read(row)? })
}

pub(crate) fn read_grants(row: &Row) -> Result<Grants, DbError> {
    let projects = match row.get::<Option<String>>("projects")? {
        None => None,
        Some(_) => {
            let ids = row.names("projects")?.into_iter().map(|id| Uuid::parse(&id).map(ProjectId));
            Some(
                ids.collect::<Option<_>>()
                    .ok_or_else(|| damaged("projects", "has something that is no id"))?,
            )
        }
    };
    Ok(Grants { projects, from_ms: row.get("from_ms")?, until_ms: row.get("until_ms")? })
}

fn read(row: &Row) -> Result<Membership, DbError> {
    Ok(Membership {
        tenant_id: row.get("tenant_id")?,
        person_id: row.get("person_id")?,
        role: row.word("role", &Role::ALL, Role::as_str)?,
        grants: read_grants(row)?,
        ends_at_ms: row.get("ends_at_ms")?,
        created_at_ms: row.get("since_ms")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<Membership>, DbError> {
    MEMBERS.all(db, read)
}

pub(crate) fn import(db: &mut dyn Db, memberships: &[Membership]) -> Result<(), DbError> {
    memberships.iter().try_for_each(|membership| insert(db, membership).map(drop))
}
