//! `[plans.NAME]` of the settings file. A plan that is delivered is changed member by member; another name
//! adds one. They are in the file alone: a plan is a table, and no variable or flag is one.

use std::collections::BTreeMap;

use sealog_core::catalog::{Catalog, FrameworkSet};
use sealog_core::plan::Plan;

const PREFIX: &str = "plans.";
const MEMBERS: &str = "events_per_month, frameworks, requests_per_s or key_expiry_policy";
/// Characters of a plan's name: it is shown, and stands in the operator's requests.
const NAME_MAX: usize = 64;

/// Whether a key of the file is one of these.
pub(crate) fn is_of_plans(key: &str) -> bool {
    key.starts_with(PREFIX)
}

/// All plans: those that are delivered, then those that the file adds, by name. Values come as text, each
/// with the place where it was given; what is wrong is said in words for the operator.
pub(crate) fn of(file: &BTreeMap<String, (String, String)>) -> Result<Vec<Plan>, String> {
    let mut tables: BTreeMap<&str, Table<'_>> = BTreeMap::new();
    for (key, (value, place)) in file {
        let Some(rest) = key.strip_prefix(PREFIX) else { continue };
        let (name, member) = match rest.split_once('.') {
            Some((name, member)) => (name, Some(member)),
            // A table without members.
            None if value.is_empty() => (rest, None),
            None => return Err(format!("{place}: {key} must be a table with {MEMBERS}")),
        };
        if !is_name(name) {
            return Err(format!(
                "{place}: {key}: the name of a plan must have 1 to {NAME_MAX} letters, digits, - or _, not {name:?}"
            ));
        }
        let table = tables.entry(name).or_insert_with(|| Table { place, members: BTreeMap::new() });
        if let Some(member) = member {
            table.members.insert(member, value);
        }
    }
    let mut plans = Plan::defaults();
    for (name, table) in tables {
        if let Some(plan) = plans.iter_mut().find(|plan| plan.name == name) {
            table.change(plan)?;
        } else {
            if !table.members.contains_key("frameworks") {
                return Err(format!(
                    "{}: plans.{name} needs frameworks: \"all\" or a list of ids, which may be empty",
                    table.place
                ));
            }
            let mut plan = Plan::named(name);
            table.change(&mut plan)?;
            plans.push(plan);
        }
    }
    Ok(plans)
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

/// One plan as the file has it.
struct Table<'f> {
    place: &'f str,
    members: BTreeMap<&'f str, &'f str>,
}

impl Table<'_> {
    fn change(&self, plan: &mut Plan) -> Result<(), String> {
        for (member, value) in &self.members {
            let wrong = |expected: &str| {
                Err(format!("{}: plans.{}.{member} must be {expected}, not {value:?}", self.place, plan.name))
            };
            match *member {
                "events_per_month" => match (*value, value.parse::<u64>()) {
                    ("unlimited", _) => plan.events_per_month = None,
                    (_, Ok(events @ 1..)) => plan.events_per_month = Some(events),
                    _ => return wrong("a whole number from 1, or \"unlimited\""),
                },
                "requests_per_s" => match value.parse::<u32>() {
                    // A rate of 0 would read as "none" to one person and "no limit" to another.
                    Ok(rate @ 1..) => plan.requests_per_s = rate,
                    _ => return wrong("a whole number from 1 to 4294967295"),
                },
                "key_expiry_policy" => match value.parse() {
                    Ok(is_included) => plan.key_expiry_policy = is_included,
                    Err(_) => return wrong("true or false"),
                },
                "frameworks" => match frameworks(value) {
                    Ok(frameworks) => plan.frameworks = frameworks,
                    Err(unknown) => {
                        return Err(format!(
                            "{}: plans.{}.frameworks: {unknown:?} is not a framework; use {}, or \"all\"",
                            self.place,
                            plan.name,
                            known().join(", ")
                        ));
                    }
                },
                _ => {
                    return Err(format!(
                        "{}: plans.{}.{member} is not a setting of a plan; use {MEMBERS}",
                        self.place, plan.name
                    ));
                }
            }
        }
        Ok(())
    }
}

