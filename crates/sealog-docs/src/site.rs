//! All pages, rendered.

use std::sync::OnceLock;

use crate::assets::{self, Asset, compress, digest};
use crate::contents::FILES;
use crate::generated::{self, Given, Source};
use crate::layout::{Entry, Frame, search_form};
use crate::markdown::{self, Section};
use crate::search::Index;
use crate::text::escape;
use crate::theme::Theme;

/// Where examples in the sources reach a server.
const EXAMPLE_URL: &str = "http://127.0.0.1:8080";

/// The documentation of a server. It does not change while that runs.
#[derive(Debug)]
pub struct Site {
    frame: Frame,
    pages: Vec<Page>,
    assets: Vec<Asset>,
    index: OnceLock<Index>,
}

#[derive(Debug)]
struct Page {
    path: String,
    title: String,
    html: String,
    sections: Vec<Section>,
    /// In the order of [`Theme::ALL`].
    documents: [OnceLock<Document>; Theme::ALL.len()],
}

/// A page as it is sent.
#[derive(Debug)]
pub struct Document {
    pub html: String,
    pub compressed: Vec<u8>,
    /// With its quotes.
    pub etag: String,
}

impl Site {
    pub fn new(given: &Given<'_>) -> Site {
        let assets = assets::all();
        let generated = generated::all(given);
        let files = FILES.iter().map(|file| Source {
            path: file.path.into(),
            part: Some(file.part),
            label: file.label.into(),
            markdown: match file.is_addressed {
                true => file.markdown.replace(EXAMPLE_URL, given.base_url),
                false => file.markdown.to_owned(),
            },
        });
        let mut sources: Vec<Source> = files.chain(generated).collect();
        let entry = |source: &Source| {
            let part = source.part?;
            Some(Entry { path: source.path.clone(), part, label: source.label.clone() })
        };
        let entries: Vec<Entry> = sources.iter().filter_map(entry).collect();
        sources.insert(0, generated::home(&entries));
        let href = |asset: &Asset| format!("/docs/{}", asset.path());
        let frame = Frame {
            entries,
            styles: ["app.css", "docs.css"]
                .iter()
                .flat_map(|name| assets.iter().find(|asset| asset.is(name)))
                .map(href)
                .collect(),
            icon: assets.iter().find(|asset| asset.is("icon.svg")).map(href).unwrap_or_default(),
            version: given.version.to_owned(),
        };
        let pages = sources.into_iter().map(Page::new).collect();
        Site { frame, pages, assets, index: OnceLock::new() }
    }

    /// Renders and compresses everything as most people see it, which is otherwise done when it is first
    /// asked for.
    pub fn prepare(&self) {
        for page in &self.pages {
            page.document(&self.frame, Theme::default());
        }
        self.index();
    }

    /// The page at a path beneath `/docs/`.
    pub fn page(&self, path: &str, theme: Theme) -> Option<&Document> {
        self.pages.iter().find(|page| page.path == path).map(|page| page.document(&self.frame, theme))
    }

    /// A file that pages name.
    pub fn asset(&self, path: &str) -> Option<&Asset> {
        self.assets.iter().find(|asset| asset.path() == path)
    }

    /// A page with what has these words.
    pub fn search(&self, words: &str, theme: Theme) -> String {
        let found = self.index().find(words);
        let mut html = format!("<h1>Search</h1>\n{}\n", search_form("main-q", "Page", words));
        if words.trim().is_empty() {
            html.push_str("<p>Type a word, a field, a flag, a setting or an error code.</p>\n");
        } else if found.is_empty() {
            html.push_str(
                "<p role=\"status\">No page has all of these words. Try fewer words, or only their beginnings.</p>\n",
            );
        } else {
            html.push_str("<ol class=\"found\">");
            for place in found {
                html.push_str(&format!(
                    "<li><a href=\"{}\">{}</a><p>{}</p></li>",
                    escape(&place.href),
                    escape(&place.label),
                    escape(&place.text)
                ));
            }
            html.push_str("</ol>\n");
        }
        self.frame.page(theme, "search", "Search", &html, &[])
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| {
            let mut index = Index::default();
            // The first page has the contents, and every word of them.
            for page in self.pages.iter().filter(|page| !page.path.is_empty()) {
                index.add(&page.path, &page.title, &page.sections);
            }
            index
        })
    }
}

impl Page {
    fn new(source: Source) -> Page {
        let rendered = markdown::render(&source.markdown, &lead);
        let html = match source.path.is_empty() {
            // The one page that is a way to others.
            true => rendered.html.replacen(
                "</h1>\n",
                &format!("</h1>\n{}\n", search_form("main-q", "Page", "")),
                1,
            ),
            false => rendered.html,
        };
        let title = rendered.sections.first().map(|section| section.heading.clone());
        Page {
            title: title.filter(|title| !title.is_empty()).unwrap_or(source.label),
            path: source.path,
            html,
            sections: rendered.sections,
            documents: Default::default(),
        }
    }

    fn document(&self, frame: &Frame, theme: Theme) -> &Document {
        self.documents[theme as usize].get_or_init(|| {
            let html = frame.page(theme, &self.path, &self.title, &self.html, &self.sections);
            let (compressed, etag) =
                (compress(html.as_bytes()), format!("\"{}\"", &digest(html.as_bytes())[..16]));
            Document { html, compressed, etag }
        })
    }
}

