//! Hexadecimal digits. Everything that is hashed or compared as text has them in lower case.

/// The value of a digit in either case.
pub(crate) fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

pub(crate) fn pair(byte: u8) -> [u8; 2] {
    // Both digits in one look: every event that is verified has its hashes and ids written out.
    const PAIRS: [[u8; 2]; 256] = {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut pairs = [[0; 2]; 256];
        let mut byte = 0;
        while byte < pairs.len() {
            pairs[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
            byte += 1;
        }
        pairs
    };
    PAIRS[usize::from(byte)]
}

/// In lower case.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|&byte| pair(byte)).map(char::from).collect()
}

/// Reads exactly `N` bytes. Refuses upper case, because it is another spelling, hence another text than the
/// one that was hashed.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != 2 * N || text.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_one_spelling_and_read_back() {
        assert_eq!(encode(&[0, 255, 0x1a]), "00ff1a");
        assert_eq!(decode("00ff1a"), Some([0, 255, 0x1a]));
        for text in ["00ff1", "00ff1a0", "00FF1a", "00ff1g", "00ff é", ""] {
            assert_eq!(decode::<3>(text), None, "{text}");
        }
    }
}
