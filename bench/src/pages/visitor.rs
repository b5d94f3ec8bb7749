//! A person with a browser, as far as a server can tell: claims the account of the first run, signs in, and
//! follows links.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;

use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};

use crate::http::client::{Client, unchunked};
use crate::http::sealog::Account;
use crate::outcome::Outcome;

const EMAIL: &str = "bench@example.com";
const PASSWORD: &str = "a few words for the benchmark";
/// Pages of one kind are measured once; there are not this many kinds.
const PAGES_MAX: usize = 80;

#[derive(Debug)]
pub struct Visitor {
    cookie: String,
}

/// What the file of the first run says.
#[derive(Debug)]
pub struct FirstRun {
    live_key: String,
    claim: String,
}

impl FirstRun {
    pub fn read(dir: &Path) -> Outcome<FirstRun> {
        let path = dir.join("first-run.txt");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let after = |name: &str| {
            let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name));
            line.map(|rest| rest.trim().to_owned()).ok_or_else(|| format!("no {name} in {}", path.display()))
        };
        Ok(FirstRun { live_key: after("live key")?, claim: after("dashboard")? })
    }
}

impl Visitor {
    /// Becomes the owner of the first organisation, and says which chain its events go to.
    pub fn claim(address: SocketAddr, first: FirstRun) -> Outcome<(Visitor, Account)> {
        let mut visitor = Visitor { cookie: String::new() };
        let token = first.claim.rsplit('#').next().unwrap_or_default();
        let fields = [
            ("token", token),
            ("organisation", "Bench"),
            ("project", "first"),
            ("email", EMAIL),
            ("password", PASSWORD),
        ];
        visitor.post(address, "/app/claim", &fields)?;
        visitor.sign_in(address)?;
        let pages = visitor.pages(address)?;
        let id = |marker: &str| {
            let mut paths = pages.iter().filter_map(|path| path.strip_prefix(marker));
            let text = paths.next().and_then(|rest| rest.split('/').next());
            text.and_then(Uuid::parse).ok_or_else(|| format!("no page begins with {marker}: {pages:?}"))
        };
        let chain = ChainId {
            tenant_id: TenantId(id("/app/o/")?),
            project_id: ProjectId(id("/app/p/")?),
            mode: Mode::Live,
        };
        Ok((visitor, Account { chain, key: first.live_key }))
    }

    /// Also after a start of the server at another port.
    pub fn sign_in(&mut self, address: SocketAddr) -> Outcome<()> {
        let fields = [("email", EMAIL), ("password", PASSWORD), ("next", "")];
        let head = self.post(address, "/app/sign-in", &fields)?;
        let cookies = headers(&head, "set-cookie").map(|value| value.split(';').next().unwrap_or(value));
        self.cookie = cookies.collect::<Vec<_>>().join("; ");
        if self.cookie.is_empty() { Err("signing in gave no cookie".into()) } else { Ok(()) }
    }

