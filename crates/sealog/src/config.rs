//! Settings: flags over environment over file over defaults. One table says what there is; help, checks and
//! parsing all come from it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Arg, ArgMatches, Command};
use ipnet::IpNet;
use sealog_cli::exit::Failure;
use sealog_engine::trees::FOLDER;
use sealog_engine::trust_log::keys::{KeyFile, Origin};
use sealog_engine::trust_log::{Settings as TrustSettings, StateCopy, is_origin};
use sealog_engine::{OpenOptions, Place};
use sealog_server::config::{Config, LimitConfig};
use sealog_server::peer::Peer;
use sealog_server::tls::Tls;
use sealog_service::Secret;
use sealog_service::evidence::verification::Schedule;
use sealog_service::ingest::geo::Geo;
use sealog_service::people::mail::{Relay, Sender, Smtp};
use zeroize::{Zeroize, Zeroizing};

use crate::logging;
use crate::plans;
use crate::secret_files;

struct Setting {
    /// `a.b` in the file, `SEALOG_A_B` in the environment, `--a-b` as a flag.
    key: &'static str,
    value: &'static str,
    default: Option<&'static str>,
    help: &'static str,
}

const SETTINGS: &[Setting] = &[
    Setting {
        key: "listen",
        value: "ADDRESS",
        default: Some("127.0.0.1:8080"),
        help: "Listen on this address and port; port 0 picks a free one",
    },
    Setting {
        key: "metrics_listen",
        value: "ADDRESS",
        default: None,
        help: "Serve only /metrics on this address and port, without a token [default: the main address, for this machine or with the operator token]",
    },
    Setting {
        key: "tls.cert",
        value: "FILE",
        default: None,
        help: "Serve TLS with this certificate chain (PEM); needs tls.key; reloaded when it changes",
    },
    Setting {
        key: "tls.key",
        value: "FILE",
        default: None,
        help: "Private key of the certificate (PEM); reloaded when it changes",
    },
    Setting {
        key: "tls.redirect_listen",
        value: "ADDRESS",
        default: None,
        help: "Redirect plain HTTP on this address and port to the dashboard's https address, such as 0.0.0.0:80",
    },
    Setting {
        key: "tls.hsts_seconds",
        value: "N",
        default: Some("31536000"),
        help: "HSTS max-age in seconds; 0 disables the header",
    },
    Setting {
        key: "data_dir",
        value: "DIR",
        default: Some("data"),
        help: "Store events and accounts in this directory; must be on a local disk",
    },
    Setting {
        key: "store",
        value: "STORE",
        default: Some("embedded"),
        help: "Store events here: embedded, or the postgres:// URL of a database; prefer the environment to the flag",
    },
    Setting {
        key: "operator_token",
        value: "TOKEN",
        default: None,
        help: "Enable /operator/v1 for requests with this token; prefer the environment to the flag",
    },
    Setting {
        key: "base_url",
        value: "URL",
        default: None,
        help: "Public URL of the API [default: the listen address]",
    },
    Setting {
        key: "docs_url",
        value: "URL",
        default: None,
        help: "Public URL of the documentation [default: /docs under the base URL]",
    },
    Setting {
        key: "app_url",
        value: "URL",
        default: None,
        help: "Public URL of the dashboard [default: /app under the base URL]",
    },
    Setting {
        key: "trusted_proxies",
        value: "RANGES",
        default: Some(""),
        help: "Trust X-Forwarded-For from these proxies: addresses and CIDR ranges, separated by commas",
    },
    Setting {
        key: "geoip_db",
        value: "FILE",
        default: None,
        help: "Look up country and city in this MMDB file; reloaded when it changes",
    },
    Setting {
        key: "limits.per_ip_rps",
        value: "N",
        default: Some("100"),
        help: "Requests per second from one address; 0 for no limit",
    },
    Setting {
        key: "limits.connections",
        value: "N",
        default: Some("4096"),
        help: "Open connections in all, at most half of the open files; each can take 320 KiB of memory",
    },
    Setting {
        key: "limits.connections_per_ip",
        value: "N",
        default: Some("512"),
        help: "Open connections from one address, at most half of all; trusted proxies have no limit; 0 for no limit",
    },
    Setting {
        key: "limits.live_rps",
        value: "N",
        default: None,
        help: "Requests per second of a tenant, instead of its plan's rate; 0 for no limit",
    },
    Setting {
        key: "limits.test_rps",
        value: "N",
        default: Some("60"),
        help: "Requests per second of a test key; 0 for no limit",
    },
    Setting {
        key: "limits.test_retention_days",
        value: "DAYS",
        default: Some("30"),
        help: "Delete test events after this many days; 0 keeps them forever",
    },
    Setting {
        key: "limits.tenant_disk_mb",
        value: "MB",
        default: Some("0"),
        help: "Disk space for the account data of a tenant: keys, members, exports, cases and what belongs to them; 0 for no limit",
    },
    Setting {
        key: "limits.nodes",
        value: "N",
        default: Some("1"),
        help: "Number of servers that share the limits; each enforces an equal part",
    },
    Setting {
        key: "clock.strict",
        value: "BOOL",
        default: Some("false"),
        help: "Reject events if the clock jumps forward by more than an hour and is not corrected within ten minutes, instead of accepting the new time",
    },
    Setting {
        key: "trust.enabled",
        value: "BOOL",
        default: Some("true"),
        help: "Build a Merkle tree for each live chain, in the background, for proofs that an outsider can check",
    },
    Setting {
        key: "trust.origin",
        value: "NAME",
        default: None,
        help: "Name of the signed log, fixed when the log begins [default: HOST/tlog/v1/store after base_url if that is set, otherwise a random name]",
    },
    Setting {
        key: "trust.log_key_file",
        value: "FILE",
        default: None,
        help: "Sign the log with the key in this file [default: trust/log.key in the data directory; with PostgreSQL none, and this server does not sign]",
    },
    Setting {
        key: "trust.service_key_file",
        value: "FILE",
        default: None,
        help: "Sign what clients get with the key in this file [default: trust/service.key in the data directory; with PostgreSQL none]",
    },
    Setting {
        key: "trust.state_copy",
        value: "FILE",
        default: None,
        help: "Keep the newest signed size of the log in this file, outside the data directory and its backups, to detect a rollback of the store",
    },
    Setting {
        key: "trust.interval_s",
        value: "SECONDS",
        default: Some("60"),
        help: "Publish and sign the heads of all live chains at this interval, from 1 to 3600",
    },
    Setting {
        key: "trust.max_delay_s",
        value: "SECONDS",
        default: Some("600"),
        help: "Longest time until an event is published, which the log states when it begins; at least two intervals",
    },
    Setting {
        key: "verification.schedule",
        value: "TIME",
        default: Some("02:30"),
        help: "Verify every live chain each night at this time of day (UTC), such as 02:30, or off",
    },
    Setting {
        key: "verification.report",
        value: "DAY",
        default: Some("monday"),
        help: "Mail the weekly integrity report to organisations on this day, such as monday, or off; needs smtp.url and a schedule",
    },
    Setting {
        key: "smtp.url",
        value: "URL",
        default: None,
        help: "Send mail through this server, such as smtps://user:password@mail.example.com; prefer the environment to the flag",
    },
    Setting {
        key: "smtp.from",
        value: "ADDRESS",
        default: None,
        help: "From address of outgoing mail, such as \"Sealog <log@example.com>\"",
    },
    Setting {
        key: "replication.enabled",
        value: "BOOL",
        default: Some("false"),
        help: "Let sealog replicate copy the whole embedded store, secrets included, with the operator token",
    },
    Setting {
        key: "replication.peer",
        value: "URL",
        default: None,
        help: "Ask this server, with the same operator token, whether it was promoted, and reject events if it was; such as https://standby.example.org",
    },
    Setting {
        key: "ops.enabled",
        value: "BOOL",
        default: Some("false"),
        help: "Enable the operator console at /ops, for accounts that sealog ops-user creates",
    },
    Setting {
        key: "ops.listen",
        value: "ADDRESS",
        default: None,
        help: "Serve the operator console, and nothing else, on this address and port only",
    },
    Setting {
        key: "ops.url",
        value: "URL",
        default: None,
        help: "Public URL of the operator console [default: /ops at its own address, or on the host of the dashboard]",
    },
    Setting {
        key: "log_level",
        value: "LEVEL",
        default: Some("info"),
        help: "Log at this level: error, warn, info, or debug, which adds a line for every request",
    },
    Setting {
        key: "log_format",
        value: "FORMAT",
        default: Some("auto"),
        help: "Log in this format: json, text, or auto for text on a terminal and JSON otherwise",
    },
    Setting {
        key: "on_store_failure",
        value: "ACTION",
        default: Some("exit"),
        help: "After a failed write or sync of the embedded store: exit with code 74, so that a supervisor restarts the server, or stay and serve reads",
    },
    Setting {
        key: "allow_unsafe_storage",
        value: "BOOL",
        default: Some("false"),
        help: "Accept a data directory in memory or on a network file system, where acknowledged events can be lost",
    },
];

