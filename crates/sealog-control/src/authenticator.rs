//! The second factor: a person's authenticator (RFC 6238) and the codes that stand in for it.

use sealog_core::id::Hash;

use crate::account::second_factor;
use crate::control::{Answer, Control};
use crate::db::{Db, DbError, Lock, Row, Value, all, count, one, params};
use crate::person::{Person, PersonId};
use crate::person_record::PersonRecords;

impl Control {
    pub fn authenticator(&self, person_id: PersonId) -> Answer<'_, Option<Authenticator>> {
        self.read(move |db| one(db, &format!("{SELECT} WHERE person_id = ?1"), params![person_id], read))
    }

    /// Those among these people whose authenticator is confirmed.
    pub fn with_authenticator(&self, person_ids: Vec<PersonId>) -> Answer<'_, Vec<PersonId>> {
        self.read(move |db| {
            if person_ids.is_empty() {
                return Ok(Vec::new());
            }
            let places: Vec<String> = (1..=person_ids.len()).map(|at| format!("?{at}")).collect();
            let sql = format!(
                "SELECT person_id FROM {{authenticators}} WHERE last_step IS NOT NULL AND person_id IN ({})",
                places.join(", ")
            );
            let ids: Vec<Value> = person_ids.into_iter().map(Value::from).collect();
            all(db, &sql, &ids, |row| row.get("person_id"))
        })
    }

    /// Keeps a secret until the person has shown that the authenticator has it. In place of one that was
    /// never shown to work; one that was stays, and the answer is no.
    pub fn offer_authenticator(&self, offered: Authenticator) -> Answer<'_, bool> {
        self.change(Lock::None, move |db| {
            let sql = "INSERT INTO {authenticators} (person_id, secret, last_step, created_at_ms) VALUES (?1, ?2, NULL, ?3)
                       ON CONFLICT (person_id) DO UPDATE SET secret = ?2, created_at_ms = ?3
                       WHERE authenticators.last_step IS NULL";
            let Authenticator { person_id, secret, created_at_ms, .. } = offered;
            Ok(db.execute(sql, params![person_id, secret, created_at_ms])? > 0)
        })
    }

    /// How many have not been used.
    pub fn recovery_codes_left(&self, person_id: PersonId) -> Answer<'_, u64> {
        self.read(move |db| {
            let sql = "SELECT count(*) AS count FROM {recovery_codes} WHERE person_id = ?1";
            count(db, sql, params![person_id])
        })
    }

    /// In place of all that are left. Not without an authenticator that was confirmed.
    pub fn replace_recovery_codes(
        &self,
        person_id: PersonId,
        digests: Vec<Hash>,
        records: PersonRecords,
    ) -> Answer<'_, bool> {
        self.change(Lock::Order, move |db| {
            let confirmed = second_factor::<Person>(db, person_id)?.is_some_and(|factor| factor.is_confirmed);
            if confirmed {
                replace_codes(db, person_id, &digests)?;
                records.insert(db, person_id)?;
            }
            Ok(confirmed)
        })
    }

    /// With its recovery codes. Whether there was one.
    pub fn remove_authenticator(&self, person_id: PersonId, records: PersonRecords) -> Answer<'_, bool> {
        self.change(Lock::Order, move |db| {
            replace_codes(db, person_id, &[])?;
            let sql = "DELETE FROM {authenticators} WHERE person_id = ?1";
            let was_there = db.execute(sql, params![person_id])? > 0;
            if was_there {
                records.insert(db, person_id)?;
            }
            Ok(was_there)
        })
    }
}

/// What signing in asks for beside the password, once it has been confirmed.
#[derive(Clone, PartialEq, Eq)]
pub struct Authenticator {
    pub person_id: PersonId,
    pub secret: Vec<u8>,
    /// The newest time step of which a code was used; nothing until the first one has confirmed it.
    pub last_step: Option<u64>,
    pub created_at_ms: u64,
}

impl Authenticator {
    pub fn is_confirmed(&self) -> bool {
        self.last_step.is_some()
    }
}

/// Without the secret.
impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Authenticator");
        shown.field("person_id", &self.person_id).field("last_step", &self.last_step).finish_non_exhaustive()
    }
}

const SELECT: &str = "SELECT person_id, secret, last_step, created_at_ms FROM {authenticators}";

pub(crate) fn replace_codes(db: &mut dyn Db, person_id: PersonId, digests: &[Hash]) -> Result<(), DbError> {
    db.execute("DELETE FROM {recovery_codes} WHERE person_id = ?1", params![person_id])?;
    digests.iter().try_for_each(|digest| insert_code(db, person_id, *digest))
}

fn insert_code(db: &mut dyn Db, person_id: PersonId, digest: Hash) -> Result<(), DbError> {
    let sql = "INSERT INTO {recovery_codes} (person_id, digest) VALUES (?1, ?2)";
    db.execute(sql, params![person_id, digest]).map(drop)
}

fn read(row: &Row) -> Result<Authenticator, DbError> {
    Ok(Authenticator {
        person_id: row.get("person_id")?,
        secret: row.get("secret")?,
        last_step: row.get("last_step")?,
        created_at_ms: row.get("created_at_ms")?,
    })
}

/// Each with the digests of the codes that are left.
pub(crate) fn export(db: &mut dyn Db) -> Result<Vec<(Authenticator, Vec<Hash>)>, DbError> {
    let known = all(db, &format!("{SELECT} ORDER BY person_id"), &[], read)?;
    let codes = "SELECT digest FROM {recovery_codes} WHERE person_id = ?1 ORDER BY digest";
    let with_codes = known.into_iter().map(|authenticator| {
        let left = all(db, codes, params![authenticator.person_id], |row| row.get("digest"))?;
        Ok((authenticator, left))
    });
    with_codes.collect()
}

pub(crate) fn import(db: &mut dyn Db, authenticators: &[(Authenticator, Vec<Hash>)]) -> Result<(), DbError> {
    let sql =
        "INSERT INTO {authenticators} (person_id, secret, last_step, created_at_ms) VALUES (?1, ?2, ?3, ?4)";
    authenticators.iter().try_for_each(|(authenticator, codes)| {
        let Authenticator { person_id, secret, last_step, created_at_ms } = authenticator;
        db.execute(sql, params![*person_id, secret.clone(), *last_step, *created_at_ms])?;
        codes.iter().try_for_each(|digest| insert_code(db, *person_id, *digest))
    })
}
