//! The HTML of a mail, made from its text, so that the two say the same. A blank line ends a paragraph; lines
//! that begin with four spaces are a table of a name and a value each; a paragraph that is an address, or a
//! name and an address, is the mail's one link. Nothing is loaded from anywhere.

use std::fmt::Write;

use crate::people::contact::Text;

pub(crate) fn html(text: &Text) -> String {
    let mut main = String::new();
    for paragraph in text.body.split("\n\n").map(|paragraph| paragraph.trim_matches('\n')) {
        put(&mut main, paragraph);
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{}</title></head>\n\
         <body style=\"margin:0;padding:24px;font:16px/1.5 system-ui,sans-serif\">\n<div style=\"max-width:600px;margin:0 auto\">\n{main}</div>\n</body>\n</html>\n",
        escaped(&text.subject)
    )
}

fn put(main: &mut String, paragraph: &str) {
    if paragraph.is_empty() {
        return;
    }
    // Writing to memory does not fail.
    let _ = match (link(paragraph), paragraph.lines().all(|line| line.starts_with("    "))) {
        (Some((label, url)), _) => {
            writeln!(main, "<p><a href=\"{}\">{}</a></p>", escaped(url), escaped(label))
        }
        (None, true) => {
            let row = |line: &str| {
                let (name, value) = line.trim().split_once("  ").unwrap_or(("", line.trim()));
                format!(
                    "<tr><th scope=\"row\" align=\"left\" style=\"padding:2px 16px 2px 0;font-weight:600\">{}</th><td>{}</td></tr>\n",
                    escaped(name),
                    escaped(value.trim())
                )
            };
            writeln!(
                main,
                "<table role=\"presentation\">{}</table>",
                paragraph.lines().map(row).collect::<String>()
            )
        }
        (None, false) => writeln!(main, "<p>{}</p>", escaped(paragraph)),
    };
}

/// `https://…`, or `Dashboard: https://…`
fn link(paragraph: &str) -> Option<(&str, &str)> {
    let (label, url) = match paragraph.split_once(": ") {
        Some((label, url)) => (label, url),
        None => (paragraph, paragraph),
    };
    let is_url = url.starts_with("https://") || url.starts_with("http://");
    (is_url && !paragraph.contains('\n') && !url.contains(' ')).then_some((label, url))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// The text of a page of ours, for tests.
#[cfg(test)]
pub(super) fn plain(html: &str) -> String {
    let (mut out, mut is_tag) = (String::new(), false);
    for character in html.chars() {
        match character {
            '<' => is_tag = true,
            '>' => {
                is_tag = false;
                out.push(' ');
            }
            other if !is_tag => out.push(other),
            _ => {}
        }
    }
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    entities.into_iter().fold(out, |text, (entity, character)| text.replace(entity, character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_tables_and_the_link_are_told_apart() {
        let body = "One & two\nlines <b>.\n\n    Name      a <i>\n    Long name  b  c\n\nDashboard: https://x/app?a=1&b=2\n\nEnd: no link\n";
        let html = html(&Text { subject: "S <".into(), body: body.into() });
        for part in [
            "<title>S &lt;</title>",
            "<p>One &amp; two\nlines &lt;b&gt;.</p>",
            ">Name</th><td>a &lt;i&gt;</td>",
            ">Long name</th><td>b  c</td>",
            "<a href=\"https://x/app?a=1&amp;b=2\">Dashboard</a>",
            "<p>End: no link</p>",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert_eq!(html.matches("<a ").count(), 1);
    }
}
