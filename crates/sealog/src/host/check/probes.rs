//! What is looked at before a start: one function for each, in one table.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ArgMatches;
use rustix::process::{Resource, getrlimit};
use sealog_core::time::iso_ms;
use sealog_engine::Place;
use sealog_engine::restoring_mark;
use sealog_store::embedded::{self, EmbeddedStore};
use sealog_store::postgres::{Look, OpenError};

use crate::config::{self, Settings};
use crate::demo_mark;
use crate::traces;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum State {
    Fine,
    /// Not set up, and not needed.
    Off,
    Warns,
    /// A server starts, and nobody can use it.
    Unusable,
    /// A server does not start.
    Fails,
}

impl State {
    pub(in super::super) fn word(self) -> &'static str {
        match self {
            State::Fine => "ok",
            State::Off => "off",
            State::Warns => "warning",
            State::Unusable | State::Fails => "FAILS",
        }
    }
}

#[derive(Clone, Debug)]
pub(in super::super) struct Found {
    pub name: &'static str,
    pub state: State,
    pub detail: String,
    /// What to do about it.
    pub advice: Option<String>,
}

/// What a probe says; its name is the table's.
struct Said {
    state: State,
    detail: String,
    advice: Option<String>,
}

fn fine(detail: impl Into<String>) -> Said {
    Said { state: State::Fine, detail: detail.into(), advice: None }
}

fn off(detail: impl Into<String>) -> Said {
    Said { state: State::Off, ..fine(detail) }
}

fn warns(detail: impl Into<String>, advice: impl Into<String>) -> Said {
    Said { state: State::Warns, advice: Some(advice.into()), ..fine(detail) }
}

fn fails(detail: impl Into<String>, advice: impl Into<String>) -> Said {
    Said { state: State::Fails, ..warns(detail, advice) }
}

/// What a start would say; that tells what to do as well.
fn refused(problem: impl Into<String>) -> Said {
    Said { state: State::Fails, ..fine(problem) }
}

/// What a probe may look at.
struct Context<'a> {
    settings: &'a Settings,
    /// Neither database nor mail server is asked.
    is_offline: bool,
    /// The settings file, and the secrets in it.
    file: Option<(PathBuf, Vec<String>)>,
    /// A server that has the data directory open, by its process id.
    running: Option<String>,
    /// What is in the database. Nothing where there is none, or it is not asked.
    database: Option<Result<Look, OpenError>>,
}

