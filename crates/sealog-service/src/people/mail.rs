//! The outbox: mails that wait in the control data, and their way to the mail server. Spec 6.
//!
//! A mail is sent at least once, and noted as sent only after the server has taken it. A crash in between
//! sends it again, with the same `Message-ID`, by which a mail program knows the second one for the first.
//!
//! What a server refuses for good (5xx) is given up: it would refuse it for ever. It is kept with its cause,
//! and shown. What is about how the server is spoken to, and not about a mail, is tried again: settings are
//! corrected.
//!
//! Several nodes can look into one outbox. Each mail is claimed before it is tried, and a claim ends by
//! itself:
//!
//! ```text
//! t0  nodes A and B find a mail due
//! t1  A claims it; B is told no, and leaves it alone
//! t2  A sends it and notes that, or notes when it is to be tried again; or A dies
//! t3  the claim is over: only if A died is the mail still due, and whoever finds it sends it
//! ```

use sealog_control::Control;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use lettre::message::header::{Header, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message, MultiPart};
use lettre::transport::smtp::{self, AsyncSmtpTransportBuilder};
use lettre::{Address, AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use sealog_control::{Notice, NoticeOutcome};
use sealog_store::StoreError;
use sealog_store::world::World;
use sha2::{Digest, Sha256};

use crate::jobs::stop::Stop;
use crate::jobs::supervise::caught;
use crate::people::contact::Text;
use crate::people::notices::{self, NoText};
use crate::people::sign_in::Token;

type Transport = AsyncSmtpTransport<Tokio1Executor>;

/// Mails of one round, over one connection.
const ROUND_MAX: usize = 50;
/// How long a mail waits after its first failure. Doubled by each one that follows, up to the longest wait.
const RETRY_FIRST: Duration = Duration::from_secs(60);
const RETRY_LONGEST: Duration = Duration::from_secs(60 * 60);
/// How much longer than an attempt a claim holds. What was delivered and could not be noted is noted within
/// it, so that nobody else sends it again.
const CLAIM_REST: Duration = Duration::from_secs(2 * 60);
/// After the store could not say what is due, or could not note what became of it.
const STORE_PAUSE: Duration = Duration::from_secs(60);
/// For the farewell, when everything is noted already.
const GOODBYE_MAX: Duration = Duration::from_secs(2);
/// For a mail that is on its way when the server is told to stop. It would be sent again otherwise.
const STOP_MAX: Duration = Duration::from_secs(2);

/// How mails leave.
#[derive(Clone, Debug)]
pub struct Smtp {
    pub relay: Relay,
    pub from: Sender,
}

/// A mail server, and how to speak to it.
#[derive(Clone)]
pub struct Relay(AsyncSmtpTransportBuilder);

impl Relay {
    /// `smtps://user:password@host:465` for TLS from the first byte, `smtp://…?tls=required` for STARTTLS,
    /// `smtp://host:25` for neither.
    pub fn parse(url: &str) -> Option<Relay> {
        // Asked for here, since a misspelt option would be ignored and the password sent in the clear.
        let known = match url.split_once('?') {
            None => !url.contains('#'),
            Some((address, query)) => {
                address.starts_with("smtp://") && matches!(query, "tls=required" | "tls=opportunistic")
            }
        };
        if !known {
            return None;
        }
        Transport::from_url(url).ok().map(Relay)
    }

    fn transport(&self, attempt_max: Duration) -> Transport {
        self.0.clone().timeout(Some(attempt_max)).build()
    }
}

/// There may be a password in it.
impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Whom mails come from.
#[derive(Clone, Debug)]
pub struct Sender(Mailbox);

impl Sender {
    /// `address@host`, or `Name <address@host>`.
    pub fn parse(text: &str) -> Option<Sender> {
        text.parse().ok().map(Sender)
    }
}

impl Smtp {
    /// Whether the server takes mails from us at all.
    pub async fn check(&self, attempt_max: Duration) -> Result<(), String> {
        let transport = self.relay.transport(attempt_max);
        let checked = check_server(&transport, attempt_max).await;
        let _ = tokio::time::timeout(GOODBYE_MAX, transport.shutdown()).await;
        checked.map_err(|failure| failure.cause().whole.clone())
    }

    /// Sends one mail that says nothing but that mails arrive.
    pub async fn send_test(&self, to: &str, attempt_max: Duration) -> Result<(), String> {
        let to: Address =
            to.parse().map_err(|error| format!("{to:?} is not a valid e-mail address: {error}"))?;
        let message = Message::builder()
            .from(self.from.0.clone())
            .to(to.into())
            .subject("Sealog test e-mail")
            .header(AutoSubmitted)
            .body("This e-mail tests the mail settings of a Sealog server. Mail works; you need to do nothing.\r\n".to_owned())
            .map_err(|error| error.to_string())?;
        let transport = self.relay.transport(attempt_max);
        let sent = attempt(&transport, message, attempt_max).await;
        let _ = tokio::time::timeout(GOODBYE_MAX, transport.shutdown()).await;
        sent.map_err(|failure| failure.cause().whole.clone())
    }
}

/// What the delivery of mails goes by.
pub struct Mailer {
    pub control: Arc<Control>,
    pub world: Arc<dyn World>,
    /// Without one, mails wait.
    pub smtp: Option<Smtp>,
    /// Where people reach the dashboard; mails lead there.
    pub app_url: String,
    pub every: Duration,
    /// For one mail, from the connection to the server's word that it has it.
    pub attempt_max: Duration,
}

impl Mailer {
    /// Sends what is due, from time to time, until it is told to stop.
    pub async fn send(&self, stop: &Stop) {
        let Some(smtp) = &self.smtp else {
            tokio::select! {
                () = stop.stopped() => {}
                () = self.say_when_mails_wait() => {}
            }
            return;
        };
        let mut delivered = HashSet::new();
        while !stop.is_stopped() {
            let patience = async {
                stop.stopped().await;
                tokio::time::sleep(STOP_MAX).await;
            };
            let ended = tokio::select! {
                ended = self.round(smtp, stop, &mut delivered) => ended,
                () = patience => return,
            };
            let pause = match ended {
                Ok(()) => self.every,
                Err(error) => {
                    tracing::warn!(%error, "failed to read or update the outbox; retrying");
                    STORE_PAUSE
                }
            };
            let _ = tokio::time::timeout(pause, stop.stopped()).await;
        }
    }

    /// Nothing is lost without a mail server: mails wait until there is one.
    async fn say_when_mails_wait(&self) {
        loop {
            if let Ok(waiting @ 1..) = self.control.pending_notices().await {
                tracing::warn!(
                    waiting,
                    "mail waits in the outbox without a mail server; set smtp.url and smtp.from"
                );
                return;
            }
            tokio::time::sleep(self.every).await;
        }
    }

    /// Tries every mail that is due. `delivered` are those that the server has taken and the store does not
    /// know of.
    async fn round(&self, smtp: &Smtp, stop: &Stop, delivered: &mut HashSet<i64>) -> Result<(), StoreError> {
        for id in delivered.iter().copied().collect::<Vec<_>>() {
            self.control.notice_attempted(id, NoticeOutcome::Sent { now_ms: self.world.now_ms() }).await?;
            delivered.remove(&id);
        }
        let due = self.control.due_notices(self.world.now_ms(), ROUND_MAX).await?;
        if due.is_empty() {
            return Ok(());
        }
        let transport = smtp.relay.transport(self.attempt_max);
        // A server that refuses the connection, or who we are, has not refused a mail.
        let mut unreachable = check_server(&transport, self.attempt_max).await.err();
        let mut is_said = false;
        for mail in due {
            if stop.is_stopped() {
                break;
            }
            let now_ms = self.world.now_ms();
            let until_ms = now_ms.saturating_add(ms(self.attempt_max + CLAIM_REST));
            // Only its digest is kept, from here on; the secret itself is in the mail alone.
            let secret = notices::has_secret(&mail).then(|| Token::new(&*self.world));
            let digest = secret.as_ref().map(Token::digest);
            if !self.control.claim_notice(mail.id, now_ms, until_ms, digest).await? {
                continue;
            }
            let attempt = async {
                match (&unreachable, message(&mail, &smtp.from, &self.app_url, secret.as_ref(), now_ms)) {
                    (Some(failure), _) => Err(Failure::clone(failure)),
                    (None, Err(failure)) => Err(failure),
                    (None, Ok(message)) => attempt(&transport, message, self.attempt_max).await,
                }
            };
            // A mail that panics is tried later; those behind it are sent.
            let attempt = caught(attempt).await;
            let attempt =
                attempt.unwrap_or_else(|panic| Err(Failure::Ours(format!("it panicked: {panic}").into())));
            let outcome = match attempt {
                Ok(()) => {
                    delivered.insert(mail.id);
                    NoticeOutcome::Sent { now_ms: self.world.now_ms() }
                }
                Err(failure) => {
                    let (cause, now_ms) = (failure.cause().whole.clone(), self.world.now_ms());
                    let pause = failure.pause(mail.attempts);
                    // A server that is not there is not asked again for each mail, and complained about once.
                    if unreachable.is_none() || !is_said {
                        failure.log(&mail, pause);
                        is_said = true;
                    }
                    if matches!(failure, Failure::Unreachable(_)) {
                        unreachable = Some(failure);
                    }
                    match pause {
                        Some(pause) => {
                            NoticeOutcome::Failed { retry_at_ms: now_ms.saturating_add(ms(pause)), cause }
                        }
                        None => NoticeOutcome::GivenUp { now_ms, cause },
                    }
                }
            };
            self.control.notice_attempted(mail.id, outcome).await?;
            delivered.remove(&mail.id);
        }
        let _ = tokio::time::timeout(GOODBYE_MAX, transport.shutdown()).await;
        Ok(())
    }
}

/// Codes that are about how the server is spoken to, and not about the mail: authentication and encryption.
const ABOUT_SETTINGS: [u16; 4] = [530, 534, 535, 538];

/// Why a mail did not leave.
#[derive(Clone, Debug)]
enum Failure {
    /// No answer, or none that makes sense. It has nothing to do with the mail.
    Unreachable(Cause),
    /// The server has asked to be tried later (4xx).
    Deferred(Cause),
    /// Something has to be changed here before it can leave: a setting, or the version of this program.
    Ours(Cause),
    /// The server does not want it (5xx), or it is none that can be sent: given up.
    Refused(Cause),
}

/// A cause in words. What a mail server says is for the outbox alone: it names whom the mail was for, and
/// anybody can make us send one (`/app/forgot`).
#[derive(Clone, Debug)]
struct Cause {
    whole: String,
    for_log: String,
}

impl From<String> for Cause {
    fn from(cause: String) -> Cause {
        Cause { for_log: cause.clone(), whole: cause }
    }
}

impl Cause {
    /// The log gets the codes of RFC 5321 and RFC 3463 (`550 5.1.1`), which say why and not to whom.
    fn of_server(status: u16, said: String) -> Cause {
        let is_code = |word: &str| {
            let mut parts = word.split('.');
            parts.clone().count() == 3
                && parts.all(|part| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit()))
        };
        let code = said.split_whitespace().find(|word| is_code(word)).filter(|code| code.len() <= 9);
        let code = code.map_or(String::new(), |code| format!(" {code}"));
        Cause {
            for_log: format!("the mail server replied {status}{code}; the outbox has the full reply"),
            whole: said,
        }
    }
}

