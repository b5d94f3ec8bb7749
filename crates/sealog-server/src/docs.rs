//! What `doc_url` leads to: a page for each error code, made from the one table of codes.

use hyper::{Response, StatusCode};
use sealog_core::reject::{CODES, CodeRow, Reject};

use crate::respond::{Body, Failure, with_type};

/// Answers a request under `/docs/`; `path` is what comes after it.
pub(crate) fn page(path: &str) -> Result<Response<Body>, Failure> {
    let html = match path.trim_end_matches('/') {
        "" | "errors" => index(),
        path => {
            let code = path.strip_prefix("errors/").ok_or(Reject::PathNotFound)?;
            CODES.iter().find(|row| row.text == code).map(error_page).ok_or(Reject::PathNotFound)?
        }
    };
    let mut response = with_type(StatusCode::OK, "text/html; charset=utf-8", html);
    // The pages have neither scripts nor anything from elsewhere.
    let policy = hyper::header::HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
    response.headers_mut().insert(hyper::header::CONTENT_SECURITY_POLICY, policy);
    Ok(response)
}

fn index() -> String {
    let rows: String = CODES
        .iter()
        .map(|row| {
            format!(
                "<tr><td><a href=\"/docs/errors/{0}\"><code>{0}</code></a></td><td>{1}</td><td>{2}</td></tr>",
                row.text,
                row.status,
                text(row.meaning)
            )
        })
        .collect();
    document(
        "Error codes",
        &format!(
            "<table><caption>Every error has one of these codes; use the code for logic, not the message.</caption><thead><tr><th scope=\"col\">Code</th><th scope=\"col\">Status</th><th scope=\"col\">Meaning</th></tr></thead><tbody>{rows}</tbody></table>"
        ),
    )
}

fn error_page(row: &CodeRow) -> String {
    let retry = retry(row);
    let CodeRow { text: code, status, meaning, advice, .. } = row;
    document(
        code,
        &format!(
            "<dl><dt>Status</dt><dd>{status}</dd><dt>Meaning</dt><dd>{}</dd><dt>What to do</dt><dd>{}</dd><dt>Retry</dt><dd>{retry}</dd></dl>\
             <h2>Example</h2><pre>{}</pre><p><a href=\"/docs/errors\">All error codes</a></p>",
            text(meaning),
            text(advice),
            text(&format!(
                "HTTP/1.1 {status}\n\n{{\"error\":{{\"code\":\"{code}\",\"message\":\"...\",\"request_id\":\"req_...\",\"doc_url\":\"...\"}}}}"
            ))
        ),
    )
}

/// Whether to send the same request again.
pub(crate) fn retry(row: &CodeRow) -> &'static str {
    if row.retry {
        "Yes: the same request may succeed later."
    } else {
        "No: the same request will fail again."
    }
}

fn document(title: &str, content: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title} - Sealog</title>\
         <style>:root{{color-scheme:light dark}}body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}\
         td,th{{text-align:left;vertical-align:top;padding:.3rem 1rem .3rem 0}}caption{{text-align:left;margin-bottom:1rem}}dt{{font-weight:600}}dd{{margin:0 0 1rem}}\
         pre{{overflow:auto;padding:1rem;border:1px solid}}</style></head><body><main><h1>{title}</h1>{content}</main></body></html>"
    )
}

/// Text for a page, with code in backticks set as code.
fn text(plain: &str) -> String {
    let escaped = plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let pieces = escaped.split('`').enumerate();
    pieces
        .map(|(at, piece)| if at % 2 == 1 { format!("<code>{piece}</code>") } else { piece.to_owned() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page() {
        for row in CODES {
            assert!(page(&format!("errors/{}", row.text)).is_ok(), "{}", row.text);
        }
        assert!(page("").is_ok() && page("errors").is_ok() && page("errors/").is_ok());
        for path in ["errors/auth", "errors/auth/nope", "x", "errors/auth/missing_header/x"] {
            assert!(page(path).is_err(), "{path}");
        }
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(text("`a<b>` & c"), "<code>a&lt;b&gt;</code> &amp; c");
    }
}
