//! Headers of answers.

use serde_json::{Value, json};

use super::schemas;

/// A header of an answer, by its name in `components`. Where it is not in every answer of the kind, a copy
/// that says so.
pub(super) fn header(name: &str, always: bool) -> Value {
    if always {
        return json!({ "$ref": format!("#/components/headers/{name}") });
    }
    let mut header = all()[name].clone();
    header["required"] = false.into();
    header
}

/// All of them, by their names.
pub(super) fn all() -> Value {
    let header = |description: &str, schema: Value| json!({ "description": description, "required": true, "schema": schema });
    json!({
        "X-Request-Id": header("The id of this request; errors repeat it as `request_id`.", schemas::request_id()),
        "Retry-After": header("Seconds to wait before the next request.", json!({ "type": "integer", "minimum": 1 })),
        "Allow": header("The methods that the path supports.", json!({ "type": "string" })),
        "Sealog-Chain-Seq": header(
            "The receipt's first half: the event's `chain_seq`; for a batch the first and the last one, such as `101-200`.",
            json!({ "type": "string", "pattern": "^[1-9][0-9]*(-[1-9][0-9]*)?$" }),
        ),
        "Sealog-Hash": header("The receipt's second half: the event's `hash`; for a batch the last one's.", schemas::hash()),
        "Idempotency-Replayed": header(
            "Present if the response is that of an earlier request with the same Idempotency-Key.",
            json!({ "type": "string", "enum": ["true"] }),
        ),
        "Cache-Control": header("How long the answer may be kept.", json!({ "type": "string" })),
        "ETag": header("Changes with the document.", json!({ "type": "string" })),
    })
}
