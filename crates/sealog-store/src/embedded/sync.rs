//! The locks of the whole crate, under the name that the files here know them by.

pub(super) use crate::sync::*;