impl Failure {
    /// Until the next attempt, if there is one.
    fn pause(&self, attempts: u32) -> Option<Duration> {
        match self {
            Failure::Refused(_) => None,
            Failure::Ours(_) => Some(RETRY_LONGEST),
            Failure::Unreachable(_) | Failure::Deferred(_) => {
                Some(RETRY_FIRST.saturating_mul(1 << attempts.min(16)).min(RETRY_LONGEST))
            }
        }
    }

    fn cause(&self) -> &Cause {
        let (Failure::Unreachable(cause)
        | Failure::Deferred(cause)
        | Failure::Ours(cause)
        | Failure::Refused(cause)) = self;
        cause
    }

    fn log(&self, mail: &Notice, pause: Option<Duration>) {
        let (id, attempt) = (mail.id, mail.attempts.saturating_add(1));
        let (template, retry_after_s) = (&mail.template, pause.map(|pause| pause.as_secs()));
        let cause = &self.cause().for_log;
        match self {
            Failure::Refused(_) => {
                tracing::error!(
                    mail = id,
                    template,
                    attempt,
                    cause,
                    "the mail server rejected a mail for good; not retrying, the dashboard shows it"
                );
            }
            Failure::Ours(_) => {
                tracing::error!(
                    mail = id,
                    template,
                    attempt,
                    retry_after_s,
                    cause,
                    "cannot send a mail with the current settings; check smtp.url and smtp.from"
                );
            }
            Failure::Unreachable(_) | Failure::Deferred(_) => {
                tracing::warn!(
                    mail = id,
                    template,
                    attempt,
                    retry_after_s,
                    cause,
                    "failed to send a mail; retrying"
                );
            }
        }
    }
}

