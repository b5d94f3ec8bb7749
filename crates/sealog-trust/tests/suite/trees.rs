//! Rules of Merkle trees, against the definition of RFC 6962 written down as it is there.

use sealog_core::id::Hash;
use sealog_trust::merkle::{
    self, CompactRange, EMPTY_ROOT, Node, PROOF_HASHES_MAX, Plan, ProofError, SIZE_MAX, node_hash,
};
use sha2::{Digest, Sha256};

pub(crate) fn leaves(count: u64) -> Vec<Hash> {
    (0..count).map(|number| merkle::leaf_hash(number.to_string().as_bytes())).collect()
}

/// `MTH` of RFC 6962, 2.1.
pub(crate) fn mth(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Hash(Sha256::digest([]).into()),
        [leaf] => *leaf,
        _ => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            node_hash(&mth(left), &mth(right))
        }
    }
}

/// `PATH` of RFC 6962, 2.1.1.
fn path(index: usize, leaves: &[Hash]) -> Vec<Hash> {
    if leaves.len() == 1 {
        return Vec::new();
    }
    let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
    let (mut below, beside) =
        if index < left.len() { (path(index, left), right) } else { (path(index - left.len(), right), left) };
    below.push(mth(beside));
    below
}

/// `SUBPROOF` of RFC 6962, 2.1.2.
fn subproof(old: usize, leaves: &[Hash], is_known: bool) -> Vec<Hash> {
    if old == leaves.len() {
        return if is_known { Vec::new() } else { vec![mth(leaves)] };
    }
    let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
    let (mut below, beside) = if old <= left.len() {
        (subproof(old, left, is_known), right)
    } else {
        (subproof(old - left.len(), right, false), left)
    };
    below.push(mth(beside));
    below
}

/// The proof of a plan over leaves in memory.
pub(crate) fn made(plan: &Plan, leaves: &[Hash]) -> Vec<Hash> {
    let read = |node: &Node| {
        let width = 1usize << node.level;
        let start = usize::try_from(node.index).unwrap() * width;
        mth(&leaves[start..start + width])
    };
    plan.proof(&plan.nodes().iter().map(read).collect::<Vec<_>>()).unwrap()
}

#[test]
fn roots_and_proofs_of_every_size_are_those_of_the_rfc() {
    let all = leaves(70);
    let mut range = CompactRange::default();
    for size in 0..=all.len() {
        let (tree, n) = (&all[..size], size as u64);
        let root = mth(tree);
        assert_eq!((range.root(), merkle::root_of(tree)), (root, root), "{size}");
        let plan = Plan::root(n).unwrap();
        assert_eq!(made(&plan, tree), [root], "{size}");
        let peaks: Vec<Hash> = plan.nodes().iter().map(|node| made_node(*node, tree)).collect();
        assert_eq!(CompactRange::from_peaks(n, peaks), Some(range.clone()));
        for index in 0..size {
            let proof = made(&Plan::inclusion(index as u64, n).unwrap(), tree);
            assert_eq!(proof, path(index, tree), "{index} of {size}");
            assert_eq!(merkle::verify_inclusion(tree[index], index as u64, n, &root, &proof), Ok(()));
        }
        for old in 0..=size {
            let proof = made(&Plan::consistency(old as u64, n).unwrap(), tree);
            let expected = if old == 0 { Vec::new() } else { subproof(old, tree, true) };
            assert_eq!(proof, expected, "{old} of {size}");
            let old_root = mth(&tree[..old]);
            assert_eq!(merkle::verify_consistency(old as u64, &old_root, n, &root, &proof), Ok(()));
        }
        if size < all.len() {
            assert!(range.append(all[size], |_, _| {}));
        }
    }
}

fn made_node(node: Node, tree: &[Hash]) -> Hash {
    let width = 1usize << node.level;
    let start = usize::try_from(node.index).unwrap() * width;
    mth(&tree[start..start + width])
}

