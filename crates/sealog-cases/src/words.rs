//! The words of cases as people read them.

use sealog_control::{
    CaseChannel, CaseOutcome, CaseRegime, CaseState, CaseType, ExtensionReason, IdentifierKind,
    IdentityMethod, IdentityOutcome, RefusalGround,
};

/// A word of control data that has a name for people.
pub trait Named: Copy {
    fn name(self) -> &'static str;
}

macro_rules! names {
    ($($type:ident { $($word:ident => $name:literal,)* })*) => {
        $(impl Named for $type {
            fn name(self) -> &'static str {
                match self {
                    $($type::$word => $name,)*
                }
            }
        })*
    };
}

names! {
    CaseState {
        Received => "Received",
        IdentityCheck => "Identity check",
        InProgress => "In progress",
        Review => "Review",
        Approved => "Approved",
        Delivered => "Delivered",
        Closed => "Closed",
        Paused => "Paused",
        Extended => "Extended",
        Refused => "Refused",
        Withdrawn => "Withdrawn",
    }
    CaseRegime {
        Gdpr => "GDPR",
        UkGdpr => "UK GDPR",
        Ccpa => "CCPA",
        HipaaAccess => "HIPAA, access",
        HipaaAccounting => "HIPAA, accounting of disclosures",
        Custom => "Custom deadline",
    }
    CaseType {
        Access => "Access",
        Erasure => "Erasure",
        Rectification => "Rectification",
        Restriction => "Restriction",
        Portability => "Portability",
        Objection => "Objection",
        Other => "Other request",
    }
    CaseChannel {
        Email => "E-mail",
        Letter => "Letter",
        WebForm => "Web form or portal",
        Telephone => "Telephone",
        InPerson => "In person",
        Other => "Other",
    }
    IdentityMethod {
        Session => "Signed-in session",
        EmailChallenge => "E-mail challenge",
        DocumentSeen => "Document seen, not kept",
        Other => "Other",
    }
    IdentityOutcome {
        Confirmed => "Confirmed",
        NotConfirmed => "Not confirmed",
    }
    IdentifierKind {
        ActorId => "actor_id",
        Resource => "resource",
        Metadata => "metadata, at a path",
        Mention => "metadata, anywhere",
        EmailHash => "SHA-256 of an address",
    }
    ExtensionReason {
        Complexity => "The request is complex",
        NumberOfRequests => "There are many requests",
        ReasonablyNecessary => "Reasonably necessary",
    }
    RefusalGround {
        ManifestlyUnfounded => "Manifestly unfounded",
        Excessive => "Excessive, in particular repetitive",
        IdentityNotConfirmed => "Identity could not be confirmed",
        LegalObligation => "A legal obligation requires the data",
        LegalClaims => "Needed for legal claims",
        RightsOfOthers => "Rights and freedoms of others",
        Exempt => "The law does not apply, or exempts it",
    }
    CaseOutcome {
        Fulfilled => "Answered",
        Refused => "Refused",
        Withdrawn => "Withdrawn",
    }
}

/// What people call a case: `DSAR-2026-14`, by the year in which it came.
pub fn case_name(case: &sealog_control::Case) -> String {
    format!("DSAR-{}-{:03}", &sealog_core::time::iso_ms(case.intake.received_at_ms)[..4], case.number)
}
