//! QR codes, for keys that a phone reads from the screen.

/// As parts of an SVG: the page draws it, so no address has it.
pub(crate) struct Qr {
    /// Modules on each side.
    pub size: usize,
    /// The dark modules, a rectangle for each run in a row.
    pub path: String,
}

impl Qr {
    /// None if the text is too long for any.
    pub(crate) fn of(text: &str) -> Option<Qr> {
        let code = qrcode::QrCode::new(text).ok()?;
        let (size, modules) = (code.width(), code.to_colors());
        let mut path = String::new();
        for (y, row) in modules.chunks(size).enumerate() {
            let mut x = 0;
            while x < size {
                let run = row[x..].iter().take_while(|module| **module == row[x]).count();
                if row[x] == qrcode::Color::Dark {
                    path.push_str(&format!("M{x} {y}h{run}v1h-{run}z"));
                }
                x += run;
            }
        }
        Some(Qr { size, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_begins_with_its_finder_pattern_and_a_text_that_is_too_long_has_none() {
        let qr = Qr::of("otpauth://totp/Sealog:me@example.org?secret=ABCD&issuer=Sealog").unwrap();
        assert!(qr.path.starts_with("M0 0h7v1h-7z"), "{}", qr.path);
        assert!(qr.size >= 21 && qr.path.bytes().all(|byte| b"Mhvz- 0123456789".contains(&byte)));
        assert!(Qr::of(&"x".repeat(3000)).is_none());
    }
}
