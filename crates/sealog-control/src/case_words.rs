//! The words of cases: each is a few that are known, and stands in its column as text.

macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $word:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$doc])* $word,)*
        }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$word),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$word => $text,)*
                }
            }

            /// As a form or a row has it.
            pub fn parse(text: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|known| known.as_str() == text)
            }
        }
    };
}

words! {
    /// Which of them can follow which is the service's to say.
    CaseState {
        Received = "received",
        IdentityCheck = "identity_check",
        InProgress = "in_progress",
        Review = "review",
        Approved = "approved",
        Delivered = "delivered",
        Closed = "closed",
        /// Waiting for the person; the clock stands still.
        Paused = "paused",
        /// Worked on, with the longer time that was announced.
        Extended = "extended",
        Refused = "refused",
        Withdrawn = "withdrawn",
    }
}

words! {
    /// The law that a request is made under.
    CaseRegime {
        Gdpr = "gdpr",
        UkGdpr = "uk_gdpr",
        Ccpa = "ccpa",
        HipaaAccess = "hipaa_access",
        HipaaAccounting = "hipaa_accounting",
        /// Has its days in the case.
        Custom = "custom",
    }
}

words! {
    /// What is asked for.
    CaseType {
        Access = "access",
        Erasure = "erasure",
        Rectification = "rectification",
        Restriction = "restriction",
        Portability = "portability",
        Objection = "objection",
        Other = "other",
    }
}

words! {
    /// How a request came, and how an answer went.
    CaseChannel {
        Email = "email",
        Letter = "letter",
        WebForm = "web_form",
        Telephone = "telephone",
        InPerson = "in_person",
        Other = "other",
    }
}

words! {
    /// How somebody showed who they are. A document is seen, never kept.
    IdentityMethod {
        Session = "session",
        EmailChallenge = "email_challenge",
        DocumentSeen = "document_seen",
        Other = "other",
    }
}

words! {
    IdentityOutcome {
        Confirmed = "confirmed",
        NotConfirmed = "not_confirmed",
    }
}

words! {
    /// Where an identifier of the person stands in events.
    IdentifierKind {
        ActorId = "actor_id",
        Resource = "resource",
        /// A value at a path of the metadata.
        Metadata = "metadata",
        /// A value anywhere in the metadata.
        Mention = "mention",
        /// The SHA-256 of an address, in hexadecimal digits, anywhere in the metadata.
        EmailHash = "email_hash",
    }
}

words! {
    /// Why the time is extended. No free text: it goes into events.
    ExtensionReason {
        Complexity = "complexity",
        NumberOfRequests = "number_of_requests",
        ReasonablyNecessary = "reasonably_necessary",
    }
}

words! {
    /// Why a request is refused. No free text: it goes into events.
    RefusalGround {
        ManifestlyUnfounded = "manifestly_unfounded",
        Excessive = "excessive",
        IdentityNotConfirmed = "identity_not_confirmed",
        LegalObligation = "legal_obligation",
        LegalClaims = "legal_claims",
        RightsOfOthers = "rights_of_others",
        Exempt = "exempt",
    }
}

words! {
    /// What became of a request.
    CaseOutcome {
        Fulfilled = "fulfilled",
        Refused = "refused",
        /// By the person: there is nothing to answer.
        Withdrawn = "withdrawn",
    }
}
