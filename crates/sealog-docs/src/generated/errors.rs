//! What `doc_url` leads to: a page for each error code, from the one table of codes.

use sealog_core::reject::{CODES, CodeRow};

use super::source::Source;
use crate::text::{block, cell};

pub(super) fn pages() -> Vec<Source> {
    let mut list =
        "# Error codes\n\nEvery error has one of these codes; use the code for logic, not the message.\n\n\
                    | Code | Status | Meaning | Retry |\n|---|---|---|---|\n"
            .to_owned();
    for row in CODES {
        let retry = if row.retry { "yes" } else { "no" };
        let (code, status, meaning) = (row.text, row.status, cell(row.meaning));
        list.push_str(&format!("| [`{code}`](/docs/errors/{code}) | {status} | {meaning} | {retry} |\n"));
    }
    let mut pages = vec![Source::new("errors", "Error codes", list).in_part("Look up")];
    pages.extend(CODES.iter().map(page));
    pages
}

fn page(row: &CodeRow) -> Source {
    let CodeRow { text: code, status, meaning, advice, .. } = row;
    let example = format!(
        "HTTP/1.1 {status}\n\n{{\"error\":{{\"code\":\"{code}\",\"message\":\"...\",\"request_id\":\"req_...\",\"doc_url\":\"...\"}}}}"
    );
    let markdown = format!(
        "# {code}\n\n{meaning}\n\n## What to do\n\n{advice}\n\n## Facts\n\n| Fact | Value |\n|---|---|\n| Status | {status} |\n| Retry | {} |\n\n## Example\n\n{}\n[All error codes](/docs/errors)\n",
        row.retry_words(),
        block("", &example)
    );
    Source::new(format!("errors/{code}"), *code, markdown)
}