#[test]
fn an_append_reports_each_subtree_that_it_completes_once() {
    let all = leaves(64);
    let mut range = CompactRange::default();
    let mut reported = Vec::new();
    for leaf in &all {
        assert!(range.append(*leaf, |node, hash| reported.push((node, hash))));
    }
    for (node, hash) in &reported {
        assert_eq!(*hash, made_node(*node, &all), "{node:?}");
    }
    let mut nodes: Vec<Node> = reported.iter().map(|(node, _)| *node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!((nodes.len(), reported.len()), (127, 127), "a tree of 64 leaves has 127 nodes");
}

#[test]
fn every_range_of_every_small_tree_is_proven_and_no_other_leaves_fit_it() {
    let all = leaves(33);
    for size in 1..=all.len() {
        let (tree, n) = (&all[..size], size as u64);
        let root = mth(tree);
        for start in 0..size {
            for end in start + 1..=size {
                let proof = made(&Plan::range(start as u64, end as u64, n).unwrap(), tree);
                let check = |leaves: &[Hash]| merkle::verify_range(start as u64, leaves, n, &root, &proof);
                assert_eq!(check(&tree[start..end]), Ok(()), "{start}..{end} of {size}");
                let mut swapped = tree[start..end].to_vec();
                swapped.reverse();
                assert_eq!(check(&swapped).is_ok(), end - start == 1, "{start}..{end} of {size}");
                if end - start == 1 {
                    // A range of one leaf has the hashes of its inclusion proof.
                    let mut path = made(&Plan::inclusion(start as u64, n).unwrap(), tree);
                    let mut sorted = proof.clone();
                    path.sort_unstable_by_key(|hash| hash.0);
                    sorted.sort_unstable_by_key(|hash| hash.0);
                    assert_eq!(path, sorted);
                }
            }
        }
    }
}

#[test]
fn a_proof_for_another_size_or_place_is_refused() {
    let all = leaves(65);
    let first = |count: u64| &all[..usize::try_from(count).unwrap()];
    for size in [1, 2, 3, 7, 8, 9, 31, 32, 40u64] {
        let tree = first(size);
        let root = mth(tree);
        for index in 0..size {
            let proof = made(&Plan::inclusion(index, size).unwrap(), tree);
            let leaf = tree[usize::try_from(index).unwrap()];
            for other in 0..=41 {
                if other != index {
                    let wrong = merkle::verify_inclusion(leaf, other, size, &root, &proof);
                    assert!(wrong.is_err(), "{index} as {other} of {size}");
                }
            }
        }
        // A checkpoint signs size and root together, so a proof for another size meets that size's root.
        for other in size + 1..=64 {
            let proof = made(&Plan::consistency(size, other).unwrap(), &all);
            for claimed in (size + 1..=65).filter(|claimed| *claimed != other) {
                let claimed_root = mth(first(claimed));
                let wrong = merkle::verify_consistency(size, &root, claimed, &claimed_root, &proof);
                assert!(wrong.is_err(), "{size} to {other} as {claimed}");
            }
        }
    }
}

#[test]
fn a_63rd_hash_is_counted_and_a_64th_refused_before_anything_is_hashed() {
    let (leaf, beside) = (Hash([1; 32]), [Hash([2; 32]); 64]);
    let long = |count| merkle::root_from_path(leaf, 0, SIZE_MAX, &beside[..count]);
    assert!(long(PROOF_HASHES_MAX).is_ok(), "2^63 - 1 leaves are 63 levels");
    assert_eq!(long(62), Err(ProofError::Length { expected: 63, found: 62 }));
    assert_eq!(long(64), Err(ProofError::TooLong { found: 64 }));
    let consistency = |path| merkle::verify_consistency(1, &leaf, SIZE_MAX, &leaf, path);
    assert_eq!(consistency(&beside), Err(ProofError::TooLong { found: 64 }));
    assert_eq!(consistency(&beside[..63]), Err(ProofError::Root), "it was computed");
}

#[test]
fn sizes_near_2_to_the_63rd_are_computed_and_those_above_refused() {
    let hash = Hash([1; 32]);
    for size in [SIZE_MAX - 1, SIZE_MAX, (1 << 62) - 1, 1 << 62, (1 << 62) + 1] {
        for index in [0, 1, size / 2, size - 1] {
            let plan = Plan::inclusion(index, size).unwrap();
            let proof = plan.proof(&vec![hash; plan.nodes().len()]).unwrap();
            assert!(merkle::root_from_path(hash, index, size, &proof).is_ok(), "{index} of {size}");
        }
        assert_eq!(
            merkle::root_from_path(hash, size, size, &[]),
            Err(ProofError::Outside { end: size + 1, size })
        );
        let plan = Plan::range(size - 3, size - 1, size).unwrap();
        let proof = plan.proof(&vec![hash; plan.nodes().len()]).unwrap();
        assert_eq!(merkle::verify_range(size - 3, &[hash; 2], size, &hash, &proof), Err(ProofError::Root));
    }
    for size in [SIZE_MAX + 1, u64::MAX] {
        let wrong = Err(ProofError::Size { size });
        assert_eq!(merkle::root_from_path(hash, 0, size, &[]), wrong.map(|()| hash));
        assert_eq!(merkle::verify_consistency(1, &hash, size, &hash, &[]), wrong);
        assert_eq!(merkle::verify_range(0, &[hash], size, &hash, &[]), wrong);
        assert_eq!(Plan::inclusion(0, size), wrong.map(|()| Plan::root(0).unwrap()));
        assert_eq!(Plan::root(size), wrong.map(|()| Plan::root(0).unwrap()));
    }
    let outside = merkle::verify_range(u64::MAX, &[hash; 2], 5, &hash, &[]);
    assert!(outside.is_err(), "the end of the range does not wrap round");
    let full = CompactRange::from_peaks(SIZE_MAX, vec![hash; 63]).unwrap();
    assert!(!full.clone().append(hash, |_, _| panic!("nothing is added")));
    assert_eq!(CompactRange::from_peaks(SIZE_MAX + 1, vec![hash]), None);
    assert_eq!(CompactRange::from_peaks(5, vec![hash]), None);
}

#[test]
fn a_tree_that_grew_from_nothing_began_with_the_empty_root() {
    let root = mth(&leaves(3));
    assert_eq!(merkle::verify_consistency(0, &EMPTY_ROOT, 3, &root, &[]), Ok(()));
    assert_eq!(merkle::verify_consistency(0, &root, 3, &root, &[]), Err(ProofError::OldRoot));
    assert_eq!(merkle::verify_consistency(0, &EMPTY_ROOT, 0, &EMPTY_ROOT, &[]), Ok(()));
    assert_eq!(merkle::verify_consistency(0, &EMPTY_ROOT, 0, &root, &[]), Err(ProofError::Root));
    let length = Err(ProofError::Length { expected: 0, found: 1 });
    assert_eq!(merkle::verify_consistency(0, &EMPTY_ROOT, 3, &root, &[root]), length);
    assert_eq!(merkle::verify_consistency(3, &root, 3, &root, &[root]), length);
    assert_eq!(merkle::verify_consistency(3, &root, 3, &EMPTY_ROOT, &[]), Err(ProofError::Root));
    let outside = ProofError::Outside { end: 4, size: 3 };
    assert_eq!(merkle::verify_consistency(4, &root, 3, &root, &[]), Err(outside));
}