/// Values that no error shows.
const SECRET: [&str; 2] = ["operator_token", "smtp.url"];

/// Variables of the client, and what Kubernetes injects for a service called sealog.
const LEFT_ALONE: [&str; 4] = ["SEALOG_URL", "SEALOG_API_KEY", "SEALOG_PROFILE", "SEALOG_CONFIG"];
const LEFT_ALONE_PREFIXES: [&str; 2] = ["SEALOG_SERVICE_", "SEALOG_PORT"];

fn variable(key: &str) -> String {
    format!("SEALOG_{}", key.replace('.', "_").to_uppercase())
}

fn flag(key: &str) -> String {
    key.replace(['.', '_'], "-")
}

/// For the documentation.
pub(crate) fn reference() -> Vec<sealog_docs::Setting> {
    let setting = |setting: &Setting| sealog_docs::Setting {
        key: setting.key.to_owned(),
        variable: variable(setting.key),
        flag: format!("--{}", flag(setting.key)),
        default: setting.default.unwrap_or("").to_owned(),
        help: setting.help.to_owned(),
    };
    SETTINGS.iter().map(setting).collect()
}

/// The settings that commands beside the server show; they read all of them.
const SHOWN: [&str; 2] = ["data_dir", "store"];

/// A flag for each setting. The server's help explains them all; other commands show their own flags first,
/// and of the settings those that say which server is meant.
pub(crate) fn with_flags(command: Command) -> Command {
    let is_server = command.get_name() == "serve";
    let others = SETTINGS.len() - SHOWN.len();
    let more = match is_server {
        true => String::new(),
        false => {
            format!("; `sealog serve --help` explains the other {others} settings, which work here as well")
        }
    };
    let command =
        command.arg(
            Arg::new("config").long("config").value_name("PATH").help_heading("Settings").help(format!(
                "Settings file [default: sealog.toml if it exists] [env: SEALOG_CONFIG]{more}"
            )),
        );
    SETTINGS.iter().fold(command, |command, setting| {
        let default = setting
            .default
            .filter(|default| !default.is_empty())
            .map_or(String::new(), |default| format!(" [default: {default}]"));
        let help = format!("{}{default} [env: {}]", setting.help, variable(setting.key));
        let shown = Arg::new(setting.key).long(flag(setting.key)).value_name(setting.value).help(help);
        let is_hidden = !is_server && !SHOWN.contains(&setting.key);
        command.arg(shown.help_heading("Settings").hide(is_hidden))
    })
}

/// What is wrong with the settings, and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::usage(error.to_string())
    }
}

/// The operator's console: off unless it is enabled, or has an address of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ops {
    enabled: bool,
    pub listen: Option<SocketAddr>,
    url: Option<String>,
}

impl Ops {
    pub(crate) fn is_on(&self) -> bool {
        self.enabled || self.listen.is_some()
    }
}

/// Everything that `serve` needs to know.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The command line, for a server that reads a setting again.
    pub given: Option<ArgMatches>,
    pub listen: SocketAddr,
    /// Where `/metrics` is served, if not on `listen`.
    pub metrics_listen: Option<SocketAddr>,
    /// Where plain HTTP is led to TLS.
    pub redirect_listen: Option<SocketAddr>,
    pub ops: Ops,
    pub store: Place,
    pub data_dir: PathBuf,
    pub allow_unsafe_storage: bool,
    pub exit_on_store_failure: bool,
    pub clock_strict: bool,
    /// How the heads of chains are published and signed; None if they are not.
    pub trust: Option<TrustSettings>,
    /// What the control data of a tenant may take of the disk.
    pub tenant_bytes_max: Option<u64>,
    pub log_level: tracing::Level,
    pub log_format: logging::Format,
    pub server: Config,
    pub service: sealog_engine::Settings,
    /// Whether `base_url` follows from where the server listens, once that is known.
    pub base_url_given: bool,
    docs_url_given: bool,
    app_url_given: bool,
}

impl Settings {
    pub(crate) fn open_options(&self) -> OpenOptions {
        let Settings { allow_unsafe_storage, clock_strict, tenant_bytes_max, .. } = *self;
        OpenOptions { allow_unsafe_storage, clock_strict, tenant_bytes_max }
    }

    /// Where people reach the dashboard of a server with these settings that does not run. Nothing where the
    /// kernel will choose its port.
    pub(crate) fn app_url(&self) -> Option<String> {
        if self.app_url_given || self.base_url_given {
            return Some(self.service.app_url.clone());
        }
        (self.listen.port() != 0).then(|| format!("{}://{}/app", self.scheme(), self.listen))
    }

