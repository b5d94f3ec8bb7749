//! The action catalog, and the rule that decides whether an action may be logged.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::json::{self, Members};
use crate::reject::Reject;
use crate::steps;

/// Only the beginning of longer actions and names is compared.
const SUGGESTION_CHARACTERS_MAX: usize = 64;
/// Limit on the work of a suggestion: more than the whole catalog needs for an action that resembles none of
/// its names.
const SUGGESTION_STEPS_MAX: usize = 500_000;

/// Whether the name of an action says that something failed or was denied: events have no outcome of their
/// own.
pub fn is_failure(action: &str) -> bool {
    ends_with_one_of(action, &["failed", "denied", "refused", "rejected", "blocked"])
}

/// Whether the name of an action says that data was read and nothing changed.
pub fn is_read(action: &str) -> bool {
    ends_with_one_of(action, &["viewed", "accessed", "read", "listed", "searched", "queried"])
}

/// As a word of its own.
pub fn ends_with_one_of(action: &str, words: &[&str]) -> bool {
    words.iter().any(|word| action.strip_suffix(word).is_some_and(|rest| rest.ends_with(['.', '_', '-'])))
}

/// The built-in catalog. Spec 2.4.
#[derive(Debug)]
pub struct Catalog {
    pub frameworks: Vec<Framework>,
    pub entries: Vec<Entry>,
    by_action: HashMap<String, usize>,
    /// First segments of gated actions, which custom actions must not begin with.
    domains: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Framework {
    pub framework: String,
    pub label: String,
    pub source: String,
    pub retention: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub action: String,
    pub category: String,
    pub description: String,
    /// The same for a person who has never seen a log, true of both who acted and who was concerned. No API
    /// has it: packages for data subjects do.
    pub plain: String,
    pub frameworks: Vec<EntryFramework>,
    pub required_fields: Vec<String>,
    pub optional_fields: Vec<String>,
    pub severity: String,
    /// True if the project must have one of its frameworks enabled.
    pub gated: bool,
    pub clauses: HashMap<String, String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct EntryFramework {
    pub framework: String,
    pub label: String,
    pub is_required: bool,
}

/// An action that a tenant has registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomAction {
    pub action: String,
    pub description: Option<String>,
    pub category: Option<String>,
    pub severity: Option<String>,
    pub required_fields: Vec<String>,
    pub optional_fields: Vec<String>,
}

/// A set of the catalog's frameworks, by their place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FrameworkSet(u32);

impl FrameworkSet {
    pub const NONE: FrameworkSet = FrameworkSet(0);
    pub const ALL: FrameworkSet = FrameworkSet(u32::MAX);

    /// The bits, as stores keep them.
    pub fn bits(self) -> u32 {
        self.0
    }

    pub fn from_bits(bits: u32) -> FrameworkSet {
        FrameworkSet(bits)
    }

    pub fn with(self, index: usize) -> FrameworkSet {
        FrameworkSet(self.0 | 1 << index)
    }

    pub fn contains(self, index: usize) -> bool {
        self.0 & 1 << index != 0
    }

    pub fn union(self, other: FrameworkSet) -> FrameworkSet {
        FrameworkSet(self.0 | other.0)
    }

    pub fn intersects(self, other: FrameworkSet) -> bool {
        self.0 & other.0 != 0
    }

    pub fn without(self, other: FrameworkSet) -> FrameworkSet {
        FrameworkSet(self.0 & !other.0)
    }

    fn both(self, other: FrameworkSet) -> FrameworkSet {
        FrameworkSet(self.0 & other.0)
    }
}

/// The tenant's and project's part in the decision about an action.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// Enabled for the project now.
    pub enabled: FrameworkSet,
    /// Enabled for the project at some time, now or before.
    pub ever_enabled: FrameworkSet,
    /// Part of the tenant's plan.
    pub in_plan: FrameworkSet,
    pub custom: &'a HashMap<String, CustomAction>,
}

