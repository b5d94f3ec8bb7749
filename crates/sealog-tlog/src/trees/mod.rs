//! The Merkle tree of each chain: built from the feed, kept as tiles, rebuilt from the store.
