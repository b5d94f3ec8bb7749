//! 6 Notices by e-mail at 80 % and at 100 % of the monthly quota.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use sealog_core::id::{TenantId, Uuid};
use sealog_core::time::{Month, parse_iso_ms};
use sealog_store::Store;
use sealog_store::world::World;
use sealog_testing::{ends, logs};
use serde_json::json;

use crate::harness::*;
use crate::smtp::{MailPort, MailSeen, MailServer, smtp};

const CONTACT: &str = "ops@acme.example";
const MINUTE_MS: u64 = 60_000;

/// A service whose entry plan includes ten events a month, and where mails leave at once.
struct Notified {
    service: Service,
    tenant_id: String,
    live: String,
    port: MailPort,
}

impl Notified {
    fn start() -> (Notified, MailServer) {
        let port = MailPort::hold();
        let server = port.start();
        (Notified::on(port, |_| {}), server)
    }

    fn on(port: MailPort, change: impl FnOnce(&mut Setup)) -> Notified {
        let service = Service::with(|setup| {
            setup.service.plans[0].events_per_month = Some(10);
            setup.service.smtp = Some(smtp(&port.url()));
            setup.service.intervals.quota_every = Duration::from_millis(10);
            setup.service.intervals.mail_every = Duration::from_millis(10);
            change(setup);
        });
        let (tenant_id, live) =
            tenant(&service, &json!({"name": "Acme", "plan": "entry", "contact_email": CONTACT}));
        Notified { service, tenant_id, live, port }
    }

    fn send(&self, count: usize) {
        self.service.fill(&self.live, count);
    }

    /// Returns when every notice that was due before has been looked for, put into the outbox and sent: a
    /// mail that was put there later has arrived.
    fn settle(&self, server: &MailServer) {
        // Twice, since the first may be looked at together with what came before it.
        for _ in 0..2 {
            let before = server.taken("last@acme.example").len();
            let last = json!({"name": "Last", "plan": "entry", "contact_email": "last@acme.example"});
            let (_, live) = tenant(&self.service, &last);
            self.service.fill(&live, 8);
            eventually(|| server.taken("last@acme.example").len() > before);
        }
    }

    /// Waits until these are the mails of the tenant, and no more come.
    #[track_caller]
    fn expect(&self, server: &MailServer, percents: &[u8]) -> Vec<MailSeen> {
        eventually(|| server.taken(CONTACT).len() >= percents.len());
        self.settle(server);
        let mails = server.taken(CONTACT);
        let subjects: Vec<String> = mails.iter().map(|mail| mail.header("subject")).collect();
        let expected: Vec<&str> =
            percents.iter().map(|percent| if *percent == 80 { "80 % of the" } else { "all audit" }).collect();
        assert_eq!(subjects.len(), expected.len(), "{subjects:?}");
        for (subject, expected) in subjects.iter().zip(expected) {
            assert!(subject.contains(expected), "{subjects:?}");
        }
        mails
    }

    fn pending(&self) -> u64 {
        wait(self.service.control().pending_notices()).unwrap()
    }

    /// Mails that will be tried by then.
    fn due(&self, in_ms: u64) -> usize {
        let at_ms = self.service.clock.now_ms() + in_ms;
        wait(self.service.control().due_notices(at_ms, 100)).unwrap().len()
    }

    /// Waits until the one mail that waits has been tried in vain so often.
    fn failed(&self, attempts: u32) {
        let waiting = || wait(self.service.control().due_notices(u64::MAX, 100)).unwrap();
        eventually(|| waiting().iter().map(|mail| mail.attempts).eq([attempts]));
    }
}

/// Its id and a live key of it.
fn tenant(service: &Service, body: &serde_json::Value) -> (String, String) {
    let tenant_id = service.new_tenant(body);
    let live = service.new_key(&service.new_project(&tenant_id, &[]), "live");
    (tenant_id, live)
}

#[test]
fn one_mail_at_80_percent_and_one_at_100_and_nothing_is_rejected() {
    let (notified, server) = Notified::start();
    for (events, mails) in [(7, &[][..]), (1, &[80]), (1, &[80]), (1, &[80, 100]), (25, &[80, 100])] {
        notified.send(events);
        notified.expect(&server, mails);
    }
    assert_eq!(notified.service.count(&notified.live), 35);
}

