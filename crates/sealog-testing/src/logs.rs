//! What a test does at the moment when the program logs something: a place between two steps that nothing
//! else shows.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once};

/// Runs `act` on the thread that logs the next error in which this text stands, in its message or in a field.
///
/// All tests of a program share the log, so the text must be one that no other test can cause.
pub fn at_error(text: &str, act: impl FnOnce() + Send + 'static) -> Hook {
    listen();
    let hook = Hook(Arc::default());
    WAITING.lock().unwrap().push(Waiting { text: text.to_owned(), act: Box::new(act), hook: hook.clone() });
    hook
}

/// From now on, errors are kept for [`errors_with`].
pub fn listen() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        tracing::subscriber::set_global_default(Listener).expect("nobody else listens in a test");
    });
}

/// Errors that were logged, by whichever test, in which this text stands.
pub fn errors_with(text: &str) -> Vec<String> {
    ERRORS.lock().unwrap().iter().filter(|error| error.contains(text)).cloned().collect()
}

/// Something that waits for its line.
#[derive(Clone, Debug)]
pub struct Hook(Arc<AtomicBool>);

impl Hook {
    pub fn has_run(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

struct Waiting {
    text: String,
    act: Box<dyn FnOnce() + Send>,
    hook: Hook,
}

static WAITING: Mutex<Vec<Waiting>> = Mutex::new(Vec::new());
static ERRORS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Listener;

impl tracing::Subscriber for Listener {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut said = Said(String::new());
        event.record(&mut said);
        ERRORS.lock().unwrap().push(said.0.clone());
        let found = {
            let mut waiting = WAITING.lock().unwrap();
            let at = waiting.iter().position(|waiting| said.0.contains(&waiting.text));
            at.map(|at| waiting.remove(at))
        };
        if let Some(found) = found {
            (found.act)();
            found.hook.0.store(true, Ordering::SeqCst);
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// All fields of a line, one after the other.
struct Said(String);

impl tracing::field::Visit for Said {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}