fn known() -> Vec<&'static str> {
    Catalog::builtin().frameworks.iter().map(|framework| framework.framework.as_str()).collect()
}

/// The first that is unknown, if one is.
fn frameworks(text: &str) -> Result<FrameworkSet, &str> {
    if text == "all" {
        return Ok(FrameworkSet::ALL);
    }
    let ids = text.split(',').map(str::trim).filter(|id| !id.is_empty());
    Catalog::builtin().framework_set(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans(members: &[(&str, &str)]) -> Result<Vec<Plan>, String> {
        let file = members
            .iter()
            .map(|(key, value)| (format!("plans.{key}"), ((*value).to_owned(), "sealog.toml".to_owned())));
        of(&file.collect())
    }

    fn set(ids: &[&str]) -> FrameworkSet {
        Catalog::builtin().framework_set(ids.iter().copied()).unwrap()
    }

    #[test]
    fn without_the_table_the_plans_are_the_delivered_ones() {
        assert_eq!(plans(&[]).unwrap(), Plan::defaults());
    }

    #[test]
    fn a_delivered_plan_keeps_what_the_file_does_not_say() {
        let changed = plans(&[("entry.requests_per_s", "20"), ("entry.key_expiry_policy", "true")]).unwrap();
        let mut expected = Plan::defaults();
        expected[0].requests_per_s = 20;
        expected[0].key_expiry_policy = true;
        assert_eq!(changed, expected);
        let changed =
            plans(&[("entry.events_per_month", "unlimited"), ("top.events_per_month", "5")]).unwrap();
        assert_eq!((changed[0].events_per_month, changed[2].events_per_month), (None, Some(5)));
        assert_eq!(plans(&[("entry", "")]).unwrap(), Plan::defaults(), "a table that says nothing");
    }

    #[test]
    fn another_name_adds_a_plan() {
        let added = plans(&[("gold.frameworks", "soc2, hipaa"), ("gold.events_per_month", "9000")]).unwrap();
        let expected = Plan {
            name: "gold".into(),
            events_per_month: Some(9000),
            frameworks: set(&["soc2", "hipaa"]),
            requests_per_s: 1000,
            key_expiry_policy: false,
        };
        assert_eq!(added[3..], [expected]);
        assert_eq!(plans(&[("gold.frameworks", "all")]).unwrap()[3].frameworks, FrameworkSet::ALL);
        assert_eq!(plans(&[("gold.frameworks", "")]).unwrap()[3].frameworks, FrameworkSet::NONE);
        assert_eq!(
            plans(&[("gold", "")]).unwrap_err(),
            "sealog.toml: plans.gold needs frameworks: \"all\" or a list of ids, which may be empty"
        );
    }

    #[test]
    fn what_is_wrong_is_named_with_its_setting() {
        for (key, value, problem) in [
            ("entry.frameworks", "soc2,hippa", "plans.entry.frameworks: \"hippa\" is not a framework; use "),
            ("entry.frameworks", "all,soc2", "plans.entry.frameworks: \"all\" is not a framework"),
            ("entry.requests_per_s", "0", "plans.entry.requests_per_s must be a whole number from 1"),
            ("entry.requests_per_s", "-1", "plans.entry.requests_per_s must be"),
            ("entry.requests_per_s", "4294967296", "plans.entry.requests_per_s must be"),
            ("entry.events_per_month", "0", "plans.entry.events_per_month must be a whole number from 1"),
            ("entry.events_per_month", "1.5", "plans.entry.events_per_month must be"),
            (
                "entry.key_expiry_policy",
                "yes",
                "plans.entry.key_expiry_policy must be true or false, not \"yes\"",
            ),
            ("entry.rate", "1", "plans.entry.rate is not a setting of a plan"),
            ("entry.frameworks.soc2", "true", "plans.entry.frameworks.soc2 is not a setting of a plan"),
            ("gold", "1", "plans.gold must be a table"),
            ("go ld.frameworks", "all", "the name of a plan must have 1 to 64"),
        ] {
            let error = plans(&[(key, value)]).unwrap_err();
            assert!(error.starts_with("sealog.toml: plans.") && error.contains(problem), "{key}: {error}");
        }
    }
}
