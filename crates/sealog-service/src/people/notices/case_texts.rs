//! Mails about cases. A mail has the number of a case and its dates, and nothing about the data subject.

use serde_json::Value;

use crate::people::contact::Text;

/// Names of the templates in the outbox.
pub const CASE_ASSIGNED: &str = "case_assigned";
pub const CASE_DUE: &str = "case_due";

/// The mail, from the parameters that it was put into the outbox with.
pub(super) fn assigned_text(parameters: &Value, app_url: &str) -> Option<Text> {
    let told = Told::of(parameters, app_url)?;
    Some(Text {
        subject: format!("{}: a case was assigned to you", told.organisation),
        body: format!("A data subject request was assigned to you.\n\n{}", told.facts()),
    })
}

pub(super) fn due_text(parameters: &Value, app_url: &str) -> Option<Text> {
    let told = Told::of(parameters, app_url)?;
    let (subject, first) = match told.days_left {
        ..0 => (
            format!("{}: {} is overdue", told.organisation, told.case),
            format!("The deadline was {}.", told.due),
        ),
        0 => (
            format!("{}: {} is due today", told.organisation, told.case),
            "The deadline is today.".to_owned(),
        ),
        1 => (
            format!("{}: {} is due tomorrow", told.organisation, told.case),
            format!("The deadline is tomorrow, {}.", told.due),
        ),
        days => (
            format!("{}: {} is due in {days} days", told.organisation, told.case),
            format!("The deadline is {}, in {days} days.", told.due),
        ),
    };
    Some(Text { subject, body: format!("{first}\n\n{}", told.facts()) })
}

struct Told {
    organisation: String,
    case: String,
    regime: String,
    kind: String,
    state: String,
    due: String,
    days_left: i64,
    link: String,
}

impl Told {
    fn of(parameters: &Value, app_url: &str) -> Option<Told> {
        // A name is one line, whatever was put into it.
        let line = |name: &str| {
            let text = parameters[name].as_str()?;
            Some(text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>())
        };
        let (tenant_id, case_id) = (line("tenant_id")?, line("case_id")?);
        Some(Told {
            organisation: line("organisation")?,
            case: line("case")?,
            regime: line("regime")?,
            kind: line("type")?,
            state: line("state")?,
            due: line("due")?,
            days_left: parameters["days_left"].as_i64()?,
            link: format!("{app_url}/o/{tenant_id}/cases/{case_id}"),
        })
    }

    fn facts(&self) -> String {
        let Told { organisation, case, regime, kind, state, due, link, .. } = self;
        let case = if case.is_empty() { String::new() } else { format!("    Case          {case}\n") };
        format!(
            "    Organisation  {organisation}
{case}    Request       {kind}, {regime}
    State         {state}
    Answer by     {due}

Open the case: {link}
"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parameters(days_left: i64) -> Value {
        json!({
            "organisation": "A\nB", "tenant_id": "t", "case_id": "c", "case": "DSAR-2026-001", "regime": "GDPR",
            "type": "Access", "state": "Review", "due": "Friday 27 November 2026", "days_left": days_left,
        })
    }

    #[test]
    fn a_reminder_says_how_long_there_is_and_links_to_the_case() {
        for (days, subject) in [
            (7, "A B: DSAR-2026-001 is due in 7 days"),
            (1, "A B: DSAR-2026-001 is due tomorrow"),
            (0, "A B: DSAR-2026-001 is due today"),
            (-2, "A B: DSAR-2026-001 is overdue"),
        ] {
            let text = due_text(&parameters(days), "https://a.example/app").unwrap();
            assert_eq!(text.subject, subject);
            assert_eq!(text.body.matches("https://").count(), 1, "one link");
            assert!(text.body.contains("https://a.example/app/o/t/cases/c\n"), "{}", text.body);
        }
        assert!(assigned_text(&parameters(30), "x").is_some());
        assert_eq!(due_text(&json!({}), "x"), None);
    }
}
