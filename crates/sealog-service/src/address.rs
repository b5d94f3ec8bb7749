//! Whether a mail can be sent to a text.

use lettre::Address;

pub fn is_address(text: &str) -> bool {
    text.parse::<Address>().is_ok()
}
