//! An operator's signature over a manifest: Ed25519, made where the operator keeps the key and by a tool of
//! their choice. `openssl pkeyutl -sign -rawin` makes one that is read here.

use std::fs;
use std::path::Path;

use ring::signature::{ED25519, UnparsedPublicKey};

use sealog_cli::exit::Failure;

/// What a public key of this kind begins with in DER (RFC 8410), and how long it is then.
const DER_BEGIN: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const KEY_LEN: usize = 32;

/// Whether the file with this signature signs these bytes by the key in the other file.
pub(super) fn is_signed(bytes: &[u8], signature: &Path, public_key: &Path) -> Result<bool, Failure> {
    let read = |flag: &str, path: &Path| {
        fs::read(path).map_err(|error| Failure::usage(format!("{flag}: {}: {error}", path.display())))
    };
    let key = read("--public-key", public_key)?;
    let key = std::str::from_utf8(&key).ok().and_then(parse_key).ok_or_else(|| {
        let path = public_key.display();
        Failure::usage(format!(
            "--public-key: {path} must be an Ed25519 public key in PEM, as `openssl pkey -pubout` writes it"
        ))
    })?;
    let signature = read("--signature", signature)?;
    Ok(UnparsedPublicKey::new(&ED25519, key).verify(bytes, &signature).is_ok())
}

fn parse_key(pem: &str) -> Option<[u8; KEY_LEN]> {
    let (_, rest) = pem.split_once("-----BEGIN PUBLIC KEY-----")?;
    let (body, _) = rest.split_once("-----END PUBLIC KEY-----")?;
    let der = base64(body.bytes().filter(|byte| !byte.is_ascii_whitespace()))?;
    der.strip_prefix(&DER_BEGIN)?.try_into().ok()
}

/// The few bytes of a key; nothing for any other character.
fn base64(text: impl Iterator<Item = u8>) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for character in text {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' => continue,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(value)) & 0xffff;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).ok()?);
        }
    }
    Some(bytes)
}