    fn scheme(&self) -> &'static str {
        if self.server.tls.is_some() { "https" } else { "http" }
    }

    /// Where operators reach the console of a server with these settings, or why that cannot be said.
    pub(crate) fn console_url(&self) -> Result<String, String> {
        if !self.ops.is_on() {
            return Err("the operator console is off: set ops.enabled or ops.listen".into());
        }
        if let Some(url) = &self.ops.url {
            return Ok(url.clone());
        }
        let unknown =
            "the console has no URL while the port is 0: give --ops-url, the same as for the server";
        match self.ops.listen {
            Some(address) if address.port() != 0 => Ok(format!("{}://{address}/ops", self.scheme())),
            Some(_) => Err(unknown.into()),
            // On the host of the dashboard, whatever its path is.
            None => {
                let app_url = self.app_url().ok_or(unknown)?;
                let (scheme, rest) = app_url.split_once("://").unwrap_or(("http", &app_url));
                Ok(format!("{scheme}://{}/ops", rest.split('/').next().unwrap_or("")))
            }
        }
    }

    /// Fills in the addresses that were not given, now that the port is known.
    pub(crate) fn listening_on(&mut self, address: SocketAddr) {
        self.listen = address;
        if !self.base_url_given {
            self.server.base_url = format!("{}://{address}", self.scheme());
        }
        if !self.docs_url_given {
            self.server.docs_url = format!("{}/docs", self.server.base_url);
        }
        if !self.app_url_given {
            self.service.app_url = format!("{}/app", self.server.base_url);
        }
    }
}

/// A setting as it counts, and where it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effective {
    pub key: String,
    pub value: String,
    pub place: String,
}

/// All settings that have a value, for people to read. Secrets are replaced unless they are to be revealed.
pub(crate) fn effective(
    matches: &ArgMatches,
    environment: impl Iterator<Item = (String, String)>,
    reveal: bool,
) -> Result<Vec<Effective>, ConfigError> {
    let (flags, environment, file) = given(matches, environment)?;
    let values = values(&flags, &environment, &file)?;
    let of_plans = file.iter().filter(|(key, _)| plans::is_of_plans(key));
    let of_plans = of_plans.map(|(key, (value, place))| (key.as_str(), value, place));
    let all = values.0.iter().map(|(key, (value, place))| (*key, value, place)).chain(of_plans);
    Ok(all
        .map(|(key, value, place)| Effective {
            key: key.to_owned(),
            value: if reveal { value.clone() } else { redacted(key, value) },
            place: place.clone(),
        })
        .collect())
}

/// Of an address its place, without who asks there and how.
fn redacted(key: &str, value: &str) -> String {
    match value.split_once("://") {
        Some((scheme, rest)) if key == "store" || SECRET.contains(&key) => {
            let host = rest.rsplit('@').next().unwrap_or("").split(['?', '#']).next().unwrap_or("");
            let secret = if rest.contains(['@', '?']) { "(secret)@" } else { "" };
            format!("{scheme}://{secret}{host}")
        }
        _ if SECRET.contains(&key) => "(secret)".into(),
        // A password may have been put anywhere that takes an address.
        Some((scheme, rest)) if rest.contains('@') => {
            format!("{scheme}://(secret)@{}", rest.rsplit('@').next().unwrap_or(""))
        }
        _ => value.to_owned(),
    }
}

type OfFile = BTreeMap<String, (String, String)>;
/// Flags, environment and file.
type Given = (BTreeMap<String, String>, BTreeMap<String, String>, OfFile);

/// What flags, environment and file say.
fn given(
    matches: &ArgMatches,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Given, ConfigError> {
    let mut environment: BTreeMap<String, String> = environment
        .filter(|(name, _)| name.starts_with("SEALOG_") || name == secret_files::CREDENTIALS)
        .collect();
    let credentials = environment.remove(secret_files::CREDENTIALS).map(PathBuf::from);
    let mut file = match settings_file(matches, &environment) {
        Some(path) => read_file(&path)?,
        None => BTreeMap::new(),
    };
    let secrets =
        secret_files::take(&mut environment, credentials.as_deref(), variable).map_err(ConfigError)?;
    file.extend(secrets);
    let flags = SETTINGS.iter().filter_map(|setting| {
        Some((setting.key.to_owned(), matches.get_one::<String>(setting.key)?.clone()))
    });
    Ok((flags.collect(), environment, file))
}

pub(crate) fn load(
    matches: &ArgMatches,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Settings, ConfigError> {
    let (mut flags, mut environment, mut file) = given(matches, environment)?;
    let settings = resolve(&flags, &environment, &file);
    // Any of them may have been a secret; what is still needed is in a `Secret` now.
    flags.values_mut().chain(environment.values_mut()).for_each(Zeroize::zeroize);
    file.values_mut().for_each(|(value, _)| value.zeroize());
    settings
}

/// The operator token as it is now, in files that may have changed since the start.
pub(crate) fn operator_token(matches: &ArgMatches) -> Result<Option<Secret>, ConfigError> {
    let (flags, environment, file) = given(matches, std::env::vars())?;
    values(&flags, &environment, &file)?.operator_token()
}

/// The settings file, with the names of the settings in it that are secret.
pub(crate) fn secrets_in_file(
    matches: &ArgMatches,
    environment: impl Iterator<Item = (String, String)>,
) -> Option<(PathBuf, Vec<String>)> {
    let environment: BTreeMap<String, String> = environment.collect();
    let path = settings_file(matches, &environment)?;
    let values = read_file(&path).ok()?;
    let is_secret = |key: &str, value: &str| redacted(key, value) != value;
    let secrets = values.iter().filter(|(key, (value, _))| is_secret(key, value)).map(|(key, _)| key.clone());
    Some((path, secrets.collect()))
}

fn settings_file(matches: &ArgMatches, environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    match matches.get_one::<String>("config").or(environment.get("SEALOG_CONFIG")) {
        Some(path) => Some(path.into()),
        None => Some(PathBuf::from("sealog.toml")).filter(|path| path.exists()),
    }
}

/// Where a server can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listeners {
    pub main: SocketAddr,
    /// Whether that one speaks TLS.
    pub is_tls: bool,
    /// Where `/metrics` is, if not there. It never speaks TLS.
    pub metrics: Option<SocketAddr>,
}

/// Where a server with these settings listens. No file that they name is opened: a certificate that is being
/// replaced just now is no reason not to reach a server that has the one before.
pub(crate) fn listeners(
    matches: &ArgMatches,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Listeners, ConfigError> {
    let (flags, environment, file) = given(matches, environment)?;
    let values = values(&flags, &environment, &file)?;
    let main = values.listen()?;
    Ok(Listeners { main, is_tls: values.0.contains_key("tls.cert"), metrics: values.metrics_listen(main)? })
}

/// Settings of a command that takes nothing from the environment or a file: these, and the defaults.
pub(crate) fn of_flags(given: &[(&str, &str)]) -> Result<Settings, ConfigError> {
    let flags = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    resolve(&flags.collect(), &BTreeMap::new(), &BTreeMap::new())
}

fn resolve(
    flags: &BTreeMap<String, String>,
    environment: &BTreeMap<String, String>,
    file: &OfFile,
) -> Result<Settings, ConfigError> {
    let mut settings = values(flags, environment, file)?.settings()?;
    settings.service.plans = plans::of(file).map_err(ConfigError)?;
    Ok(settings)
}

/// What counts of all that was given.
fn values(
    flags: &BTreeMap<String, String>,
    environment: &BTreeMap<String, String>,
    file: &OfFile,
) -> Result<Values, ConfigError> {
    for name in environment.keys() {
        let known = SETTINGS.iter().any(|setting| variable(setting.key) == *name);
        let alone = LEFT_ALONE.contains(&name.as_str())
            || LEFT_ALONE_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        if !known && !alone {
            return Err(ConfigError(format!(
                "the environment variable {name} is not a setting; see sealog serve --help"
            )));
        }
    }
    for (key, (_, place)) in file.iter().filter(|(key, _)| !plans::is_of_plans(key)) {
        if !SETTINGS.iter().any(|setting| setting.key == key) {
            return Err(ConfigError(format!("{place}: {key} is not a setting; see sealog serve --help")));
        }
    }
    let mut values = Values(BTreeMap::new());
    for setting in SETTINGS {
        let from_flag =
            flags.get(setting.key).map(|value| (value.clone(), format!("--{}", flag(setting.key))));
        let from_environment =
            environment.get(&variable(setting.key)).map(|value| (value.clone(), variable(setting.key)));
        let from_default = setting.default.map(|value| (value.to_owned(), "default".to_owned()));
        if let Some(value) =
            from_flag.or(from_environment).or(file.get(setting.key).cloned()).or(from_default)
        {
            values.0.insert(setting.key, value);
        }
    }
    Ok(values)
}

/// Keys with dots, and each value as text with its place.
fn read_file(path: &Path) -> Result<BTreeMap<String, (String, String)>, ConfigError> {
    let wrong = |problem: &dyn fmt::Display| ConfigError(format!("{}: {problem}", path.display()));
    let text = std::fs::read_to_string(path)
        .map_err(|error| wrong(&format!("{error}; --config or SEALOG_CONFIG names the settings file")))?;
    let text = Zeroizing::new(text);
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // Not the error's own text: that quotes the line, and there may be a password in it.
        let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or(&text));
        let line = before.matches('\n').count() + 1;
        ConfigError(format!("{}: line {line}: {}", path.display(), error.message()))
    })?;
    let mut values = BTreeMap::new();
    flatten("", table, path, &mut values);
    Ok(values)
}

