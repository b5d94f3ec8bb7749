//! When a certificate ends: the one field that an operator has to know of, read out of its DER form (RFC
//! 5280, section 4.1).

use sealog_core::time::parse_rfc3339_ms;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The second (Unix time) after which the certificate is not believed any more; nothing if it is not built
/// like a certificate.
pub(super) fn not_after_s(certificate: &[u8]) -> Option<u64> {
    let (certificate, _) = expect(certificate, SEQUENCE)?;
    let (mut fields, _) = expect(certificate, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (validity, _) = expect(fields, SEQUENCE)?;
    let (_, _, after_begin) = element(validity)?;
    let (tag, not_after, _) = element(after_begin)?;
    time_s(tag, not_after)
}

/// Tag, content and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        // More than four bytes of length are no certificate that fits in a file.
        let count = usize::from(first & 0x7f);
        let digits = (1..=4).contains(&count).then(|| rest.get(..count))??;
        (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), &rest[count..])
    };
    let content = rest.get(..length)?;
    Some((tag, content, &rest[length..]))
}

fn expect(bytes: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    element(bytes).filter(|(tag, ..)| *tag == wanted).map(|(_, content, rest)| (content, rest))
}

/// Both forms end in `Z` and have seconds, as RFC 5280 demands. Two digits of a year are 1950 to 2049.
fn time_s(tag: u8, text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.is_ascii())?;
    let text = match tag {
        UTC_TIME if text.len() == 13 => format!("{}{text}", if text < "50" { "20" } else { "19" }),
        GENERALIZED_TIME if text.len() == 15 => text.to_owned(),
        _ => return None,
    };
    let part = |from, to| text.get(from..to);
    let (date, time) =
        ([part(0, 4)?, part(4, 6)?, part(6, 8)?], [part(8, 10)?, part(10, 12)?, part(12, 14)?]);
    parse_rfc3339_ms(&format!("{}T{}{}", date.join("-"), time.join(":"), part(14, 15)?)).map(|ms| ms / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_time_are_read() {
        assert_eq!(time_s(UTC_TIME, b"260102030405Z"), Some(1_767_323_045));
        assert_eq!(time_s(GENERALIZED_TIME, b"20260102030405Z"), Some(1_767_323_045));
        assert_eq!(time_s(UTC_TIME, b"991231235959Z"), Some(946_684_799));
        for (tag, wrong) in [
            (UTC_TIME, b"260102030405+0100".as_slice()),
            (UTC_TIME, b"2601020304Z"),
            (GENERALIZED_TIME, b"260102030405Z"),
            (GENERALIZED_TIME, b"20261302030405Z"),
            (SEQUENCE, b"260102030405Z"),
        ] {
            assert_eq!(time_s(tag, wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_end_is_found_with_and_without_a_version_and_cut_bytes_are_no_certificate() {
        let validity =
            [&[SEQUENCE, 30, UTC_TIME, 13], b"250102030405Z".as_slice(), &[UTC_TIME, 13], b"260102030405Z"]
                .concat();
        let before: &[u8] = &[2, 1, 7, SEQUENCE, 0, SEQUENCE, 0];
        let certificate = |version: &[u8]| {
            let fields = [version, before, &validity].concat();
            let fields = [&[SEQUENCE, u8::try_from(fields.len()).unwrap()], fields.as_slice()].concat();
            [&[SEQUENCE, 0x81, u8::try_from(fields.len()).unwrap()], fields.as_slice()].concat()
        };
        for version in [&[] as &[u8], &[VERSION, 3, 2, 1, 2]] {
            let whole = certificate(version);
            assert_eq!(not_after_s(&whole), Some(1_767_323_045));
            for cut in 0..whole.len() {
                assert_eq!(not_after_s(&whole[..cut]), None, "{cut}");
            }
        }
        assert_eq!(not_after_s(&[SEQUENCE, 0x85, 0, 0, 0, 0, 1, 0]), None);
    }
}
