//! Every way in which a request can be wrong, and the one table of error codes.
//!
//! A [`Reject`] is something that the client can fix. Each variant has one documented [`Code`]; the match
//! between the two has no `_` arm, so a new variant does not compile until it has a code, and a new code not
//! until it has a row in [`CODES`] (a test sees to that).

use std::fmt;

use crate::json::JsonError;

macro_rules! codes {
    ($($variant:ident $code:literal $status:literal $retry:literal $meaning:literal $advice:literal)*) => {
        /// A stable error code. Spec 7; some are additions of ours.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($variant),* }

        /// All codes in the order of the specification's table.
        pub const CODES: &[CodeRow] = &[$(CodeRow {
            code: Code::$variant, text: $code, status: $status, retry: $retry, meaning: $meaning, advice: $advice,
        }),*];
    };
}

/// The facts about a code for responses, documentation pages and tests.
#[derive(Clone, Copy, Debug)]
pub struct CodeRow {
    pub code: Code,
    pub text: &'static str,
    pub status: u16,
    /// True if the same request may succeed later.
    pub retry: bool,
    pub meaning: &'static str,
    pub advice: &'static str,
}

impl CodeRow {
    /// The advice on a retry, for people.
    pub fn retry_words(&self) -> &'static str {
        if self.retry {
            "Yes: the same request may succeed later."
        } else {
            "No: the same request will fail again."
        }
    }
}

