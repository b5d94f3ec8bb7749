//! Policy files: which logs and witnesses are trusted, after C2SP `tlog-policy`.

use std::fmt;

use crate::checkpoint::Checkpoint;
use crate::note::{KeyKind, Note, NoteError, VerifierKey};
use crate::text::{Malformed, decimal};

/// Most logs, witnesses and groups, each.
pub const EACH_MAX: usize = 32;
pub const POLICY_BYTES_MAX: usize = 1 << 18;

/// A log, with the place where it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    pub key: VerifierKey,
    pub url: Option<Vec<u8>>,
}

/// A witness under the name that the policy gives it. Names are octets, in no character set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    pub name: Vec<u8>,
    pub key: VerifierKey,
    pub url: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    name: Vec<u8>,
    needed: usize,
    members: Vec<Member>,
}

/// What a name refers to, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Witness(usize),
    Group(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    logs: Vec<Log>,
    witnesses: Vec<Witness>,
    /// Members come before the group that names them, so there are no circles.
    groups: Vec<Group>,
    /// None if no witness is needed.
    quorum: Option<Member>,
}

/// Why a checkpoint is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    Malformed(Malformed),
    /// The policy has no log of this origin.
    Origin {
        origin: String,
    },
    /// A known key did not make the signature under its name.
    Signature {
        name: String,
    },
    /// The log of this origin did not sign.
    Unsigned {
        origin: String,
    },
    /// Too few witnesses signed.
    Quorum {
        cosigned: usize,
        witnesses: usize,
    },
}

impl Refused {
    /// One word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Refused::Malformed(_) => "malformed",
            Refused::Origin { .. } => "origin",
            Refused::Signature { .. } | Refused::Unsigned { .. } => "signature",
            Refused::Quorum { .. } => "quorum",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Malformed(problem) => write!(f, "checkpoint: {problem}"),
            Refused::Origin { origin } => {
                write!(f, "the policy has no log `{origin}`; add its `log` line if you trust it")
            }
            Refused::Signature { name } => write!(f, "the signature of {name} does not fit the checkpoint"),
            Refused::Unsigned { origin } => {
                write!(f, "no known key of the log `{origin}` signed the checkpoint")
            }
            Refused::Quorum { cosigned, witnesses } => {
                write!(
                    f,
                    "{cosigned} of {witnesses} witnesses signed, which does not meet the policy's quorum"
                )
            }
        }
    }
}

impl std::error::Error for Refused {}

/// A checkpoint that the policy accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub checkpoint: Checkpoint,
    /// Places in [`Policy::witnesses`], and the Unix second of each one's latest cosignature.
    pub cosigned: Vec<(usize, u64)>,
    /// Whether the policy needs witnesses at all.
    pub witnessed: bool,
}

impl Policy {
    /// One log and no witness: the operator's word alone.
    pub fn of_log(key: VerifierKey) -> Policy {
        Policy { logs: vec![Log { key, url: None }], witnesses: Vec::new(), groups: Vec::new(), quorum: None }
    }

    pub fn logs(&self) -> &[Log] {
        &self.logs
    }

    pub fn witnesses(&self) -> &[Witness] {
        &self.witnesses
    }

    /// Whether a checkpoint must be cosigned at all.
    pub fn needs_witnesses(&self) -> bool {
        self.quorum.is_some()
    }

