//! Text that must not be printed.

use zeroize::Zeroize;

/// Text that must not be printed, and that is overwritten in memory when it is dropped. Whoever takes it
/// apart makes a copy that is not.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_secret_is_gone_from_memory_once_it_is_dropped() {
        // The memory that was freed, through the kernel's eyes: Rust does not let anyone look there. The
        // allocator may have used a part of it again.
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let left_in = |address: usize| {
            let mut bytes = vec![0; 700];
            memory.read_exact_at(&mut bytes, address as u64).unwrap();
            bytes.windows(7).filter(|bytes| *bytes == b"hunter2").count()
        };
        let secret = Secret("hunter2".repeat(100));
        let address = secret.0.as_ptr() as usize;
        assert_eq!(left_in(address), 100);
        drop(secret);
        assert_eq!(left_in(address), 0);
    }
}
