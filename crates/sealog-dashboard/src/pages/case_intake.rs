//! The fields of what came in, for a new case and for one that is there.

use sealog_cases::words::Named;
use sealog_cases::{IntakeInput, ScopeInput};
use sealog_control::{Case, CaseChannel, CaseRegime, CaseScope, CaseType};
use sealog_core::id::ProjectId;
use sealog_core::time::iso_ms;

use crate::app::Dashboard;
use crate::pages::case_frame::assignees;
use crate::pages::form::{Field, Kind, choices, typed};
use crate::pages::grants::{Choice, values};
use crate::problem::Problem;
use crate::request::{Asked, Place};
use crate::text::visible;

pub(crate) fn intake_input(asked: &Asked) -> IntakeInput {
    let text = |name: &str| asked.field(name).to_owned();
    IntakeInput {
        regime: text("regime"),
        custom_days: text("custom_days"),
        custom_extension_days: text("custom_extension_days"),
        request_type: text("request_type"),
        requester: text("requester"),
        contact: text("contact"),
        wrote: text("wrote"),
        channel: text("channel"),
        received: text("received"),
        assignee: text("assignee"),
    }
}

pub(crate) fn scope_input(asked: &Asked) -> ScopeInput {
    ScopeInput {
        projects: values(asked, "project").into_iter().map(str::to_owned).collect(),
        from: asked.field("from").to_owned(),
        until: asked.field("until").to_owned(),
    }
}

/// As typed if the form was sent, otherwise as the case has it, or empty.
pub(crate) async fn intake_fields(
    app: &Dashboard,
    asked: &Asked,
    case: Option<&Case>,
) -> Result<Vec<Field>, Problem> {
    let is_form = !asked.field("regime").is_empty();
    let me = asked.person().person.id.0.to_string();
    let id = |case: &Case| case.assignee.map_or(String::new(), |id| id.0.to_string());
    let assignee = typed(asked, is_form, "assignee", || case.map_or(me, id));
    let assignees = assignees(app, asked, &assignee).await?;
    let today = app.service.cases.calendar(asked.place().tenant.id).await?.day_at(app.service.world.now_ms());
    Ok(fields(asked, case, is_form, &today.to_string(), assignees))
}

fn fields(
    asked: &Asked,
    case: Option<&Case>,
    is_form: bool,
    today: &str,
    assignees: Vec<Choice>,
) -> Vec<Field> {
    let of = |name: &str, there: &dyn Fn(&Case) -> String, new: &str| {
        typed(asked, is_form, name, || case.map_or_else(|| new.to_owned(), there))
    };
    let regime = of("regime", &|case| case.intake.regime.as_str().into(), "gdpr");
    let request_type = of("request_type", &|case| case.intake.request_type.as_str().into(), "access");
    let channel = of("channel", &|case| case.intake.channel.as_str().into(), "email");
    let custom = |which: fn((u32, u32)) -> u32| {
        move |case: &Case| case.intake.custom_days.map_or(String::new(), |days| which(days).to_string())
    };
    let regimes = choices(CaseRegime::ALL, CaseRegime::as_str, Named::name, &regime);
    let types = choices(CaseType::ALL, CaseType::as_str, Named::name, &request_type);
    let channels = choices(CaseChannel::ALL, CaseChannel::as_str, Named::name, &channel);
    let received = of("received", &|case| iso_ms(case.intake.received_at_ms)[..10].to_owned(), today);
    let custom_days = of("custom_days", &custom(|(days, _)| days), "");
    let extension_days = of("custom_extension_days", &custom(|(_, more)| more), "");
    vec![
        Field::new("regime", "Regime", Kind::One(regimes), "").hint("Sets the deadline."),
        Field::new("request_type", "Type", Kind::One(types), ""),
        Field::new("received", "Received", Kind::Day, received).required(),
        Field::new("channel", "Channel", Kind::One(channels), ""),
        Field::new(
            "requester",
            "Requester",
            Kind::Line,
            of("requester", &|case| case.intake.requester.clone(), ""),
        )
        .required()
        .hint("Stored only in this case, never in an event chain."),
        Field::new("contact", "Contact", Kind::Line, of("contact", &|case| case.intake.contact.clone(), "")),
        Field::new("custom_days", "Days to respond (custom deadline)", Kind::Number, custom_days),
        Field::new(
            "custom_extension_days",
            "Extra days if extended (custom deadline)",
            Kind::Number,
            extension_days,
        ),
        Field::new("assignee", "Assignee", Kind::One(assignees), ""),
        Field::new("wrote", "Request text", Kind::Text, of("wrote", &|case| case.intake.wrote.clone(), ""))
            .hint("At most 10,000 characters."),
    ]
}

pub(crate) fn scope_fields(asked: &Asked, scope: Option<&CaseScope>, is_form: bool) -> Vec<Field> {
    let place = asked.place();
    let chosen: Vec<String> = if is_form {
        values(asked, "project").into_iter().map(str::to_owned).collect()
    } else {
        scope.map_or_else(Vec::new, |scope| scope.projects.iter().map(ProjectId::to_string).collect())
    };
    let day = |ms: Option<u64>| ms.map_or(String::new(), |ms| iso_ms(ms)[..10].to_owned());
    let from = typed(asked, is_form, "from", || day(scope.and_then(|scope| scope.from_ms)));
    let last = scope.and_then(|scope| scope.until_ms).map(|ms| ms.saturating_sub(1));
    let until = typed(asked, is_form, "until", || day(last));
    vec![
        Field::new("project", "Projects", Kind::Many(projects(place, &chosen)), "")
            .hint("Searches cover live events of these projects. Steps are logged there if the framework is enabled."),
        Field::new("from", "Events from", Kind::Day, from),
        Field::new("until", "Events until", Kind::Day, until),
    ]
}

/// Those of the list, and those that were chosen beyond it.
fn projects(place: &Place, chosen: &[String]) -> Vec<Choice> {
    let choice = |value: String, label: String| Choice { is_chosen: chosen.contains(&value), value, label };
    let mut all: Vec<Choice> =
        place.projects.iter().map(|project| choice(project.id.to_string(), visible(&project.name))).collect();
    for id in chosen {
        if !all.iter().any(|known| known.value == *id) {
            all.push(choice(id.clone(), visible(id)));
        }
    }
    all
}