    pub fn verify(&self, note: &Note) -> Result<Accepted, Refused> {
        let checkpoint = Checkpoint::parse(note.text()).map_err(Refused::Malformed)?;
        let origin = || checkpoint.origin.clone();
        if !self.logs.iter().any(|log| log.key.name() == checkpoint.origin) {
            return Err(Refused::Origin { origin: origin() });
        }
        let keys: Vec<&VerifierKey> =
            self.logs.iter().map(|log| &log.key).chain(self.witnesses.iter().map(|w| &w.key)).collect();
        let signed = match note.verify(&keys) {
            Ok(signed) => signed,
            Err(NoteError::Signature { name }) => return Err(Refused::Signature { name }),
            Err(NoteError::UnknownKeys) => return Err(Refused::Unsigned { origin: origin() }),
        };
        let is_own = |key: usize| self.logs.get(key).is_some_and(|log| log.key.name() == checkpoint.origin);
        if !signed.iter().any(|signed| is_own(signed.key)) {
            return Err(Refused::Unsigned { origin: origin() });
        }
        let cosigned: Vec<(usize, u64)> = signed
            .iter()
            .filter_map(|signed| Some((signed.key.checked_sub(self.logs.len())?, signed.time_s)))
            .collect();
        if !self.quorum.is_none_or(|quorum| self.has_witnessed(quorum, &cosigned)) {
            return Err(Refused::Quorum { cosigned: cosigned.len(), witnesses: self.witnesses.len() });
        }
        Ok(Accepted { checkpoint, cosigned, witnessed: self.quorum.is_some() })
    }

    /// Calls itself at most once for each witness and group: a name is a member of one group only.
    fn has_witnessed(&self, member: Member, cosigned: &[(usize, u64)]) -> bool {
        match member {
            Member::Witness(at) => cosigned.iter().any(|(witness, _)| *witness == at),
            Member::Group(at) => {
                let group = &self.groups[at];
                let count =
                    group.members.iter().filter(|member| self.has_witnessed(**member, cosigned)).count();
                count >= group.needed
            }
        }
    }

    pub fn parse(bytes: &[u8]) -> Result<Policy, Malformed> {
        let wrong = |field, problem| Malformed { line: 0, field, problem };
        if bytes.len() > POLICY_BYTES_MAX {
            return Err(wrong("policy", "must have at most 262144 bytes"));
        }
        let mut reader = Reader::default();
        let mut lines = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            // Behind the last line feed there is nothing.
            if lines.peek().is_none() && line.is_empty() {
                break;
            }
            reader.number += 1;
            if lines.peek().is_none() {
                return Err(reader.wrong("policy", "must end with a line feed"));
            }
            reader.line(line)?;
        }
        let Reader { logs, witnesses, groups, quorum, .. } = reader;
        let quorum =
            quorum.ok_or(wrong("quorum", "must be there once; write `quorum none` for no witnesses"))?;
        Ok(Policy { logs, witnesses, groups, quorum })
    }
}

/// What the lines so far have defined.
#[derive(Default)]
struct Reader {
    number: usize,
    logs: Vec<Log>,
    witnesses: Vec<Witness>,
    groups: Vec<Group>,
    /// Members of a group: a name can be one only once.
    taken: Vec<Member>,
    quorum: Option<Option<Member>>,
}

