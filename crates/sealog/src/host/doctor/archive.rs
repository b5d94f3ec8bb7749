//! A tar archive in the old form that every program reads (ustar): small files, whose names are short.

use tar::{Builder, EntryType, Header};

/// Names of at most 100 bytes, and their texts.
pub(super) fn archive(files: &[(String, String)], made_at_s: u64) -> Vec<u8> {
    let mut out = Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = Header::new_ustar();
        header.set_mode(0o600);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(text.len() as u64);
        header.set_mtime(made_at_s);
        header.set_entry_type(EntryType::Regular);
        out.append_data(&mut header, name, text.as_bytes()).expect("memory takes it, and names are short");
    }
    out.into_inner().expect("memory takes what is written")
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