codes! {
    AuthMissingHeader "auth/missing_header" 401 false
        "The request has no Authorization header."
        "Send `Authorization: Bearer <API key>`."
    AuthInvalidFormat "auth/invalid_format" 401 false
        "The Authorization header must be `Bearer` and a key that begins with at_live_ or at_test_."
        "Check for a missing `Bearer`, quotes, or a token of another service."
    AuthKeyNotFound "auth/key_not_found" 401 false
        "No such key exists."
        "Check that you copied the whole key and that it belongs to this server; create a new one if it is lost."
    AuthKeyRevoked "auth/key_revoked" 401 false
        "The key was revoked, or its organisation was closed."
        "Use the key that replaced it."
    AuthKeyExpired "auth/key_expired" 401 false
        "The key is past its expiry date."
        "Create a new key and switch to it."
    AuthNotAllowed "auth/not_allowed" 403 false
        "The person's role in the organisation does not include this."
        "Ask an owner or admin of the organisation; the roles and what they include are in the documentation of the dashboard."
    AuthTooManyAttempts "auth/too_many_attempts" 429 true
        "Too many attempts to sign in, for this account or from this address, within 15 minutes."
        "Wait 15 minutes, or request a link by e-mail to set a new password."
    SubscriptionTrialExpired "subscription/trial_expired" 402 false
        "The free trial has ended and billing is not active. You can still read stored events."
        "Activate billing, then send the event again."
    TenantDiskUsedUp "tenant/disk_used_up" 403 false
        "The organisation's account data (keys, members, exports, cases and what belongs to them) has used the disk space that the server allows."
        "Ask the operator of the server to raise `limits.tenant_disk_mb`. Packages free space when they expire; events are not affected."
    RateLimitExceeded "rate/limit_exceeded" 429 true
        "The plan's requests for this second are used up."
        "Wait for `Retry-After` seconds; send events in batches, which count as one request."
    RateIpLimitExceeded "rate/ip_limit_exceeded" 429 true
        "Too many requests from this address in this second."
        "Wait for `Retry-After` seconds; spread the load or send batches."
    RateTestLimitExceeded "rate/test_limit_exceeded" 429 true
        "This test key's requests for this second are used up."
        "Wait for `Retry-After` seconds; use live keys for higher load."
    ValidationMissingAction "validation/missing_action" 422 false
        "`action` is absent, null or empty."
        "Give every event an action from the catalog or a custom one."
    ValidationInvalidJson "validation/invalid_json" 400 false
        "The body is not valid JSON of the expected shape, or is compressed."
        "Check the body against the message; send it as UTF-8, uncompressed."
    ValidationInvalidField "validation/invalid_field" 422 false
        "A field has the wrong type, is too long or contains a forbidden character."
        "Correct the field that the message names."
    ValidationBatchTooLarge "validation/batch_too_large" 400 false
        "The batch has more than 100 events, or a request to `/ingest` more than 10,000 items."
        "Split the request."
    ValidationBatchEmpty "validation/batch_empty" 400 false
        "The batch has no events."
        "Do not send empty batches."
    ValidationBodyTooLarge "validation/body_too_large" 413 false
        "The body is over 262,144 bytes for one event or 2,097,152 bytes for a batch, or the events of a request to `/ingest` are over 8,388,608 bytes."
        "Send fewer events at a time, or keep large payloads elsewhere and send a reference."
    EventWriteFailed "event/write_failed" 500 true
        "The event could not be made durable."
        "Send it again with the same Idempotency-Key: it is stored exactly once, even if the first attempt succeeded."
    EventSuperseded "event/superseded" 503 true
        "This server is no longer the primary: another server has taken its place, and this one accepts no events."
        "Send the event to the new server, with the same Idempotency-Key; the operator knows its address. Queues and spools keep it until then."
    EventIdempotencyKeyConflict "event/idempotency_key_conflict" 409 false
        "This Idempotency-Key was used for another body within the last 24 hours."
        "Use a new key for a new request."
    EventIdempotencyKeyInFlight "event/idempotency_key_in_flight" 409 true
        "The first request with this Idempotency-Key is still being processed."
        "Try again shortly; you then get the response of the first request."
    ReadInvalidParams "read/invalid_params" 400 false
        "A query parameter is unknown, repeated or badly formatted."
        "Correct the parameter that the message names."
    ReadQueryFailed "read/query_failed" 500 true
        "The store could not answer."
        "Try again with increasing pauses; if it persists, send the request id to the operator."
    ReadNotFound "read/not_found" 404 false
        "The key's project has no event with this log_id."
        "Check the log_id, and that the key belongs to the event's project and mode."
    TlogNotFound "tlog/not_found" 404 false
        "No signed tree has this: a tile, an entry, a size, an index or an event that is not published."
        "Take sizes and indexes from the newest checkpoint; test chains have no trees."
    TlogNotYet "tlog/not_yet" 404 true
        "The event or the chain exists, and no signed checkpoint covers it yet."
        "Wait for `Retry-After` seconds: the next snapshot has it."
    TlogPruned "tlog/pruned" 410 false
        "It was published, and is not kept: a snapshot that was thinned out, or the content of a deleted event."
        "Use one that the message names as kept. Checkpoints and proofs that you have stay valid."
    ActionInvalid "action/invalid" 422 false
        "The action is neither in the catalog nor a registered custom action, or is over 255 characters."
        "See `suggestion` and GET /v1/actions, or register the action."
    ActionRequiresFramework "action/requires_framework" 403 false
        "The action belongs to a framework that is not enabled for the project, or not part of the plan."
        "Enable the framework for the project, or choose a plan that includes it."
    ActionMissingRequiredFields "action/missing_required_fields" 422 false
        "`metadata` lacks fields that the action requires."
        "Add the fields that the message names; null does not count."
    FrameworkDisabled "framework/disabled" 403 false
        "The action's framework was enabled for the project and is now disabled."
        "Enable it again, or stop sending its actions."
    RequestNotFound "request/not_found" 404 false
        "No such path or resource."
        "Check the address; every endpoint of the interface is under /v1."
    RequestMethodNotAllowed "request/method_not_allowed" 405 false
        "The path exists, but not for this method."
        "Use a method that the Allow header lists."
    RequestMalformed "request/malformed" 400 false
        "The request is not valid HTTP/1.1."
        "Check the request line, the one `Host` header, and the framing of the body (`Content-Length`, or `Transfer-Encoding: chunked` and nothing else); an HTTP library gets them right. HTTP/2 is served over TLS only."
    RequestUnsupportedEncoding "request/unsupported_encoding" 415 false
        "The body has a Content-Encoding that is not accepted here: `/ingest` accepts gzip, once, and identity."
        "Compress the body with gzip, or send it without Content-Encoding."
    RequestUnsupportedMediaType "request/unsupported_media_type" 415 false
        "The data of a CloudEvent in binary mode is not JSON."
        "Send the data as JSON with `Content-Type: application/json`, or the event in structured mode."
    RequestHeadersTooLarge "request/headers_too_large" 431 false
        "The request line and headers are over 65,536 bytes, or there are more than 100 headers."
        "Send fewer and shorter headers."
    RequestCrossSite "request/cross_site" 403 false
        "A page of another site sent the form, or tried to use a page of the dashboard."
        "Open the dashboard itself and try again. If the request came from there, set `app_url` to the dashboard's real address."
    ServerControlUnavailable "server/control_unavailable" 503 true
        "Accounts and API keys cannot be looked up at the moment: the part of the database that has them is away."
        "Send the request again, with the same Idempotency-Key. Keys that this server has checked within the last minute still work."
    ServerInternal "server/internal" 500 true
        "An unexpected error in the server."
        "Try again; if it persists, send the request id to the operator."
}