/// Whether the server takes mails from us at all.
async fn check_server(transport: &Transport, attempt_max: Duration) -> Result<(), Failure> {
    match tokio::time::timeout(attempt_max, transport.test_connection()).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err(Failure::Unreachable("the server closed the connection".to_owned().into())),
        Ok(Err(error)) => Err(Failure::Unreachable(error.to_string().into())),
        Err(_) => Err(Failure::Unreachable(format!("no reply within {} s", attempt_max.as_secs()).into())),
    }
}

/// The whole exchange has one deadline, so that no step of it can hang.
async fn attempt(transport: &Transport, message: Message, attempt_max: Duration) -> Result<(), Failure> {
    match tokio::time::timeout(attempt_max, transport.send(message)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(failure(&error, error.status().map(u16::from))),
        Err(_) => Err(Failure::Unreachable(format!("no reply within {} s", attempt_max.as_secs()).into())),
    }
}

/// Of a mail to a server that was there.
fn failure(error: &smtp::Error, status: Option<u16>) -> Failure {
    let cause = match status {
        Some(status) => Cause::of_server(status, error.to_string()),
        None => Cause::from(error.to_string()),
    };
    match status {
        Some(status) if ABOUT_SETTINGS.contains(&status) => Failure::Ours(cause),
        Some(500..) => Failure::Refused(cause),
        Some(_) => Failure::Deferred(cause),
        // Of our own, before anything was sent: an address that the server has no way to be told, for one.
        None if error.is_client() => Failure::Refused(cause),
        None => Failure::Unreachable(cause),
    }
}