/// Where a link of a source leads: another page here, or the web. Files of the repository that are not shown
/// are only named.
fn lead(dest: &str) -> Option<String> {
    if ["https://", "http://", "#", "/docs", "/openapi.json", "/app"]
        .iter()
        .any(|known| dest.starts_with(known))
    {
        return Some(dest.to_owned());
    }
    let (file, anchor) =
        dest.split_once('#').map_or((dest, String::new()), |(file, id)| (file, format!("#{id}")));
    let file = FILES.iter().find(|known| known.name == file)?;
    Some(format!("/docs/{}{anchor}", file.path))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::generated::program::{Argument, Command, Program, Setting};

    fn site() -> Site {
        let program = Program {
            commands: vec![Command {
                name: "sealog serve".into(),
                about: "Run the server".into(),
                usage: "sealog serve [OPTIONS]".into(),
                arguments: vec![Argument { name: "--listen <ADDRESS>".into(), help: "a | b".into() }],
            }],
            settings: vec![Setting {
                key: "listen".into(),
                variable: "SEALOG_LISTEN".into(),
                flag: "--listen".into(),
                default: "127.0.0.1:8080".into(),
                help: "Where".into(),
            }],
            exit_codes: vec![("10".into(), "a chain is broken".into())],
        };
        let openapi = json!({ "paths": {}, "components": { "schemas": {} }, "tags": [] });
        Site::new(&Given {
            openapi: &openapi,
            program: &program,
            base_url: "https://log.example",
            version: "0",
        })
    }

    /// Addresses and ids that pages of the site have.
    fn places(site: &Site) -> BTreeSet<String> {
        let mut places = BTreeSet::new();
        for page in &site.pages {
            places.insert(format!("/docs/{}", page.path));
            for section in &page.sections {
                places.insert(format!("/docs/{}#{}", page.path, section.id));
            }
        }
        places.extend(site.assets.iter().map(|asset| format!("/docs/{}", asset.path())));
        places.extend(["/docs/search", "/docs/commands", "/docs/api"].map(str::to_owned));
        places
    }

    #[test]
    fn every_link_between_pages_leads_somewhere() {
        let site = site();
        let places = places(&site);
        let mut wrong = Vec::new();
        for page in &site.pages {
            let html = &page.document(&site.frame, Theme::System).html;
            for (at, _) in html.match_indices("href=\"") {
                let href = html[at + 6..].split('"').next().unwrap_or("");
                let href = match href.strip_prefix('#') {
                    Some("main") => continue,
                    Some(id) if id.starts_with("i-") => continue,
                    Some(id) => format!("/docs/{}#{id}", page.path),
                    None => href.to_owned(),
                };
                if href.starts_with("/docs") && !places.contains(&href) && !href.starts_with("/docs/api/") {
                    wrong.push(format!("{}: {href}", page.path));
                }
            }
        }
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn a_page_has_one_first_heading_and_a_path_of_its_own() {
        let site = site();
        let mut paths = BTreeSet::new();
        for page in &site.pages {
            assert!(paths.insert(&page.path), "{} stands twice", page.path);
            assert_eq!(page.html.matches("<h1").count(), 1, "{}", page.path);
            assert!(page.html.starts_with("<h1"), "{}", page.path);
        }
    }

    #[test]
    fn nothing_on_a_page_needs_what_the_policy_forbids() {
        let site = site();
        for page in &site.pages {
            let html = &page.document(&site.frame, Theme::System).html;
            for forbidden in ["<script", "<style", " style=", " onclick=", "src=\"http", "javascript:"] {
                assert!(!html.contains(forbidden), "{} has {forbidden}", page.path);
            }
        }
    }

    #[test]
    fn examples_name_the_server_that_shows_them() {
        let site = site();
        let quickstart = &site.page("quickstart", Theme::System).unwrap().html;
        assert!(quickstart.contains("https://log.example/v1/events") && !quickstart.contains(EXAMPLE_URL));
    }

    #[test]
    fn a_page_is_another_document_in_each_theme_and_differs_in_nothing_else() {
        let site = site();
        let page = |theme| site.page("quickstart", theme).unwrap();
        let named = |theme: Theme| format!("data-theme=\"{}\"", theme.as_str());
        for (number, theme) in Theme::ALL.into_iter().enumerate() {
            assert_eq!((theme as usize, Theme::parse(theme.as_str())), (number, Some(theme)));
            assert_eq!(page(theme).html.matches("data-theme").count(), 1);
            let as_system = page(theme).html.replace(&named(theme), &named(Theme::System));
            assert_eq!(as_system, page(Theme::System).html);
            assert_eq!(page(theme).etag == page(Theme::System).etag, theme == Theme::System);
            assert!(site.search("chain", theme).contains(&named(theme)));
        }
    }

    #[test]
    fn words_that_were_searched_for_cannot_become_markup() {
        let html = site().search("\"><script>alert(1)</script>", Theme::System);
        assert!(!html.contains("<script") && html.contains("&quot;&gt;&lt;script&gt;"), "{html}");
    }

    #[test]
    fn a_search_leads_to_a_page_of_the_site() {
        let site = site();
        let places = places(&site);
        for words in
            ["idempotency", "backup", "listen", "auth key_not_found", "soc2", "sealog serve", "cloudevents"]
        {
            let found = site.index().find(words);
            assert!(!found.is_empty(), "{words}");
            for place in found {
                assert!(places.contains(&place.href), "{words}: {}", place.href);
            }
        }
        assert_eq!(site.index().find("auth key_not_found")[0].href, "/docs/errors/auth/key_not_found");
    }
}