#[test]
fn a_mail_says_who_has_used_how_much_and_what_follows() {
    let (notified, server) = Notified::start();
    notified.send(8);
    let mail = &notified.expect(&server, &[80])[0];
    assert_eq!(mail.0["sender"], "log@sealog.example");
    assert_eq!(mail.0["recipients"], json!([CONTACT]));
    assert_eq!(mail.header("from"), "Sealog <log@sealog.example>");
    assert_eq!(mail.header("to"), CONTACT);
    assert_eq!(mail.header("subject"), "Acme: 80 % of the audit events of 2026-11 are used");
    assert_eq!(mail.header("auto-submitted"), "auto-generated");
    assert!(mail.header("date").starts_with("Sun, 15 Nov 2026 12:00:00"), "{}", mail.header("date"));
    assert!(mail.header("message-id").ends_with("@sealog.example>"));
    for part in [
        "Organisation  Acme\n",
        "Plan          entry\n",
        "Month         2026-11 (UTC)\n",
        "Live events   8 of 10 (80 %)\n",
        "Events are never rejected",
        "one more notice this month",
        "restarts on 2026-12-01 at 00:00 UTC",
        "Dashboard: https://log.example/app\n",
    ] {
        assert!(mail.body().contains(part), "{part} is not in\n{}", mail.body());
    }
    // The same in HTML, with one link and nothing that is loaded; there is no choice, so nothing to turn off.
    assert!(mail.header("content-type").starts_with("multipart/alternative"));
    for part in [
        "Live events</th><td>8 of 10 (80 %)</td>",
        "href=\"https://log.example/app\"",
        "Events are never rejected",
    ] {
        assert!(mail.html().contains(part), "{part} is not in\n{}", mail.html());
    }
    assert_eq!((mail.html().matches("href=").count(), mail.html().matches("src=").count()), (1, 0));
    assert_eq!(mail.headers("list-unsubscribe"), Vec::<String>::new());
    notified.send(4);
    let mail = &notified.expect(&server, &[80, 100])[1];
    assert_eq!(mail.header("subject"), "Acme: all audit events of 2026-11 are used");
    for part in ["Live events   12 of 10 (120 %)\n", "last notice this month"] {
        assert!(mail.body().contains(part), "{part} is not in\n{}", mail.body());
    }
}

#[test]
fn a_batch_that_passes_both_thresholds_gives_both_mails() {
    let (notified, server) = Notified::start();
    notified.send(10);
    notified.expect(&server, &[80, 100]);
}

#[test]
fn the_events_of_all_projects_of_a_tenant_count_together() {
    let (notified, server) = Notified::start();
    let service = &notified.service;
    let other = service.new_key(&service.new_project(&notified.tenant_id, &[]), "live");
    notified.send(4);
    service.fill(&other, 3);
    notified.expect(&server, &[]);
    service.fill(&other, 1);
    notified.expect(&server, &[80]);
}

#[test]
fn nobody_is_told_twice_also_after_restarts() {
    let (mut notified, server) = Notified::start();
    notified.send(8);
    notified.expect(&server, &[80]);
    notified.service.restart();
    notified.expect(&server, &[80]);
    notified.send(2);
    notified.expect(&server, &[80, 100]);
    notified.service.restart();
    notified.send(5);
    notified.expect(&server, &[80, 100]);
}

#[test]
fn test_events_do_not_count() {
    let (notified, server) = Notified::start();
    let test = notified.service.new_key(&notified.service.new_project(&notified.tenant_id, &[]), "test");
    notified.service.fill(&test, 20);
    notified.send(7);
    notified.expect(&server, &[]);
}

#[test]
fn a_plan_without_a_limit_gives_no_mail() {
    let (notified, server) = Notified::start();
    let plan = format!("/tenants/{}", notified.tenant_id);
    notified.service.operator("PATCH", &plan, &json!({"plan": "top"})).ok();
    notified.send(50);
    notified.expect(&server, &[]);
    // The tenant's next event is compared with the plan of then.
    notified.service.operator("PATCH", &plan, &json!({"plan": "entry"})).ok();
    notified.send(1);
    notified.expect(&server, &[80, 100]);
}