/// Addresses are parsed and texts encoded by whoever knows how headers are written, so that nothing in them
/// can begin a header of its own.
fn message(
    mail: &Notice,
    from: &Sender,
    app_url: &str,
    secret: Option<&Token>,
    now_ms: u64,
) -> Result<Message, Failure> {
    let text = notices::render(mail, app_url, secret).map_err(|error| match error {
        NoText::UnknownTemplate(cause) => Failure::Ours(cause.into()),
        NoText::Damaged(cause) => Failure::Refused(cause.into()),
    })?;
    let to: Address = mail
        .to
        .parse()
        .map_err(|error| Failure::Refused(format!("not a valid e-mail address: {error}").into()))?;
    let html = notices::html(&text);
    let Text { subject, body } = text;
    let mut builder = Message::builder()
        .from(from.0.clone())
        .to(to.into())
        .subject(subject)
        .message_id(Some(message_id(mail, from)))
        .date(UNIX_EPOCH + Duration::from_millis(now_ms))
        .header(AutoSubmitted);
    if let Some(secret) = secret.filter(|_| notices::is_optional(mail)) {
        // RFC 2369 and RFC 8058: a mail program offers to turn them off, with one request and without signing
        // in.
        let url = format!("<{app_url}/unsubscribe?token={}>", secret.0.0);
        builder = builder.header(ListUnsubscribe(url)).header(ListUnsubscribePost);
    }
    builder
        .multipart(MultiPart::alternative_plain_html(body, html))
        .map_err(|error| Failure::Refused(error.to_string().into()))
}

