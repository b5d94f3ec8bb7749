//! What is on a page, as something to take along: a command for the API, for the command line, a text.

use sealog_core::id::Ulid;

use crate::request::query_text;
use crate::text::visible;

/// The key comes from the environment, so that it stands in no history of commands.
fn curl(address: &str) -> String {
    format!("curl -sS {} -H \"Authorization: Bearer $SEALOG_API_KEY\"", quoted(address))
}

/// A list from the API, with the filters that it has.
pub(crate) fn curl_of_list(base_url: &str, filters: &[(String, String)]) -> String {
    let query = if filters.is_empty() { String::new() } else { format!("?{}", query_text(filters)) };
    curl(&format!("{base_url}/v1/events{query}"))
}

/// The same for the command line. Nothing where a value has characters that a terminal could take for
/// something else.
pub(crate) fn cli_of_list(base_url: &str, filters: &[(String, String)]) -> Option<String> {
    let mut line = format!("SEALOG_URL={} sealog events list", argument(base_url)?);
    for (name, value) in filters {
        // A value that begins like a flag is not taken for one behind the sign.
        let sign = if value.starts_with('-') { '=' } else { ' ' };
        line.push_str(&format!(" --{}{sign}{}", name.replace('_', "-"), argument(value)?));
    }
    Some(line)
}

pub(crate) fn curl_of_event(base_url: &str, log_id: Ulid) -> String {
    curl(&format!("{base_url}/v1/events/{log_id}"))
}

pub(crate) fn cli_of_event(base_url: &str, log_id: Ulid) -> Option<String> {
    Some(format!("SEALOG_URL={} sealog events get {log_id}", argument(base_url)?))
}

/// A link for a ticket or a chat that knows Markdown.
pub(crate) fn markdown(text: &str, address: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii_punctuation() && !matches!(character, '.' | '_' | '#' | ',' | ':' | '/' | '-') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    format!("[{escaped}]({address})")
}

fn argument(value: &str) -> Option<String> {
    (visible(value) == value).then(|| quoted(value))
}

/// As every shell takes it for one word that means nothing.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:@".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_shell_gets_each_value_as_it_is() {
        for value in
            ["plain", "it's", "a b", "$(reboot)", "`x`", "a;b", "\"", "\\", "*", "é", "", "-n", "!x", "~"]
        {
            let line = format!("printf '%s' {}", quoted(value));
            let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
            // `printf` itself takes no flag behind its format.
            assert_eq!(String::from_utf8(output.stdout).unwrap(), value, "{line}");
        }
    }

    #[test]
    fn the_command_line_has_the_filters_of_the_api_by_their_names() {
        let filters = pairs(&[("action", "user.login"), ("actor_id", "it's"), ("date_from", "2026-11-01")]);
        assert_eq!(
            cli_of_list("http://127.0.0.1:8080", &filters).unwrap(),
            "SEALOG_URL=http://127.0.0.1:8080 sealog events list --action user.login --actor-id 'it'\\''s' --date-from 2026-11-01"
        );
        assert_eq!(
            cli_of_list("http://h", &pairs(&[("actor_id", "--help")])).unwrap(),
            "SEALOG_URL=http://h sealog events list --actor-id=--help"
        );
        // What a terminal could take for something else is not offered; the address of the other command has
        // it encoded.
        let hidden = pairs(&[("actor_id", "a\u{202e}\u{1b}[2J\nb")]);
        assert_eq!(cli_of_list("http://h", &hidden), None);
        assert_eq!(
            curl_of_list("http://h", &hidden),
            "curl -sS 'http://h/v1/events?actor_id=a%E2%80%AE%1B%5B2J%0Ab' -H \"Authorization: Bearer $SEALOG_API_KEY\""
        );
    }

    #[test]
    fn a_link_in_markdown_is_one_link_whatever_its_text() {
        assert_eq!(
            markdown("user.login by a](http://x) <b> `c`", "http://h/e"),
            "[user.login by a\\]\\(http://x\\) \\<b\\> \\`c\\`](http://h/e)"
        );
    }
}
