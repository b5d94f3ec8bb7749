//! What an operator decides about the product, whatever serves it.

use std::sync::Arc;
use std::time::Duration;

use sealog_core::plan::Plan;
use sealog_service::evidence::verification::Schedule;
use sealog_service::ingest::geo::Geo;
use sealog_service::people::mail::Smtp;

use crate::trust::Trust;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Where people reach the dashboard.
    pub app_url: String,
    /// Without one, events have no `country` and no `city`.
    pub geo: Option<Arc<Geo>>,
    /// Without one, mails wait.
    pub smtp: Option<Smtp>,
    pub plans: Vec<Plan>,
    /// Without one, chains are verified when somebody asks for it.
    pub verification: Option<Schedule>,
    /// How long test events are kept; 0 for ever.
    pub test_retention_days: u32,
    /// Without it, chains have no trees and nothing is published about them.
    pub trust: Option<Arc<Trust>>,
    pub intervals: Intervals,
}

impl Settings {
    /// The defaults for a dashboard at this address.
    pub fn at(app_url: &str) -> Settings {
        Settings {
            app_url: app_url.to_owned(),
            geo: None,
            smtp: None,
            plans: Plan::defaults(),
            verification: None,
            test_retention_days: 0,
            trust: None,
            intervals: Intervals::default(),
        }
    }
}

/// How often background jobs look for something to do, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    pub geo_every: Duration,
    pub quota_every: Duration,
    pub mail_every: Duration,
    /// For records that other processes have left; those of this one are drained at once.
    pub drain_every: Duration,
    /// For jobs that other processes have queued or left; those of this one are begun at once.
    pub jobs_every: Duration,
    /// For packages that have expired.
    pub packages_every: Duration,
    /// For events that other processes have left for projects.
    pub case_events_every: Duration,
    /// For cases that are due.
    pub case_reminders_every: Duration,
    /// For one mail, from the connection to the server's word that it has it.
    pub mail_attempt_max: Duration,
    /// For what ends soon.
    pub reminders_every: Duration,
    /// See [`Supervision::new`]. Does nothing, but in tests.
    pub at_begin: fn(&'static str),
}

impl Default for Intervals {
    fn default() -> Intervals {
        Intervals {
            geo_every: Duration::from_secs(10),
            quota_every: Duration::from_secs(1),
            mail_every: Duration::from_secs(5),
            drain_every: Duration::from_secs(5),
            jobs_every: Duration::from_secs(5),
            packages_every: Duration::from_secs(10 * 60),
            case_events_every: Duration::from_secs(5),
            case_reminders_every: Duration::from_secs(15 * 60),
            mail_attempt_max: Duration::from_secs(60),
            reminders_every: Duration::from_secs(60),
            at_begin: |_| {},
        }
    }
}

#[cfg(test)]
mod tests {
    use sealog_service::people::mail::{Relay, Sender};

    use super::*;

    #[test]
    fn a_password_of_a_mail_server_is_not_shown() {
        let mut settings = Settings::at("http://x/app");
        settings.smtp = Some(Smtp {
            relay: Relay::parse("smtp://u:hunter2@mail.example").unwrap(),
            from: Sender::parse("log@example.org").unwrap(),
        });
        for text in [format!("{settings:?}"), format!("{settings:#?}")] {
            assert!(text.contains("(secret)") && !text.contains("hunter2"), "{text}");
        }
    }
}
