//! Reads of trees: heads, roots, proofs, tiles and leaves. Each is one statement, so what a node reads is of
//! one moment, and has at most [`NODES_MAX`] places to look at.

use std::fmt;

use sealog_control::db::{Value, all, params};
use sealog_core::id::{ChainId, Hash};
use sealog_store::StoreError;
use sealog_store::pool::Payer;
use sealog_trust::merkle::{Node, Plan, ProofError, root_of};
use sealog_trust::tile::{Content, Tile};

use super::tables::{self, Kept, places};
use super::{ChangedHeads, Cursor, Inner, TreeError, TreeHead, Trees};

/// Nodes of one read. A range proof, the largest, has fewer.
pub const NODES_MAX: usize = 512;
/// Heads of one page.
pub const HEADS_MAX: usize = 1000;
/// Leaves of one read.
pub const LEAVES_MAX: u64 = 256;

const HASH_BYTES: usize = 32;

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeError::NotYet { size } => write!(f, "the tree has {size} leaves so far"),
            TreeError::Invalid(error) => error.fmt(f),
            TreeError::Damaged { level, index } => write!(
                f,
                "the tile {level}/{index} of the tree is missing or too short; delete the trees, and they are built again"
            ),
            TreeError::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TreeError {}

impl From<ProofError> for TreeError {
    fn from(error: ProofError) -> TreeError {
        TreeError::Invalid(error)
    }
}

impl Trees {
    /// The tree of a chain as it is now; nothing for a chain without one.
    pub async fn head(&self, chain: ChainId) -> Result<Option<TreeHead>, TreeError> {
        self.on_reader(chain.into(), move |inner| {
            let found = inner.database.read(|db| tables::find(db, &[chain]))?;
            Ok(found.into_values().next().map(Kept::head))
        })
        .await
    }

    /// Trees that have changed behind a cursor, at most so many, in the order in which they changed. Without
    /// a cursor, all. A tree that changes while pages are read comes again.
    pub async fn changed_heads(
        &self,
        behind: Option<Cursor>,
        limit: usize,
    ) -> Result<ChangedHeads, TreeError> {
        let limit = limit.clamp(1, HEADS_MAX);
        self.on_reader(Payer::Operator, move |inner| {
            let read = inner.database.read(|db| {
                let Some(builder) = tables::builder(db)? else { return Ok(None) };
                let begin = Cursor { life: builder.life, revision: 0, number: 0 };
                let from = behind.filter(|behind| behind.life == builder.life).unwrap_or(begin);
                Ok(Some((from, tables::changed(db, from.revision, from.number, limit)?)))
            })?;
            let unbuilt = || StoreError::Unavailable("the trees have never been built".into());
            let (from, kept) = read.ok_or_else(unbuilt)?;
            let next = kept.last().map_or(from, |last| Cursor {
                life: from.life,
                revision: last.revision,
                number: last.number,
            });
            let more = kept.len() == limit;
            Ok(ChangedHeads { heads: kept.into_iter().map(Kept::head).collect(), next, more })
        })
        .await
    }

    /// Trees that do not grow any more, at most so many, for the operator.
    pub async fn stopped(&self, limit: usize) -> Result<Vec<TreeHead>, TreeError> {
        let limit = limit.clamp(1, HEADS_MAX);
        self.on_reader(Payer::Operator, move |inner| {
            let kept = inner.database.read(|db| tables::stopped(db, limit))?;
            Ok(kept.into_iter().map(Kept::head).collect())
        })
        .await
    }

    /// The root over the first leaves of a tree.
    pub async fn root_at(&self, chain: ChainId, size: u64) -> Result<Hash, TreeError> {
        if size == 0 {
            return Ok(root_of(&[]));
        }
        let proof = self.proof(chain, size, Plan::root(size)?).await?;
        proof.first().copied().ok_or(TreeError::Damaged { level: 0, index: 0 })
    }

