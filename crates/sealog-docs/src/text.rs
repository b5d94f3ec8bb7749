//! Text that becomes part of Markdown or of HTML.

use pulldown_cmark_escape::escape_html;

/// For HTML, between tags and in attributes with quotes.
pub(crate) fn escape(plain: &str) -> String {
    let mut safe = String::with_capacity(plain.len());
    escape_html(&mut safe, plain).expect("memory takes what is written");
    safe
}

/// For a cell of a Markdown table: one line, and no bar that would end it.
pub(crate) fn cell(plain: &str) -> String {
    plain.replace('|', "\\|").replace('\n', " ")
}

/// Code for a cell. Nothing stays nothing.
pub(crate) fn code(plain: &str) -> String {
    if plain.is_empty() { String::new() } else { format!("`{}`", cell(plain)) }
}

/// A fenced block. The fence is longer than any inside.
pub(crate) fn block(language: &str, content: &str) -> String {
    let mut fence = "```".to_owned();
    while content.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}{language}\n{}\n{fence}\n", content.trim_end_matches('\n'))
}