/// The fields that an admitted action adds to its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    pub category: Option<Cow<'static, str>>,
    pub severity: Option<Cow<'static, str>>,
}

impl Catalog {
    pub fn builtin() -> &'static Catalog {
        static CATALOG: OnceLock<Catalog> = OnceLock::new();
        CATALOG.get_or_init(|| {
            #[derive(Deserialize)]
            struct File {
                frameworks: Vec<Framework>,
                actions: Vec<Entry>,
            }
            let file: File =
                serde_json::from_str(include_str!("catalog.json")).expect("a test reads this file");
            let by_action =
                file.actions.iter().enumerate().map(|(at, entry)| (entry.action.clone(), at)).collect();
            let mut domains: Vec<String> = file
                .actions
                .iter()
                .filter(|e| e.gated)
                .map(|e| first_segment(&e.action).to_owned())
                .collect();
            domains.sort();
            domains.dedup();
            Catalog { frameworks: file.frameworks, entries: file.actions, by_action, domains }
        })
    }

    pub fn entry(&self, action: &str) -> Option<&Entry> {
        self.by_action.get(action).map(|&at| &self.entries[at])
    }

    pub fn framework_index(&self, id: &str) -> Option<usize> {
        self.frameworks.iter().position(|framework| framework.framework == id)
    }

    /// The set of these framework ids, or the first one that does not exist.
    pub fn framework_set<'i>(&self, ids: impl IntoIterator<Item = &'i str>) -> Result<FrameworkSet, &'i str> {
        ids.into_iter()
            .try_fold(FrameworkSet::NONE, |set, id| Ok(set.with(self.framework_index(id).ok_or(id)?)))
    }

    pub fn frameworks_of(&self, entry: &Entry) -> FrameworkSet {
        let indexes = entry.frameworks.iter().filter_map(|of| self.framework_index(&of.framework));
        indexes.fold(FrameworkSet::NONE, FrameworkSet::with)
    }

    /// Decides whether an event with this action and this metadata (canonical text) may be stored.
    pub fn admit(
        &'static self,
        action: &str,
        metadata: Option<&str>,
        scope: Scope<'_>,
    ) -> Result<Admitted, Reject> {
        if let Some(entry) = self.entry(action) {
            self.gate(entry, scope)?;
            require(action, metadata, &entry.required_fields)?;
            return Ok(Admitted {
                category: Some(Cow::Borrowed(&entry.category)),
                severity: Some(Cow::Borrowed(&entry.severity)),
            });
        }
        if let Some(custom) = scope.custom.get(action) {
            require(action, metadata, &custom.required_fields)?;
            return Ok(Admitted {
                category: custom.category.clone().map(Cow::Owned),
                severity: custom.severity.clone().map(Cow::Owned),
            });
        }
        // Without a suggestion: of a batch only one event is reported, and only that one is worth the search.
        Err(Reject::ActionInvalid { action: action.to_owned(), suggestion: None })
    }

    /// The known name that takes the fewest edits, for the one event that is reported. Costs at most
    /// [`SUGGESTION_STEPS_MAX`] steps: long names are compared by their beginning, names that cannot be
    /// closer than the best so far are left early, and the search ends with the best of what it has seen.
    pub fn suggest<'n>(&'n self, action: &str, custom: &'n HashMap<String, CustomAction>) -> Option<&'n str> {
        let beginning = |name: &str| name.chars().take(SUGGESTION_CHARACTERS_MAX).collect::<Vec<char>>();
        let (wanted, mut steps) = (beginning(action), SUGGESTION_STEPS_MAX);
        let names = self.entries.iter().map(|entry| &entry.action).chain(custom.keys());
        let mut best: Option<(usize, &str)> = None;
        for name in names {
            let at_most = best.map_or(SUGGESTION_CHARACTERS_MAX, |(edits, _)| edits);
            if let Some(edits) = edits(&wanted, &beginning(name), at_most, &mut steps)
                && best.is_none_or(|best| (edits, name.as_str()) < best)
            {
                best = Some((edits, name));
            }
            if steps == 0 {
                break;
            }
        }
        best.map(|(_, name)| name)
    }

    fn gate(&self, entry: &Entry, scope: Scope<'_>) -> Result<(), Reject> {
        if !entry.gated {
            return Ok(());
        }
        let of_entry = self.frameworks_of(entry);
        let included = of_entry.both(scope.in_plan);
        if included.intersects(scope.enabled) {
            return Ok(());
        }
        let frameworks = entry.frameworks.iter().map(|of| of.framework.clone()).collect();
        let action = entry.action.clone();
        if included.intersects(scope.ever_enabled.without(scope.enabled)) {
            Err(Reject::FrameworkDisabled { action, frameworks })
        } else {
            Err(Reject::ActionRequiresFramework { action, frameworks })
        }
    }

    /// Checks that a tenant may register an action of this name. The error is the reason.
    pub fn check_custom_name(&self, action: &str) -> Result<(), String> {
        if action.is_empty() || action.chars().count() > crate::event::FIELD_SCALARS_MAX {
            return Err("must have 1 to 255 characters".into());
        }
        if action.chars().any(char::is_control) {
            return Err("must not contain control characters".into());
        }
        if self.entry(action).is_some() {
            return Err("is already an action of the catalog".into());
        }
        let segment = first_segment(action);
        if action.contains('.')
            && (segment == "sealog" || self.domains.iter().any(|domain| domain == segment))
        {
            return Err(format!("must not begin with the reserved prefix {segment}."));
        }
        Ok(())
    }
}

