//! The URL of a database: what libpq's URLs say, and how the connection is protected.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use sealog_core::id::Uuid;
use sealog_core::query::percent_decode;
use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, SslMode};

use super::error::explain;
use super::options::Options;
use super::tls::{Check, Roots, Tls};

/// Where to connect, and how.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub config: Config,
    pub tls: Tls,
    /// Behind PgBouncer in transaction mode nothing outlives a transaction: neither prepared statements nor
    /// settings of the session.
    pub pooled: bool,
    /// What is said first on each connection.
    pub first: String,
    /// The store that was opened, once it is. A connection that leads to another one is refused: with several
    /// hosts in the URL, events of one chain would be in two places.
    pub store_id: OnceLock<Uuid>,
    /// The table that has the store's id. A worker of a Citus cluster has a copy of it.
    pub store_table: &'static str,
    /// Whether a connection has to continue at the coordinator of a Citus cluster, as far as that is known.
    pub on_cluster: OnceLock<bool>,
}

impl Target {
    pub(super) fn parse(url: &str, options: &Options) -> Result<Target, String> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        if !base.starts_with("postgres://") && !base.starts_with("postgresql://") {
            return Err("it must begin with postgres://".into());
        }
        let (mut mode, mut roots, mut pooled, mut passed_on) = (None, None, false, Vec::new());
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=').unwrap_or((parameter, "")) {
                ("sslmode", value) => mode = Some(value),
                ("sslrootcert", "system") => roots = Some(Roots::System),
                ("sslrootcert", value) => roots = Some(Roots::File(PathBuf::from(decoded(value)?))),
                ("pgbouncer", value) => {
                    pooled = value.parse().map_err(|_| "pgbouncer must be true or false".to_owned())?;
                }
                _ => passed_on.push(parameter),
            }
        }
        // As libpq: whoever names root certificates wants them to count, and those of the system vouch for
        // anybody's server, so the name has to count too.
        let mode = mode.unwrap_or(match roots {
            Some(Roots::System) => "verify-full",
            _ => "prefer",
        });
        let weak = if matches!(roots, Some(Roots::File(_))) { Check::Authority } else { Check::Nothing };
        let (ssl_mode, check) = match mode {
            "disable" => (SslMode::Disable, Check::Nothing),
            "allow" | "prefer" | "require" if matches!(roots, Some(Roots::System)) => {
                return Err(format!(
                    "sslmode={mode} is too weak for sslrootcert=system; use sslmode=verify-full"
                ));
            }
            "allow" | "prefer" => (SslMode::Prefer, weak),
            "require" => (SslMode::Require, weak),
            "verify-ca" => (SslMode::Require, Check::Authority),
            "verify-full" => (SslMode::Require, Check::AuthorityAndName),
            _ => {
                return Err(format!(
                    "sslmode must be disable, prefer, require, verify-ca or verify-full, not {mode:?}"
                ));
            }
        };
        let url =
            if passed_on.is_empty() { base.to_owned() } else { format!("{base}?{}", passed_on.join("&")) };
        // The text of the error says which part is wrong, never a password.
        let mut config = Config::from_str(&url).map_err(|error| explain(&error))?;
        config.ssl_mode(ssl_mode);
        if config.get_application_name().is_none() {
            config.application_name("sealog");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(options.connect_timeout);
        }
        // A server that is gone without a word is noticed by the kernel, not by waiting for it.
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(options.statement_timeout);
        }
        if config.get_channel_binding() == ChannelBinding::Require && ssl_mode == SslMode::Disable {
            return Err("channel_binding=require needs TLS; use sslmode=require or stronger".into());
        }
        config.keepalives_idle(Duration::from_secs(10));
        // Not as parameters of the start: PgBouncer refuses those that it does not know, in every mode.
        let settings = settings(options).map(|(name, value)| format!("SET {name} = '{value}'"));
        let first =
            if pooled { String::new() } else { format!("{}; {}", settings.join("; "), OWN_TRANSACTIONS) };
        let (tls, store_id) = (Tls::new(check, &roots.unwrap_or(Roots::System))?, OnceLock::new());
        let (store_table, on_cluster) = ("sealog.store", OnceLock::new());
        Ok(Target { config, tls, pooled, first, store_id, store_table, on_cluster })
    }

    /// The same database on a worker of the Citus cluster, once the store is opened.
    pub(super) fn worker(&self, host: &str, port: u16) -> Target {
        Target { store_table: "sealog.identity", ..self.node(host, port) }
    }

    /// The same on this node of the Citus cluster, and no other.
    pub(super) fn node(&self, host: &str, port: u16) -> Target {
        let from = &self.config;
        let mut config = Config::new();
        config.host(host).port(port).ssl_mode(from.get_ssl_mode());
        config.ssl_negotiation(from.get_ssl_negotiation()).channel_binding(from.get_channel_binding());
        config.keepalives(from.get_keepalives()).keepalives_idle(from.get_keepalives_idle());
        if let Some(user) = from.get_user() {
            config.user(user);
            // As the driver does where the URL names none.
            config.dbname(from.get_dbname().unwrap_or(user));
        }
        if let Some(password) = from.get_password() {
            config.password(password);
        }
        if let Some(options) = from.get_options() {
            config.options(options);
        }
        if let Some(name) = from.get_application_name() {
            config.application_name(name);
        }
        if let Some(timeout) = from.get_connect_timeout() {
            config.connect_timeout(*timeout);
        }
        if let Some(timeout) = from.get_tcp_user_timeout() {
            config.tcp_user_timeout(*timeout);
        }
        Target { config, on_cluster: OnceLock::from(false), ..self.clone() }
    }

    /// For a connection that is let in, whichever of the servers does that: each may use up its time for the
    /// socket, and as much again for the rest.
    pub(super) fn connect_timeout(&self) -> Duration {
        let servers = u32::try_from(self.config.get_hosts().len()).unwrap_or(u32::MAX).max(1);
        self.config
            .get_connect_timeout()
            .copied()
            .unwrap_or(Duration::MAX)
            .saturating_mul(servers)
            .saturating_mul(2)
    }

    /// How a transaction begins.
    pub(super) fn begin(&self, options: &Options) -> String {
        let mut sql = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE".to_owned();
        if self.pooled {
            for (name, value) in settings(options) {
                sql.push_str(&format!("; SET LOCAL {name} = '{value}'"));
            }
        }
        sql
    }
}