/// The same at every attempt, and another for every mail of every installation.
fn message_id(mail: &Notice, from: &Sender) -> String {
    let digest = Sha256::digest(format!("{}\0{}\0{}\0{}", mail.id, mail.to, mail.key, mail.created_at_ms));
    format!("<{}@{}>", hex::encode(&digest[..16]), from.0.email.domain())
}

/// A header of a fixed name, written by us alone.
macro_rules! header {
    ($(#[$what:meta])* $type:ident $(($field:ty))?, $name:literal, |$header:ident| $value:expr) => {
        $(#[$what])*
        #[derive(Clone)]
        struct $type $(($field))?;

        impl Header for $type {
            fn name() -> HeaderName {
                HeaderName::new_from_ascii_str($name)
            }

            fn parse(_: &str) -> Result<$type, Box<dyn std::error::Error + Send + Sync>> {
                Err("it is never read".into())
            }

            fn display(&self) -> HeaderValue {
                let $header = self;
                HeaderValue::new(Self::name(), $value)
            }
        }
    };
}

header!(
    /// RFC 3834: keeps absence notes from answering.
    AutoSubmitted, "Auto-Submitted", |_header| "auto-generated".into()
);
header!(ListUnsubscribe(String), "List-Unsubscribe", |header| header.0.clone());
header!(ListUnsubscribePost, "List-Unsubscribe-Post", |_header| "List-Unsubscribe=One-Click".into());

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_an_hour_what_is_ours_waits_an_hour_and_a_refusal_is_the_end() {
        let pauses = |failure: Failure| {
            [0, 1, 2, 5, 6, u32::MAX]
                .map(|attempts| failure.pause(attempts).map_or(0, |pause| pause.as_secs()))
        };
        assert_eq!(pauses(Failure::Deferred(String::new().into())), [60, 120, 240, 1920, 3600, 3600]);
        assert_eq!(pauses(Failure::Unreachable(String::new().into())), [60, 120, 240, 1920, 3600, 3600]);
        assert_eq!(pauses(Failure::Ours(String::new().into())), [3600; 6]);
        assert_eq!(pauses(Failure::Refused(String::new().into())), [0; 6]);
    }

    #[test]
    fn a_mail_server_is_a_url_without_options_that_nobody_knows() {
        for url in [
            "smtp://mail.example",
            "smtp://127.0.0.1:2525",
            "smtps://user:p%40ss@mail.example",
            "smtp://user:pass@mail.example:587?tls=required",
            "smtp://mail.example?tls=opportunistic",
        ] {
            assert!(Relay::parse(url).is_some(), "{url}");
        }
        for url in [
            "",
            "mail.example",
            "mail.example:25",
            "http://mail.example",
            "smtp://",
            "smtp://mail.example?tsl=required",
            "smtp://mail.example?tls=yes",
            "smtp://mail.example?tls=required&x=1",
            "smtps://mail.example?tls=required",
            "smtp://user:pa#ss@mail.example",
        ] {
            assert!(Relay::parse(url).is_none(), "{url}");
        }
    }

    #[test]
    fn a_password_is_not_printed() {
        let smtp = Smtp {
            relay: Relay::parse("smtps://user:hunter2@mail.example").unwrap(),
            from: Sender::parse("Sealog <log@example.org>").unwrap(),
        };
        let text = format!("{smtp:?}");
        assert!(!text.contains("hunter2") && !text.contains("user"), "{text}");
    }
}
