//! People: one account by e-mail address, whatever the number of tenants it is a member of.

use sealog_core::id::Hash;

use crate::account::{Account, Tables};
use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Row, Table, one, params, table};

impl Control {
    pub fn person(&self, id: PersonId) -> Answer<'_, Option<Person>> {
        self.account(id)
    }

    /// By e-mail address, in any case; with the hash of the password, if there is one.
    pub fn person_by_email(&self, email: String) -> Answer<'_, Option<(Person, Option<String>)>> {
        self.account_by_email(email)
    }
}

crate::db::id!(PersonId);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPerson {
    pub id: PersonId,
    pub email: String,
    /// argon2id, as a PHC string; control data never sees a password. Nothing until the person has set one.
    pub password_hash: Option<String>,
    /// Whether the address is known to be the person's. Whoever adds memberships has to see to it that one
    /// that is not never joins a second tenant; only the operator may skip that.
    pub verified: bool,
    pub created_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    pub id: PersonId,
    pub email: String,
    pub verified: bool,
    pub created_at_ms: u64,
}

impl Account for Person {
    type Id = PersonId;
    const TABLES: Tables = Tables {
        accounts: "{persons}",
        sessions: "{sessions}",
        devices: "{devices}",
        owner: "person_id",
        authenticators: "{authenticators}",
        holder: "person_id",
    };
    const ALWAYS_NEEDS_CODE: bool = false;

    fn id(&self) -> PersonId {
        self.id
    }

    fn find(db: &mut dyn Db, id: PersonId) -> Result<Option<Person>, DbError> {
        one(db, &format!("{} WHERE id = ?1", PERSONS.select), params![id], read)
    }

    fn by_email(db: &mut dyn Db, email: &str) -> Result<Option<(Person, Option<String>)>, DbError> {
        let sql = format!("{} WHERE email_lower = ?1", PERSONS.select);
        one(db, &sql, params![email.to_lowercase()], |row| Ok((read(row)?, row.get("password_hash")?)))
    }

    fn use_recovery_code(db: &mut dyn Db, id: PersonId, digest: Hash) -> Result<bool, DbError> {
        let sql = "DELETE FROM {recovery_codes} WHERE person_id = ?1 AND digest = ?2";
        Ok(db.execute(sql, params![id, digest])? > 0)
    }
}

const PERSONS: Table =
    table!("persons", "id", "id, email, email_lower, password_hash, verified, created_at_ms");

/// Whoever has the address already is that person, and nothing of it is changed.
pub(crate) fn find_or_create(db: &mut dyn Db, new: NewPerson) -> Result<Person, DbError> {
    if let Some((person, _)) = Person::by_email(db, &new.email)? {
        return Ok(person);
    }
    let NewPerson { id, email, password_hash, verified, created_at_ms } = new;
    let person = Person { id, email, verified, created_at_ms };
    insert(db, &person, password_hash.as_deref())?;
    Ok(person)
}

fn insert(db: &mut dyn Db, person: &Person, password_hash: Option<&str>) -> Result<(), DbError> {
    let Person { id, email, verified, created_at_ms } = person;
    let params = params![*id, email, email.to_lowercase(), password_hash, *verified, *created_at_ms];
    PERSONS.insert(db, params, "").map(drop)
}

/// Whoever sets a password by a link that was mailed to the address has shown that it is theirs.
pub(crate) fn set_password(db: &mut dyn Db, id: PersonId, password_hash: &str) -> Result<(), DbError> {
    let sql = "UPDATE {persons} SET password_hash = ?2, verified = true WHERE id = ?1";
    db.execute(sql, params![id, password_hash]).map(drop)
}

/// An address that the person is known to have, and a password.
pub(crate) fn set_account(
    db: &mut dyn Db,
    id: PersonId,
    email: &str,
    password_hash: &str,
) -> Result<Option<Person>, DbError> {
    if Person::by_email(db, email)?.is_some_and(|(other, _)| other.id != id) {
        return Err(DbError::AlreadyExists);
    }
    let sql = "UPDATE {persons} SET email = ?2, email_lower = ?3, password_hash = ?4, verified = true WHERE id = ?1";
    db.execute(sql, params![id, email, email.to_lowercase(), password_hash])?;
    Person::find(db, id)
}

fn read(row: &Row) -> Result<Person, DbError> {
    Ok(Person {
        id: row.get("id")?,
        email: row.get("email")?,
        verified: row.get("verified")?,
        created_at_ms: row.get("created_at_ms")?,
    })
}

pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<(Person, Option<String>)>, DbError> {
    PERSONS.all(db, |row| Ok((read(row)?, row.get("password_hash")?)))
}

pub(crate) fn import(db: &mut dyn Db, persons: &[(Person, Option<String>)]) -> Result<(), DbError> {
    persons.iter().try_for_each(|(person, password_hash)| insert(db, person, password_hash.as_deref()))
}
