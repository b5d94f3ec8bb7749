//! The secret that the hashes in indexes are keyed with: `docs/format.md`, section 5.
//!
//! Clients choose the texts that are hashed. If they could compute the hashes, they could send thousands of
//! values with one hash, and each list that filters by one of them would read the records of all. (The bound
//! of a list holds all the same; the salt makes sure that it is hardly ever reached.)

use std::hash::Hasher;
use std::io;
use std::path::Path;

use siphasher::sip::SipHasher13;

use crate::embedded::log::disk::{self, Disk};
use crate::world::World;

const FILE: &str = "index.salt";
const MAGIC: &[u8; 8] = b"SEALOGSL";
const VERSION: u32 = 1;
const LEN: usize = 32;

/// A keyed hash: SipHash-1-3, which is made for texts that an adversary chooses, and is written to disk, so
/// it must never change.
#[derive(Clone, Copy)]
pub(crate) struct IndexSalt(SipHasher13);

impl std::fmt::Debug for IndexSalt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IndexSalt(secret)")
    }
}

impl IndexSalt {
    pub(crate) fn new(salt: &[u8; 16]) -> IndexSalt {
        IndexSalt(SipHasher13::new_with_key(salt))
    }

    /// The salt of a data directory, made at the first start. One that is lost or damaged is replaced:
    /// indexes are made again, and no event depends on it.
    pub(crate) fn open(dir: &Path, disk: &dyn Disk, world: &dyn World) -> io::Result<IndexSalt> {
        let path = dir.join(FILE);
        match disk.open(&path).and_then(|file| disk::read_all(&*file)) {
            Ok(content) => match decode(&content) {
                Some(salt) => return Ok(IndexSalt::new(&salt)),
                None => {
                    tracing::warn!(path = %path.display(), "the salt of the indexes is damaged; making a new one and rebuilding all index files in the background")
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // What cannot be read now may be read at the next start.
            Err(error) => return Err(error),
        }
        let mut salt = [0; 16];
        world.fill_random(&mut salt);
        if let Err(error) = disk::replace(disk, &path, &encode(&salt)) {
            tracing::warn!(%error, path = %path.display(), "cannot write the salt of the indexes; index files of this run will be rebuilt at the next start");
        }
        Ok(IndexSalt::new(&salt))
    }

    /// Tells whether an index was made with this salt, without telling the salt.
    pub(crate) fn id(&self) -> u64 {
        self.0.hash(b"sealog index salt")
    }

    pub(crate) fn hash(&self, bytes: &[u8]) -> u32 {
        lowest(self.0.hash(bytes))
    }

    /// Of two texts one behind the other.
    pub(crate) fn hash_both(&self, first: &[u8], second: &[u8]) -> u32 {
        let mut hasher = self.0;
        hasher.write(first);
        hasher.write(second);
        lowest(hasher.finish())
    }
}

fn lowest(hash: u64) -> u32 {
    let [a, b, c, d, ..] = hash.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn encode(salt: &[u8; 16]) -> Vec<u8> {
    let mut content = MAGIC.to_vec();
    content.extend_from_slice(&VERSION.to_le_bytes());
    content.extend_from_slice(salt);
    let checksum = crc32c::crc32c(&content);
    content.extend_from_slice(&checksum.to_le_bytes());
    content
}

fn decode(content: &[u8]) -> Option<[u8; 16]> {
    let (covered, checksum) = content.split_at_checked(LEN - 4)?;
    let salt = covered.strip_prefix(MAGIC)?.strip_prefix(&VERSION.to_le_bytes())?;
    (checksum == crc32c::crc32c(covered).to_le_bytes()).then(|| salt.try_into().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the authors' reference implementation of SipHash-1-3: key 00 01 … 0f, input 00 01 … up to a
    /// length.
    #[test]
    fn the_hash_is_siphash_1_3() {
        let salt = IndexSalt::new(&std::array::from_fn(|at| u8::try_from(at).unwrap()));
        let input: Vec<u8> = (0..8).collect();
        for (length, expected) in
            [(0, 0xabac_0158_050f_c4dc_u64), (1, 0xc9f4_9bf3_7d57_ca93), (7, 0xd392_7d98_9bb1_1140)]
        {
            assert_eq!(salt.0.hash(&input[..length]), expected, "{length} bytes");
            assert_eq!(u64::from(salt.hash(&input[..length])), expected & 0xffff_ffff);
            let (first, second) = input[..length].split_at(length / 2);
            assert_eq!(salt.hash_both(first, second), salt.hash(&input[..length]));
        }
    }

    #[test]
    fn a_salt_is_read_back_and_a_damaged_one_is_not() {
        let content = encode(&[9; 16]);
        assert_eq!((content.len(), decode(&content)), (LEN, Some([9; 16])));
        for at in 0..content.len() {
            let mut damaged = content.clone();
            damaged[at] ^= 1;
            assert_eq!(decode(&damaged), None, "{at}");
        }
        assert_eq!((decode(&content[1..]), decode(b"")), (None, None));
    }
}
