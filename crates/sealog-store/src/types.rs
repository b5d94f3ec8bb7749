//! Names for types that are written everywhere.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;

/// A table by id. For ids that are made here, or are digests: nobody outside can choose them so that they
/// collide.
pub type IdMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
pub type IdSet<K> = HashSet<K, foldhash::fast::RandomState>;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
