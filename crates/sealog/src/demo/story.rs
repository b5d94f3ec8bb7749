//! What happens in a project of the demo: kinds of events with blanks, which chance fills in.
//!
//! A blank is `{what its arguments}` inside any text of the file. The same blank has the same value
//! everywhere in one event, so that `resource` and `metadata` agree. A text that is nothing but a number's or
//! an answer's blank becomes a number or `true`/`false`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sealog_core::time::iso_ms;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::dice::{Dice, mix, number_of};

/// Of documents and tickets that are counted.
const FIRST_NUMBER: u64 = 10_000;

/// Where people are; some places have more of them.
const PLACES: [(&str, &str); 8] = [
    ("DE", "Hamburg"),
    ("DE", "Hamburg"),
    ("DE", "Berlin"),
    ("DE", "Kiel"),
    ("DK", "Copenhagen"),
    ("NL", "Amsterdam"),
    ("AT", "Vienna"),
    ("US", "Boston"),
];

#[derive(Debug)]
pub(super) struct Story {
    kinds: Vec<Kind>,
    weights: u64,
    counted: HashMap<String, u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    action: String,
    weight: u64,
    by: String,
    #[serde(default = "user")]
    by_type: String,
    on: String,
    #[serde(default)]
    since_day: u64,
    #[serde(default)]
    session: bool,
    metadata: Map<String, Value>,
}

fn user() -> String {
    "user".into()
}

/// An event as its sender would send it, and from where.
#[derive(Debug)]
pub(super) struct Told {
    pub body: Vec<u8>,
    pub address: IpAddr,
    /// Country and city.
    pub place: Option<(&'static str, &'static str)>,
}

impl Story {
    pub(super) fn read(text: &str) -> Story {
        let kinds: Vec<Kind> = serde_json::from_str(text).expect("a test reads the files");
        let weights = kinds.iter().map(|kind| kind.weight).sum();
        Story { kinds, weights, counted: HashMap::new() }
    }

    /// Something that happens on the n-th day, at this time.
    pub(super) fn tell(&mut self, day: u64, at_ms: u64, dice: &mut Dice) -> Told {
        loop {
            let mut left = dice.below(self.weights);
            let kind = self.kinds.iter().find(|kind| {
                let found = left < kind.weight;
                left = left.saturating_sub(kind.weight);
                found
            });
            let kind = kind.expect("one is below the sum of the weights");
            if kind.since_day > day {
                continue;
            }
            let mut blanks = Blanks { at_ms, dice, counted: &mut self.counted, known: HashMap::new() };
            return told(kind, day, &mut blanks);
        }
    }
}

fn told(kind: &Kind, day: u64, blanks: &mut Blanks<'_>) -> Told {
    let actor = blanks.fill_text(&kind.by);
    let mut event = json!({
        "action": kind.action,
        "actor_id": actor,
        "actor_type": kind.by_type,
        "resource": blanks.fill_text(&kind.on),
        "metadata": blanks.fill(&Value::Object(kind.metadata.clone())),
    });
    if kind.session {
        let number = mix(number_of(&actor).wrapping_add(day));
        event["session_id"] = format!("ses_{:010x}", number >> 24).into();
    }
    Told { body: event.to_string().into_bytes(), address: address(&actor), place: place(&actor) }
}

fn id(prefix: &str, which: u64) -> String {
    format!("{prefix}_{:06x}", mix(number_of(prefix).wrapping_add(which)) >> 40)
}

/// The one of a kind that most events are about.
pub(super) fn first_id(prefix: &str) -> String {
    id(prefix, 0)
}

/// Somebody tries passwords, from one address.
pub(super) fn attempt(number: u64, is_last: bool) -> Told {
    let (action, metadata) = match is_last {
        false => ("user.login_failed", json!({ "reason": "wrong_password", "attempt_count": number })),
        true => ("user.locked_out", json!({ "attempt_count": number })),
    };
    let event = json!({
        "action": action, "actor_id": "unknown", "resource": "user/usr_root_admin", "metadata": metadata,
    });
    Told { body: event.to_string().into_bytes(), address: Ipv4Addr::new(192, 0, 2, 66).into(), place: None }
}

/// Everybody has one of their own: services inside, people at addresses that are kept for documentation.
fn address(actor: &str) -> IpAddr {
    let number = number_of(actor);
    let [a, b, ..] = number.to_le_bytes();
    match (actor.starts_with("svc_"), number >> 60) {
        (true, _) => Ipv4Addr::new(10, 20, 0, a).into(),
        (false, 0..2) => Ipv6Addr::new(0x2001, 0xdb8, 0, u16::from(a), 0, 0, 0, u16::from(b)).into(),
        (false, 2..9) => Ipv4Addr::new(203, 0, 113, a).into(),
        (false, _) => Ipv4Addr::new(198, 51, 100, a).into(),
    }
}

