//! The catalog: frameworks with their clauses and actions, and the actions that need none.

use sealog_core::catalog::{Catalog, Entry, Framework};

use super::source::Source;
use crate::text::{cell, code};

pub(super) fn pages() -> Vec<Source> {
    let catalog = Catalog::builtin();
    let mut list = "# Frameworks\n\nAn action that begins with the domain of a framework (such as `hipaa.`) can be logged when the framework is enabled for the project and part of the plan. \
                    All other actions can always be logged, and serve as evidence for every framework that lists them.\n\n\
                    | Framework | Id | Actions | Source | Retention |\n|---|---|---|---|---|\n"
        .to_owned();
    let mut pages = Vec::new();
    for framework in &catalog.frameworks {
        let actions: Vec<&Entry> = catalog.entries.iter().filter(|entry| is_of(entry, framework)).collect();
        let Framework { framework: id, label, source, retention } = framework;
        list.push_str(&format!(
            "| [{}](/docs/frameworks/{id}) | `{id}` | {} | {} | {} |\n",
            cell(label),
            actions.len(),
            cell(source),
            cell(retention)
        ));
        let mut page = format!(
            "# {label}\n\n{source}. Id: `{id}`. Retention: {retention}.\n\nRequired: evidence of this action is expected by the framework.\n\n{TABLE_OF_FRAMEWORK}"
        );
        for entry in actions {
            let required = entry.frameworks.iter().any(|of| of.framework == *id && of.is_required);
            page.push_str(&format!(
                "| `{}` | {} | {} | {} | {} |\n",
                entry.action,
                cell(&entry.description),
                cell(entry.clauses.get(id).map_or("", String::as_str)),
                if required { "yes" } else { "no" },
                fields(&entry.required_fields),
            ));
        }
        pages.push(Source::new(format!("frameworks/{id}"), label.clone(), page));
    }
    let mut actions = "# Actions\n\nThe catalog of this version. `GET /v1/actions` has the same, with a key: what your project may log. Custom actions are registered in the dashboard or by the operator.\n\n\
                       | Action | Category | Severity | Meaning | Required metadata | Needs a framework |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for entry in &catalog.entries {
        let needs: Vec<&str> = entry.frameworks.iter().map(|of| of.framework.as_str()).collect();
        actions.push_str(&format!(
            "| `{}` | {} | {} | {} | {} | {} |\n",
            entry.action,
            cell(&entry.category),
            cell(&entry.severity),
            cell(&entry.description),
            fields(&entry.required_fields),
            if entry.gated { needs.join(", ") } else { String::new() },
        ));
    }
    let mut all = vec![
        Source::new("frameworks", "Frameworks", list).in_part("Prove"),
        Source::new("actions", "Actions", actions).in_part("Look up"),
    ];
    all.append(&mut pages);
    all
}

const TABLE_OF_FRAMEWORK: &str =
    "| Action | Meaning | Clause | Required | Required metadata |\n|---|---|---|---|---|\n";

fn is_of(entry: &Entry, framework: &Framework) -> bool {
    entry.frameworks.iter().any(|of| of.framework == framework.framework)
}

fn fields(names: &[String]) -> String {
    names.iter().map(|name| code(name)).collect::<Vec<_>>().join(", ")
}
