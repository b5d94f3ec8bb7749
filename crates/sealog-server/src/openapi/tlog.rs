//! What is published, in words.

use sealog_core::query::{EntryParameter, GrowthParameter, SEQ_MAX, SnapshotParameter};
use sealog_core::reject::Code;
use serde_json::{Value, json};

use super::headers::header;
use super::operations::{Access, Description, always, json_answer, path_parameter, query_parameter};
use crate::tlog_routes::Operation;

pub(super) fn describe(operation: Operation, path: &str) -> Description {
    let (id, summary, about) = match operation {
        Operation::StoreCheckpoint => (
            "storeCheckpoint",
            "The newest signed checkpoint",
            "A signed note (C2SP tlog-checkpoint): origin, number of entries, root. Keep one: it proves a later rewrite.",
        ),
        Operation::StoreEntries => (
            "storeEntries",
            "Entries of the store log",
            "An entry bundle (C2SP tlog-tiles): each entry with its length in two bytes before it.",
        ),
        Operation::StoreTile => ("storeTile", "Hashes of the store log's tree", "A tile (C2SP tlog-tiles)."),
        Operation::StoreKeys => (
            "storeKeys",
            "The keys of the store log",
            "For comparison only: obtain the key that you verify with from the operator on another way.",
        ),
        Operation::StoreProof => ("storeProof", "Proof that an entry is in the store log", ""),
        Operation::StoreConsistency => (
            "storeConsistency",
            "Proof that one tree of the store log begins another",
            "A checkpoint that you kept and today's are of one history if the proof holds.",
        ),
    };
    let mut answer = match operation {
        Operation::StoreCheckpoint => of_type("The note.", "text/plain; charset=utf-8"),
        Operation::StoreEntries => of_type("The entries.", "application/octet-stream"),
        Operation::StoreTile => of_type("The hashes, 32 bytes each.", "application/octet-stream"),
        Operation::StoreKeys => json_answer("The keys in the order of their entries.", "StoreKeys"),
        Operation::StoreProof => json_answer("The path from the entry to the root.", "EntryProof"),
        Operation::StoreConsistency => json_answer("The proof.", "ConsistencyProof"),
    };
    match operation {
        Operation::StoreCheckpoint
        | Operation::StoreEntries
        | Operation::StoreTile
        | Operation::StoreKeys => {
            answer["headers"] = json!({ "Cache-Control": header("Cache-Control", true) });
        }
        Operation::StoreProof | Operation::StoreConsistency => {}
    }
    let mut parameters = match operation {
        Operation::StoreCheckpoint => SnapshotParameter::ALL.iter().map(|known| snapshot(*known)).collect(),
        Operation::StoreProof => EntryParameter::ALL.iter().map(|known| entry(*known)).collect(),
        Operation::StoreConsistency => GrowthParameter::ALL.iter().map(|known| growth(*known)).collect(),
        Operation::StoreEntries | Operation::StoreTile | Operation::StoreKeys => Vec::new(),
    };
    parameters.extend(path_parameter(path));
    let mut codes = always();
    codes.extend([Code::RequestNotFound, Code::TlogNotFound, Code::ReadQueryFailed]);
    if operation != Operation::StoreKeys {
        codes.push(Code::ReadInvalidParams);
    }
    Description {
        id,
        summary,
        about: about.into(),
        tag: "tlog",
        access: Access::Anyone,
        parameters,
        body: None,
        success: vec![(200, answer)],
        codes,
        links: Value::Null,
    }
}

fn of_type(description: &str, content_type: &str) -> Value {
    json!({ "description": description, "content": { content_type: { "schema": { "type": "string" } } } })
}

fn snapshot(parameter: SnapshotParameter) -> Value {
    match parameter {
        SnapshotParameter::At => query_parameter(
            parameter.as_str(),
            "The index of an entry: the oldest checkpoint that is kept and has it.",
            &number(0),
        ),
    }
}

fn entry(parameter: EntryParameter) -> Value {
    let (about, least) = match parameter {
        EntryParameter::Index => ("The index of the entry, from 0; below `size`.", 0),
        EntryParameter::Size => ("The size of the tree, not above that of the newest checkpoint.", 1),
    };
    required(query_parameter(parameter.as_str(), about, &number(least)))
}

fn growth(parameter: GrowthParameter) -> Value {
    let about = match parameter {
        GrowthParameter::From => "The size of the older tree.",
        GrowthParameter::To => {
            "The size of the newer tree, not below `from` and not above that of the newest checkpoint."
        }
    };
    required(query_parameter(parameter.as_str(), about, &number(0)))
}

fn required(mut parameter: Value) -> Value {
    parameter["required"] = true.into();
    parameter
}

fn number(least: u64) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": u64::try_from(SEQ_MAX).unwrap_or(u64::MAX) })
}
