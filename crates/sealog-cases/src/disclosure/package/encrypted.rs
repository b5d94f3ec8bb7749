//! A package with a password: the entries of the one that is kept, encrypted on their way out (AES-256 as
//! WinZip describes it, AE-2, which common unpackers know). The password is nowhere else, and names of
//! entries stay readable: they tell nothing.

use aes::Aes256;
use aes::cipher::BlockCipherEncrypt;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use super::archive::{
    DATE, DESCRIPTOR_BYTES, Entry, LOCAL_HEADER_BYTES, MADE_BY, UTF8, put_directory_end, put_end, put_u16,
    put_u32, small,
};
use sealog_service::Secret;

type HmacSha1 = Hmac<Sha1>;

pub const SALT_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
const VERIFIER_BYTES: usize = 2;
const MAC_BYTES: usize = 10;
/// Of the format.
const ITERATIONS: usize = 1000;
const VERSION: u16 = 51;
const ENCRYPTED: u16 = 1;
const METHOD: u16 = 99;
const EXTRA_BYTES: u16 = 11;
/// What encryption adds to the data of an entry.
const ADDED: u64 = (SALT_BYTES + VERIFIER_BYTES + MAC_BYTES) as u64;

/// Turns the bytes of a package, as they are kept, into those of an encrypted one.
pub struct Encryption {
    password: Secret,
    /// With the salt of each.
    entries: Vec<(Entry, [u8; SALT_BYTES])>,
    at: usize,
    part: Part,
    /// Where each encrypted entry begins.
    begins: Vec<u64>,
    written: u64,
}

enum Part {
    /// So many bytes of the plain package are passed over.
    Skip(u64),
    /// So many bytes of data are left.
    Data(u64, Box<Cipher>),
    /// What is left is the plain directory.
    Directory,
}

impl Encryption {
    /// Every entry has a salt of its own.
    pub fn new(
        password: Secret,
        entries: Vec<Entry>,
        mut salt: impl FnMut() -> [u8; SALT_BYTES],
    ) -> Encryption {
        let entries: Vec<_> = entries.into_iter().map(|entry| (entry, salt())).collect();
        let part = match entries.first() {
            Some((entry, _)) => Part::Skip(LOCAL_HEADER_BYTES + entry.name.len() as u64),
            None => Part::Directory,
        };
        Encryption { password, entries, at: 0, part, begins: Vec::new(), written: 0 }
    }

    /// Of the whole package.
    pub fn length(&self) -> u64 {
        let of_entry = |(entry, _): &(Entry, _)| {
            let names = 2 * (entry.name.len() as u64 + u64::from(EXTRA_BYTES));
            LOCAL_HEADER_BYTES + 46 + names + entry.compressed + ADDED
        };
        self.entries.iter().map(of_entry).sum::<u64>() + 22
    }

    /// The next bytes of the plain package.
    pub fn write(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + 256);
        while !bytes.is_empty() {
            match &mut self.part {
                Part::Directory => break,
                Part::Skip(left) => {
                    let (_, rest) = bytes.split_at(within(*left, bytes));
                    *left -= (bytes.len() - rest.len()) as u64;
                    bytes = rest;
                    if *left == 0 {
                        self.next_part(&mut out);
                    }
                }
                Part::Data(left, cipher) => {
                    let (data, rest) = bytes.split_at(within(*left, bytes));
                    *left -= data.len() as u64;
                    cipher.put(data, &mut out);
                    bytes = rest;
                    if *left == 0 {
                        self.next_part(&mut out);
                    }
                }
            }
        }
        self.written += out.len() as u64;
        out
    }

    fn next_part(&mut self, out: &mut Vec<u8>) {
        self.part = match std::mem::replace(&mut self.part, Part::Directory) {
            Part::Skip(_) if self.at == self.begins.len() => {
                let (entry, salt) = &self.entries[self.at];
                self.begins.push(self.written + out.len() as u64);
                put_local_header(out, entry);
                let (cipher, verifier) = Cipher::new(&self.password, salt);
                out.extend_from_slice(salt);
                out.extend_from_slice(&verifier);
                Part::Data(entry.compressed, Box::new(cipher))
            }
            Part::Data(_, cipher) => {
                out.extend_from_slice(&cipher.mac());
                self.at += 1;
                // The checksum behind the data, and the header of the next one.
                match self.entries.get(self.at) {
                    Some((next, _)) => {
                        Part::Skip(DESCRIPTOR_BYTES + LOCAL_HEADER_BYTES + next.name.len() as u64)
                    }
                    None => Part::Directory,
                }
            }
            Part::Skip(_) | Part::Directory => Part::Directory,
        };
    }

    /// What stands behind the last entry.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        for ((entry, _), at) in self.entries.iter().zip(&self.begins) {
            put_u32(&mut out, 0x0201_4b50);
            for value in [MADE_BY | VERSION, VERSION, UTF8 | ENCRYPTED, METHOD, 0, DATE] {
                put_u16(&mut out, value);
            }
            put_sizes(&mut out, entry);
            put_directory_end(&mut out, &entry.name, EXTRA_BYTES, *at);
            out.extend_from_slice(entry.name.as_bytes());
            put_extra(&mut out);
        }
        let length = out.len() as u64;
        put_end(&mut out, self.begins.len(), length, self.written);
        self.written += out.len() as u64;
        out
    }
}

fn within(left: u64, bytes: &[u8]) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len())
}

