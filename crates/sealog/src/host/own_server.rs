//! The server of these settings, asked on its own machine.
//!
//! It is asked by the address that it listens on, and its certificate is for the name by which others know
//! it. So nobody looks at who vouches for it: no key goes along, what comes back is what everybody on this
//! machine may know, and a certificate that has ended or is about to be replaced is for `sealog check` and
//! the metrics to tell, not a reason to take a server for dead. A URL that somebody has given is another
//! matter: there the certificate has to be one that the system believes ([`Client::new`]).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use sealog_client::http::Client;

pub(super) fn client(listen: SocketAddr, is_tls: bool, timeout: Duration) -> Result<Client, String> {
    if listen.port() == 0 {
        return Err("the setting listen has port 0: give the address with --url".into());
    }
    Client::believing_anyone(url(listen, is_tls), timeout)
}

/// Where a server that listens there can be reached from the same machine.
fn url(mut listen: SocketAddr, is_tls: bool) -> String {
    if listen.ip().is_unspecified() {
        listen.set_ip(if listen.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    format!("{}://{listen}", if is_tls { "https" } else { "http" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_all_addresses_is_asked_on_this_machine() {
        for (listen, is_tls, expected) in [
            ("0.0.0.0:8080", false, "http://127.0.0.1:8080"),
            ("0.0.0.0:8443", true, "https://127.0.0.1:8443"),
            ("[::]:81", false, "http://[::1]:81"),
            ("10.0.0.1:80", true, "https://10.0.0.1:80"),
        ] {
            assert_eq!(url(listen.parse().unwrap(), is_tls), expected);
        }
    }

    #[test]
    fn a_port_that_is_not_known_before_the_start_is_asked_for() {
        let refused = client("127.0.0.1:0".parse().unwrap(), false, Duration::from_secs(1));
        assert!(refused.unwrap_err().contains("--url"));
    }
}