#[test]
fn a_plan_that_is_changed_holds_from_the_next_event_on() {
    let port = MailPort::hold();
    let server = port.start();
    let notified = Notified::on(port, |setup| setup.service.plans[1].events_per_month = Some(7));
    notified.send(6);
    notified.expect(&server, &[]);
    let plan = format!("/tenants/{}", notified.tenant_id);
    notified.service.operator("PATCH", &plan, &json!({"plan": "middle"})).ok();
    notified.expect(&server, &[]);
    notified.send(1);
    let mails = notified.expect(&server, &[80, 100]);
    assert!(mails[1].body().contains("Live events   7 of 7 (100 %)\n"), "{}", mails[1].body());
}

#[test]
fn a_month_begins_at_midnight_utc_and_is_counted_anew() {
    let (notified, server) = Notified::start();
    notified.service.clock.set(parse_iso_ms("2026-11-30T23:59:59.999Z").unwrap());
    notified.send(8);
    notified.expect(&server, &[80]);
    notified.service.clock.advance(1);
    notified.send(7);
    notified.expect(&server, &[80]);
    notified.send(3);
    let mails = notified.expect(&server, &[80, 80, 100]);
    let months: Vec<bool> = mails.iter().map(|mail| mail.header("subject").contains("2026-12")).collect();
    assert_eq!(months, [false, true, true]);
}

#[test]
fn without_a_contact_the_first_owner_is_told() {
    let (notified, server) = Notified::start();
    let service = &notified.service;
    let (tenant_id, live) = tenant(service, &json!({"name": "Other", "plan": "entry"}));
    for (email, role) in [
        ("auditor@other.example", "auditor"),
        ("first@other.example", "owner"),
        ("second@other.example", "owner"),
    ] {
        let user = json!({"email": email, "password": "correct horse battery", "role": role});
        service.operator("POST", &format!("/tenants/{tenant_id}/users"), &user).created("user_id");
    }
    service.fill(&live, 8);
    eventually(|| server.taken("first@other.example").len() == 1);
    notified.settle(&server);
    assert_eq!(server.taken("first@other.example").len(), 1);
    for nobody in ["auditor@other.example", "second@other.example"] {
        assert_eq!(server.taken(nobody).len(), 0, "{nobody}");
    }
}

#[test]
fn with_nobody_to_tell_the_mail_is_made_when_there_is_somebody() {
    let (notified, server) = Notified::start();
    let service = &notified.service;
    let (tenant_id, live) = tenant(service, &json!({"name": "Other", "plan": "entry"}));
    service.fill(&live, 8);
    notified.settle(&server);
    eventually(|| notified.pending() == 0);
    let contact = json!({"contact_email": "late@other.example"});
    service.operator("PATCH", &format!("/tenants/{tenant_id}"), &contact).ok();
    service.fill(&live, 1);
    eventually(|| server.taken("late@other.example").len() == 1);
}

#[test]
fn a_name_with_line_breaks_adds_no_header_and_no_recipient() {
    let (notified, server) = Notified::start();
    let name = "Evil\r\nBcc: victim@x.example\r\n\r\nPay <b>here</b>\u{85}é";
    let contact = "ops@evil.example";
    let (_, live) =
        tenant(&notified.service, &json!({"name": name, "plan": "entry", "contact_email": contact}));
    notified.service.fill(&live, 8);
    eventually(|| server.taken(contact).len() == 1);
    let mail = &server.taken(contact)[0];
    assert_eq!(mail.0["recipients"], json!([contact]));
    assert_eq!(mail.headers("bcc"), Vec::<String>::new());
    assert_eq!(
        mail.header("subject"),
        "Evil  Bcc: victim@x.example    Pay <b>here</b> é: 80 % of the audit events of 2026-11 are used"
    );
    assert!(mail.body().contains("Organisation  Evil  Bcc: victim@x.example    Pay <b>here</b> é\n"));
    assert!(mail.html().contains("Pay &lt;b&gt;here&lt;/b&gt; é</td>"), "{}", mail.html());
}

