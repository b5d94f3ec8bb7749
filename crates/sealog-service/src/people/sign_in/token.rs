//! Secrets of 256 bits that a browser or a link carries.

use sealog_core::id::Hash;
use sealog_store::world::World;
use sha2::{Digest, Sha256};

use crate::Secret;

/// 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token(pub Secret);

impl Token {
    const BYTES: usize = 32;

    pub fn new(world: &dyn World) -> Token {
        let mut bytes = [0; Token::BYTES];
        world.fill_random(&mut bytes);
        Token(Secret(Hash(bytes).to_string()))
    }

    /// Nothing if the text is no token: whoever makes one up is not worth a look into the store.
    pub fn parse(text: &str) -> Option<Token> {
        let text = text.trim();
        Hash::parse(text).map(|_| Token(Secret(text.to_owned())))
    }

    /// What is kept of it.
    pub fn digest(&self) -> Hash {
        digest(self.0.0.as_bytes())
    }
}

pub(super) fn digest(bytes: &[u8]) -> Hash {
    Hash(Sha256::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use sealog_store::world::SystemWorld;

    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written_and_nothing_else_is_one() {
        let token = Token::new(&SystemWorld);
        assert_eq!(token.0.0.len(), 64);
        assert_ne!(token, Token::new(&SystemWorld));
        assert_eq!(Token::parse(&token.0.0).as_ref(), Some(&token));
        assert_eq!(
            Token::parse(&format!(" {}\n", token.0.0)).map(|read| read.digest()),
            Some(token.digest())
        );
        for text in ["", "x", &token.0.0[1..], &format!("{}0", token.0.0), &"g".repeat(64), &"é".repeat(32)]
        {
            assert_eq!(Token::parse(text), None, "{text}");
        }
    }
}
