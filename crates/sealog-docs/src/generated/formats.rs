//! What becomes of fields between Sealog and other programs, from the tables that the code goes through.

use sealog_formats::input::{MAPPINGS, Place};
use sealog_formats::output::Format;

use super::source::Source;
use crate::text::cell;

pub(super) fn pages() -> Vec<Source> {
    let mut page = "# Field mappings\n\nThe mappings of this version. [Shippers and SIEMs](/docs/shippers) explains their use.\n".to_owned();
    for mapping in MAPPINGS {
        let (name, path) = (mapping.name, mapping.path);
        page.push_str(&format!("\n## {name} to events\n\n`POST {path}`. The first source with a value is used.\n\n| Field of the event | From |\n|---|---|\n"));
        for row in mapping.rows {
            let places: Vec<String> = row.from.iter().map(|place| Place::words(*place)).collect();
            page.push_str(&format!("| `{}` | {} |\n", row.to, cell(&places.join(", then "))));
        }
    }
    for format in Format::ALL {
        let Some(mapping) = format.mapping() else { continue };
        page.push_str(&format!(
            "\n## Events to {}\n\n`sealog follow --format {}`. {}\n\n| There | From |\n|---|---|\n",
            mapping.name,
            format.as_str(),
            mapping.about
        ));
        for row in mapping.rows {
            page.push_str(&format!("| `{}` | {} |\n", row.to, cell(&row.from.words())));
        }
    }
    vec![Source::new("mappings", "Field mappings", page).in_part("Look up")]
}
