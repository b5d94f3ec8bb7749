//! The kinds of accounts that sign in: people and operators. One implementation of sessions and known
//! browsers serves both. Each kind has tables of its own: a session of one kind is never found as one of the
//! other.

use std::fmt::{self, Debug};

use sealog_core::id::{Hash, Uuid};

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, count, one, params};

/// A kind of account.
pub trait Account: Clone + Debug + Eq + Send + Sync + 'static {
    type Id: Copy + Debug + Eq + Send + Sync + From<Uuid> + Into<Uuid>;
    const TABLES: Tables;
    /// A password alone begins no whole session. The first code of the authenticator confirms it.
    const ALWAYS_NEEDS_CODE: bool;

    fn id(&self) -> Self::Id;
    fn find(db: &mut dyn Db, id: Self::Id) -> Result<Option<Self>, DbError>;
    /// By the address, in any case; with the hash of the password, if there is one.
    fn by_email(db: &mut dyn Db, email: &str) -> Result<Option<(Self, Option<String>)>, DbError>;
    /// Returns false if the account has no such code left.
    fn use_recovery_code(_: &mut dyn Db, _: Self::Id, _: Hash) -> Result<bool, DbError> {
        Ok(false)
    }
}

/// What statements about a kind say in place of `{accounts}` and so on: constants, never data.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    pub accounts: &'static str,
    pub sessions: &'static str,
    pub devices: &'static str,
    /// The column of sessions and devices that has the id of the account.
    pub owner: &'static str,
    /// The table with the secret of the authenticator, and its column with the id of the account.
    pub authenticators: &'static str,
    pub holder: &'static str,
}

/// A statement in the tables of a kind.
pub(crate) fn of<A: Account>(sql: &str) -> String {
    let Tables { accounts, sessions, devices, owner, authenticators, holder } = A::TABLES;
    sql.replace("{accounts}", accounts)
        .replace("{owner}", owner)
        .replace("{holder}", holder)
        .replace("{sessions}", sessions)
        .replace("{devices}", devices)
        .replace("{authenticators}", authenticators)
}

/// The authenticator of an account.
#[derive(Clone)]
pub struct SecondFactor {
    pub secret: Vec<u8>,
    /// A code has shown that it works.
    pub is_confirmed: bool,
}

/// A code that an account shows beside its password.
#[derive(Clone, PartialEq, Eq)]
pub enum Code {
    /// Of this time step, computed with this secret.
    Step { secret: Vec<u8>, step: u64 },
    /// The digest of a recovery code.
    Recovery(Hash),
}

/// Without its value.
impl Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Code::Step { .. } => "Step",
            Code::Recovery(_) => "Recovery",
        })
    }
}

impl Control {
    pub fn account<A: Account>(&self, id: A::Id) -> Answer<'_, Option<A>> {
        self.read(move |db| A::find(db, id))
    }

    /// By e-mail address, in any case; with the hash of the password, if there is one.
    pub fn account_by_email<A: Account>(&self, email: String) -> Answer<'_, Option<(A, Option<String>)>> {
        self.read(move |db| A::by_email(db, &email))
    }

    pub fn second_factor<A: Account>(&self, id: A::Id) -> Answer<'_, Option<SecondFactor>> {
        self.read(move |db| second_factor::<A>(db, id))
    }
}

/// As a column has it.
pub(crate) fn uuid(id: impl Into<Uuid>) -> Uuid {
    id.into()
}

/// Whether this is still the hash of the account's password.
pub(crate) fn has_password<A: Account>(db: &mut dyn Db, id: A::Id, hash: &str) -> Result<bool, DbError> {
    let sql = of::<A>("SELECT count(*) AS count FROM {accounts} WHERE id = ?1 AND password_hash = ?2");
    Ok(count(db, &sql, params![uuid(id), hash])? > 0)
}

pub(crate) fn second_factor<A: Account>(db: &mut dyn Db, id: A::Id) -> Result<Option<SecondFactor>, DbError> {
    let sql = "SELECT secret, last_step FROM {authenticators} WHERE {holder} = ?1 AND secret IS NOT NULL";
    one(db, &of::<A>(sql), params![uuid(id)], |row| {
        let is_confirmed = row.get::<Option<u64>>("last_step")?.is_some();
        Ok(SecondFactor { secret: row.get("secret")?, is_confirmed })
    })
}

/// Uses a code up: of a step that is later than all that were used, or a recovery code that is left.
pub(crate) fn use_code<A: Account>(db: &mut dyn Db, id: A::Id, code: &Code) -> Result<bool, DbError> {
    match code {
        Code::Step { secret, step } => {
            let sql = "UPDATE {authenticators} SET last_step = ?3
                       WHERE {holder} = ?1 AND secret = ?2 AND COALESCE(last_step, ?4) < ?3";
            // One that is not confirmed yet has used none, or all.
            let unused = if A::ALWAYS_NEEDS_CODE { 0 } else { u64::MAX };
            Ok(db.execute(&of::<A>(sql), params![uuid(id), secret.clone(), *step, unused])? > 0)
        }
        Code::Recovery(digest) => A::use_recovery_code(db, id, *digest),
    }
}