fn flatten(prefix: &str, table: toml::Table, path: &Path, values: &mut BTreeMap<String, (String, String)>) {
    for (key, value) in table {
        let key = format!("{prefix}{key}");
        let text = |value: toml::Value| match value {
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        match value {
            // Without it a plan that says nothing would be left out without a word.
            toml::Value::Table(table) if table.is_empty() && plans::is_of_plans(&key) => {
                values.insert(key, (String::new(), path.display().to_string()));
            }
            toml::Value::Table(table) => flatten(&format!("{key}."), table, path, values),
            toml::Value::Array(items) => {
                let items: Vec<String> = items.into_iter().map(text).collect();
                values.insert(key, (items.join(","), path.display().to_string()));
            }
            value => {
                values.insert(key, (text(value), path.display().to_string()));
            }
        }
    }
}

/// Resolved values with the place where each was given.
struct Values(BTreeMap<&'static str, (String, String)>);

impl Drop for Values {
    fn drop(&mut self) {
        self.0.values_mut().for_each(|(value, _)| value.zeroize());
    }
}

impl Values {
    fn get<T>(
        &self,
        key: &'static str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some((text, place)) = self.0.get(key) else { return Ok(None) };
        match parse(text) {
            Some(value) => Ok(Some(value)),
            // An address may have a password in it, wherever it was put.
            None if SECRET.contains(&key) || text.contains('@') => {
                Err(ConfigError(format!("{place}: {key} must be {expected}")))
            }
            None => Err(ConfigError(format!("{place}: {key} must be {expected}, not {text:?}"))),
        }
    }

    fn required<T>(
        &self,
        key: &'static str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ConfigError> {
        self.get(key, expected, parse)?.ok_or_else(|| ConfigError(format!("{key} is required")))
    }

    fn operator_token(&self) -> Result<Option<Secret>, ConfigError> {
        self.get("operator_token", "at least 16 characters", |text| {
            (text.len() >= 16).then(|| Secret(text.to_owned()))
        })
    }

    /// Not shown when it is wrong: it may hold a password.
    fn store(&self) -> Result<Place, ConfigError> {
        let (text, place) = self.0.get("store").ok_or_else(|| ConfigError("store is required".into()))?;
        let wrong = || ConfigError(format!("{place}: store must be \"embedded\" or begin with postgres://"));
        Place::parse(text).ok_or_else(wrong)
    }

    fn peer(&self, store: &Place, server: &Config) -> Result<Option<Arc<Peer>>, ConfigError> {
        let expected = "an http or https URL without a path";
        let peer = self.get("replication.peer", expected, |text| {
            let rest = text.strip_prefix("https://").or(text.strip_prefix("http://"))?;
            let is_place = !rest.trim_end_matches('/').is_empty() && !rest.contains('@');
            is_place.then(|| Arc::new(Peer::new(text.trim_end_matches('/'))))
        })?;
        let wrong = match peer {
            Some(_) if *store != Place::Embedded => {
                "replication.peer is for the embedded store; PostgreSQL has its own failover"
            }
            Some(_) if server.operator_token.is_none() => {
                "replication.peer needs operator_token, the same on both servers"
            }
            peer => return Ok(peer),
        };
        Err(ConfigError(wrong.into()))
    }

    fn listen(&self) -> Result<SocketAddr, ConfigError> {
        self.required("listen", "an address and port, such as 127.0.0.1:8080", |text| text.parse().ok())
    }

    fn metrics_listen(&self, listen: SocketAddr) -> Result<Option<SocketAddr>, ConfigError> {
        self.get(
            "metrics_listen",
            "an address and port other than that of listen, such as 127.0.0.1:9090",
            |text| text.parse().ok().filter(|address| *address != listen || listen.port() == 0),
        )
    }

    fn settings(&self) -> Result<Settings, ConfigError> {
        let number = "a whole number from 0 to 4294967295";
        let rate = |text: &str| text.parse::<u32>().ok();
        let url = |text: &str| {
            (text.starts_with("http://") || text.starts_with("https://"))
                .then(|| text.trim_end_matches('/').to_owned())
        };
        let listen = self.listen()?;
        let metrics_listen = self.metrics_listen(listen)?;
        let redirect_listen = self.get(
            "tls.redirect_listen",
            "an address and port other than those of listen and metrics_listen, such as 0.0.0.0:80",
            |text| {
                let address: Option<SocketAddr> = text.parse().ok();
                let others = [Some(listen), metrics_listen];
                address.filter(|address| address.port() == 0 || !others.contains(&Some(*address)))
            },
        )?;
        let others = [Some(listen), metrics_listen, redirect_listen];
        let ops = Ops {
            enabled: self.required("ops.enabled", "true or false", |text| text.parse().ok())?,
            listen: self.get(
                "ops.listen",
                "an address and port other than those of listen and metrics_listen, such as 127.0.0.1:9443",
                |text| {
                    let address: Option<SocketAddr> = text.parse().ok();
                    address.filter(|address| address.port() == 0 || !others.contains(&Some(*address)))
                },
            )?,
            url: self.get("ops.url", "an http or https URL that ends in /ops", |text| {
                url(text).filter(|url| url.ends_with("/ops"))
            })?,
        };
        let store = self.store()?;
        let (base_url, docs_url, app_url) = (
            self.get("base_url", "an http or https URL", url)?,
            self.get("docs_url", "an http or https URL", url)?,
            self.get("app_url", "an http or https URL", url)?,
        );
        let mut server = Config::at(base_url.as_deref().unwrap_or(""));
        let mut service = sealog_engine::Settings::at(&format!("{}/app", server.base_url));
        if let Some(docs_url) = &docs_url {
            server.docs_url.clone_from(docs_url);
        }
        if let Some(app_url) = &app_url {
            service.app_url.clone_from(app_url);
        }
        server.operator_token = self.operator_token()?;
        server.replication =
            self.required("replication.enabled", "true or false", |text| text.parse().ok())?;
        server.peer = self.peer(&store, &server)?;
        server.trusted_proxies =
            self.required("trusted_proxies", "addresses and CIDR ranges, separated by commas", proxies)?;
        if let Some((file, place)) = self.0.get("geoip_db") {
            let geo = Geo::open(Path::new(file))
                .map_err(|problem| ConfigError(format!("{place}: cannot use geoip_db: {problem}")))?;
            service.geo = Some(Arc::new(geo));
        }
        server.metrics_apart = metrics_listen.is_some();
        server.tls = self.tls()?;
        server.hsts_seconds = self.required("tls.hsts_seconds", number, rate)?;
        service.smtp = self.smtp()?;
        service.verification = self.schedule()?;
        service.test_retention_days =
            self.required("limits.test_retention_days", "a whole number from 0 to 36500", |text| {
                text.parse().ok().filter(|days| *days <= 36_500)
            })?;
        server.connections_max =
            self.required("limits.connections", "a whole number from 1 to 10000", |text| {
                text.parse().ok().filter(|connections| (1..=10_000).contains(connections))
            })?;
        server.limits = LimitConfig {
            connections_per_ip: self.required("limits.connections_per_ip", number, rate)?,
            per_ip_rps: self.required("limits.per_ip_rps", number, rate)?,
            live_rps: self.get("limits.live_rps", number, rate)?,
            test_rps: self.required("limits.test_rps", number, rate)?,
            nodes: self.required("limits.nodes", "a whole number from 1", |text| {
                text.parse().ok().filter(|nodes| *nodes > 0)
            })?,
        };
        let data_dir =
            self.required("data_dir", "a path", |text| (!text.is_empty()).then(|| PathBuf::from(text)))?;
        let trust = self.trust(&store, &data_dir, base_url.as_deref())?;
        Ok(Settings {
            given: None,
            listen,
            metrics_listen,
            redirect_listen,
            ops,
            store,
            data_dir,
            allow_unsafe_storage: self
                .required("allow_unsafe_storage", "true or false", |text| text.parse().ok())?,
            exit_on_store_failure: self.required("on_store_failure", "exit or stay", |text| match text {
                "exit" => Some(true),
                "stay" => Some(false),
                _ => None,
            })?,
            tenant_bytes_max: self.required("limits.tenant_disk_mb", "a whole number from 0", |text| {
                let mb: u64 = text.parse::<u32>().ok()?.into();
                Some((mb > 0).then_some(mb << 20))
            })?,
            clock_strict: self.required("clock.strict", "true or false", |text| text.parse().ok())?,
            trust,
            log_level: self.required("log_level", "error, warn, info or debug", |text| match text {
                "error" => Some(tracing::Level::ERROR),
                "warn" => Some(tracing::Level::WARN),
                "info" => Some(tracing::Level::INFO),
                "debug" => Some(tracing::Level::DEBUG),
                _ => None,
            })?,
            log_format: self.required("log_format", "json, text or auto", logging::Format::parse)?,
            server,
            service,
            base_url_given: base_url.is_some(),
            docs_url_given: docs_url.is_some(),
            app_url_given: app_url.is_some(),
        })
    }

    /// All or nothing: half of it would be a server that people take for a safe one.
    fn tls(&self) -> Result<Option<Arc<Tls>>, ConfigError> {
        let place = |key: &str| self.0.get(key).map_or("", |(_, place)| place);
        let without = |given: &str, missing: &str| {
            Err(ConfigError(format!("{}: {given} also needs {missing}", place(given))))
        };
        let file = |key: &str| self.0.get(key).map(|(file, _)| Path::new(file));
        let tls = match (file("tls.cert"), file("tls.key")) {
            (Some(certificate), Some(key)) => Tls::open(certificate, key)
                .map_err(|why| ConfigError(format!("{}: cannot use TLS: {why}", place("tls.cert"))))?,
            (Some(_), None) => return without("tls.cert", "tls.key"),
            (None, Some(_)) => return without("tls.key", "tls.cert"),
            (None, None) if self.0.contains_key("tls.redirect_listen") => {
                return without("tls.redirect_listen", "tls.cert");
            }
            (None, None) => return Ok(None),
        };
        for key in ["base_url", "app_url"] {
            if self.0.get(key).is_some_and(|(url, _)| url.starts_with("http://")) {
                let place = place(key);
                return Err(ConfigError(format!(
                    "{place}: {key} must begin with https:// when tls.cert is set"
                )));
            }
        }
        Ok(Some(Arc::new(tls)))
    }

    /// Keys are made at the first start on the embedded store where no file is named, and given otherwise.
    fn trust(
        &self,
        store: &Place,
        data_dir: &Path,
        base_url: Option<&str>,
    ) -> Result<Option<TrustSettings>, ConfigError> {
        let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        let key = |key: &'static str, name: &str| -> Result<Option<KeyFile>, ConfigError> {
            let given = self.get(key, "a path", path)?;
            let made = || (*store == Place::Embedded).then(|| data_dir.join(FOLDER).join(name));
            let given = given.map(|path| KeyFile { path, origin: Origin::Given });
            Ok(given.or_else(|| made().map(|path| KeyFile { path, origin: Origin::Made })))
        };
        // Of what a restored data directory brings along, it would agree with every rollback.
        let outside = |text: &str| path(text).filter(|path| !path.starts_with(data_dir));
        let interval_s = self.required("trust.interval_s", "a whole number from 1 to 3600", |text| {
            text.parse().ok().filter(|interval_s| (1..=3600).contains(interval_s))
        })?;
        let max_delay_s = self.required(
            "trust.max_delay_s",
            &format!("a whole number from {} to 86400: at least two intervals", 2 * interval_s),
            |text| text.parse().ok().filter(|delay_s| (2 * interval_s..=86_400).contains(delay_s)),
        )?;
        let settings = TrustSettings {
            log_key: key("trust.log_key_file", "log.key")?,
            service_key: key("trust.service_key_file", "service.key")?,
            origin: self.get("trust.origin", "a name without white space and `+`", |text| {
                is_origin(text).then(|| text.to_owned())
            })?,
            host: base_url.and_then(|url| url.split_once("://")).map(|(_, host)| host.to_owned()),
            state_copy: self
                .get("trust.state_copy", "a path outside the data directory", outside)?
                .map(StateCopy::at),
            interval_s,
            max_delay_s,
        };
        let is_on = self.required("trust.enabled", "true or false", |text| text.parse::<bool>().ok())?;
        Ok(is_on.then_some(settings))
    }

    fn schedule(&self) -> Result<Option<Schedule>, ConfigError> {
        let or_off = |parse: fn(&str) -> Option<u64>| {
            move |text: &str| if text == "off" { Some(None) } else { parse(text).map(Some) }
        };
        let at_ms = self.required(
            "verification.schedule",
            "a time of day such as 02:30, or off",
            or_off(Schedule::parse_time),
        )?;
        let report_on = self.required(
            "verification.report",
            "a day of the week such as monday, or off",
            or_off(Schedule::parse_day),
        )?;
        Ok(at_ms.map(|at_ms| Schedule { at_ms, report_on }))
    }

    /// Both or neither.
    fn smtp(&self) -> Result<Option<Smtp>, ConfigError> {
        let relay = self.get(
            "smtp.url",
            "smtps://user:password@host, smtp://user:password@host?tls=required or smtp://host, with special characters of the password percent-encoded",
            Relay::parse,
        )?;
        let from = self.get("smtp.from", "an e-mail address", Sender::parse)?;
        let without = |given: &str, missing: &str| {
            let place = self.0.get(given).map_or("", |(_, place)| place);
            Err(ConfigError(format!("{place}: {given} also needs {missing}")))
        };
        match (relay, from) {
            (Some(relay), Some(from)) => Ok(Some(Smtp { relay, from })),
            (None, None) => Ok(None),
            (Some(_), None) => without("smtp.url", "smtp.from"),
            (None, Some(_)) => without("smtp.from", "smtp.url"),
        }
    }
}

fn proxies(text: &str) -> Option<Vec<IpNet>> {
    let range = |part: &str| {
        part.parse::<IpNet>().ok().or_else(|| part.parse::<std::net::IpAddr>().ok().map(IpNet::from))
    };
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn file(text: &str) -> BTreeMap<String, (String, String)> {
        let mut values = BTreeMap::new();
        flatten("", text.parse().unwrap(), Path::new("sealog.toml"), &mut values);
        values
    }

    fn error(flags: &[(&str, &str)], environment: &[(&str, &str)], text: &str) -> String {
        resolve(&map(flags), &map(environment), &file(text)).unwrap_err().0
    }

    #[test]
    fn the_defaults_are_the_documented_ones() {
        let settings = resolve(&map(&[]), &map(&[]), &file("")).unwrap();
        assert_eq!(settings.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(
            (
                settings.server.limits.per_ip_rps,
                settings.server.limits.test_rps,
                settings.server.limits.nodes
            ),
            (100, 60, 1)
        );
        assert_eq!(settings.server.operator_token, None);
        assert_eq!(settings.log_level, tracing::Level::INFO);
        assert!(settings.exit_on_store_failure);
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let text = "listen = \"127.0.0.1:1\"\n[limits]\nper_ip_rps = 7\ntest_rps = 8\n";
        let environment = [("SEALOG_LISTEN", "127.0.0.1:2"), ("SEALOG_LIMITS_PER_IP_RPS", "9")];
        let settings = resolve(&map(&[("listen", "127.0.0.1:3")]), &map(&environment), &file(text)).unwrap();
        assert_eq!(
            (settings.listen.port(), settings.server.limits.per_ip_rps, settings.server.limits.test_rps),
            (3, 9, 8)
        );
    }

    #[test]
    fn metrics_are_on_the_main_address_unless_they_have_their_own() {
        let settings = resolve(&map(&[]), &map(&[]), &file("")).unwrap();
        assert_eq!((settings.metrics_listen, settings.server.metrics_apart), (None, false));
        let settings =
            resolve(&map(&[]), &map(&[("SEALOG_METRICS_LISTEN", "10.0.0.1:9090")]), &file("")).unwrap();
        assert_eq!(
            settings.metrics_listen.map(|address| address.to_string()).as_deref(),
            Some("10.0.0.1:9090")
        );
        assert!(settings.server.metrics_apart);
        for wrong in ["9090", "localhost:9090", "127.0.0.1:8080"] {
            let error = error(&[("metrics_listen", wrong)], &[], "");
            assert!(
                error.starts_with("--metrics-listen: metrics_listen must be an address and port"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_console_is_off_unless_it_is_enabled_or_has_an_address_of_its_own() {
        let ops = |pairs: &[(&str, &str)]| {
            let settings = resolve(&map(&[]), &map(pairs), &file("")).unwrap();
            (settings.ops.is_on(), settings.console_url())
        };
        let (is_on, url) = ops(&[]);
        assert!(!is_on && url.unwrap_err().contains("ops.enabled"));
        let on = ("SEALOG_OPS_ENABLED", "true");
        assert_eq!(ops(&[on]), (true, Ok("http://127.0.0.1:8080/ops".into())));
        assert_eq!(
            ops(&[on, ("SEALOG_APP_URL", "https://log.example/ui")]).1,
            Ok("https://log.example/ops".into())
        );
        assert!(ops(&[on, ("SEALOG_LISTEN", "127.0.0.1:0")]).1.unwrap_err().contains("--ops-url"));
        let apart = ("SEALOG_OPS_LISTEN", "127.0.0.1:9443");
        assert_eq!(ops(&[apart]), (true, Ok("http://127.0.0.1:9443/ops".into())));
        let url = ("SEALOG_OPS_URL", "https://ops.example/ops/");
        assert_eq!(ops(&[apart, url]), (true, Ok("https://ops.example/ops".into())));
        assert!(ops(&[("SEALOG_OPS_LISTEN", "127.0.0.1:0")]).1.is_err());
        let any_port = map(&[on, ("SEALOG_LISTEN", "127.0.0.1:0")]);
        let mut listening = resolve(&map(&[]), &any_port, &file("")).unwrap();
        listening.listening_on("127.0.0.1:4711".parse().unwrap());
        assert_eq!(listening.console_url(), Ok("http://127.0.0.1:4711/ops".into()));
        for (name, wrong) in [
            ("ops.enabled", "yes"),
            ("ops.listen", "9443"),
            ("ops.listen", "127.0.0.1:8080"),
            ("ops.url", "https://ops.example"),
            ("ops.url", "ops.example/ops"),
        ] {
            let error = error(&[(name, wrong)], &[], "");
            assert!(error.contains(&format!("{name} must be")), "{error}");
        }
    }

    #[test]
    fn the_store_is_embedded_or_a_url_that_is_never_shown() {
        let store =
            |text| resolve(&map(&[("store", text)]), &map(&[]), &file("")).map(|settings| settings.store);
        assert_eq!(store("embedded"), Ok(Place::Embedded));
        for url in ["postgres://u:hunter2@h/d", "postgresql://h/d"] {
            assert_eq!(store(url), Ok(Place::Postgres(Secret(url.into()))));
        }
        assert!(!format!("{:?}", store("postgres://u:hunter2@h/d")).contains("hunter2"));
        let wrong = error(&[], &[("SEALOG_STORE", "mysql://u:hunter2@h/d")], "");
        assert_eq!(wrong, "SEALOG_STORE: store must be \"embedded\" or begin with postgres://");
    }

    #[test]
    fn unknown_settings_are_refused_wherever_they_stand() {
        assert!(error(&[], &[("SEALOG_LISTNE", "x")], "").contains("SEALOG_LISTNE is not a setting"));
        assert!(error(&[], &[], "listne = 1").contains("sealog.toml: listne is not a setting"));
        assert!(error(&[], &[], "[limits]\nper_ip = 1").contains("limits.per_ip is not a setting"));
        for name in
            ["SEALOG_URL", "SEALOG_API_KEY", "SEALOG_SERVICE_HOST", "SEALOG_PORT_8080_TCP", "SEALOG_PORT"]
        {
            assert!(resolve(&map(&[]), &map(&[(name, "x")]), &file("")).is_ok(), "{name}");
        }
    }

    #[test]
    fn plans_of_the_file_are_those_of_the_server() {
        let settings =
            resolve(&map(&[]), &map(&[]), &file("[plans.entry]\nevents_per_month = 7\n[plans.entry.x]\n"));
        assert!(settings.unwrap_err().0.contains("plans.entry.x"));
        let settings = resolve(&map(&[]), &map(&[]), &file("[plans.entry]\nevents_per_month = 7\n")).unwrap();
        assert_eq!(settings.service.plans[0].events_per_month, Some(7));
        assert!(error(&[], &[], "[plans.gold]\n").contains("plans.gold needs frameworks"));
        assert!(error(&[], &[], "plans = 1\n").contains("plans is not a setting"));
        assert!(error(&[], &[("SEALOG_PLANS_ENTRY_REQUESTS_PER_S", "1")], "").contains("is not a setting"));
    }

    #[test]
    fn chains_are_verified_every_night_unless_that_is_turned_off() {
        let schedule =
            |flags: &[(&str, &str)]| resolve(&map(flags), &map(&[]), &file("")).unwrap().service.verification;
        let by_default = schedule(&[]).unwrap();
        assert_eq!((by_default.time().as_str(), by_default.report_on), ("02:30", Some(0)));
        assert_eq!(schedule(&[("verification.schedule", "23:05")]).unwrap().time(), "23:05");
        assert_eq!(schedule(&[("verification.report", "off")]).unwrap().report_on, None);
        assert_eq!(schedule(&[("verification.schedule", "off")]), None);
        assert_eq!(
            error(&[], &[("SEALOG_VERIFICATION_SCHEDULE", "at night")], ""),
            "SEALOG_VERIFICATION_SCHEDULE: verification.schedule must be a time of day such as 02:30, or off, not \"at night\""
        );
    }

    #[test]
    fn test_events_are_kept_for_30_days_unless_said_otherwise() {
        let days = |flags: &[(&str, &str)]| {
            resolve(&map(flags), &map(&[]), &file("")).unwrap().service.test_retention_days
        };
        assert_eq!((days(&[]), days(&[("limits.test_retention_days", "0")])), (30, 0));
        for wrong in ["-1", "1.5", "36501", "ever"] {
            let error = error(&[], &[("SEALOG_LIMITS_TEST_RETENTION_DAYS", wrong)], "");
            assert!(error.contains("limits.test_retention_days must be a whole number from 0"), "{error}");
        }
    }

    #[test]
    fn a_bad_value_names_its_place_and_what_was_expected() {
        assert!(
            error(&[], &[("SEALOG_LISTEN", "here")], "")
                .starts_with("SEALOG_LISTEN: listen must be an address and port")
        );
        assert!(error(&[], &[], "[limits]\nnodes = 0").starts_with("sealog.toml: limits.nodes must be"));
        assert!(
            error(&[("limits.test_rps", "-1")], &[], "")
                .starts_with("--limits-test-rps: limits.test_rps must be")
        );
        assert!(error(&[], &[("SEALOG_OPERATOR_TOKEN", "short")], "").contains("at least 16 characters"));
        assert_eq!(
            error(&[("on_store_failure", "restart")], &[], ""),
            "--on-store-failure: on_store_failure must be exit or stay, not \"restart\""
        );
        assert_eq!(
            error(&[("log_level", "loud")], &[], ""),
            "--log-level: log_level must be error, warn, info or debug, not \"loud\""
        );
    }

    #[test]
    fn mail_needs_a_server_and_a_sender_and_no_error_shows_a_password() {
        let (url, from) = ("smtp://u:hunter2@mail.example", "Sealog <log@example.org>");
        let settings =
            resolve(&map(&[("smtp.url", url), ("smtp.from", from)]), &map(&[]), &file("")).unwrap();
        assert!(settings.service.smtp.is_some());
        assert_eq!(
            error(&[], &[("SEALOG_SMTP_URL", url)], ""),
            "SEALOG_SMTP_URL: smtp.url also needs smtp.from"
        );
        assert_eq!(
            error(&[], &[], "[smtp]\nfrom = \"log@example.org\""),
            "sealog.toml: smtp.from also needs smtp.url"
        );
        assert!(error(&[("smtp.from", "nobody"), ("smtp.url", url)], &[], "").starts_with("--smtp-from: "));
        for url in ["mail.example:hunter2", "smtp://u:hunter2@mail.example?tsl=required"] {
            let error = error(&[("smtp.from", from)], &[("SEALOG_SMTP_URL", url)], "");
            assert!(
                error.starts_with("SEALOG_SMTP_URL: smtp.url must be smtps://user:password@host"),
                "{error}"
            );
            assert!(!error.contains("hunter2"), "{error}");
        }
        let error = error(&[], &[("SEALOG_OPERATOR_TOKEN", "hunter2")], "");
        assert!(!error.contains("hunter2"), "{error}");
    }

    fn trust(flags: &[(&str, &str)]) -> Option<TrustSettings> {
        resolve(&map(flags), &map(&[]), &file("")).unwrap().trust
    }

    #[test]
    fn keys_are_made_in_the_data_directory_and_on_postgresql_only_a_named_file_signs() {
        let made = |name: &str| {
            let path = Path::new("d/trust").join(name);
            Some(KeyFile { path, origin: Origin::Made })
        };
        let given = |path: &str| Some(KeyFile { path: path.into(), origin: Origin::Given });
        let embedded = trust(&[("data_dir", "d")]).unwrap();
        assert_eq!((embedded.log_key, embedded.service_key), (made("log.key"), made("service.key")));
        assert_eq!((embedded.interval_s, embedded.max_delay_s), (60, 600));
        assert_eq!((embedded.origin, embedded.host, embedded.state_copy), (None, None, None));
        let database = ("store", "postgres://h/d");
        let node = trust(&[database]).unwrap();
        assert_eq!((node.log_key, node.service_key), (None, None));
        let named = [("trust.log_key_file", "/k/log"), ("trust.service_key_file", "/k/service")];
        for store in [("store", "embedded"), database] {
            let named = trust(&[store, named[0], named[1]]).unwrap();
            assert_eq!((named.log_key, named.service_key), (given("/k/log"), given("/k/service")));
        }
        let named = trust(&[("base_url", "https://log.example/a"), ("trust.origin", "log.example")]).unwrap();
        assert_eq!((named.origin.as_deref(), named.host.as_deref()), {
            (Some("log.example"), Some("log.example/a"))
        });
        assert!(trust(&[("trust.enabled", "false")]).is_none());
    }

    #[test]
    fn a_bad_setting_of_the_signed_log_is_refused_even_where_the_log_is_off() {
        for (key, wrong, expected) in [
            ("trust.origin", "my log", "a name without white space and `+`, not \"my log\""),
            ("trust.origin", "", "a name without"),
            ("trust.origin", "a+b", "a name without"),
            ("trust.log_key_file", "", "a path"),
            ("trust.service_key_file", "", "a path"),
            ("trust.state_copy", "data/copy", "a path outside the data directory"),
            ("trust.interval_s", "0", "a whole number from 1 to 3600"),
            ("trust.interval_s", "3601", "a whole number from 1 to 3600"),
            ("trust.interval_s", "60s", "a whole number from 1 to 3600"),
            ("trust.max_delay_s", "119", "a whole number from 120 to 86400: at least two intervals"),
            ("trust.max_delay_s", "ever", "a whole number from 120"),
            ("trust.enabled", "on", "true or false"),
        ] {
            for is_on in [true, false] {
                let off = ("trust.enabled", "false");
                let flags = [(key, wrong), off];
                let error = error(&flags[..if is_on || key == off.0 { 1 } else { 2 }], &[], "");
                assert!(error.contains(&format!("{key} must be {expected}")), "{error}");
            }
        }
        let settings = trust(&[("trust.interval_s", "3600"), ("trust.max_delay_s", "7200")]).unwrap();
        assert_eq!((settings.interval_s, settings.max_delay_s), (3600, 7200));
        assert!(error(&[], &[("SEALOG_TRUST_KEY", "x")], "").contains("is not a setting"));
    }

    #[test]
    fn the_dashboard_is_under_the_base_url_unless_said_otherwise() {
        let settings = |app_url: &[(&str, &str)]| {
            let mut settings = resolve(&map(app_url), &map(&[]), &file("")).unwrap();
            settings.listening_on("127.0.0.1:81".parse().unwrap());
            settings.service.app_url
        };
        assert_eq!(settings(&[]), "http://127.0.0.1:81/app");
        assert_eq!(settings(&[("app_url", "https://log.example/ui/")]), "https://log.example/ui");
    }

    #[test]
    fn the_dashboard_of_a_stopped_server_is_where_it_will_be_and_unknown_without_a_port() {
        let app_url = |flags: &[(&str, &str)]| resolve(&map(flags), &map(&[]), &file("")).unwrap().app_url();
        let listen = ("listen", "127.0.0.1:0");
        assert_eq!(app_url(&[("listen", "127.0.0.1:81")]).as_deref(), Some("http://127.0.0.1:81/app"));
        assert_eq!(app_url(&[listen]), None);
        let base_url = ("base_url", "https://log.example");
        assert_eq!(app_url(&[listen, base_url]).as_deref(), Some("https://log.example/app"));
        let given = ("app_url", "https://ui.example/app");
        assert_eq!(app_url(&[listen, base_url, given]).as_deref(), Some("https://ui.example/app"));
    }

    #[test]
    fn settings_never_show_a_secret() {
        let environment = [
            ("SEALOG_OPERATOR_TOKEN", "hunter2hunter2hunter2"),
            ("SEALOG_STORE", "postgres://u:hunter2@h/d"),
            ("SEALOG_SMTP_URL", "smtp://u:hunter2@mail.example"),
            ("SEALOG_SMTP_FROM", "log@example.org"),
        ];
        let settings = resolve(&map(&[]), &map(&environment), &file("")).unwrap();
        for text in [format!("{settings:?}"), format!("{settings:#?}")] {
            assert!(!text.contains("hunter2"), "{text}");
            assert_eq!(text.matches("(secret)").count(), 3, "{text}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_named_with_its_line_and_without_its_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sealog.toml");
        for (text, line) in [
            ("listen = \"127.0.0.1:1\"\noperator_token = \"hunter2", 2),
            ("operator_token = hunter2", 1),
            ("\n\nstore = \"postgres://u:hunter2@h/d\" x", 3),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = read_file(&path).unwrap_err().0;
            assert!(error.starts_with(&format!("{}: line {line}: ", path.display())), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn what_is_shown_of_an_address_has_no_password_in_it() {
        for (key, value, shown) in [
            ("operator_token", "hunter2hunter2hunter2", "(secret)"),
            ("store", "embedded", "embedded"),
            ("store", "postgres://u:hunter2@h:5432/d?sslmode=require", "postgres://(secret)@h:5432/d"),
            ("store", "postgres://h/d?user=u&password=hunter2", "postgres://(secret)@h/d"),
            ("store", "postgres://u:hunter2@x@h/d", "postgres://(secret)@h/d"),
            ("smtp.url", "smtps://u:hunter2@mail.example", "smtps://(secret)@mail.example"),
            ("smtp.url", "smtp://mail.example", "smtp://mail.example"),
            ("base_url", "https://u:hunter2@log.example", "https://(secret)@log.example"),
            ("smtp.from", "Sealog <log@example.org>", "Sealog <log@example.org>"),
        ] {
            assert_eq!(redacted(key, value), shown);
        }
    }

    #[test]
    fn a_secret_is_not_repeated_in_an_error() {
        let message = error(&[], &[("SEALOG_OPERATOR_TOKEN", "hunter2")], "");
        assert_eq!(message, "SEALOG_OPERATOR_TOKEN: operator_token must be at least 16 characters");
        let message = error(&[], &[("SEALOG_STORE", "mysql://u:hunter2@host/db")], "");
        assert!(message.starts_with("SEALOG_STORE: ") && !message.contains("hunter2"), "{message}");
    }

    #[test]
    fn proxies_are_addresses_and_ranges_as_text_or_array() {
        let settings =
            resolve(&map(&[]), &map(&[]), &file("trusted_proxies = [\"10.0.0.0/8\", \"::1\"]")).unwrap();
        assert_eq!(settings.server.trusted_proxies.len(), 2);
        assert!(
            error(&[("trusted_proxies", "10.0.0.0/8, proxy.example")], &[], "").contains("trusted_proxies")
        );
    }
}
