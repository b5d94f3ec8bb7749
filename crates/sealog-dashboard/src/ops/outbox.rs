//! The outbox: what became of each mail. Neither its text nor whom exactly it is for is shown.

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use sealog_control::{NoticeState, OutboxRow};
use sealog_core::id::TenantId;

use super::console::{Console, OpsAsked};
use super::layout::{Current, Shell};
use crate::gate::of_control;
use crate::problem::{Problem, of_admin};
use crate::request::{html, see_other};
use crate::text::{moment, number, visible};

const MAILS_ON_PAGE: usize = 50;

#[derive(Template)]
#[template(path = "ops/outbox.html")]
struct Page<'a> {
    shell: Shell<'a>,
    states: Vec<State>,
    rows: Vec<Row>,
    next: Option<String>,
    first: Option<String>,
    has_mail: bool,
    notice: Option<&'static str>,
}

struct State {
    href: String,
    label: &'static str,
    is_current: bool,
}

struct Row {
    id: String,
    template: String,
    domain: String,
    tenant: Option<(String, String)>,
    state: NoticeState,
    attempts: String,
    created: String,
    /// When it is tried next, or when it ended.
    at: String,
    failure: Option<String>,
    may_retry: bool,
}

fn row(mail: &OutboxRow, names: &HashMap<TenantId, String>) -> Row {
    let tenant = mail.tenant_id.map(|id| {
        let name = names.get(&id).map_or_else(|| id.to_string(), |name| visible(name));
        (format!("/ops/tenants/{id}"), name)
    });
    let (state, to) = (mail.state(), mail.to.as_deref());
    let at = match state {
        NoticeState::Waiting => mail.due_at_ms,
        NoticeState::Sent | NoticeState::GivenUp => {
            mail.sent_at_ms.or(mail.given_up_at_ms).unwrap_or(mail.due_at_ms)
        }
    };
    Row {
        id: mail.id.to_string(),
        template: visible(&mail.template),
        domain: to.map_or_else(|| "no longer stored".into(), |to| visible(&hidden_address(to))),
        tenant,
        state,
        attempts: number(u64::from(mail.attempts)),
        created: moment(mail.created_at_ms),
        at: moment(at),
        failure: mail.last_failure.as_deref().map(|cause| visible(&without(cause, to))),
        may_retry: state != NoticeState::Sent && to.is_some(),
    }
}

/// `…@example.org`
fn hidden_address(address: &str) -> String {
    format!("…@{}", address.rsplit('@').next().unwrap_or(""))
}

/// Mail servers repeat the address that they refuse.
fn without(cause: &str, address: Option<&str>) -> String {
    let Some(address) = address.filter(|address| !address.is_empty()) else { return cause.to_owned() };
    // In any case of ASCII letters, which leaves every byte where it is.
    let (lower, wanted) = (cause.to_ascii_lowercase(), address.to_ascii_lowercase());
    let (mut shown, mut from) = (String::new(), 0);
    while let Some(at) = lower[from..].find(&wanted) {
        shown.push_str(&cause[from..from + at]);
        shown.push_str(&hidden_address(address));
        from += at + wanted.len();
    }
    shown.push_str(&cause[from..]);
    shown
}

fn label(state: NoticeState) -> &'static str {
    match state {
        NoticeState::Waiting => "Waiting",
        NoticeState::Sent => "Sent",
        NoticeState::GivenUp => "Given up",
    }
}

fn here(state: Option<NoticeState>) -> String {
    state.map_or_else(|| "/ops/outbox".into(), |state| format!("/ops/outbox?state={}", state.as_str()))
}

pub(super) async fn show(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let named = asked.query_value("state");
    let state = named.and_then(|name| NoticeState::ALL.into_iter().find(|state| state.as_str() == name));
    let before = asked.query_value("before").map(|id| id.parse().map_err(|_| Problem::not_found()));
    let before = before.transpose()?;
    // One more than is shown tells whether there are others.
    let mails = console.service.control.outbox_rows(state, before, MAILS_ON_PAGE + 1).await;
    let mails = mails.map_err(of_control)?;
    let shown = &mails[..mails.len().min(MAILS_ON_PAGE)];
    let last = shown.last().filter(|_| mails.len() > MAILS_ON_PAGE);
    let mut names = HashMap::new();
    for id in shown.iter().filter_map(|mail| mail.tenant_id) {
        if !names.contains_key(&id) {
            let tenant = console.service.control.tenant(id).await.map_err(of_control)?;
            names.extend(tenant.map(|tenant| (id, tenant.name)));
        }
    }
    let notice = match asked.query_value("done").as_deref() {
        Some("retry") => Some("E-mail queued. It is sent within seconds."),
        Some("give-up") => Some("E-mail given up. You can retry it for 90 days."),
        Some("none") => Some("The e-mail was already sent or given up. Nothing changed."),
        _ => None,
    };
    let states = std::iter::once(None).chain(NoticeState::ALL.map(Some)).map(|of| State {
        href: here(of),
        label: of.map_or("All", label),
        is_current: of == state,
    });
    let joint = if state.is_some() { '&' } else { '?' };
    Ok(html(&Page {
        shell: Shell::new(&console, &asked, Current::Outbox),
        states: states.collect(),
        rows: shown.iter().map(|mail| row(mail, &names)).collect(),
        next: last.map(|mail| format!("{}{joint}before={}", here(state), mail.id)),
        first: before.map(|_: i64| here(state)),
        has_mail: console.service.settings.smtp.is_some(),
        notice,
    }))
}

fn mail(asked: &OpsAsked) -> Result<i64, Problem> {
    asked.field("mail").parse().map_err(|_| Problem::not_found())
}

pub(super) async fn retry(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let changed = console.service.ops_desk.retry_mail(asked.id(), mail(&asked)?).await.map_err(of_admin)?;
    Ok(see_other(if changed { "/ops/outbox?done=retry" } else { "/ops/outbox?done=none" }))
}

pub(super) async fn give_up(console: Arc<Console>, asked: Arc<OpsAsked>) -> Result<Response, Problem> {
    let changed = console.service.ops_desk.give_up_mail(asked.id(), mail(&asked)?).await.map_err(of_admin)?;
    Ok(see_other(if changed { "/ops/outbox?done=give-up" } else { "/ops/outbox?done=none" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_does_not_tell_whom_the_mail_was_for() {
        let to = Some("Bob.É@Example.org");
        let said = "550 <bob.É@example.ORG>: unknown; BOB.É@EXAMPLE.ORG é";
        assert_eq!(without(said, to), "550 <…@Example.org>: unknown; …@Example.org é");
        assert_eq!(without("421 later", to), "421 later");
        assert_eq!((without("x", None), without("x", Some(""))), ("x".into(), "x".into()));
    }
}