fn put_local_header(out: &mut Vec<u8>, entry: &Entry) {
    put_u32(out, 0x0403_4b50);
    for value in [VERSION, UTF8 | ENCRYPTED, METHOD, 0, DATE] {
        put_u16(out, value);
    }
    put_sizes(out, entry);
    put_u16(out, small(entry.name.len()));
    put_u16(out, EXTRA_BYTES);
    out.extend_from_slice(entry.name.as_bytes());
    put_extra(out);
}

/// The checksum of what nobody may guess is not told.
fn put_sizes(out: &mut Vec<u8>, entry: &Entry) {
    put_u32(out, 0);
    put_u32(out, small(entry.compressed + ADDED));
    put_u32(out, small(entry.size));
}

/// AE-2, AES-256, deflated.
fn put_extra(out: &mut Vec<u8>) {
    for value in [0x9901, EXTRA_BYTES - 4, 2] {
        put_u16(out, value);
    }
    out.extend_from_slice(b"AE");
    out.push(3);
    put_u16(out, 8);
}

/// Counter mode with the counter's low byte first, as the format has it.
struct Cipher {
    aes: Aes256,
    mac: HmacSha1,
    counter: u128,
    stream: [u8; 16],
    used: usize,
}

impl Cipher {
    fn new(password: &Secret, salt: &[u8; SALT_BYTES]) -> (Cipher, [u8; VERIFIER_BYTES]) {
        let derived = derive(password.0.as_bytes(), salt);
        let key: [u8; KEY_BYTES] = derived[..KEY_BYTES].try_into().expect("it is as long");
        let aes = Aes256::new(&key.into());
        let mac = HmacSha1::new_from_slice(&derived[KEY_BYTES..2 * KEY_BYTES]).expect("keys have any length");
        let verifier = [derived[2 * KEY_BYTES], derived[2 * KEY_BYTES + 1]];
        (Cipher { aes, mac, counter: 0, stream: [0; 16], used: 16 }, verifier)
    }

    fn put(&mut self, data: &[u8], out: &mut Vec<u8>) {
        let begin = out.len();
        for byte in data {
            if self.used == self.stream.len() {
                self.counter += 1;
                let mut block = self.counter.to_le_bytes().into();
                self.aes.encrypt_block(&mut block);
                self.stream = block.into();
                self.used = 0;
            }
            out.push(byte ^ self.stream[self.used]);
            self.used += 1;
        }
        self.mac.update(&out[begin..]);
    }

    fn mac(self) -> [u8; MAC_BYTES] {
        let whole = self.mac.finalize().into_bytes();
        std::array::from_fn(|at| whole[at])
    }
}

/// PBKDF2 with HMAC-SHA-1: two keys and two bytes by which a wrong password is noticed at once.
fn derive(password: &[u8], salt: &[u8]) -> [u8; 2 * KEY_BYTES + VERIFIER_BYTES] {
    let keyed = HmacSha1::new_from_slice(password).expect("keys have any length");
    let mut derived = [0; 2 * KEY_BYTES + VERIFIER_BYTES];
    for (number, piece) in (1u32..).zip(derived.chunks_mut(20)) {
        let mut mac = keyed.clone();
        mac.update(salt);
        mac.update(&number.to_be_bytes());
        let mut last = mac.finalize().into_bytes();
        let mut sum = last;
        for _ in 1..ITERATIONS {
            let mut mac = keyed.clone();
            mac.update(&last);
            last = mac.finalize().into_bytes();
            sum.iter_mut().zip(&last).for_each(|(sum, byte)| *sum ^= byte);
        }
        piece.copy_from_slice(&sum[..piece.len()]);
    }
    derived
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read};

    use super::super::archive::tests::example;
    use super::*;

    fn encrypt(piece_bytes: usize) -> (Vec<u8>, Vec<Entry>) {
        let (plain, entries) = example();
        let mut number = 0;
        let salt = || {
            number += 1;
            [number; SALT_BYTES]
        };
        let mut encryption = Encryption::new(Secret("correct horse".into()), entries.clone(), salt);
        let mut out = Vec::new();
        for piece in plain.chunks(piece_bytes) {
            out.extend(encryption.write(piece));
        }
        out.extend(encryption.finish());
        assert_eq!(out.len() as u64, encryption.length());
        (out, entries)
    }

    #[test]
    fn another_reader_opens_it_with_the_password_and_not_with_another() {
        let (bytes, entries) = encrypt(4096);
        let plain = zip::ZipArchive::new(Cursor::new(example().0)).unwrap();
        let mut archives = (plain, zip::ZipArchive::new(Cursor::new(bytes)).unwrap());
        for at in 0..entries.len() {
            let (mut expected, mut found) = (Vec::new(), Vec::new());
            archives.0.by_index(at).unwrap().read_to_end(&mut expected).unwrap();
            archives.1.by_index_decrypt(at, b"correct horse").unwrap().read_to_end(&mut found).unwrap();
            assert_eq!(found, expected);
            assert!(archives.1.by_index_decrypt(at, b"wrong").is_err());
        }
    }

    #[test]
    fn pieces_of_any_length_make_the_same_package() {
        let whole = encrypt(usize::MAX).0;
        for piece_bytes in [1, 7, 100_000] {
            assert_eq!(encrypt(piece_bytes).0, whole, "{piece_bytes}");
        }
    }

    #[test]
    fn nothing_of_the_content_or_its_checksum_is_left_in_the_open() {
        let (bytes, entries) = encrypt(4096);
        for entry in entries.iter().filter(|entry| entry.size > 0) {
            assert!(!bytes.windows(4).any(|window| window == entry.crc.to_le_bytes()), "{}", entry.name);
        }
    }
}