impl Code {
    pub fn row(self) -> &'static CodeRow {
        CODES.iter().find(|row| row.code == self).expect("the macro makes a row for each code")
    }

    pub fn as_str(self) -> &'static str {
        self.row().text
    }

    pub fn status(self) -> u16 {
        self.row().status
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reject {
    MissingHeader,
    InvalidFormat,
    KeyNotFound,
    /// Of the operator's interface, whose callers have no key.
    WrongOperatorToken,
    KeyRevoked,
    KeyExpired,
    TrialExpired,
    RateLimit,
    IpRateLimit,
    TestRateLimit,
    InvalidJson {
        detail: String,
    },
    InvalidField {
        field: &'static str,
        problem: FieldProblem,
    },
    MissingAction,
    BatchEmpty,
    BatchTooLarge {
        count: usize,
    },
    /// A request to an adapter has too many items.
    TooManyItems {
        items_max: usize,
    },
    BodyTooLarge {
        bytes_max: usize,
    },
    /// The events of a request to an adapter are too large together.
    EventsTooLarge {
        bytes_max: usize,
    },
    IdempotencyConflict,
    IdempotencyInFlight,
    ActionInvalid {
        action: String,
        suggestion: Option<String>,
    },
    ActionRequiresFramework {
        action: String,
        frameworks: Vec<String>,
    },
    FrameworkDisabled {
        action: String,
        frameworks: Vec<String>,
    },
    MissingRequiredFields {
        action: String,
        fields: Vec<String>,
    },
    InvalidParam {
        name: String,
        problem: &'static str,
    },
    EventNotFound,
    PathNotFound,
    MethodNotAllowed,
    Malformed,
    UnsupportedEncoding,
    UnsupportedMediaType,
    HeadersTooLarge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldProblem {
    NotAString,
    NotAnObject,
    TooLong,
    HasNul,
    HasLoneSurrogate,
    NotAKey,
    /// The expected value.
    NotThis(&'static str),
}

impl Reject {
    pub fn code(&self) -> Code {
        match self {
            Reject::MissingHeader => Code::AuthMissingHeader,
            Reject::InvalidFormat => Code::AuthInvalidFormat,
            Reject::KeyNotFound | Reject::WrongOperatorToken => Code::AuthKeyNotFound,
            Reject::KeyRevoked => Code::AuthKeyRevoked,
            Reject::KeyExpired => Code::AuthKeyExpired,
            Reject::TrialExpired => Code::SubscriptionTrialExpired,
            Reject::RateLimit => Code::RateLimitExceeded,
            Reject::IpRateLimit => Code::RateIpLimitExceeded,
            Reject::TestRateLimit => Code::RateTestLimitExceeded,
            Reject::InvalidJson { .. } => Code::ValidationInvalidJson,
            Reject::InvalidField { .. } => Code::ValidationInvalidField,
            Reject::MissingAction => Code::ValidationMissingAction,
            Reject::BatchEmpty => Code::ValidationBatchEmpty,
            Reject::BatchTooLarge { .. } | Reject::TooManyItems { .. } => Code::ValidationBatchTooLarge,
            Reject::BodyTooLarge { .. } | Reject::EventsTooLarge { .. } => Code::ValidationBodyTooLarge,
            Reject::IdempotencyConflict => Code::EventIdempotencyKeyConflict,
            Reject::IdempotencyInFlight => Code::EventIdempotencyKeyInFlight,
            Reject::ActionInvalid { .. } => Code::ActionInvalid,
            Reject::ActionRequiresFramework { .. } => Code::ActionRequiresFramework,
            Reject::FrameworkDisabled { .. } => Code::FrameworkDisabled,
            Reject::MissingRequiredFields { .. } => Code::ActionMissingRequiredFields,
            Reject::InvalidParam { .. } => Code::ReadInvalidParams,
            Reject::EventNotFound => Code::ReadNotFound,
            Reject::PathNotFound => Code::RequestNotFound,
            Reject::MethodNotAllowed => Code::RequestMethodNotAllowed,
            Reject::Malformed => Code::RequestMalformed,
            Reject::UnsupportedEncoding => Code::RequestUnsupportedEncoding,
            Reject::UnsupportedMediaType => Code::RequestUnsupportedMediaType,
            Reject::HeadersTooLarge => Code::RequestHeadersTooLarge,
        }
    }

    /// The message for the event at this place of a batch.
    pub fn message_in_batch(&self, index: usize) -> String {
        format!("event[{index}]: {self}")
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A lone code's meaning says it all.
            Reject::MissingHeader
            | Reject::InvalidFormat
            | Reject::KeyNotFound
            | Reject::KeyRevoked
            | Reject::KeyExpired
            | Reject::TrialExpired
            | Reject::RateLimit
            | Reject::IpRateLimit
            | Reject::TestRateLimit
            | Reject::BatchEmpty
            | Reject::IdempotencyConflict
            | Reject::IdempotencyInFlight
            | Reject::EventNotFound
            | Reject::PathNotFound
            | Reject::MethodNotAllowed
            | Reject::Malformed
            | Reject::UnsupportedEncoding
            | Reject::UnsupportedMediaType
            | Reject::HeadersTooLarge => f.write_str(self.code().row().meaning),
            Reject::WrongOperatorToken => {
                f.write_str("This is not the operator token of this server (its setting operator_token).")
            }
            // The specification gives this wording for batches.
            Reject::MissingAction => f.write_str("action field required"),
            Reject::InvalidJson { detail } => write!(f, "the body is not valid JSON: {detail}"),
            Reject::InvalidField { field, problem } => match problem {
                FieldProblem::NotAString => write!(f, "{field} must be a string"),
                FieldProblem::NotAnObject => write!(f, "{field} must be an object"),
                FieldProblem::TooLong => write!(f, "{field} must have at most 255 characters"),
                FieldProblem::HasNul => write!(f, "{field} must not contain the NUL character"),
                FieldProblem::HasLoneSurrogate => {
                    write!(f, "{field} must not contain half of a surrogate pair")
                }
                FieldProblem::NotThis(wanted) => write!(f, "{field} must be {wanted}"),
                FieldProblem::NotAKey => write!(f, "{field} must be 1 to 255 characters from '!' to '~'"),
            },
            Reject::BatchTooLarge { count } => {
                write!(f, "a batch may have at most 100 events, this one has {count}")
            }
            Reject::TooManyItems { items_max } => {
                write!(f, "a request may have at most {items_max} items here")
            }
            Reject::BodyTooLarge { bytes_max } => {
                write!(f, "the body may have at most {bytes_max} bytes here")
            }
            Reject::EventsTooLarge { bytes_max } => {
                write!(
                    f,
                    "the events of a request may have at most {bytes_max} bytes together, and the attributes of a resource are part of each of its records"
                )
            }
            Reject::ActionInvalid { action, .. }
                if action.chars().count() > crate::canonical::FIELD_SCALARS_MAX =>
            {
                f.write_str("action must have at most 255 characters")
            }
            Reject::ActionInvalid { action, .. } => {
                write!(f, "action {action:?} is neither in the catalog nor a registered custom action")
            }
            Reject::ActionRequiresFramework { action, frameworks } => {
                write!(
                    f,
                    "action {action} needs one of these frameworks enabled for the project and part of the plan: {}",
                    frameworks.join(", ")
                )
            }
            Reject::FrameworkDisabled { action, frameworks } => {
                write!(
                    f,
                    "action {action} belongs to a framework that was disabled for the project: {}",
                    frameworks.join(", ")
                )
            }
            Reject::MissingRequiredFields { action, fields } => {
                write!(f, "action {action} requires these metadata fields: {}", fields.join(", "))
            }
            Reject::InvalidParam { name, problem } => write!(f, "query parameter {name:?} {problem}"),
        }
    }
}

impl std::error::Error for Reject {}

impl From<JsonError> for Reject {
    fn from(error: JsonError) -> Reject {
        Reject::InvalidJson { detail: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_category_and_slug_and_stand_once() {
        for row in CODES {
            let (category, slug) = row.text.split_once('/').unwrap();
            assert!(
                [category, slug].iter().all(|part| part.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')),
                "{}",
                row.text
            );
            assert_eq!(CODES.iter().filter(|other| other.text == row.text).count(), 1);
            assert_eq!(row.code.row().text, row.text);
        }
    }

    #[test]
    fn a_missing_action_in_a_batch_has_the_documented_message() {
        assert_eq!(Reject::MissingAction.message_in_batch(3), "event[3]: action field required");
    }
}
