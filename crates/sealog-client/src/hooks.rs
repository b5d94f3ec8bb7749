//! What the application hears: ends of events, and warnings. A callback that panics ends nothing else, and an
//! error without a callback is written where people look.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::Error;
use crate::event::Event;
use crate::receipt::Receipt;

pub type OnReceipt = Box<dyn Fn(&Receipt, &Event) + Send + Sync>;
pub type OnError = Box<dyn Fn(&Error, &Event) + Send + Sync>;
/// Gets a code and a message.
pub type OnWarning = Box<dyn Fn(&str, &str) + Send + Sync>;

/// The beginning of an event that is shown, in bytes.
const SHOWN_MAX: usize = 2000;

#[derive(Default)]
pub(crate) struct Hooks {
    pub on_receipt: Option<OnReceipt>,
    pub on_error: Option<OnError>,
    pub on_warning: Option<OnWarning>,
}

impl Hooks {
    pub fn stored(&self, receipt: &Receipt, event: &[u8]) {
        if let Some(on_receipt) = &self.on_receipt {
            guarded("on_receipt", || on_receipt(receipt, &Event::decode(event)));
        }
    }

    pub fn failed(&self, error: &Error, event: &[u8]) {
        match &self.on_error {
            Some(on_error) => guarded("on_error", || on_error(error, &Event::decode(event))),
            None => {
                let shown = String::from_utf8_lossy(&event[..event.len().min(SHOWN_MAX)]);
                loud(&format!("an event was not logged; set on_error to handle it: {error}: {shown}"));
            }
        }
    }

    pub fn warn(&self, code: &str, message: &str) {
        if tracing::dispatcher::has_been_set() {
            tracing::warn!(target: "sealog", code, "{message}");
        } else {
            eprintln!("sealog: warning: {message} ({code})");
        }
        if let Some(on_warning) = &self.on_warning {
            guarded("on_warning", || on_warning(code, message));
        }
    }
}

/// To the application's log, or to standard error if there is none: silence would be a loss.
pub(crate) fn loud(message: &str) {
    if tracing::dispatcher::has_been_set() {
        tracing::error!(target: "sealog", "{message}");
    } else {
        eprintln!("sealog: {message}");
    }
}

fn guarded(name: &str, callback: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(callback)).is_err() {
        loud(&format!("{name} panicked; the event itself has ended as reported"));
    }
}