/// Services are inside, where no database has a place for them.
fn place(actor: &str) -> Option<(&'static str, &'static str)> {
    let place = PLACES[usize::try_from(number_of(actor) % PLACES.len() as u64).expect("a few")];
    (!actor.starts_with("svc_")).then_some(place)
}

struct Blanks<'a> {
    at_ms: u64,
    dice: &'a mut Dice,
    counted: &'a mut HashMap<String, u64>,
    /// Those of this event that have a value.
    known: HashMap<String, Value>,
}

impl Blanks<'_> {
    fn fill(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.fill_string(text),
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(members) => {
                members.iter().map(|(name, value)| (name.clone(), self.fill(value))).collect()
            }
            other => other.clone(),
        }
    }

    fn fill_string(&mut self, text: &str) -> Value {
        let whole = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        match whole.filter(|blank| !blank.contains(['{', '}'])) {
            Some(blank) => self.value(blank),
            None => self.fill_text(text).into(),
        }
    }

    fn fill_text(&mut self, text: &str) -> String {
        let (mut filled, mut rest) = (String::new(), text);
        while let Some((before, behind)) = rest.split_once('{') {
            let (blank, behind) = behind.split_once('}').expect("a test reads the files");
            filled.push_str(before);
            match self.value(blank) {
                Value::String(text) => filled.push_str(&text),
                other => filled.push_str(&other.to_string()),
            }
            rest = behind;
        }
        filled + rest
    }

    fn value(&mut self, blank: &str) -> Value {
        if let Some(known) = self.known.get(blank) {
            return known.clone();
        }
        let value = self.new_value(blank);
        self.known.insert(blank.to_owned(), value.clone());
        value
    }

    fn new_value(&mut self, blank: &str) -> Value {
        let (what, arguments) = blank.split_once(' ').unwrap_or((blank, ""));
        let number = |at: usize| -> u64 {
            let text = arguments.split(' ').nth(at).unwrap_or_default();
            text.parse().unwrap_or_else(|_| panic!("no number in {blank:?}; a test reads the files"))
        };
        match what {
            // One of so many, some of whom are busier than others.
            "id" => {
                let count = number(1);
                let which = self.dice.below(count).min(self.dice.below(count));
                let prefix = arguments.split(' ').next().unwrap_or_default();
                id(prefix, which).into()
            }
            "pick" => {
                let choices: Vec<&str> = arguments.split('|').collect();
                let which = self.dice.below(choices.len() as u64);
                choices[usize::try_from(which).expect("a few")].into()
            }
            "int" => (number(0) + self.dice.below(number(1) - number(0) + 1)).into(),
            "yes" => (self.dice.below(100) < number(0)).into(),
            "hex" => {
                let digits = usize::try_from(number(0)).expect("a few");
                format!("{:016x}", self.dice.next())[..digits].into()
            }
            "next" => {
                let last = self.counted.entry(arguments.to_owned()).or_insert(FIRST_NUMBER);
                *last += 1;
                (*last).into()
            }
            "time" => iso_ms(self.at_ms).into(),
            "date" => iso_ms(self.at_ms)[..10].into(),
            _ => panic!("no blank is called {what:?}; a test reads the files"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str) -> Value {
        let (mut dice, mut counted) = (Dice::new(7), HashMap::new());
        let mut blanks = Blanks { at_ms: 0, dice: &mut dice, counted: &mut counted, known: HashMap::new() };
        blanks.fill(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn a_blank_has_one_value_in_an_event_and_a_lone_number_is_a_number() {
        let filled = fill(
            r#"{"on": "patient/{id pat 90}", "of": "{id pat 90}", "n": "{int 3 3}", "is": "{yes 100}", "at": "{date} {int 4 4}"}"#,
        );
        assert_eq!(filled["on"], format!("patient/{}", filled["of"].as_str().unwrap()));
        assert_eq!((&filled["n"], &filled["is"]), (&json!(3), &json!(true)));
        assert_eq!(filled["at"], "1970-01-01 4");
    }

    #[test]
    fn what_is_counted_goes_on_from_event_to_event() {
        let mut story = Story::read(
            r#"[{"action": "a.b", "weight": 1, "by": "x", "on": "n/{next n}", "metadata": {"n": "{next n}"}}]"#,
        );
        let mut dice = Dice::new(1);
        for expected in [10_001, 10_002] {
            let told = story.tell(0, 0, &mut dice);
            let event: Value = serde_json::from_slice(&told.body).unwrap();
            assert_eq!(
                (&event["resource"], &event["metadata"]["n"]),
                (&json!(format!("n/{expected}")), &json!(expected))
            );
        }
    }
}
