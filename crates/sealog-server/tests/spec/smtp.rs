//! How the service of a test is told of a mail server.

use sealog_service::people::mail::{Relay, Sender, Smtp};
pub use sealog_testing::smtp::{MailPort, MailSeen, MailServer};

pub fn smtp(url: &str) -> Smtp {
    Smtp { relay: Relay::parse(url).unwrap(), from: Sender::parse("Sealog <log@sealog.example>").unwrap() }
}
