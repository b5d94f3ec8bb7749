//! Markdown to HTML, with nothing of the source passed through as HTML.

use std::collections::BTreeMap;

use pulldown_cmark::{CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

use crate::text::escape;

/// A page that was rendered.
#[derive(Debug, Default)]
pub(crate) struct Rendered {
    pub html: String,
    pub sections: Vec<Section>,
}

/// A heading and what stands beneath it, as plain text.
#[derive(Debug)]
pub(crate) struct Section {
    /// Of the heading, for links; empty for what stands before the first one.
    pub id: String,
    pub heading: String,
    pub level: u8,
    pub text: String,
}

/// Renders a page. `link` says where a destination of the source leads; where it says nothing, the text
/// stands there without a link.
pub(crate) fn render(source: &str, link: &dyn Fn(&str) -> Option<String>) -> Rendered {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    let mut events: Vec<Event<'_>> = Parser::new_ext(source, options).map(without_html).collect();
    let sections = name_headings(&mut events);
    let events = frame_tables(lead(events, link));
    let mut rendered = String::with_capacity(source.len() * 2);
    html::push_html(&mut rendered, events.into_iter());
    Rendered { html: rendered, sections }
}

/// HTML of the source is shown as the text that it is.
fn without_html(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        other => other,
    }
}

/// Gives headings ids as GitHub does, so that a link works here and there, and notes what stands beneath
/// each.
fn name_headings(events: &mut [Event<'_>]) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut used = BTreeMap::<String, usize>::new();
    let mut at = 0;
    while at < events.len() {
        if let Event::Start(Tag::Heading { level, .. }) = &events[at] {
            let level = level_number(*level);
            let ends = |event: &Event<'_>| matches!(event, Event::End(TagEnd::Heading(_)));
            let length = events[at..].iter().position(ends).unwrap_or(0);
            let heading = plain(&events[at..at + length]);
            let id = unused(&mut used, slug(heading.trim()));
            if let Event::Start(Tag::Heading { id: wanted, .. }) = &mut events[at] {
                *wanted = Some(CowStr::from(id.clone()));
            }
            sections.push(Section { id, heading: heading.trim().to_owned(), level, text: String::new() });
            at += length;
        } else {
            let piece = plain(&events[at..=at]);
            if !piece.is_empty() {
                if sections.is_empty() {
                    let (id, heading, text) = (String::new(), String::new(), String::new());
                    sections.push(Section { id, heading, level: 1, text });
                }
                sections.last_mut().expect("one was just added").text.push_str(&piece);
            }
        }
        at += 1;
    }
    sections
}

/// The words of some events; where a block ends, a space.
fn plain(events: &[Event<'_>]) -> String {
    let mut words = String::new();
    for event in events {
        match event {
            Event::Text(text) | Event::Code(text) => words.push_str(text),
            Event::SoftBreak | Event::HardBreak | Event::Rule => words.push(' '),
            Event::End(TagEnd::Paragraph | TagEnd::TableCell | TagEnd::Item | TagEnd::CodeBlock) => {
                words.push(' ');
            }
            _ => {}
        }
    }
    words
}

fn level_number(level: HeadingLevel) -> u8 {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}

fn slug(heading: &str) -> String {
    let lower = heading.to_lowercase();
    let kept = lower.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn unused(used: &mut BTreeMap<String, usize>, id: String) -> String {
    let id = if id.is_empty() { "section".to_owned() } else { id };
    let before = used.entry(id.clone()).or_default();
    *before += 1;
    if *before == 1 { id } else { format!("{id}-{}", *before - 1) }
}

/// Points links to pages of this server. Pictures become their description.
fn lead<'a>(events: Vec<Event<'a>>, link: &dyn Fn(&str) -> Option<String>) -> Vec<Event<'a>> {
    let mut led = Vec::with_capacity(events.len());
    // Whether each link that is open is shown as one.
    let mut open = Vec::new();
    for event in events {
        match event {
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                let dest = link(&dest_url);
                open.push(dest.is_some());
                if let Some(dest) = dest {
                    led.push(Event::Start(Tag::Link { link_type, dest_url: dest.into(), title, id }));
                }
            }
            Event::End(TagEnd::Link) => {
                if open.pop().unwrap_or(true) {
                    led.push(Event::End(TagEnd::Link));
                }
            }
            Event::Start(Tag::Image { .. }) | Event::End(TagEnd::Image) => {}
            other => led.push(other),
        }
    }
    led
}

