//! The kinds of accounts that sign in: people and operators. One implementation of sessions and known browsers
//! serves both; each kind has tables of its own, so that a session of one kind is never found as the other's.

use std::fmt::{self, Debug};

use sealog_core::id::{Hash, Uuid};

use crate::control::{Answer, Control};
use crate::db::{Db, DbError, count, params};

/// A kind of account. Statements are made of its constants alone, never of data.
pub trait Account: Clone + Debug + Eq + Send + Sync + 'static {
    type Id: Copy + Debug + Eq + Send + Sync + From<Uuid> + Into<Uuid>;
    const TABLES: Tables;
    /// A password alone begins no whole session, even before there is an authenticator.
    const ALWAYS_NEEDS_CODE: bool;

    fn id(&self) -> Self::Id;
    fn email(&self) -> &str;
    fn find(db: &mut dyn Db, id: Self::Id) -> Result<Option<Self>, DbError>;
    /// By the address, in any case; with the hash of the password, if there is one.
    fn by_email(db: &mut dyn Db, email: &str) -> Result<Option<(Self, Option<String>)>, DbError>;
    /// Whether a code has shown that the authenticator works.
    fn is_confirmed(db: &mut dyn Db, id: Self::Id) -> Result<bool, DbError>;
    /// Uses a code up. Returns false if it is not the account's, or was used before.
    fn use_code(db: &mut dyn Db, id: Self::Id, code: &Code) -> Result<bool, DbError>;
}

/// The tables of a kind, as statements name them.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    pub accounts: &'static str,
    pub sessions: &'static str,
    pub devices: &'static str,
    /// The column of sessions and devices that has the id of the account.
    pub owner: &'static str,
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
}

/// As a column has it.
pub(crate) fn uuid(id: impl Into<Uuid>) -> Uuid {
    id.into()
}

/// Whether this is still the hash of the account's password.
pub(crate) fn has_password<A: Account>(db: &mut dyn Db, id: A::Id, hash: &str) -> Result<bool, DbError> {
    let accounts = A::TABLES.accounts;
    let sql = format!("SELECT count(*) AS count FROM {accounts} WHERE id = ?1 AND password_hash = ?2");
    Ok(count(db, &sql, params![uuid(id), hash])? > 0)
}

/// The id of a kind of account: a type of its own, so that ids of different kinds are never mixed up.
macro_rules! account_id {
    ($id:ident) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $id(pub Uuid);

        impl From<Uuid> for $id {
            fn from(id: Uuid) -> $id {
                $id(id)
            }
        }

        impl From<$id> for Uuid {
            fn from(id: $id) -> Uuid {
                id.0
            }
        }

        impl From<$id> for Value {
            fn from(id: $id) -> Value {
                id.0.into()
            }
        }

        impl FromValue for $id {
            fn from_value(value: &Value) -> Option<$id> {
                Uuid::from_value(value).map($id)
            }
        }
    };
}
pub(crate) use account_id;
