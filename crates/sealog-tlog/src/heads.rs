//! The heads of all trees, for the signer: [`BuiltHeads`] joins the builder and the store log.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use sealog_core::id::ChainId;
use sealog_store::StoreError;
use sealog_store::sync::lock;
use tokio::runtime::Handle;

use crate::log::{HeadSource, Published, StoreLog, TreeHead};
use crate::trees::{self, Cursor, Pass, Trees};

/// Heads of one read of the trees.
const PAGE: usize = 1000;

/// The trees of a store as the source of what its log publishes.
pub struct BuiltHeads {
    trees: Arc<Trees>,
    log: Arc<StoreLog>,
    /// Where passes are waited for. The signer calls from a thread that may block.
    runtime: Handle,
    cursors: Mutex<Cursors>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cursors {
    /// Behind everything that a snapshot of this process has taken.
    published: Option<Cursor>,
    /// Behind what was handed over last.
    handed: Option<Cursor>,
}

impl BuiltHeads {
    /// `runtime` must run for as long as heads are asked for.
    pub fn new(trees: Arc<Trees>, log: Arc<StoreLog>, runtime: Handle) -> BuiltHeads {
        BuiltHeads { trees, log, runtime, cursors: Mutex::default() }
    }

    /// A tree that this process saw grow extends what it published. Of one that it did not see grow, or that
    /// was cut since, the root at the published size is compared.
    fn compare(&self, head: &trees::TreeHead, published: &Published) -> Result<TreeHead, StoreError> {
        let given = given(head);
        if published.size >= head.size {
            // The snapshot compares these itself.
            return Ok(given);
        }
        let root = self.runtime.block_on(self.trees.root_at(head.chain, published.size))?;
        if root == published.root {
            return Ok(given);
        }
        // At the published size, where the snapshot finds that it is another root.
        Ok(TreeHead { size: published.size, root, event_hash: published.event_hash, ..given })
    }
}

impl HeadSource for BuiltHeads {
    fn heads(&self) -> Result<Option<Vec<TreeHead>>, StoreError> {
        // What another node builds may lack some of what was durable when this was called.
        let Pass::Done { .. } = self.runtime.block_on(self.trees.pass())? else { return Ok(None) };
        let begin = lock(&self.cursors).published;
        let (mut behind, mut heads) = (begin, Vec::new());
        let mut published: Option<HashMap<ChainId, Published>> = None;
        loop {
            let page = self.runtime.block_on(self.trees.changed_heads(behind, PAGE))?;
            let seen = begin.filter(|begin| begin.life == page.next.life);
            for head in &page.heads {
                let only_grew =
                    seen.is_some_and(|seen| head.cut.is_none_or(|cut| cut.revision <= seen.revision));
                if only_grew {
                    heads.push(given(head));
                    continue;
                }
                if published.is_none() {
                    let all = self.log.published()?;
                    published = Some(all.into_iter().map(|published| (published.chain, published)).collect());
                }
                let published = published.as_ref().and_then(|published| published.get(&head.chain));
                heads.push(match published {
                    Some(published) => self.compare(head, published)?,
                    None => given(head),
                });
            }
            behind = Some(page.next);
            if !page.more {
                break;
            }
        }
        lock(&self.cursors).handed = behind;
        Ok(Some(heads))
    }

    fn published(&self) {
        let mut cursors = lock(&self.cursors);
        cursors.published = cursors.handed;
    }
}

impl fmt::Debug for BuiltHeads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltHeads").field("cursors", &self.cursors).finish_non_exhaustive()
    }
}

fn given(head: &trees::TreeHead) -> TreeHead {
    TreeHead { chain: head.chain, size: head.size, root: head.root, event_hash: head.hash }
}
