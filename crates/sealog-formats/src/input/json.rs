//! An array of items, one for each line, or just one.

use sealog_core::json::{Discard, Scanner};
use sealog_core::reject::Reject;

use super::item::{Item, check_count};

/// Cuts a body into items. An array that is no JSON is refused as a whole, since where its next item begins
/// cannot be told; a line that is no JSON is one bad item.
pub(super) fn items<'b>(body: &'b str, event: impl Fn(&'b str) -> Item<'b>) -> Result<Vec<Item<'b>>, Reject> {
    let mut scanner = Scanner::new(body);
    if scanner.peek() == Some(b'[') {
        return array(scanner, body, event);
    }
    // One object over several lines is no object for each line.
    if scanner.value(&mut Discard).is_ok() && scanner.end().is_ok() {
        return Ok(vec![event(body)]);
    }
    let lines = body.lines().filter(|line| !line.trim().is_empty());
    check_count(lines.clone().count())?;
    Ok(lines.map(event).collect())
}

fn array<'b>(
    mut scanner: Scanner<'_>,
    body: &'b str,
    event: impl Fn(&'b str) -> Item<'b>,
) -> Result<Vec<Item<'b>>, Reject> {
    scanner.begin_array()?;
    let (mut first, mut places) = (true, Vec::new());
    while scanner.next_item(&mut first)? {
        check_count(places.len() + 1)?;
        scanner.peek();
        let from = scanner.offset();
        scanner.value(&mut Discard)?;
        places.push(from..scanner.offset());
    }
    scanner.end()?;
    Ok(places.into_iter().map(|place| event(&body[place])).collect())
}
