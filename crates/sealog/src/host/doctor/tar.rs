//! A tar archive in the old form that every program reads (ustar): small files, whose names are short.

const BLOCK: usize = 512;

/// Names of at most 100 bytes, and their texts.
pub(super) fn archive(files: &[(String, String)], made_at_s: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, text) in files {
        out.extend_from_slice(&header(name, text.len(), made_at_s));
        out.extend_from_slice(text.as_bytes());
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    // Two empty blocks are its end.
    out.resize(out.len() + 2 * BLOCK, 0);
    out
}

fn header(name: &str, length: usize, made_at_s: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{length:011o}\0"));
    put(136, &format!("{made_at_s:011o}\0"));
    // While the sum is made, its own place counts as blanks.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_programs_can_read_it() {
        let files = [("d/a.txt".to_owned(), "one\n".to_owned()), ("d/b".to_owned(), "x".repeat(1000))];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.tar");
        std::fs::write(&path, archive(&files, 1_700_000_000)).unwrap();
        let unpacked = std::process::Command::new("tar")
            .arg("-xf")
            .arg(&path)
            .arg("-C")
            .arg(dir.path())
            .output()
            .unwrap();
        assert!(unpacked.status.success(), "{unpacked:?}");
        for (name, text) in &files {
            assert_eq!(std::fs::read_to_string(dir.path().join(name)).unwrap(), *text);
        }
    }
}