#[test]
fn an_optional_notice_names_times_in_the_zone_of_the_organisation_and_can_be_turned_off() {
    const DAY_MS: u64 = 24 * HOUR_MS;
    let port = MailPort::hold();
    let server = port.start();
    let notified =
        Notified::on(port, |setup| setup.service.intervals.reminders_every = Duration::from_millis(10));
    let service = &notified.service;
    let user = json!({"email": "owner@acme.example", "password": "correct horse battery", "role": "owner"});
    service.operator("POST", &format!("/tenants/{}/users", notified.tenant_id), &user).created("user_id");
    let tenant_id = TenantId(Uuid::parse(&notified.tenant_id).unwrap());
    let zone = Some("\"Europe/Paris\"".to_owned());
    assert!(wait(service.control().set_setting(tenant_id, "time_zone".into(), zone, vec![])).unwrap());
    let project = service.new_project(&notified.tenant_id, &[]);
    let key = json!({"name": "till", "mode": "live", "expires_at": "2026-12-15T12:00:00Z"});
    service.operator("POST", &format!("/projects/{project}/keys"), &key).created("key_id");
    service.clock.advance(29 * DAY_MS + 1);
    eventually(|| server.taken("owner@acme.example").len() == 1);
    let mail = &server.taken("owner@acme.example")[0];
    assert_eq!(mail.header("subject"), "The API key “till” expires within 1 day");
    for part in
        ["Key           till\n", "Expires       15 Dec 2026 13:00 (Europe/Paris)\n", "under Notifications"]
    {
        assert!(mail.body().contains(part), "{part} is not in\n{}", mail.body());
    }
    let keys = format!("https://log.example/app/o/{}/keys", notified.tenant_id);
    assert!(mail.body().contains(&format!("API keys: {keys}\n")));
    assert!(mail.html().contains(&format!("<a href=\"{keys}\">API keys</a>")), "{}", mail.html());
    assert!(mail.html().contains("<td>15 Dec 2026 13:00 (Europe/Paris)</td>"));
    assert_eq!(mail.header("list-unsubscribe-post"), "List-Unsubscribe=One-Click");
    let link = mail.header("list-unsubscribe");
    let token =
        link.strip_prefix("<https://log.example/app/unsubscribe?token=").unwrap().strip_suffix('>').unwrap();
    let token = sealog_service::people::sign_in::Token::parse(token).unwrap();
    // Only its digest is kept.
    let kept = wait(service.control().notice_by_secret(token.digest())).unwrap().unwrap();
    assert_eq!(kept.template, "key_expiring");
    assert!(!kept.parameters.contains(&token.0.0));
}

// What can go wrong on the way.

#[test]
fn a_notice_that_a_crash_forgot_is_found_at_the_next_start() {
    let port = MailPort::hold();
    let server = port.start();
    let mut notified = Notified::on(port, |setup| {
        // It looks once at the start, and never again.
        setup.service.intervals.quota_every = Duration::from_secs(3600);
    });
    notified.send(8);
    notified.service.restart();
    eventually(|| server.taken(CONTACT).len() == 1 && notified.pending() == 0);
}

#[test]
fn a_notice_of_the_last_events_of_a_month_is_found_within_an_hour_of_the_next() {
    for (late_ms, told) in [(HOUR_MS - 1, true), (HOUR_MS, false)] {
        let port = MailPort::hold();
        let server = port.start();
        let mut notified = Notified::on(port, |setup| {
            setup.service.intervals.quota_every = Duration::from_secs(3600);
        });
        let midnight_ms = parse_iso_ms("2026-12-01T00:00:00.000Z").unwrap();
        notified.service.clock.set(midnight_ms - 1);
        notified.send(8);
        notified.service.clock.set(midnight_ms + late_ms);
        // A mail of another tenant, which is looked at later, shows that the look is over.
        let last = json!({"name": "Last", "plan": "entry", "contact_email": "last@acme.example"});
        for _ in 0..2 {
            let before = server.taken("last@acme.example").len();
            let (_, live) = tenant(&notified.service, &last);
            notified.service.fill(&live, 8);
            notified.service.restart();
            eventually(|| server.taken("last@acme.example").len() > before);
        }
        assert_eq!(server.taken(CONTACT).len(), usize::from(told));
    }
}