    /// The path from the leaf of an event to the root over the first `size` leaves.
    pub async fn inclusion(&self, chain: ChainId, chain_seq: u64, size: u64) -> Result<Vec<Hash>, TreeError> {
        let outside = ProofError::Outside { end: chain_seq, size };
        let index = chain_seq.checked_sub(1).ok_or(outside)?;
        self.proof(chain, size, Plan::inclusion(index, size)?).await
    }

    /// The leaf of an event and its path, in one read.
    pub async fn leaf_and_path(
        &self,
        chain: ChainId,
        chain_seq: u64,
        size: u64,
    ) -> Result<(Hash, Vec<Hash>), TreeError> {
        let outside = ProofError::Outside { end: chain_seq, size };
        let index = chain_seq.checked_sub(1).ok_or(outside)?;
        let plan = Plan::inclusion(index, size)?;
        self.on_reader(chain.into(), move |inner| {
            let nodes = [&[Node { level: 0, index }], plan.nodes()].concat();
            let hashes = inner.nodes(chain, size, &nodes)?;
            let (leaf, hashes) = hashes.split_first().ok_or(TreeError::Damaged { level: 0, index })?;
            Ok((*leaf, plan.proof(hashes).ok_or(TreeError::Damaged { level: 0, index })?))
        })
        .await
    }

    /// The proof that the tree of `old` leaves is the beginning of that of `size`.
    pub async fn consistency(&self, chain: ChainId, old: u64, size: u64) -> Result<Vec<Hash>, TreeError> {
        self.proof(chain, size, Plan::consistency(old, size)?).await
    }

    /// The proof that these events are all that the tree of `size` leaves has there.
    pub async fn range_proof(
        &self,
        chain: ChainId,
        from_seq: u64,
        to_seq: u64,
        size: u64,
    ) -> Result<Vec<Hash>, TreeError> {
        let start = from_seq.checked_sub(1).ok_or(ProofError::EmptyRange)?;
        self.proof(chain, size, Plan::range(start, to_seq, size)?).await
    }

    async fn proof(&self, chain: ChainId, size: u64, plan: Plan) -> Result<Vec<Hash>, TreeError> {
        self.on_reader(chain.into(), move |inner| {
            let hashes = inner.nodes(chain, size, plan.nodes())?;
            plan.proof(&hashes).ok_or(TreeError::Damaged { level: 0, index: 0 })
        })
        .await
    }

    /// The leaf hashes of events in a row, at most [`LEAVES_MAX`].
    pub async fn leaves(&self, chain: ChainId, from_seq: u64, to_seq: u64) -> Result<Vec<Hash>, TreeError> {
        if from_seq == 0 || to_seq < from_seq || to_seq - from_seq >= LEAVES_MAX {
            return Err(TreeError::Invalid(ProofError::EmptyRange));
        }
        let nodes: Vec<Node> = (from_seq - 1..to_seq).map(|index| Node { level: 0, index }).collect();
        self.on_reader(chain.into(), move |inner| inner.nodes(chain, to_seq, &nodes)).await
    }

    /// The hashes of a tile of a tree. Nothing for an entry bundle, and for what the tree does not have.
    pub async fn tile(&self, chain: ChainId, tile: Tile) -> Result<Option<Vec<u8>>, TreeError> {
        let Content::Hashes(level) = tile.content else { return Ok(None) };
        self.on_reader(chain.into(), move |inner| {
            let bytes = usize::from(tile.width) * HASH_BYTES;
            let sql = "SELECT c.size, substr(t.hashes, 1, CAST(?1 AS INTEGER)) AS hashes FROM {chains} c
                       JOIN {tiles} t ON t.chain = c.number AND t.level = ?2 AND t.idx = ?3
                       WHERE c.tenant_id = ?4 AND c.project_id = ?5";
            let params = params![bytes, level, tile.index, chain.tenant_id, chain.project_id];
            let found: Vec<(u64, Vec<u8>)> = inner
                .database
                .read(|db| all(db, sql, params, |row| Ok((row.get("size")?, row.get("hashes")?))))?;
            let Some((size, hashes)) = found.into_iter().next() else { return Ok(None) };
            if !tile.is_in_tree(size) {
                return Ok(None);
            }
            if hashes.len() != bytes {
                return Err(TreeError::Damaged { level, index: tile.index });
            }
            Ok(Some(hashes))
        })
        .await
    }
}