    fn post(&self, address: SocketAddr, path: &str, fields: &[(&str, &str)]) -> Outcome<String> {
        let body: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={}", form(value))).collect();
        let body = body.join("&");
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
            self.cookie,
            body.len()
        );
        let answer = Client::connect(address, "")?.raw(request.as_bytes())?;
        let head = answer.split("\r\n\r\n").next().unwrap_or_default();
        if head.starts_with("HTTP/1.1 303 ") {
            return Ok(head.to_owned());
        }
        Err(format!("POST {path}: {}", head.lines().next().unwrap_or_default()).into())
    }

    /// Freezes an export of all events of a chain as NDJSON, and says where it is downloaded.
    pub fn export(&self, address: SocketAddr, chain: ChainId) -> Outcome<String> {
        let page = format!("/app/p/{}/{}/exports", chain.project_id, chain.mode.as_str());
        self.post(address, &format!("{page}/create"), &[("format", "ndjson")])?;
        let answer = Client::connect(address, "")?.raw(self.request(&page).as_bytes())?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let found = links(&page, &unchunked(head, body)).into_iter().find(|link| link.ends_with("/download"));
        found.ok_or_else(|| format!("{page} has no download").into())
    }

    /// Opens a data-subject request about an actor over a chain, as far as the search; where the case is.
    pub fn case(&self, address: SocketAddr, chain: ChainId, actor_id: &str) -> Outcome<String> {
        let cases = format!("/app/o/{}/cases", chain.tenant_id);
        let intake = [
            ("regime", "gdpr"),
            ("request_type", "access"),
            ("received", "2026-11-02"),
            ("channel", "email"),
            ("requester", "Ada Subject"),
            ("contact", "ada@subject.example"),
            ("wrote", "Give me everything"),
            ("note", "It came in."),
        ];
        let opened = self.post(address, &format!("{cases}/create"), &intake)?;
        let case = header(&opened, "location").ok_or("a new case has no address")?;
        let case = case.split('?').next().unwrap_or_default().to_owned();
        let project = chain.project_id.to_string();
        let steps: [(&str, &[(&str, &str)]); 4] = [
            ("identity", &[("method", "email_challenge"), ("outcome", "confirmed"), ("note", "Seen.")]),
            ("move", &[("to", "in_progress"), ("note", "On.")]),
            ("identifiers/add", &[("kind", "actor_id"), ("value", actor_id), ("source", "CRM")]),
            ("scope", &[("project", &project), ("note", "There.")]),
        ];
        for (step, fields) in steps {
            let revision = self.revision(address, &case)?;
            let fields: Vec<_> =
                [("revision", &*revision)].into_iter().chain(fields.iter().copied()).collect();
            self.post(address, &format!("{case}/{step}"), &fields)?;
        }
        Ok(case)
    }

    /// The revision that the page of a case was made from.
    fn revision(&self, address: SocketAddr, case: &str) -> Outcome<String> {
        let answer = Client::connect(address, "")?.raw(self.request(case).as_bytes())?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let page = unchunked(head, body);
        let behind = page.split("name=\"revision\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
        behind.map(str::to_owned).ok_or_else(|| format!("{case} has no form").into())
    }

    /// Searches for the person of a case, also where a search was stopped; false if one is under way.
    pub fn search(&self, address: SocketAddr, case: &str) -> bool {
        ["resume", "start"].iter().any(|how| self.post(address, &format!("{case}/search/{how}"), &[]).is_ok())
    }

    /// Stops the search of a case, if one is under way.
    pub fn stop_search(&self, address: SocketAddr, case: &str) -> bool {
        self.post(address, &format!("{case}/search/stop"), &[]).is_ok()
    }

    pub fn request(&self, path: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {}\r\n\r\n", self.cookie)
    }

    /// One page of each kind that links lead to from `/app`, in the order in which they are found.
    pub fn pages(&self, address: SocketAddr) -> Outcome<Vec<String>> {
        let mut client = Client::connect(address, "")?;
        let mut known = BTreeMap::from([(kind("/app"), ())]);
        let (mut waiting, mut pages) = (VecDeque::from(["/app".to_owned()]), Vec::new());
        while let Some(path) = waiting.pop_front() {
            let answer = client.raw(self.request(&path).as_bytes())?;
            let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
            let found = if head.starts_with("HTTP/1.1 200 ") {
                if !head.to_ascii_lowercase().contains("content-type: text/html") {
                    continue;
                }
                let found = links(&path, &unchunked(head, body));
                pages.push(path);
                found
            } else {
                let location = header(head, "location").map(str::to_owned);
                let moved = head.starts_with("HTTP/1.1 30");
                let place = location.filter(|_| moved);
                vec![
                    place
                        .ok_or_else(|| format!("GET {path}: {}", head.lines().next().unwrap_or_default()))?,
                ]
            };
            for link in found {
                let is_page = link.starts_with("/app") && !link.starts_with("/app/static/");
                if is_page && known.len() < PAGES_MAX && known.insert(kind(&link), ()).is_none() {
                    waiting.push_back(link);
                }
            }
        }
        Ok(pages)
    }
}