#[test]
fn without_a_mail_server_in_the_settings_mails_wait_until_there_is_one() {
    let port = MailPort::hold();
    let server = port.start();
    let mut notified = Notified::on(port, |setup| setup.service.smtp = None);
    notified.send(10);
    eventually(|| notified.pending() == 2);
    let smtp = smtp(&notified.port.url());
    notified.service.stop();
    notified.service.setup.service.smtp = Some(smtp);
    notified.service.resume();
    notified.expect(&server, &[80, 100]);
    eventually(|| notified.pending() == 0);
}

#[test]
fn a_mail_for_a_dead_server_arrives_once_when_the_server_is_back_also_after_a_restart() {
    let mut notified = Notified::on(MailPort::hold(), |_| {});
    notified.send(8);
    notified.failed(1);
    assert_eq!((notified.due(MINUTE_MS - 1), notified.due(MINUTE_MS)), (0, 1));
    notified.service.clock.advance(MINUTE_MS);
    notified.failed(2);
    assert_eq!((notified.due(2 * MINUTE_MS - 1), notified.due(2 * MINUTE_MS)), (0, 1));

    notified.service.stop();
    let server = notified.port.start();
    notified.service.clock.advance(2 * MINUTE_MS);
    notified.service.resume();
    notified.expect(&server, &[80]);
    eventually(|| notified.pending() == 0);
}

#[test]
fn a_mail_that_the_server_asks_to_have_later_is_sent_later_under_the_same_message_id() {
    let (notified, mut server) = Notified::start();
    server.order("answer 451 4.7.1 not now");
    notified.send(8);
    notified.failed(1);
    assert_eq!((notified.due(MINUTE_MS - 1), notified.due(MINUTE_MS)), (0, 1));
    server.order("accept");
    notified.service.clock.advance(MINUTE_MS);
    let taken = notified.expect(&server, &[80]);
    let refused = server.mails(CONTACT, "451 4.7.1 not now");
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].header("message-id"), taken[0].header("message-id"));
    // Another mail has another one.
    notified.send(2);
    let taken = notified.expect(&server, &[80, 100]);
    assert_ne!(taken[0].header("message-id"), taken[1].header("message-id"));
}

#[test]
fn a_mail_that_the_server_refuses_for_good_is_given_up_and_kept_with_its_words() {
    let (notified, mut server) = Notified::start();
    server.order("answer 550 5.7.1 not here");
    notified.send(8);
    let tenant_id = TenantId(Uuid::parse(&notified.tenant_id).unwrap());
    let given_up = || wait(notified.service.control().given_up_notices(tenant_id, 9)).unwrap();
    eventually(|| given_up().len() == 1);
    assert_eq!((notified.pending(), notified.due(1000 * HOUR_MS)), (0, 0));
    let kept = given_up().remove(0);
    assert_eq!((kept.to.as_deref(), kept.attempts), (Some(CONTACT), 1));
    assert!(kept.last_failure.as_deref().unwrap().contains("5.7.1 not here"), "{kept:?}");
    // Neither tried again, nor made again.
    server.order("accept");
    notified.service.clock.advance(48 * HOUR_MS);
    notified.send(1);
    notified.settle(&server);
    assert_eq!((server.taken(CONTACT).len(), given_up().len()), (0, 1));
}

#[test]
fn what_a_mail_server_says_of_an_address_is_in_the_outbox_and_not_in_the_log() {
    let (notified, mut server) = Notified::start();
    server.order(&format!("answer 550 5.1.1 <{CONTACT}>: no such user"));
    logs::listen();
    notified.send(8);
    let tenant_id = TenantId(Uuid::parse(&notified.tenant_id).unwrap());
    let given_up = || wait(notified.service.control().given_up_notices(tenant_id, 9)).unwrap();
    eventually(|| given_up().len() == 1);
    assert!(given_up()[0].last_failure.as_deref().unwrap().contains(CONTACT));
    let said = logs::errors_with("rejected a mail for good");
    assert!(said.iter().any(|line| line.contains("550 5.1.1")), "{said:?}");
    assert!(!said.iter().any(|line| line.contains(CONTACT)), "{said:?}");
}

