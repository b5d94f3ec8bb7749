//! Which columns of the list of events are shown: chosen in the query, so that a link and a saved view have
//! them.

/// The parameter, and what it can name. The number of an event is always there.
pub(crate) const PARAMETER: &str = "columns";
const COLUMNS: [(&str, &str); 7] = [
    ("time", "Time (UTC)"),
    ("action", "Action"),
    ("actor", "Actor"),
    ("resource", "Resource"),
    ("where", "Where"),
    ("severity", "Severity"),
    ("hash", "Hash"),
];
/// Of their cells.
const CLASSES: [&str; COLUMNS.len()] =
    ["c-time", "c-action", "c-actor", "c-res", "c-where", "c-sev", "c-hash"];

/// Those that are shown.
pub(crate) struct Columns([bool; COLUMNS.len()]);

impl Columns {
    /// Once for each name, or with commas between them; all, where none is named.
    pub(crate) fn of(pairs: &[(String, String)]) -> Columns {
        let named: Vec<&str> = pairs
            .iter()
            .filter(|(name, _)| name == PARAMETER)
            .flat_map(|(_, value)| value.split(','))
            .take(2 * COLUMNS.len())
            .collect();
        let shown = COLUMNS.map(|(name, _)| named.contains(&name));
        Columns(if shown.contains(&true) { shown } else { [true; COLUMNS.len()] })
    }

    /// Filters with these columns in place of what was asked for, which may be anything.
    pub(crate) fn in_place(pairs: Vec<(String, String)>) -> Vec<(String, String)> {
        let columns = Columns::of(&pairs);
        let named = pairs.iter().any(|(name, _)| name == PARAMETER) && columns.0.contains(&false);
        let shown = columns.all().into_iter().filter(|(.., shown)| named && *shown);
        let shown = shown.map(|(name, ..)| (PARAMETER.to_owned(), name.to_owned()));
        pairs.into_iter().filter(|(name, _)| name != PARAMETER).chain(shown).collect()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        COLUMNS.iter().zip(self.0).any(|((known, _), shown)| *known == name && shown)
    }

    /// With the number.
    pub(crate) fn count(&self) -> usize {
        1 + self.0.iter().filter(|shown| **shown).count()
    }

    /// How many are not shown.
    pub(crate) fn hidden(&self) -> usize {
        self.0.iter().filter(|shown| !**shown).count()
    }

    /// Those that are shown: name, label, class.
    pub(crate) fn shown(&self) -> Vec<(&'static str, &'static str, &'static str)> {
        let all = self.all().into_iter().zip(CLASSES);
        all.filter(|((.., shown), _)| *shown).map(|((name, label, _), class)| (name, label, class)).collect()
    }

    /// Name, label, and whether it is shown.
    pub(crate) fn all(&self) -> Vec<(&'static str, &'static str, bool)> {
        COLUMNS.into_iter().zip(self.0).map(|((name, label), shown)| (name, label, shown)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_that_are_named_and_all_where_none_is() {
        let of = |values: &[&str]| {
            let pairs: Vec<_> =
                values.iter().map(|value| (PARAMETER.to_owned(), (*value).to_owned())).collect();
            let columns = Columns::of(&pairs);
            columns.all().into_iter().filter(|(.., shown)| *shown).map(|(name, ..)| name).collect::<Vec<_>>()
        };
        assert_eq!(of(&["action", "time"]), ["time", "action"]);
        assert_eq!(of(&["hash,actor,nonsense"]), ["actor", "hash"]);
        assert_eq!(of(&[]).len(), 7);
        assert_eq!(of(&["nonsense"]).len(), 7);
        assert_eq!(of(&[&"time,".repeat(10_000)]), ["time"]);
    }

    #[test]
    fn links_repeat_known_columns_alone() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let given = vec![pair("columns", "!!!,time"), pair("action", "a"), pair("columns", "hash")];
        let kept = Columns::in_place(given);
        assert_eq!(kept, [pair("action", "a"), pair("columns", "time"), pair("columns", "hash")]);
        assert_eq!(Columns::in_place(vec![pair("columns", "!!!")]), []);
    }
}
