//! HTML for people, made of texts that are hostile: whatever comes from an event passes [`text`]. Pages have
//! no script, and a policy that would not run one.

use pulldown_cmark_escape::escape_html;
use sealog_service::evidence::hidden::written_out;

/// As text, in an element or an attribute, whatever it holds. Characters that nobody sees are written out.
pub(super) fn text(value: &str) -> String {
    let mut safe = String::with_capacity(value.len());
    // Lines stay lines.
    for (at, line) in value.split('\n').enumerate() {
        if at > 0 {
            safe.push('\n');
        }
        escape_html(&mut safe, &written_out(line.trim_end_matches('\r')))
            .expect("memory takes what is written");
    }
    safe
}

/// The beginning of a page. Both titles are texts.
pub(super) fn head(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n",
        title = text(title)
    )
}

pub(super) const FOOT: &str = "</main>\n</body>\n</html>\n";

/// Paragraphs of a text that people wrote: an empty line ends one.
pub(super) fn paragraphs(written: &str) -> String {
    let normal = written.replace("\r\n", "\n");
    let paragraph = |part: &str| format!("<p>{}</p>\n", text(part.trim()).replace('\n', "<br>\n"));
    normal.split("\n\n").filter(|part| !part.trim().is_empty()).map(paragraph).collect()
}

const STYLE: &str = "body{margin:0;font:16px/1.5 system-ui,sans-serif;color:#1b1f24;background:#fff}\
main{max-width:60rem;margin:0 auto;padding:1.5rem}h1{font-size:1.6rem}h2{margin-top:2.5rem;border-bottom:2px solid #d0d7de}\
h3{margin-top:1.5rem}article{margin:1rem 0;padding:.75rem 1rem;border:1px solid #d0d7de;border-radius:6px;break-inside:avoid}\
article h4{margin:0 0 .25rem}dl{display:grid;grid-template-columns:minmax(8rem,max-content) 1fr;gap:.15rem 1rem;margin:.5rem 0 0}\
table{border-collapse:collapse;width:100%}th,td{padding:.25rem .5rem;text-align:left;border-bottom:1px solid #d0d7de;overflow-wrap:anywhere}dt{color:#57606a}dd{margin:0;overflow-wrap:anywhere}mark{background:#fff3c4;color:inherit;padding:0 .2em}time{color:#57606a}\
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}dt,time{color:#9da7b3}article,h2,th,td{border-color:#30363d}mark{background:#4d3800}}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_text() {
        let hostile = "<script>alert('x')</script>\" onload=\"y\u{202e}&amp;";
        let safe = text(hostile);
        assert!(!safe.contains(['<', '>', '"', '\'', '\u{202e}']), "{safe}");
        assert!(safe.contains("&lt;script&gt;") && safe.contains("&amp;amp;") && safe.contains("\\u{202e}"));
        assert!(head("<b>").contains("<title>&lt;b&gt;</title>"));
    }

    #[test]
    fn an_empty_line_ends_a_paragraph() {
        assert_eq!(paragraphs("a\r\nb\n\n\n<c>\n"), "<p>a<br>\nb</p>\n<p>&lt;c&gt;</p>\n");
    }
}