type Probe = fn(&Context<'_>) -> Said;

const PROBES: [(&str, Probe); 12] = [
    ("settings file", settings_file),
    ("data directory", data_directory),
    ("file system", file_system),
    ("room", room),
    ("store", store),
    ("clock", clock),
    ("addresses", addresses),
    ("certificate", certificate),
    ("open files", open_files),
    ("mail", mail),
    ("geoip", geoip),
    ("traces", traces),
];

/// How long a mail server may take.
const MAIL_MAX: Duration = Duration::from_secs(10);
/// A database of places that is older than this is more wrong than need be.
const GEOIP_OLD: Duration = Duration::from_secs(90 * 86_400);
/// A certificate that ends sooner is worth a word.
const CERTIFICATE_SOON: Duration = Duration::from_secs(14 * 86_400);
/// Clocks that differ by more are worth a word: times of events come from several of them.
const CLOCK_APART_MS: u64 = 2_000;
/// Before this program was written.
const PAST_MS: u64 = 1_760_000_000_000;

/// The settings first: without them there is nothing else to look at.
pub(in super::super) fn all(matches: &ArgMatches, is_offline: bool) -> Vec<Found> {
    let named = |name, Said { state, detail, advice }| Found { name, state, detail, advice };
    let settings = match config::load(matches, std::env::vars()) {
        Ok(settings) => settings,
        Err(error) => {
            let said = fails(
                error.to_string(),
                "correct it, then run this again for the other checks; `sealog serve --help` lists the settings",
            );
            return vec![named("settings", said)];
        }
    };
    let running = holder(&settings.data_dir);
    let database = match &settings.store {
        Place::Postgres(url) if !is_offline => Some(sealog_control::look(&url.0, &sealog_engine::SCHEMAS)),
        _ => None,
    };
    let file = config::secrets_in_file(matches, std::env::vars());
    let context = Context { settings: &settings, is_offline, file, running, database };
    let mut found = vec![named("settings", fine("valid; `sealog config print` shows them"))];
    found.extend(PROBES.iter().map(|(name, probe)| named(name, probe(&context))));
    found
}

fn settings_file(context: &Context<'_>) -> Said {
    let Some((path, secrets)) = &context.file else { return off("none") };
    let shown = path.display();
    let mode = match std::fs::metadata(path) {
        Ok(metadata) => metadata.permissions().mode() & 0o777,
        Err(error) => return warns(format!("{shown}: {error}"), "check its permissions"),
    };
    if secrets.is_empty() || mode & 0o007 == 0 {
        return fine(format!("{shown}, mode {mode:o}"));
    }
    warns(
        format!(
            "all users of this machine can read {shown} (mode {mode:o}), which contains {}",
            secrets.join(", ")
        ),
        format!(
            "chmod 640 {shown}, owned by root and the group of the server; change the secrets if others had access"
        ),
    )
}

/// Whether another process has the directory.
fn holder(dir: &Path) -> Option<String> {
    let locked = File::open(dir).ok()?.try_lock_shared();
    if !matches!(locked, Err(std::fs::TryLockError::WouldBlock)) {
        return None;
    }
    let pid = std::fs::read_to_string(dir.join("LOCK")).unwrap_or_default();
    Some(pid.trim().to_owned())
}

/// The directory, or the one above it in which it would be made.
fn existing(dir: &Path) -> PathBuf {
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    absolute.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/")).to_owned()
}

fn data_directory(context: &Context<'_>) -> Said {
    let dir = &context.settings.data_dir;
    let shown = dir.display();
    if let Err(problem) = demo_mark::refuse(dir) {
        return refused(problem);
    }
    let there = existing(dir);
    let writable = rustix::fs::access(
        &there,
        rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
    );
    if let Err(error) = writable {
        return fails(
            format!("{}: {error}", there.display()),
            format!("let the user that runs the server own it: chown USER {}", there.display()),
        );
    }
    if !dir.exists() {
        return fine(format!("{shown} does not exist yet; the server will create it"));
    }
    let metadata = match std::fs::metadata(dir) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => return fails(format!("{shown} is not a directory"), "set data_dir to another directory"),
        Err(error) => return fails(format!("{shown}: {error}"), "set data_dir to another directory"),
    };
    let me = rustix::process::geteuid().as_raw();
    if metadata.uid() != me && me != 0 {
        return warns(
            format!("{shown} belongs to user {}, but this is user {me}", metadata.uid()),
            "run the check and the server as the same user",
        );
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return warns(format!("other users can read {shown} (mode {mode:o})"), format!("chmod 700 {shown}"));
    }
    fine(format!("{shown}, accessible only to its owner"))
}

fn file_system(context: &Context<'_>) -> Said {
    let Settings { data_dir, allow_unsafe_storage, store, .. } = context.settings;
    match EmbeddedStore::check_storage(&existing(data_dir)) {
        Ok(()) => fine("a local disk"),
        Err(error @ embedded::OpenError::UnsafeStorage { .. }) if *allow_unsafe_storage => {
            warns(error.to_string(), "allow_unsafe_storage is set: acknowledged events can be lost")
        }
        // What a node of a database keeps there is a note of what it has acknowledged.
        Err(error) if *store != Place::Embedded => {
            warns(error.to_string(), "set data_dir to a directory on a local disk")
        }
        Err(error) => fails(error.to_string(), "set data_dir to a directory on a local disk"),
    }
}