#[test]
fn a_mail_that_is_refused_does_not_hold_up_the_others() {
    let (notified, mut server) = Notified::start();
    server.order("answer 550 5.7.1 not here");
    notified.send(8);
    eventually(|| server.mails(CONTACT, "550 5.7.1 not here").len() == 1 && notified.pending() == 0);
    server.order("accept");
    notified.settle(&server);
    assert_eq!(server.taken(CONTACT).len(), 0);
}

#[test]
fn a_server_that_does_not_know_us_has_refused_no_mail() {
    let (notified, mut server) = Notified::start();
    // As after a password was changed at the mail server.
    server.order("answer 535 5.7.8 who are you");
    notified.send(8);
    notified.failed(1);
    assert_eq!((notified.due(HOUR_MS - 1), notified.due(HOUR_MS)), (0, 1));
    server.order("accept");
    notified.service.clock.advance(HOUR_MS);
    notified.expect(&server, &[80]);
}

#[test]
fn a_server_that_says_nothing_is_given_up_after_the_deadline() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("smtp://{}", silent.local_addr().unwrap());
    let notified = Notified::on(MailPort::hold(), |setup| {
        setup.service.smtp = Some(smtp(&url));
        setup.service.intervals.mail_attempt_max = Duration::from_millis(50);
    });
    notified.send(8);
    notified.failed(1);
    assert_eq!(notified.due(MINUTE_MS), 1);
}

#[test]
fn a_stop_does_not_wait_for_a_mail_server_and_the_mail_is_kept() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("smtp://{}", silent.local_addr().unwrap());
    let mut notified = Notified::on(MailPort::hold(), |setup| {
        setup.service.smtp = Some(smtp(&url));
        setup.service.intervals.mail_attempt_max = Duration::from_secs(3600);
    });
    notified.send(8);
    // It has called and waits for an answer.
    let _call = silent.accept().unwrap();
    // It ends, although the call goes on.
    let mut notified = ends("the stop", move || {
        notified.service.stop();
        notified
    });
    let server = notified.port.start();
    notified.service.setup.service.smtp = Some(smtp(&notified.port.url()));
    // The attempt that was broken off has its claim until then.
    notified.service.clock.advance(HOUR_MS + 2 * MINUTE_MS);
    notified.service.resume();
    notified.expect(&server, &[80]);
}

#[test]
fn a_mail_that_is_on_its_way_is_due_for_nobody_else_until_its_claim_is_over() {
    let (notified, mut server) = Notified::start();
    server.order("hold");
    notified.send(8);
    eventually(|| server.taken(CONTACT).len() == 1);
    assert_eq!((notified.due(3 * MINUTE_MS - 1), notified.due(3 * MINUTE_MS)), (0, 1));
    server.order("accept");
    eventually(|| notified.pending() == 0);
}

#[test]
fn a_mail_that_is_on_its_way_at_a_stop_is_noted_as_sent_and_not_sent_again() {
    let (mut notified, mut server) = Notified::start();
    server.order("hold");
    notified.send(8);
    eventually(|| server.taken(CONTACT).len() == 1);
    let address = notified.service.address();
    std::thread::scope(|scope| {
        scope.spawn(|| notified.service.stop());
        eventually(|| TcpStream::connect(address).is_err());
        server.order("accept");
    });
    notified.service.resume();
    notified.expect(&server, &[80]);
}

#[test]
fn a_server_without_starttls_gets_nothing_where_it_is_required() {
    let port = MailPort::hold();
    let server = port.start();
    let url = format!("smtp://user:password@127.0.0.1:{}?tls=required", port.number());
    let notified = Notified::on(port, |setup| setup.service.smtp = Some(smtp(&url)));
    notified.send(8);
    notified.failed(1);
    assert_eq!(server.taken(CONTACT).len(), 0);
}

#[test]
fn requests_do_not_wait_for_usage_to_be_compared() {
    // Nothing is looked at, and everything is accepted and counted.
    let notified = Notified::on(MailPort::hold(), |setup| {
        setup.service.intervals.quota_every = Duration::from_secs(3600);
    });
    notified.send(20);
    let tenant_id = TenantId(Uuid::parse(&notified.tenant_id).unwrap());
    let used = wait(notified.service.hinge().usage(tenant_id, Month::of(NOON_MS))).unwrap();
    assert_eq!((used, notified.pending()), (20, 0));
}