/// For statements that are transactions by themselves; [`Target::begin`] says the same of the others.
const OWN_TRANSACTIONS: &str =
    "SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off";

/// A stopped node loses its locks by the second one; the others wait for longer than that by the first, so
/// that they get through.
fn settings(options: &Options) -> [(&'static str, String); 3] {
    let ms = |duration: Duration| duration.as_millis().to_string();
    [
        ("lock_timeout", ms(options.lock_timeout)),
        ("idle_in_transaction_session_timeout", ms(options.idle_in_transaction_timeout)),
        ("statement_timeout", ms(options.statement_timeout)),
    ]
}

fn decoded(value: &str) -> Result<String, String> {
    let bytes = percent_decode(value).ok_or("it has a bad % escape")?;
    String::from_utf8(bytes).map_err(|_| "it has a % escape that is not UTF-8".into())
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::LoadBalanceHosts;

    use super::*;

    fn parse(url: &str) -> Result<Target, String> {
        Target::parse(url, &Options::default())
    }

    #[test]
    fn the_modes_of_the_url_decide_about_tls() {
        for (mode, ssl_mode, check) in [
            ("", SslMode::Prefer, Check::Nothing),
            ("?sslmode=disable", SslMode::Disable, Check::Nothing),
            ("?sslmode=prefer", SslMode::Prefer, Check::Nothing),
            ("?sslmode=require", SslMode::Require, Check::Nothing),
            ("?sslmode=verify-ca", SslMode::Require, Check::Authority),
            ("?sslmode=verify-full", SslMode::Require, Check::AuthorityAndName),
        ] {
            let target = parse(&format!("postgres://u:p@h/d{mode}")).unwrap();
            assert_eq!((target.config.get_ssl_mode(), target.tls.check), (ssl_mode, check), "{mode}");
        }
        assert!(parse("postgres://h/d?sslmode=maybe").unwrap_err().contains("sslmode must be"));
        let missing = parse("postgres://h/d?sslmode=verify-full&sslrootcert=%2Fno%2Fsuch.pem").unwrap_err();
        assert!(missing.contains("/no/such.pem"), "{missing}");
    }

    /// Of nobody: its key was thrown away.
    const ROOT: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBhDCCASugAwIBAgIUfP4IOvY5igCqMQ/RL+pkRgFsbicwCgYIKoZIzj0EAwIw\n\
        FzEVMBMGA1UEAwwMcm9vdC5leGFtcGxlMCAXDTI2MTExNjAwMjM1MFoYDzIxMjYx\n\
        MDIzMDAyMzUwWjAXMRUwEwYDVQQDDAxyb290LmV4YW1wbGUwWTATBgcqhkjOPQIB\n\
        BggqhkjOPQMBBwNCAAQXLlpnsM09MDtsPCUGHv6gqnIOFPSmhWOo5DfmskSLR0wW\n\
        ZmgwXIJQbiV+tWwnP+sB6ay9DngQZhT1kfq2ZSRco1MwUTAdBgNVHQ4EFgQUovWR\n\
        2nmBEaxENoTOwKTKjA5JpIQwHwYDVR0jBBgwFoAUovWR2nmBEaxENoTOwKTKjA5J\n\
        pIQwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiBOGdLtl7NQP/vS\n\
        X3l/ZIq9pbqPS6yeyh3+/HvM2gEp3QIgWRimZ8D+iEEJpOxoNX6vvTRCVwJe7lPJ\n\
        8q01q+ISe5M=\n\
        -----END CERTIFICATE-----\n";

    #[test]
    fn root_certificates_that_are_named_count_in_every_mode_as_with_libpq() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("root.pem");
        std::fs::write(&path, ROOT).unwrap();
        let root = path.display().to_string().replace('/', "%2F");
        for (mode, ssl_mode, check) in [
            ("", SslMode::Prefer, Check::Authority),
            ("sslmode=prefer&", SslMode::Prefer, Check::Authority),
            ("sslmode=require&", SslMode::Require, Check::Authority),
            ("sslmode=verify-ca&", SslMode::Require, Check::Authority),
            ("sslmode=verify-full&", SslMode::Require, Check::AuthorityAndName),
            ("sslmode=disable&", SslMode::Disable, Check::Nothing),
        ] {
            let target = parse(&format!("postgres://h/d?{mode}sslrootcert={root}")).unwrap();
            assert_eq!((target.config.get_ssl_mode(), target.tls.check), (ssl_mode, check), "{mode}");
        }
        for mode in ["require", "prefer"] {
            let error = parse(&format!("postgres://h/d?sslmode={mode}&sslrootcert=system")).unwrap_err();
            assert!(error.contains("use sslmode=verify-full"), "{error}");
        }
        // A file that is not there is an error in every mode that would use it.
        assert!(parse("postgres://h/d?sslmode=require&sslrootcert=%2Fno%2Fsuch.pem").is_err());
    }

    #[test]
    fn channel_binding_is_preferred_and_can_be_asked_for() {
        for (parameter, binding) in [
            ("", ChannelBinding::Prefer),
            ("?channel_binding=prefer", ChannelBinding::Prefer),
            ("?channel_binding=disable", ChannelBinding::Disable),
            ("?sslmode=require&channel_binding=require", ChannelBinding::Require),
        ] {
            let target = parse(&format!("postgres://h/d{parameter}")).unwrap();
            assert_eq!(target.config.get_channel_binding(), binding, "{parameter}");
        }
        assert!(parse("postgres://h/d?channel_binding=maybe").unwrap_err().contains("channel_binding"));
        let without = parse("postgres://h/d?sslmode=disable&channel_binding=require").unwrap_err();
        assert!(without.contains("needs TLS"), "{without}");
    }

    #[test]
    fn timeouts_are_set_for_the_session_or_behind_a_pooler_for_each_transaction() {
        let direct = parse("postgres://h/d?options=-c%20work_mem%3D1MB").unwrap();
        assert_eq!(direct.config.get_options(), Some("-c work_mem=1MB"), "as they were given");
        assert!(direct.first.starts_with("SET lock_timeout = '8000'; SET idle_in_"), "{}", direct.first);
        assert!(!direct.begin(&Options::default()).contains("SET"));
        let pooled = parse("postgres://h/d?pgbouncer=true").unwrap();
        assert_eq!((pooled.config.get_options(), &*pooled.first), (None, ""));
        assert!(pooled.begin(&Options::default()).contains("SET LOCAL lock_timeout = '8000'"));
    }

    #[test]
    fn several_hosts_are_tried_in_their_order_or_in_any() {
        for (parameters, balance) in
            [("", LoadBalanceHosts::Disable), ("?load_balance_hosts=random", LoadBalanceHosts::Random)]
        {
            let config = parse(&format!("postgres://u@h1:5433,h2/d{parameters}")).unwrap().config;
            assert_eq!((config.get_hosts().len(), config.get_ports()), (2, &[5433, 5432][..]));
            assert_eq!(config.get_load_balance_hosts(), balance);
        }
        assert!(parse("postgres://h/d?load_balance_hosts=maybe").unwrap_err().contains("load_balance_hosts"));
    }

    #[test]
    fn an_escape_that_is_none_or_no_utf8_is_named() {
        for (value, problem) in [
            ("%4", "it has a bad % escape"),
            ("%+f", "it has a bad % escape"),
            ("%ff", "it has a % escape that is not UTF-8"),
        ] {
            let refused = parse(&format!("postgres://h/d?sslrootcert={value}")).unwrap_err();
            assert_eq!(refused, problem, "{value}");
        }
    }

    #[test]
    fn an_error_never_shows_the_password() {
        for url in
            ["postgres://u:secret@h:port/d", "postgres://u:secret@h/d?nonsense=1", "mysql://u:secret@h"]
        {
            let error = parse(url).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