fn room(context: &Context<'_>) -> Said {
    let dir = existing(&context.settings.data_dir);
    let disk = match rustix::fs::statvfs(&dir) {
        Ok(disk) => disk,
        Err(error) => return warns(format!("{}: {error}", dir.display()), "check the disk"),
    };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let reserve = embedded::Options::default().reserve_bytes;
    let gigabytes = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
    let told = format!("{} free", gigabytes(free));
    if context.settings.store == Place::Embedded && free < reserve {
        return fails(
            told,
            format!(
                "events are rejected below {}: free some space, or move data_dir to a larger disk",
                gigabytes(reserve)
            ),
        );
    }
    if free < reserve.saturating_mul(4) {
        return warns(told, format!("events are rejected below {}", gigabytes(reserve)));
    }
    if disk.f_files > 0 && disk.f_favail == 0 {
        return fails(format!("{told}, but no inodes"), "the file system cannot hold another file");
    }
    fine(told)
}

fn store(context: &Context<'_>) -> Said {
    match (&context.settings.store, &context.database) {
        (Place::Embedded, _) => embedded_store(context),
        (Place::Postgres(_), None) => off("PostgreSQL, not checked (--offline)"),
        (Place::Postgres(_), Some(Err(error))) => fails(
            error.to_string(),
            "check that the database runs, and the address, user and password in the setting store",
        ),
        (Place::Postgres(_), Some(Ok(look))) => database(look, context.settings.allow_unsafe_storage),
    }
}

fn embedded_store(context: &Context<'_>) -> Said {
    if let Some(pid) = &context.running {
        return warns(
            format!("a server runs on it (process {pid})"),
            "another one cannot start on the same data directory",
        );
    }
    let dir = &context.settings.data_dir;
    if let Err(problem) = restoring_mark::refuse(dir) {
        return refused(problem);
    }
    let has_format = match EmbeddedStore::check_format(dir) {
        Ok(has_format) => has_format,
        Err(error @ embedded::OpenError::Io { .. }) => {
            return fails(
                error.to_string(),
                "run the check and the server as the user who owns the data directory",
            );
        }
        Err(error) => return refused(error.to_string()),
    };
    let control = match sealog_control::look_in_directory(dir) {
        Ok(control) => control,
        Err(error) => return refused(error.to_string()),
    };
    if !has_format {
        return fine("embedded; does not exist yet, the first start creates it with its keys");
    }
    let told = format!("embedded, format “{}”", EmbeddedStore::format());
    match control {
        Some((made, wanted)) if made < wanted => warns(
            format!("{told}, control data {made} of {wanted}"),
            "the next start updates it, and earlier versions cannot open it then: make a backup first",
        ),
        _ => fine(told),
    }
}

fn database(look: &Look, allow_unsafe_storage: bool) -> Said {
    if let Some(refusal) = look.refusal(allow_unsafe_storage) {
        return refused(format!("PostgreSQL {}: {refusal}", look.server));
    }
    let schemas = look.schemas.iter();
    let told: Vec<String> = schemas
        .map(|schema| format!("schema {} {} of {}", schema.name, schema.made, schema.wanted))
        .collect();
    let told = format!("PostgreSQL {}, {}", look.server, told.join(", "));
    if look.schemas.iter().any(|schema| schema.made < schema.wanted) {
        return warns(told, "the next start runs the missing steps");
    }
    fine(told)
}

fn clock(context: &Context<'_>) -> Said {
    let now_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    let told = iso_ms(now_ms);
    if now_ms < PAST_MS {
        return fails(told, "the clock is years behind: set it (chrony, systemd-timesyncd)");
    }
    // What was written last knows a time that was true once.
    let newest = ["live", "test"]
        .iter()
        .flat_map(|log| std::fs::read_dir(context.settings.data_dir.join(log)).into_iter().flatten());
    let newest = newest.flatten().filter_map(|file| file.metadata().ok()?.modified().ok()).max();
    let ahead = newest.and_then(|newest| newest.duration_since(SystemTime::now()).ok());
    if let Some(ahead) = ahead.filter(|ahead| *ahead > Duration::from_secs(5)) {
        return warns(
            format!("{told}, but files of the store are {} s newer", ahead.as_secs()),
            "set the clock: event times would not advance until it catches up",
        );
    }
    if let Some(Ok(look)) = &context.database {
        let apart = u64::try_from(look.now_ms).unwrap_or(0).abs_diff(now_ms);
        if apart > CLOCK_APART_MS {
            return warns(
                format!("{told}, {apart} ms from the database's clock"),
                "use the same time servers for both",
            );
        }
    }
    fine(told)
}

