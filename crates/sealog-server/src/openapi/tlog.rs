//! What is published, in words.

use sealog_core::query::{
    EntryParameter, GrowthParameter, HeadParameter, ProofFormat, ProofParameter, SEQ_MAX, SeqParameter,
    SnapshotParameter,
};
use sealog_core::reject::Code;
use serde_json::{Value, json};

use super::headers::header;
use super::operations::{
    Access, Description, KEY, always, json_answer, path_parameter, query_parameter, seq_parameter,
};
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
        Operation::Chain => (
            "chain",
            "What is published of the key's chain",
            "The chain is that of the key. Test chains have no trees: `tlog/not_found`.",
        ),
        Operation::ChainCheckpoint => (
            "chainCheckpoint",
            "The newest checkpoint of the chain's own log",
            "For tools that read a chain as a log of C2SP. The service key signs it, at sizes that the store log has; what binds the chain is its head in the store log.",
        ),
        Operation::ChainEntries => (
            "chainEntries",
            "Leaves of the chain",
            "An entry bundle (C2SP tlog-tiles) of leaves, which commit to whole events.",
        ),
        Operation::ChainTile => ("chainTile", "Hashes of the chain's tree", "A tile (C2SP tlog-tiles)."),
        Operation::ChainHead => (
            "chainHead",
            "Proof of the chain's head, or of its absence, in a snapshot",
            "With `at` once a second for each tenant.",
        ),
        Operation::ChainConsistency => {
            ("chainConsistency", "Proof that one tree of the chain begins another", "")
        }
        Operation::ChainProof => (
            "chainProof",
            "Proof of one event",
            "From the event to a signed checkpoint of the store log; `sealog-verify --proof` checks the file. Give `log_id` or `seq`.",
        ),
        Operation::ChainRange => (
            "chainRange",
            "Proof that events in a row are all that the chain has there",
            "With the hashes of all leaves of the range it gives the published root. `salts` opens the private fields of these events.",
        ),
        Operation::ChainVerify => (
            "chainVerify",
            "Verify a part of the chain, and its events against the published tree",
            "As `/v1/events/verify`, and every published event is compared with its leaf. `reason` is `annotations` if the hash of an event fits and another field of it does not, `root` if the leaves do not give the published root.",
        ),
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
        Operation::StoreConsistency | Operation::ChainConsistency => {
            json_answer("The proof.", "ConsistencyProof")
        }
        Operation::Chain => json_answer("What is published.", "PublishedChain"),
        Operation::ChainCheckpoint => of_type("The note.", "text/plain; charset=utf-8"),
        Operation::ChainEntries => of_type("The leaves.", "application/octet-stream"),
        Operation::ChainTile => of_type("The hashes, 32 bytes each.", "application/octet-stream"),
        Operation::ChainHead => or_file(json_answer("The proof.", "HeadProof")),
        Operation::ChainProof => or_file(json_answer("The proof.", "EventProof")),
        Operation::ChainRange => json_answer("The proof.", "RangeProof"),
        Operation::ChainVerify => json_answer("The result.", "TreeVerification"),
    };
    if !matches!(operation, Operation::StoreProof | Operation::StoreConsistency) {
        answer["headers"] = json!({ "Cache-Control": header("Cache-Control", true) });
    }
    let mut parameters = match operation {
        Operation::StoreCheckpoint => SnapshotParameter::ALL.iter().map(|known| snapshot(*known)).collect(),
        Operation::StoreProof => EntryParameter::ALL.iter().map(|known| entry(*known)).collect(),
        Operation::StoreConsistency | Operation::ChainConsistency => {
            GrowthParameter::ALL.iter().map(|known| growth(*known)).collect()
        }
        Operation::ChainHead => HeadParameter::ALL.iter().map(|known| head(*known)).collect(),
        Operation::ChainProof => ProofParameter::ALL.iter().map(|known| proof(*known)).collect(),
        Operation::ChainRange => SeqParameter::ALL.iter().map(|known| range(*known)).collect(),
        Operation::ChainVerify => SeqParameter::ALL.iter().map(|known| seq_parameter(*known)).collect(),
        Operation::StoreEntries
        | Operation::StoreTile
        | Operation::StoreKeys
        | Operation::Chain
        | Operation::ChainCheckpoint
        | Operation::ChainEntries
        | Operation::ChainTile => Vec::new(),
    };
    parameters.extend(path_parameter(path));
    let of_chain = path.starts_with("/tlog/v1/chain");
    let mut codes = always();
    codes.extend([Code::RequestNotFound, Code::TlogNotFound, Code::ReadQueryFailed]);
    if !matches!(operation, Operation::StoreKeys | Operation::Chain | Operation::ChainCheckpoint) {
        codes.push(Code::ReadInvalidParams);
    }
    if of_chain {
        codes.extend(KEY);
        codes.push(Code::TlogNotYet);
    } else {
        codes.push(Code::ServerControlUnavailable);
    }
    if matches!(operation, Operation::ChainHead | Operation::ChainEntries) {
        codes.push(Code::TlogPruned);
    }
    Description {
        id,
        summary,
        about: about.into(),
        tag: "tlog",
        access: match operation {
            Operation::ChainEntries => Access::ApiKey,
            _ if of_chain => Access::ApiKeyOrMonitorToken,
            _ => Access::Anyone,
        },
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

/// The same as a file of C2SP tlog-proof.
fn or_file(mut answer: Value) -> Value {
    answer["content"]["text/plain; charset=utf-8"] = json!({ "schema": { "type": "string" } });
    answer
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

fn head(parameter: HeadParameter) -> Value {
    match parameter {
        HeadParameter::At => query_parameter(
            parameter.as_str(),
            "The index of a snapshot's entry in the store log; by default the newest.",
            &number(0),
        ),
        HeadParameter::Format => format(parameter.as_str()),
    }
}

fn proof(parameter: ProofParameter) -> Value {
    match parameter {
        ProofParameter::LogId => {
            query_parameter(parameter.as_str(), "The event's id.", &json!({ "type": "string" }))
        }
        ProofParameter::Seq => query_parameter(parameter.as_str(), "The event's `chain_seq`.", &number(1)),
        ProofParameter::Format => format(parameter.as_str()),
    }
}

fn format(name: &str) -> Value {
    let names = ProofFormat::ALL.map(ProofFormat::as_str);
    let schema = json!({ "type": "string", "enum": names, "default": ProofFormat::default().as_str() });
    query_parameter(name, "How the proof is written; `tlog-proof` is the file of C2SP.", &schema)
}

fn range(parameter: SeqParameter) -> Value {
    let about = match parameter {
        SeqParameter::FromSeq => "The first `chain_seq`, 1 by default.",
        SeqParameter::ToSeq => "The last `chain_seq`; by default that of the published tree.",
    };
    query_parameter(parameter.as_str(), about, &number(1))
}

fn required(mut parameter: Value) -> Value {
    parameter["required"] = true.into();
    parameter
}

fn number(least: u64) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": u64::try_from(SEQ_MAX).unwrap_or(u64::MAX) })
}