/// A wide table is scrolled by itself, also with the keyboard. Code is escaped, whatever its language is
/// called.
fn frame_tables(events: Vec<Event<'_>>) -> Vec<Event<'_>> {
    let mut framed = Vec::with_capacity(events.len());
    let (mut tables, mut in_head) = (0, false);
    for event in events {
        match event {
            // Every column has a name, also where people see what it is.
            Event::End(TagEnd::TableCell)
                if in_head && matches!(framed.last(), Some(Event::Start(Tag::TableCell))) =>
            {
                framed.push(Event::Html("<span class=\"vh\">Name</span>".into()));
                framed.push(Event::End(TagEnd::TableCell));
            }
            Event::Start(Tag::TableHead) => {
                in_head = true;
                framed.push(Event::Start(Tag::TableHead));
            }
            Event::End(TagEnd::TableHead) => {
                in_head = false;
                framed.push(Event::End(TagEnd::TableHead));
            }
            Event::Start(Tag::Table(alignment)) => {
                tables += 1;
                let frame = format!(
                    "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table {tables}\">"
                );
                framed.push(Event::Html(frame.into()));
                framed.push(Event::Start(Tag::Table(alignment)));
            }
            Event::End(TagEnd::Table) => {
                framed.push(Event::End(TagEnd::Table));
                framed.push(Event::Html("</div>".into()));
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                // The first word alone, as a class: the rest of the line is for tests.
                let word = language.split_whitespace().next().unwrap_or("");
                let word: String = word.chars().filter(char::is_ascii_alphanumeric).collect();
                framed.push(Event::Html(format!("<pre class=\"{}\"><code>", escape(&word)).into()));
            }
            Event::End(TagEnd::CodeBlock) => framed.push(Event::Html("</code></pre>\n".into())),
            Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)) => {
                framed.push(Event::Html("<pre><code>".into()));
            }
            other => framed.push(other),
        }
    }
    framed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(source: &str) -> String {
        render(source, &|dest| dest.starts_with("http").then(|| dest.to_owned())).html
    }

    #[test]
    fn no_html_of_a_source_passes() {
        for source in [
            "<script>alert(1)</script>\n",
            "a <b onclick=x>bold</b>\n",
            "```\n<i>\n```\n",
            "`<i>`\n",
            "| a |\n|---|\n| <i> |\n",
            "# <i>\n",
            "```\"><i>\nx\n```\n",
            "    <i>\n",
        ] {
            let html = html(source);
            for tag in ["<script", "<b ", "<i>"] {
                assert!(!html.contains(tag), "{source} became {html}");
            }
        }
    }

    #[test]
    fn a_heading_has_the_id_that_github_gives_it() {
        let rendered = render("# A\n\n## The `verify` command, again!\n\n## A\n\ntext\n", &|_| None);
        assert!(rendered.html.contains("<h2 id=\"the-verify-command-again\">"), "{}", rendered.html);
        let ids: Vec<&str> = rendered.sections.iter().map(|section| section.id.as_str()).collect();
        assert_eq!(ids, ["a", "the-verify-command-again", "a-1"]);
        assert_eq!(rendered.sections[2].text.trim(), "text");
    }

    #[test]
    fn a_link_that_leads_nowhere_is_text() {
        assert_eq!(html("[a](x.md) [b](http://x/)\n"), "<p>a <a href=\"http://x/\">b</a></p>\n");
        assert!(!html("[a](javascript:alert(1))\n").contains("href"));
        assert_eq!(html("![alt](x.png)\n"), "<p>alt</p>\n");
    }

    #[test]
    fn a_table_can_be_scrolled_with_the_keyboard() {
        let html = html("| a |\n|---|\n| b |\n");
        assert!(
            html.contains(
                "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table 1\"><table>"
            ),
            "{html}"
        );
        assert!(html.contains("</table>\n</div>"), "{html}");
    }
}
