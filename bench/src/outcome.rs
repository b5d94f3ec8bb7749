//! What a benchmark can fail with: it stops and says why, since a number after a fault means nothing.

use std::error::Error;

pub type Outcome<T> = Result<T, Box<dyn Error>>;
