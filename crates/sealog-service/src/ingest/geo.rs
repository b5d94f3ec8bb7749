//! Where an address is: `country` and `city` from a file in the MMDB format. Spec 2.2.
//!
//! The file is read into memory whole: through a memory map, a file that someone cuts short would be a signal
//! that ends the process.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use maxminddb::{LookupResult, PathElement, Reader, path};
use sealog_store::sync::{lock, read, write};
use tokio::sync::oneshot;

use crate::ingest::stamp::Stamp;

/// What is known of an address. Absence is not an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub country: Option<Arc<str>>,
    pub city: Option<Arc<str>>,
}

/// A database that follows its file.
pub struct Geo {
    path: PathBuf,
    database: RwLock<Database>,
    file: Mutex<Followed>,
}

type Database = Reader<Vec<u8>>;

impl Geo {
    /// Reads the file, or says why it cannot be used.
    pub fn open(path: &Path) -> Result<Geo, String> {
        let (database, stamp) = load(path).map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(Geo {
            path: path.to_owned(),
            database: RwLock::new(database),
            file: Mutex::new(Followed {
                in_use: Some(stamp),
                settling: None,
                refused: None,
                refused_why: None,
            }),
        })
    }

    /// Looks an address up. An address that is not there, and a record that is not as expected, are a place
    /// of which nothing is known.
    pub fn find(&self, address: IpAddr) -> Place {
        let database = read(&self.database);
        let Ok(found) = database.lookup(address) else { return Place::default() };
        // Not `registered_country`: where a network was registered is not where its user is, and a log should
        // not say so.
        let country = text(&found, &path!["country", "iso_code"])
            .filter(|code| code.len() == 2 && code.bytes().all(|byte| byte.is_ascii_uppercase()));
        let city = text(&found, &path!["city", "names", "en"])
            .filter(|name| !name.is_empty() && name.chars().count() <= NAME_SCALARS_MAX);
        Place { country: country.map(Into::into), city: city.map(Into::into) }
    }

    /// What is in use, and why a newer file is not.
    pub fn state(&self) -> GeoState {
        let file = lock(&self.file);
        let database = read(&self.database);
        let metadata = database.metadata();
        GeoState {
            file: self.path.clone(),
            kind: metadata.database_type.clone(),
            built_at_s: metadata.build_epoch,
            bytes: file.in_use.map_or(0, |stamp| stamp.bytes),
            refused: file.refused_why.clone(),
        }
    }

    /// Looks at the file, and takes it when it is another one and at rest: as it was at the look before, so
    /// that nobody is still writing it. A file that cannot be used is refused once and then left alone; what
    /// was read before stays in use.
    pub fn look(&self) -> Looked {
        let mut file = lock(&self.file);
        let stamp = Stamp::of(&self.path).ok();
        let settled = std::mem::replace(&mut file.settling, stamp) == stamp;
        if stamp == file.in_use {
            (file.refused, file.refused_why) = (None, None);
            return Looked::Same;
        }
        if file.refused == Some(stamp) {
            return Looked::RefusedBefore;
        }
        if !settled {
            return Looked::Settling;
        }
        match load(&self.path) {
            Ok((database, stamp)) => {
                let built_at_s = database.metadata().build_epoch;
                *write(&self.database) = database;
                file.in_use = Some(stamp);
                (file.refused, file.refused_why) = (None, None);
                Looked::Taken { built_at_s }
            }
            Err(Unusable::Changing) => {
                file.settling = None;
                Looked::Settling
            }
            Err(why) => {
                (file.refused, file.refused_why) = (Some(stamp), Some(why.to_string()));
                Looked::Refused { why: why.to_string() }
            }
        }
    }
}

impl fmt::Debug for Geo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Geo").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A database as it is at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeoState {
    pub file: PathBuf,
    /// As its maker calls it.
    pub kind: String,
    pub built_at_s: u64,
    pub bytes: u64,
    /// Why the file that is there now is not the one in use.
    pub refused: Option<String>,
}

/// What a look at the file has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    Same,
    /// It is another file, perhaps not yet whole.
    Settling,
    Taken {
        built_at_s: u64,
    },
    Refused {
        why: String,
    },
    /// Nothing that has not been said.
    RefusedBefore,
}

/// Looks at the file from time to time, away from the event loop.
pub async fn follow(geo: Option<&Arc<Geo>>, every: Duration) {
    let Some(geo) = geo else { return };
    loop {
        tokio::time::sleep(every).await;
        let (file, geo) = (geo.path.display(), Arc::clone(geo));
        // A thread of its own and not the runtime's: a stop does not wait for a large file.
        let (sender, looked) = oneshot::channel();
        let look =
            std::thread::Builder::new().name("sealog-geo".into()).spawn(move || sender.send(geo.look()));
        if let Err(error) = look {
            tracing::warn!(%file, %error, "cannot read the GeoIP database; retrying");
        }
        match looked.await {
            Ok(Looked::Taken { built_at_s }) => {
                tracing::info!(%file, built_at_s, "reloaded the GeoIP database");
            }
            Ok(Looked::Refused { why }) => {
                tracing::warn!(%file, why, "cannot use the new GeoIP database; the previous one stays in use");
            }
            Ok(Looked::Same | Looked::Settling | Looked::RefusedBefore) | Err(_) => {}
        }
    }
}

/// Longer names are not a city's. The file is data from elsewhere, and what it says goes into a log that is
/// kept for years.
const NAME_SCALARS_MAX: usize = 255;

fn text<'a>(found: &LookupResult<'a, Vec<u8>>, path: &[PathElement<'_>]) -> Option<&'a str> {
    found.decode_path(path).ok().flatten()
}

/// What is known of the file.
struct Followed {
    in_use: Option<Stamp>,
    /// As it was at the last look; nothing for a file that was not there.
    settling: Option<Stamp>,
    /// What was refused already; an inner nothing is a file that was not there.
    refused: Option<Option<Stamp>>,
    refused_why: Option<String>,
}

enum Unusable {
    Unreadable(io::Error),
    /// It was written to while it was read.
    Changing,
    NotADatabase(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Unreadable(error) => write!(f, "{error}"),
            Unusable::Changing => f.write_str("it changed during the read"),
            Unusable::NotADatabase(why) => write!(f, "it is not a complete MMDB file: {why}"),
        }
    }
}

fn load(path: &Path) -> Result<(Database, Stamp), Unusable> {
    let stamp = Stamp::of(path).map_err(Unusable::Unreadable)?;
    let bytes = std::fs::read(path).map_err(Unusable::Unreadable)?;
    if Stamp::of(path).ok() != Some(stamp) {
        return Err(Unusable::Changing);
    }
    let unfit = |error: maxminddb::MaxMindDbError| Unusable::NotADatabase(error.to_string());
    let database = Reader::from_source(bytes).map_err(unfit)?;
    // The whole of it: the beginning of a new file in front of the end of an old one has a form that only
    // this finds out.
    database.verify().map_err(unfit)?;
    Ok((database, stamp))
}
