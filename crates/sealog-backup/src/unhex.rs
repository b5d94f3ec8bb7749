//! Bytes as manifests and moments write them: two lower-case digits for each.

/// None for any text that `hex::encode` does not write.
pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    hex::decode(text).ok().filter(|_| is_lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_reads_back_and_nothing_else_does() {
        assert_eq!(unhex(&hex::encode([0, 255, 16])), Some(vec![0, 255, 16]));
        for text in ["0", "0g", "0A", "../", "é"] {
            assert_eq!(unhex(text), None, "{text}");
        }
    }
}