/// The values of a field of an answer's head.
fn headers<'a>(head: &'a str, field: &'a str) -> impl Iterator<Item = &'a str> {
    let pairs = head.lines().filter_map(|line| line.split_once(": "));
    pairs.filter(move |(name, _)| name.eq_ignore_ascii_case(field)).map(|(_, value)| value)
}

fn header<'a>(head: &'a str, field: &'a str) -> Option<&'a str> {
    headers(head, field).next()
}

/// Where links of a page lead to, as a browser takes them that has come to it by `path`.
fn links(path: &str, page: &str) -> Vec<String> {
    let path = path.split('?').next().unwrap_or(path);
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let absolute = |link: String| match link.chars().next() {
        Some('/') => link,
        None | Some('?') => format!("{path}{link}"),
        Some(_) if link.contains(':') => link,
        Some(_) => format!("{folder}/{link}"),
    };
    let starts = page.match_indices("href=\"").map(|(at, found)| at + found.len());
    let links = starts.filter_map(|at| page[at..].split('"').next());
    links
        .map(|link| link.split('#').next().unwrap_or(link).replace("&amp;", "&").replace("&#38;", "&"))
        .map(absolute)
        .collect()
}

/// What is the same page with other contents: its path without ids, and the names in its query.
fn kind(link: &str) -> String {
    let (path, query) = link.split_once('?').unwrap_or((link, ""));
    let is_id = |part: &str| part.len() > 8 && part.bytes().any(|byte| byte.is_ascii_digit());
    let path: Vec<&str> = path.split('/').map(|part| if is_id(part) { "{}" } else { part }).collect();
    let mut names: Vec<&str> = query
        .split('&')
        .filter(|pair| !pair.ends_with('='))
        .filter_map(|pair| pair.split('=').next())
        .collect();
    names.sort_unstable();
    names.dedup();
    format!("{}?{}", path.join("/"), names.join("&"))
}

/// A value in a form.
fn form(value: &str) -> String {
    value.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
        text
    })
}

/// The name under which a page is reported.
pub fn name(path: &str) -> String {
    let kind = kind(path);
    kind.strip_suffix('?').unwrap_or(&kind).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_where_a_browser_would_go() {
        let page = r#"<a href="/app/x"><a href="events/1?a=b&amp;c=d"><a href="?q=1"><a href="https://example.org/"><a href="1#top">"#;
        let expected =
            ["/app/x", "/app/p/events/1?a=b&c=d", "/app/p/live?q=1", "https://example.org/", "/app/p/1"];
        assert_eq!(links("/app/p/live?last=7d", page), expected);
    }

    #[test]
    fn pages_that_differ_in_ids_and_values_only_are_of_one_kind() {
        let one = kind("/app/p/0190a6c2-1111-7000-8000-000000000001/live/events?actor=a&action=b");
        assert_eq!(one, "/app/p/{}/live/events?action&actor");
        assert_eq!(
            one,
            kind("/app/p/0190a6c2-2222-7000-8000-000000000001/live/events?action=c&actor=d&limit=")
        );
        assert_ne!(one, kind("/app/p/0190a6c2-1111-7000-8000-000000000001/live/events"));
    }

    #[test]
    fn links_are_found_and_unescaped() {
        let page = r##"<a href="/app/a?b=1&amp;c=2">x</a> <a href="#top">y</a>"##;
        assert_eq!(links("/app", page), ["/app/a?b=1&c=2", "/app"]);
    }

    #[test]
    fn values_of_forms_are_escaped() {
        assert_eq!(form("a b&c@"), "a%20b%26c%40");
    }
}
