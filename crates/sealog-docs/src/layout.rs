//! What surrounds a page: the rail of the dashboard, with the contents in place of its pages.

use crate::contents::PARTS;
use crate::markdown::Section;
use crate::search::WORDS_CHARACTERS_MAX;
use crate::text::escape;
use crate::theme::Theme;

/// A line of the contents.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub path: String,
    pub part: &'static str,
    pub label: String,
}

/// What all pages have in common.
#[derive(Debug)]
pub(crate) struct Frame {
    pub entries: Vec<Entry>,
    /// Addresses of the stylesheets and of the icon.
    pub styles: Vec<String>,
    pub icon: String,
    pub version: String,
}

/// The symbols of the dashboard that are used here.
const SYMBOLS: &str = "<svg width=\"0\" height=\"0\" class=\"vh\" aria-hidden=\"true\" focusable=\"false\"><defs>\
<symbol id=\"i-logo\" viewBox=\"0 0 24 24\"><g fill=\"none\" stroke=\"currentColor\" stroke-width=\"2.3\"><rect x=\"2\" y=\"7\" width=\"12\" height=\"10\" rx=\"5\"/><rect x=\"10\" y=\"7\" width=\"12\" height=\"10\" rx=\"5\"/></g></symbol>\
<symbol id=\"i-menu\" viewBox=\"0 0 16 16\"><path d=\"M2 4h12M2 8h12M2 12h12\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.6\" stroke-linecap=\"round\"/></symbol>\
</defs></svg>";

const LOGO: &str = "<svg class=\"i\" aria-hidden=\"true\"><use href=\"#i-logo\"/></svg>";

impl Frame {
    /// A whole page. `content` is HTML with its own heading.
    pub(crate) fn page(
        &self,
        theme: Theme,
        path: &str,
        title: &str,
        content: &str,
        outline: &[Section],
    ) -> String {
        let styles: String =
            self.styles.iter().map(|href| format!("<link rel=\"stylesheet\" href=\"{href}\">\n")).collect();
        format!(
            "<!doctype html>\n<html lang=\"en\" data-theme=\"{theme}\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title} · Sealog docs</title>\n\
             <link rel=\"icon\" href=\"{icon}\">\n{styles}</head>\n<body class=\"docs\">\n<a class=\"skip\" href=\"#main\">Skip to content</a>\n{SYMBOLS}\n\
             <div class=\"shell\">\n<header class=\"rail\"><div class=\"rail-in\">\n\
             <a class=\"brand\" href=\"/docs/\">{LOGO}Sealog docs</a>\n\
             <div class=\"topbar\"><a class=\"brand\" href=\"/docs/\">{LOGO}<span>Sealog docs</span></a>\
             <button class=\"btn icon end\" type=\"button\" popovertarget=\"nav\" aria-label=\"Menu\"><svg class=\"i\" aria-hidden=\"true\"><use href=\"#i-menu\"/></svg></button></div>\n\
             <div class=\"rail-nav\" id=\"nav\" popover>\n{search}\n<nav aria-label=\"Contents\">{contents}</nav>\n\
             <div class=\"rail-foot\"><p class=\"small\">Sealog {version}</p><p class=\"row\"><a href=\"/app\">Open the dashboard</a><a href=\"/openapi.json\">OpenAPI</a></p></div>\n\
             </div>\n</div></header>\n<div class=\"reading\">\n<main id=\"main\" tabindex=\"-1\" class=\"prose\">\n{content}</main>\n{outline}</div>\n</div>\n</body>\n</html>\n",
            theme = theme.as_str(),
            title = escape(title),
            icon = self.icon,
            search = search_form("nav-q", "Contents", ""),
            contents = self.contents(path),
            version = escape(&self.version),
            outline = outline_of(outline),
        )
    }

    fn contents(&self, current: &str) -> String {
        let mut html = String::new();
        for part in PARTS {
            html.push_str(&format!("<p class=\"part small muted\">{part}</p><ul>"));
            for entry in self.entries.iter().filter(|entry| entry.part == part) {
                let is_beneath = current.strip_prefix(&*entry.path).is_some_and(|rest| rest.starts_with('/'));
                let mark = if entry.path == current {
                    " aria-current=\"page\""
                } else if is_beneath {
                    " aria-current=\"true\""
                } else {
                    ""
                };
                let (path, label) = (&entry.path, escape(&entry.label));
                html.push_str(&format!("<li><a href=\"/docs/{path}\"{mark}>{label}</a></li>"));
            }
            html.push_str("</ul>");
        }
        html
    }
}

/// Works without a script: a form that is sent to the server. `place` tells one from another on the same
/// page.
pub(crate) fn search_form(id: &str, place: &str, words: &str) -> String {
    format!(
        "<form class=\"row find\" role=\"search\" aria-label=\"{place}\" action=\"/docs/search\"><label class=\"vh\" for=\"{id}\">Search the documentation</label>\
         <input class=\"input\" id=\"{id}\" type=\"search\" name=\"q\" maxlength=\"{WORDS_CHARACTERS_MAX}\" placeholder=\"Search\" value=\"{}\"><button class=\"btn\">Search</button></form>",
        escape(words)
    )
}

/// Links to the second-level headings, where there are enough of them to get lost.
fn outline_of(sections: &[Section]) -> String {
    let headings: Vec<&Section> = sections.iter().filter(|section| section.level == 2).collect();
    if headings.len() < 3 {
        return String::new();
    }
    let items: String = headings
        .iter()
        .map(|section| {
            format!("<li><a href=\"#{}\">{}</a></li>", escape(&section.id), escape(&section.heading))
        })
        .collect();
    format!(
        "<aside class=\"outline small\" aria-label=\"On this page\"><p class=\"muted\">On this page</p><ul>{items}</ul></aside>\n"
    )
}