fn first_segment(action: &str) -> &str {
    action.split('.').next().unwrap_or_default()
}

/// A required field is present when its key exists with a value other than `null`; the last of duplicate keys
/// counts. One pass over the metadata, for any number of fields.
fn require(action: &str, metadata: Option<&str>, fields: &[String]) -> Result<(), Reject> {
    if fields.is_empty() {
        return Ok(());
    }
    let key = |field: &String| {
        let mut key = Vec::with_capacity(field.len() + 2);
        json::put_string(field, &mut key);
        key
    };
    steps::count(fields.len());
    let mut present: HashMap<Vec<u8>, bool> = fields.iter().map(|field| (key(field), false)).collect();
    if let Some(metadata) = metadata {
        for (member, value) in Members::of(metadata) {
            if let Some(present) = present.get_mut(member.as_bytes()) {
                *present = value != "null";
            }
        }
    }
    let missing: Vec<String> = fields.iter().filter(|field| !present[&key(field)]).cloned().collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Reject::MissingRequiredFields { action: action.to_owned(), fields: missing })
    }
}

/// How many characters must be put in, taken out or replaced to get from one text to the other; nothing if
/// that is more than `at_most`, or if there are no steps left.
///
/// Of the table of distances only the band is filled in which a value can be at most `at_most`.
fn edits(from: &[char], to: &[char], at_most: usize, steps: &mut usize) -> Option<usize> {
    if from.len().abs_diff(to.len()) > at_most {
        return None;
    }
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let band = i.saturating_sub(at_most)..(i + at_most + 1).min(to.len());
        steps::count(band.len());
        *steps = steps.saturating_sub(band.len());
        if *steps == 0 {
            return None;
        }
        let mut diagonal = row[band.start];
        // Left of the band every value is too large.
        row[band.start] = if band.start == 0 { i + 1 } else { at_most + 1 };
        let mut smallest = row[band.start];
        for j in band {
            let replaced = diagonal + usize::from(*a != to[j]);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
            smallest = smallest.min(row[j + 1]);
        }
        if smallest > at_most {
            return None;
        }
    }
    Some(row[to.len()]).filter(|edits| *edits <= at_most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reject::Code;

    const BUILT_IN: [&str; 17] = [
        "user.login",
        "user.logout",
        "user.created",
        "user.deleted",
        "document.created",
        "document.updated",
        "document.deleted",
        "document.shared",
        "api_key.created",
        "api_key.revoked",
        "payment.processed",
        "payment.refunded",
        "payment.failed",
        "permission.granted",
        "permission.revoked",
        "config.changed",
        "deploy.completed",
    ];

    #[test]
    fn failures_and_reads_are_recognised_by_the_last_word_of_their_names() {
        for action in ["user.login_failed", "access.denied", "ccpa.request_denied", "payment.failed"] {
            assert!(is_failure(action) && !is_read(action), "{action}");
        }
        for action in ["record.viewed", "hipaa.phi_accessed", "file.read"] {
            assert!(is_read(action) && !is_failure(action), "{action}");
        }
        for action in
            ["user.login", "failed", "unfailed", "incident.failed_over", "viewed", "spread.read_only"]
        {
            assert!(!is_failure(action) && !is_read(action), "{action}");
        }
    }

    #[test]
    fn every_action_has_a_sentence_of_its_own_for_lay_people() {
        let mut said = std::collections::HashSet::new();
        for Entry { action, plain, .. } in &Catalog::builtin().entries {
            assert!(plain.starts_with(char::is_uppercase) && plain.ends_with('.'), "{action}");
            assert!(plain.len() <= 100 && !plain.contains(['_', ';', '(']), "{action}: {plain}");
            for jargon in ["audit", "credential", "subject", "session", "ICT", "PHI", "controller", "log "] {
                assert!(!plain.contains(jargon), "{action}: {jargon}");
            }
            // Frameworks name some things twice; what is said of them is the same.
            said.insert(plain.as_str());
        }
        assert!(said.len() > 150, "{}", said.len());
    }

    fn admit(
        action: &str,
        metadata: Option<&str>,
        enabled: &[&str],
        ever: &[&str],
        in_plan: FrameworkSet,
    ) -> Result<(), Code> {
        let catalog = Catalog::builtin();
        let set = |ids: &[&str]| catalog.framework_set(ids.iter().copied()).unwrap();
        let custom = HashMap::new();
        let scope = Scope {
            enabled: set(enabled),
            ever_enabled: set(ever).union(set(enabled)),
            in_plan,
            custom: &custom,
        };
        catalog.admit(action, metadata, scope).map(|_| ()).map_err(|reject| reject.code())
    }

    #[test]
    fn the_catalog_has_163_actions_12_frameworks_and_58_core_actions() {
        let catalog = Catalog::builtin();
        assert_eq!((catalog.entries.len(), catalog.frameworks.len()), (163, 12));
        assert_eq!(catalog.entries.iter().filter(|entry| !entry.gated).count(), 58);
        assert_eq!(catalog.by_action.len(), 163);
        assert_eq!(catalog.domains.len(), 12);
    }

    #[test]
    fn frameworks_keep_their_places() {
        // Stores keep sets of frameworks by these places: new ones go to the end, and none is ever moved or
        // removed.
        let ids: Vec<&str> =
            Catalog::builtin().frameworks.iter().map(|framework| framework.framework.as_str()).collect();
        assert_eq!(
            ids,
            [
                "soc2",
                "iso27001",
                "gdpr",
                "hipaa",
                "pci_dss",
                "eu_ai_act",
                "nis2",
                "dora",
                "sox",
                "ccpa",
                "fedramp",
                "csrd"
            ]
        );
    }

    #[test]
    fn the_17_built_in_names_are_core_and_require_nothing() {
        for action in BUILT_IN {
            let entry = Catalog::builtin().entry(action).unwrap();
            assert!(!entry.gated && entry.required_fields.is_empty(), "{action}");
            assert_eq!(admit(action, None, &[], &[], FrameworkSet::NONE), Ok(()));
        }
    }

    #[test]
    fn a_gated_action_needs_a_framework_that_is_enabled_and_in_the_plan() {
        let action = "ai_act.inference_logged";
        let metadata = Some(r#"{"ai_system_id":"s","model_version":""}"#);
        let all = FrameworkSet::ALL;
        assert_eq!(admit(action, metadata, &["eu_ai_act"], &[], all), Ok(()));
        assert_eq!(admit(action, metadata, &["soc2"], &[], all), Err(Code::ActionRequiresFramework));
        assert_eq!(
            admit(action, metadata, &["eu_ai_act"], &[], FrameworkSet::NONE),
            Err(Code::ActionRequiresFramework)
        );
        assert_eq!(admit(action, metadata, &[], &["eu_ai_act"], all), Err(Code::FrameworkDisabled));
        assert_eq!(
            admit(action, metadata, &[], &["eu_ai_act"], FrameworkSet::NONE),
            Err(Code::ActionRequiresFramework)
        );
    }

    #[test]
    fn required_fields_must_exist_and_not_be_null() {
        let of =
            |metadata| admit("ai_act.inference_logged", metadata, &["eu_ai_act"], &[], FrameworkSet::ALL);
        let missing = Err(Code::ActionMissingRequiredFields);
        assert_eq!(of(None), missing);
        assert_eq!(of(Some(r#"{"ai_system_id":1}"#)), missing);
        assert_eq!(of(Some(r#"{"ai_system_id":1,"model_version":null}"#)), missing);
        assert_eq!(of(Some(r#"{"ai_system_id":1,"model_version":2,"model_version":null}"#)), missing);
        assert_eq!(of(Some(r#"{"x":{"ai_system_id":1,"model_version":2}}"#)), missing);
        assert_eq!(of(Some(r#"{"ai_system_id":false,"model_version":null,"model_version":2}"#)), Ok(()));
    }

    #[test]
    fn an_unknown_action_gets_the_closest_name() {
        let custom = HashMap::from([("invoice.approved".to_owned(), custom("invoice.approved"))]);
        let suggestion = |action: &str| Catalog::builtin().suggest(action, &custom).unwrap();
        assert_eq!(suggestion("user.logn"), "user.login");
        assert_eq!(suggestion("invoice.aproved"), "invoice.approved");
        // The beginning of a long one decides.
        assert_eq!(suggestion(&format!("invoice.approved{}", "!".repeat(239))), "invoice.approved");
    }

    #[test]
    fn the_closest_name_is_the_one_that_a_whole_table_of_distances_finds() {
        let whole = |from: &str, to: &str| {
            let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
            let mut rows = vec![vec![0; to.len() + 1]; from.len() + 1];
            for i in 0..=from.len() {
                for j in 0..=to.len() {
                    rows[i][j] = match (i, j) {
                        (0, _) => j,
                        (_, 0) => i,
                        _ => (rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]))
                            .min(rows[i - 1][j] + 1)
                            .min(rows[i][j - 1] + 1),
                    };
                }
            }
            rows[from.len()][to.len()]
        };
        let catalog = Catalog::builtin();
        let mut actions: Vec<String> = catalog.entries.iter().map(|entry| entry.action.clone()).collect();
        for at in 0..catalog.entries.len() {
            let action = actions[at].clone();
            actions.push(action.chars().rev().collect());
            actions.push(format!("x{}", &action[2..]));
            actions.push(action.replace('.', ""));
        }
        actions.extend(["", "é", "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"].map(str::to_owned));
        for action in actions {
            let names = catalog.entries.iter().map(|entry| entry.action.as_str());
            let closest = names.min_by_key(|name| (whole(&action, name), *name));
            assert_eq!(catalog.suggest(&action, &HashMap::new()), closest, "{action}");
        }
    }

    #[test]
    fn a_suggestion_costs_a_bounded_number_of_steps() {
        let many = |n: usize| {
            let name = format!("{n:05}.{}", "y".repeat(249));
            (name.clone(), custom(&name))
        };
        let custom: HashMap<String, CustomAction> = (0..10_000).map(many).collect();
        for action in ["z".repeat(255), "user.logi".into(), "é".repeat(255), format!("0.{}", "x".repeat(250))]
        {
            let (found, steps) = steps::of(|| Catalog::builtin().suggest(&action, &custom));
            assert!(found.is_some() && steps <= SUGGESTION_STEPS_MAX + 255, "{steps} for {action}");
        }
        // The catalog alone is always compared whole.
        let none = HashMap::new();
        let (_, steps) = steps::of(|| Catalog::builtin().suggest(&"z".repeat(255), &none));
        assert!(steps < SUGGESTION_STEPS_MAX, "{steps}");
    }

    #[test]
    fn an_action_that_is_refused_is_compared_with_no_name() {
        let scope = Scope {
            enabled: FrameworkSet::NONE,
            ever_enabled: FrameworkSet::NONE,
            in_plan: FrameworkSet::ALL,
            custom: &HashMap::new(),
        };
        let (refused, steps) =
            steps::of(|| Catalog::builtin().admit(&"z".repeat(255), None, scope).unwrap_err());
        assert_eq!((refused.code(), steps), (Code::ActionInvalid, 0));
    }

    #[test]
    fn required_fields_cost_one_pass_over_the_metadata() {
        let mut action = custom("wide");
        action.required_fields = (0..1000).map(|n| format!("f{n}")).collect();
        let custom = HashMap::from([(action.action.clone(), action)]);
        let scope = Scope {
            enabled: FrameworkSet::NONE,
            ever_enabled: FrameworkSet::NONE,
            in_plan: FrameworkSet::ALL,
            custom: &custom,
        };
        let members: Vec<String> = (0..20_000).map(|n| format!("\"f{}\":{n}", n % 999)).collect();
        let metadata = format!("{{{}}}", members.join(","));
        let (refused, steps) =
            steps::of(|| Catalog::builtin().admit("wide", Some(&metadata), scope).unwrap_err());
        let Reject::MissingRequiredFields { fields, .. } = refused else { panic!("{refused:?}") };
        assert_eq!(fields, ["f999"]);
        assert!(steps <= metadata.len() + 1000, "{steps} steps for {} bytes", metadata.len());
    }

    #[test]
    fn custom_actions_may_not_take_reserved_names() {
        let catalog = Catalog::builtin();
        assert_eq!(catalog.check_custom_name("invoice.approved"), Ok(()));
        assert_eq!(catalog.check_custom_name("hipaa"), Ok(()));
        for name in ["user.login", "hipaa.mine", "ai_act.x", "sealog.x", "", "a\nb", &"x".repeat(256)] {
            assert!(catalog.check_custom_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_custom_action_brings_its_own_category_severity_and_required_fields() {
        let mut action = custom("invoice.approved");
        action.category = Some("billing".into());
        action.required_fields = vec!["amount".into()];
        let custom = HashMap::from([(action.action.clone(), action)]);
        let scope = Scope {
            enabled: FrameworkSet::NONE,
            ever_enabled: FrameworkSet::NONE,
            in_plan: FrameworkSet::NONE,
            custom: &custom,
        };
        let admit = |metadata| Catalog::builtin().admit("invoice.approved", metadata, scope);
        assert_eq!(
            admit(Some("{\"amount\":1}")),
            Ok(Admitted { category: Some("billing".into()), severity: None })
        );
        assert_eq!(admit(None).unwrap_err().code(), Code::ActionMissingRequiredFields);
    }

    fn custom(action: &str) -> CustomAction {
        CustomAction {
            action: action.into(),
            description: None,
            category: None,
            severity: None,
            required_fields: vec![],
            optional_fields: vec![],
        }
    }
}