impl Reader {
    fn wrong(&self, field: &'static str, problem: &'static str) -> Malformed {
        Malformed { line: self.number, field, problem }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Malformed> {
        if line.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f) {
            return Err(self.wrong("policy", "must have no control characters but tab and line feed"));
        }
        let words = line.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty());
        let words: Vec<&[u8]> = words.collect();
        match words[..] {
            [] => Ok(()),
            [first, ..] if first.starts_with(b"#") => Ok(()),
            [b"log", key] => self.log(key, None),
            [b"log", key, url] => self.log(key, Some(url)),
            [b"log", ..] => Err(self.wrong("log", "must be `log VKEY [URL]`")),
            [b"witness", name, key] => self.witness(name, key, None),
            [b"witness", name, key, url] => self.witness(name, key, Some(url)),
            [b"witness", ..] => Err(self.wrong("witness", "must be `witness NAME VKEY [URL]`")),
            [b"group", name, needed, ref members @ ..] => self.group(name, needed, members),
            [b"group", ..] => Err(self.wrong("group", "must be `group NAME K|any|all MEMBER…`")),
            [b"quorum", name] => self.quorum(name),
            [b"quorum", ..] => Err(self.wrong("quorum", "must be `quorum NAME` or `quorum none`")),
            _ => {
                Err(self.wrong("policy", "must have lines `log`, `witness`, `group`, `quorum` or `#` alone"))
            }
        }
    }

    fn key(&self, text: &[u8], kind: KeyKind) -> Result<VerifierKey, Malformed> {
        let text = std::str::from_utf8(text).map_err(|_| self.wrong("vkey", "must be UTF-8"))?;
        let key = VerifierKey::parse(text).map_err(|problem| self.wrong("vkey", problem.problem))?;
        match (kind, key.kind() == kind) {
            (_, true) => Ok(key),
            (KeyKind::Note, _) => Err(self.wrong("vkey", "of a log must have type 01")),
            (KeyKind::Cosignature, _) => Err(self.wrong("vkey", "of a witness must have type 04")),
        }
    }

    fn log(&mut self, key: &[u8], url: Option<&[u8]>) -> Result<(), Malformed> {
        let key = self.key(key, KeyKind::Note)?;
        if self.logs.iter().any(|log| log.key.is_same_key(&key) || log.key.is_same_id(&key)) {
            return Err(self.wrong("log", "has the key of an earlier log; remove one of the lines"));
        }
        self.logs.push(Log { key, url: url.map(<[u8]>::to_vec) });
        self.limit("log", self.logs.len())
    }

    fn witness(&mut self, name: &[u8], key: &[u8], url: Option<&[u8]>) -> Result<(), Malformed> {
        let key = self.key(key, KeyKind::Cosignature)?;
        self.fresh("witness", name)?;
        if self.witnesses.iter().any(|other| other.key.is_same_key(&key) || other.key.is_same_id(&key)) {
            return Err(self.wrong("witness", "has the key of an earlier witness; remove one of the lines"));
        }
        self.witnesses.push(Witness { name: name.to_vec(), key, url: url.map(<[u8]>::to_vec) });
        self.limit("witness", self.witnesses.len())
    }

    fn group(&mut self, name: &[u8], needed: &[u8], names: &[&[u8]]) -> Result<(), Malformed> {
        self.fresh("group", name)?;
        let mut members = Vec::new();
        for member in names {
            let Some(member) = self.find(member) else {
                return Err(self.wrong("group", "has a member that no line above defines"));
            };
            if self.taken.contains(&member) {
                return Err(self.wrong("group", "has a member that is in a group already"));
            }
            self.taken.push(member);
            members.push(member);
        }
        let needed = match needed {
            b"all" => members.len(),
            b"any" => 1,
            number => {
                let number = std::str::from_utf8(number).ok().and_then(decimal);
                number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
            }
        };
        if !(1..=members.len()).contains(&needed) {
            return Err(
                self.wrong("group", "must need `any`, `all` or a number from 1 to that of its members")
            );
        }
        self.groups.push(Group { name: name.to_vec(), needed, members });
        self.limit("group", self.groups.len())
    }

    fn quorum(&mut self, name: &[u8]) -> Result<(), Malformed> {
        if self.quorum.is_some() {
            return Err(self.wrong("quorum", "must be there once; remove this line"));
        }
        let member = match name {
            b"none" => None,
            name => match self.find(name) {
                None => return Err(self.wrong("quorum", "must name a witness or a group of a line above")),
                member => member,
            },
        };
        self.quorum = Some(member);
        Ok(())
    }

    fn find(&self, name: &[u8]) -> Option<Member> {
        let witness = self.witnesses.iter().position(|witness| witness.name == name).map(Member::Witness);
        witness.or_else(|| self.groups.iter().position(|group| group.name == name).map(Member::Group))
    }

    fn fresh(&self, field: &'static str, name: &[u8]) -> Result<(), Malformed> {
        if name == b"none" || self.find(name).is_some() {
            return Err(self.wrong(field, "must have a name that is new and not `none`"));
        }
        Ok(())
    }

    fn limit(&self, field: &'static str, count: usize) -> Result<(), Malformed> {
        if count > EACH_MAX { Err(self.wrong(field, "must be there 32 times at most")) } else { Ok(()) }
    }
}