fn addresses(context: &Context<'_>) -> Said {
    let Settings { listen, metrics_listen, redirect_listen, ops, .. } = context.settings;
    let wanted: Vec<SocketAddr> =
        [Some(*listen), *metrics_listen, *redirect_listen, ops.listen].into_iter().flatten().collect();
    for address in &wanted {
        match TcpListener::bind(address) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && context.running.is_some() => {}
            Err(error) => {
                let advice = match error.kind() {
                    std::io::ErrorKind::AddrInUse => {
                        "another program uses this port: stop it, or choose another port"
                    }
                    std::io::ErrorKind::PermissionDenied => {
                        "ports below 1024 need CAP_NET_BIND_SERVICE: grant it, or choose another port"
                    }
                    _ => "choose an address of this machine",
                };
                return fails(format!("{address}: {error}"), advice);
            }
        }
    }
    let shown: Vec<String> = wanted.iter().map(SocketAddr::to_string).collect();
    fine(shown.join(", "))
}

/// One that cannot be read or does not fit its key is a wrong setting.
fn certificate(context: &Context<'_>) -> Said {
    let Some(tls) = &context.settings.server.tls else {
        return off("tls.cert is not set: plain HTTP, for this machine or behind a proxy");
    };
    let until = UNIX_EPOCH + Duration::from_secs(tls.not_after_s());
    let told = format!("valid until {}", iso_ms(tls.not_after_s().saturating_mul(1000)));
    match until.duration_since(SystemTime::now()) {
        Err(_) => Said {
            state: State::Unusable,
            ..warns(
                format!("expired: {told}"),
                "clients reject it: get a new one; a running server reloads it automatically",
            )
        },
        Ok(left) if left < CERTIFICATE_SOON => {
            warns(told, "get a new one in time; a running server reloads it automatically")
        }
        Ok(_) => fine(told),
    }
}

fn open_files(_: &Context<'_>) -> Said {
    let limit = getrlimit(Resource::Nofile).maximum;
    match limit {
        None => fine("no limit"),
        Some(limit) if limit < 4096 => warns(
            format!("at most {limit}"),
            "each connection needs one, and the store needs some: raise the limit (ulimit -n, LimitNOFILE)",
        ),
        Some(limit) => fine(format!("at most {limit}")),
    }
}

fn mail(context: &Context<'_>) -> Said {
    let Some(smtp) = &context.settings.service.smtp else {
        return off("smtp.url is not set: mail stays in the outbox");
    };
    if context.is_offline {
        return off("not checked (--offline)");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answered = match runtime {
        Ok(runtime) => runtime.block_on(smtp.check(MAIL_MAX)),
        Err(error) => Err(error.to_string()),
    };
    match answered {
        Ok(()) => fine("the mail server responds; `sealog mail test ADDRESS` sends a test mail"),
        // A server starts without, and mails wait.
        Err(why) => {
            warns(why, "check smtp.url and smtp.from; mail stays in the outbox until the server accepts it")
        }
    }
}

fn traces(_: &Context<'_>) -> Said {
    match traces::receiver() {
        Ok(None) => off("OTEL_EXPORTER_OTLP_ENDPOINT is not set: requests are not traced"),
        Ok(Some(endpoint)) => fine(format!("requests are traced to {endpoint}")),
        Err(problem) => refused(problem),
    }
}

fn geoip(context: &Context<'_>) -> Said {
    let Some(geo) = &context.settings.service.geo else {
        return off("geoip_db is not set: events have no country and city");
    };
    let state = geo.state();
    let told = format!("{}, built {}", state.kind, iso_ms(state.built_at_s.saturating_mul(1000)));
    let age = SystemTime::now()
        .duration_since(UNIX_EPOCH + Duration::from_secs(state.built_at_s))
        .unwrap_or_default();
    if age > GEOIP_OLD {
        return warns(told, "the data is old: get a newer file; a running server reloads it automatically");
    }
    fine(told)
}
