//! What pages there are, in one table: where each is, and in which part of the contents.

/// Parts of the contents, in their order.
pub(crate) const PARTS: [&str; 5] = ["Start", "Use", "Prove", "Run", "Look up"];

/// A file of `docs/`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    /// Where it is, beneath `/docs/`.
    pub path: &'static str,
    pub part: &'static str,
    /// In the contents.
    pub label: &'static str,
    /// In `docs/`, where links name it.
    pub name: &'static str,
    pub markdown: &'static str,
    /// Its examples are shown with the address of the server that shows them.
    pub is_addressed: bool,
}

macro_rules! files {
    ($($part:literal $path:literal $label:literal $name:literal $is_addressed:literal;)*) => {
        &[$(File {
            path: $path,
            part: $part,
            label: $label,
            name: $name,
            markdown: include_str!(concat!("../../../docs/", $name)),
            is_addressed: $is_addressed,
        }),*]
    };
}

/// A test fails where `docs/` has a page that is neither here nor in [`LEFT_OUT`].
pub(crate) const FILES: &[File] = files! {
    "Start" "quickstart" "Quickstart" "quickstart.md" true;
    "Start" "concepts" "Concepts" "concepts.md" true;
    "Use" "command-line" "Command line" "command-line.md" false;
    "Use" "typescript" "TypeScript" "sdk-typescript.md" false;
    "Use" "python" "Python" "sdk-python.md" false;
    "Use" "go" "Go" "sdk-go.md" false;
    "Use" "rust" "Rust" "sdk-rust.md" false;
    "Use" "shippers" "Shippers and SIEMs" "shippers.md" true;
    "Use" "dashboard" "Dashboard" "dashboard.md" false;
    "Use" "searching" "Searching events" "search.md" false;
    "Use" "cases" "Cases" "cases.md" false;
    "Use" "notices" "Notices" "notices.md" false;
    "Prove" "verify-it-yourself" "Verify it yourself" "verify-it-yourself.md" false;
    "Prove" "format" "Format" "format.md" false;
    "Run" "operating" "Operating" "operating.md" false;
    "Run" "operating-postgres" "PostgreSQL store" "operating-postgres.md" false;
    "Run" "operating-reference" "Operating reference" "operating-reference.md" false;
    "Run" "settings" "Settings" "settings.md" false;
    "Run" "reliability" "Reliability" "reliability.md" false;
    "Look up" "spec" "Specification" "spec.md" false;
    "Look up" "glossary" "Glossary" "glossary.md" false;
};

/// For those who work on Sealog itself.
#[cfg(test)]
pub(crate) const LEFT_OUT: [&str; 5] =
    ["README.md", "architecture.md", "how-to-add.md", "performance.md", "performance-notes.md"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_docs_is_shown_or_left_out_on_purpose() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        let entries = std::fs::read_dir(folder).expect("the crate stands in the workspace");
        for entry in entries {
            let name = entry.expect("a folder of the workspace can be read").file_name();
            let name = name.to_str().expect("names are ASCII");
            if !name.ends_with(".md") {
                continue;
            }
            let shown = FILES.iter().any(|file| file.name == name);
            assert!(shown != LEFT_OUT.contains(&name), "put {name} into FILES or LEFT_OUT");
        }
        for file in FILES {
            assert!(PARTS.contains(&file.part), "{}", file.name);
        }
    }
}