impl Inner {
    /// Nodes of the tree of the first `size` leaves, in their order. Blocks.
    pub(super) fn nodes(&self, chain: ChainId, size: u64, nodes: &[Node]) -> Result<Vec<Hash>, TreeError> {
        if nodes.len() > NODES_MAX {
            return Err(TreeError::Invalid(ProofError::TooLong { found: nodes.len() }));
        }
        let outside = |node: &Node| ProofError::Outside { end: node.index.saturating_add(1), size };
        let places: Result<Vec<_>, ProofError> =
            nodes.iter().map(|node| Tile::of_node(*node, size).ok_or(outside(node))).collect();
        let found = self.read_places(chain, &places?)?;
        let (have, hashes) = found.ok_or(TreeError::NotYet { size: 0 })?;
        // Behind the read: a tree that was cut meanwhile has the size of that moment.
        if size > have { Err(TreeError::NotYet { size: have }) } else { hashes }
    }

    /// The size of the tree and what it has at these places; nothing for a chain without a tree.
    #[expect(
        clippy::type_complexity,
        reason = "a read that is too early says so before it says what is wrong"
    )]
    fn read_places(
        &self,
        chain: ChainId,
        wanted: &[(Tile, usize, usize)],
    ) -> Result<Option<(u64, Result<Vec<Hash>, TreeError>)>, StoreError> {
        if wanted.is_empty() {
            let found = self.database.read(|db| tables::find(db, &[chain]))?;
            return Ok(found.into_values().next().map(|kept| (kept.range.size(), Ok(Vec::new()))));
        }
        let mut params: Vec<Value> = vec![chain.tenant_id.into(), chain.project_id.into()];
        for (at, (tile, first, count)) in wanted.iter().enumerate() {
            let Content::Hashes(level) = tile.content else { continue };
            params.extend([
                at.into(),
                level.into(),
                tile.index.into(),
                (first * HASH_BYTES + 1).into(),
                (count * HASH_BYTES).into(),
            ]);
        }
        let sql = format!(
            "WITH wanted (place, level, idx, first, bytes) AS (VALUES {})
             SELECT c.size, wanted.place,
                    substr(t.hashes, CAST(wanted.first AS INTEGER), CAST(wanted.bytes AS INTEGER)) AS hashes
             FROM {{chains}} c CROSS JOIN wanted
             LEFT JOIN {{tiles}} t ON t.chain = c.number AND t.level = wanted.level AND t.idx = wanted.idx
             WHERE c.tenant_id = ?1 AND c.project_id = ?2 ORDER BY wanted.place",
            places(wanted.len(), 5, 2)
        );
        let rows: Vec<(u64, Option<Vec<u8>>)> = self
            .database
            .read(|db| all(db, &sql, &params, |row| Ok((row.get("size")?, row.get("hashes")?))))?;
        let Some((size, _)) = rows.first() else { return Ok(None) };
        let hashes = wanted.iter().zip(&rows).map(|((tile, _, count), (_, hashes))| {
            let hashes = hashes.as_ref().filter(|hashes| hashes.len() == count * HASH_BYTES);
            let level = if let Content::Hashes(level) = tile.content { level } else { 0 };
            let hashes = hashes.ok_or(TreeError::Damaged { level, index: tile.index })?;
            let hashes: Vec<Hash> = hashes
                .chunks_exact(HASH_BYTES)
                .map(|hash| Hash(hash.try_into().expect("32 bytes")))
                .collect();
            Ok(root_of(&hashes))
        });
        Ok(Some((*size, hashes.collect())))
    }
}
