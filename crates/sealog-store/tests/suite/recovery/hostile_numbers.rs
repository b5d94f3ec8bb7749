//! Numbers that cannot be: ids, sequence numbers, times and sizes at the end of what they can hold.

use std::sync::Arc;

use sealog_core::chain::Sealed;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Hash, Random80, Ulid};
use sealog_core::time::TIMESTAMP_MS_MAX;
use sealog_store::embedded::{Finding, Options};
use sealog_store::{Store, StoreError};
use sealog_testing::*;

use super::stage::*;

/// Changes bytes of a frame, and makes the checksums of its header and of its only record right.
fn tamper(stage: &Stage, segment: u64, frame: FrameAt, change: impl FnOnce(&mut [u8])) {
    let mut bytes = stage.read(&log(segment));
    let salt = bytes[24..40].to_vec();
    change(&mut bytes[frame.at..frame.at + frame.length]);
    let header = &mut bytes[frame.at..frame.at + FRAME_HEADER];
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&salt), &header[..FRAME_HEADER - 4]);
    header[FRAME_HEADER - 4..].copy_from_slice(&checksum.to_le_bytes());
    let record = frame.at + FRAME_HEADER;
    let end = record + u32_at(&bytes, record) as usize - 4;
    let mut seed = salt;
    seed.extend_from_slice(&frame.chain);
    seed.extend_from_slice(&bytes[frame.at + 64..frame.at + 72]);
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&seed), &bytes[record..end]);
    bytes[end..end + 4].copy_from_slice(&checksum.to_le_bytes());
    stage.disk.put(&log(segment), &bytes);
}

fn killed_with_three() -> Stage {
    let stage = Stage::new();
    let store = stage.open();
    for n in 0..3 {
        append(&store, live(), vec![login(&format!("u{n}"))]);
    }
    let killed = stage.killed();
    drop(store);
    killed
}

#[test]
fn an_id_that_no_event_can_have_is_a_finding() {
    const LOG_ID: usize = FRAME_HEADER + 8;
    for id in [u128::MAX, u128::MAX - 1, u128::from(TIMESTAMP_MS_MAX + 1) << 80] {
        let stage = killed_with_three();
        tamper(&stage, 1, stage.frames(1)[2], |frame| {
            frame[LOG_ID..LOG_ID + 16].copy_from_slice(&Ulid(id).to_bytes());
        });
        for _ in 0..2 {
            let store = stage.open();
            let found = findings(&store);
            assert_eq!(found, [Finding::ImpossibleId { chain: live(), chain_seq: 3 }], "{id:x}");
            assert_refused(&store, live());
            assert_eq!(broken(verify(&store, live())).0, 3);
            let refused = wait(store.accept_loss(live(), "x".into()));
            assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
            append(&store, other(2), vec![login("goes on")]);
        }
    }
    // Behind such an id stands a damaged record, which has the lowest id that it can have had.
    let stage = Stage::new();
    let store = stage.open();
    append(&store, live(), vec![login("a")]);
    append(&store, live(), vec![login("b")]);
    append(&store, other(2), vec![login("c")]);
    let stage = {
        let killed = stage.killed();
        drop(store);
        killed
    };
    let frames = stage.frames(1);
    tamper(&stage, 1, frames[0], |frame| frame[LOG_ID..LOG_ID + 16].fill(0xFF));
    stage.flip(&log(1), frames[1].at + IN_TEXT);
    let store = stage.open();
    assert_refused(&store, live());
    assert!(!verify(&store, live()).valid());
}

#[test]
fn numbers_near_the_end_of_64_bits_are_findings() {
    // First seq and commit of a frame.
    for (at, what) in [(64, "seq"), (16, "commit")] {
        for value in [u64::MAX, u64::MAX - 1, (u64::MAX >> 1) + 1] {
            let stage = killed_with_three();
            tamper(&stage, 1, stage.frames(1)[1], |frame| {
                frame[at..at + 8].copy_from_slice(&value.to_le_bytes());
            });
            let store = stage.open();
            let damaged = |finding: &Finding| matches!(finding, Finding::Damaged { segment: 1, .. });
            assert!(findings(&store).iter().any(damaged), "{what} {value}: {:?}", findings(&store));
            assert!(!verify(&store, live()).valid());
            append(&store, live(), vec![login("goes on")]);
        }
    }
}

#[test]
fn a_mark_with_numbers_that_cannot_be_is_a_finding() {
    // Commit and segment of its last record, then seq and id of a head in it.
    for (at, length) in [(8, 8), (16, 8), (64 + 32, 8), (64 + 40, 16)] {
        let stage = Stage::new();
        let store = stage.open();
        append(&store, live(), vec![login("a")]);
        drop(store);
        let mut bytes = stage.read(&live_file("mark"));
        // The last record, or the last one with a head.
        let (mut next, mut record) = (16, 0);
        while next < bytes.len() {
            if at < 64 || u32_at(&bytes, next + 44) > 0 {
                record = next;
            }
            next += u32_at(&bytes, next) as usize;
        }
        bytes[record + at..record + at + length].fill(0xFF);
        let end = record + u32_at(&bytes, record) as usize;
        let checksum = crc32c::crc32c(&bytes[record + 8..end]);
        bytes[record + 4..record + 8].copy_from_slice(&checksum.to_le_bytes());
        stage.disk.put(&live_file("mark"), &bytes);
        for _ in 0..2 {
            let store = stage.open();
            let found = findings(&store);
            match at {
                8 | 16 => assert!(found.contains(&Finding::MarkDamaged), "{at}: {found:?}"),
                96 => {
                    let lost = Finding::HeadLost { chain: live(), durable: 1, recorded: u64::MAX };
                    assert!(found.contains(&lost), "{found:?}");
                    assert_refused(&store, live());
                    assert_eq!(broken(verify(&store, live())).0, 2);
                }
                _ => {}
            }
            append(&store, other(2), vec![login("goes on")]);
            if at < 64 {
                break;
            }
        }
        if at == 96 {
            let store = stage.open();
            let receipt = wait(store.accept_loss(live(), "tampered".into())).unwrap();
            assert_eq!(receipt.first_seq, 2);
            assert_valid(&store, live(), 2);
        }
    }
}

/// The first event of a chain, at a time of its own.
fn first_event(chain: ChainId, log_id: Ulid) -> StoredEvent {
    let draft = login("imported");
    let hash = sealog_core::canonical::hash(
        Hash::ZERO,
        log_id,
        chain.tenant_id,
        draft.text.as_str(),
        log_id.timestamp_ms(),
    );
    StoredEvent::new(chain, Sealed { chain_seq: 1, log_id, prev_hash: Hash::ZERO, hash }, draft)
}

#[test]
fn an_import_past_the_end_of_time_is_refused() {
    let stage = Stage::new();
    let store = stage.open();
    let random = Random80([1; 10]);
    for log_id in [Ulid(u128::MAX), Ulid::new(TIMESTAMP_MS_MAX + 1, random)] {
        let refused = wait(store.import(live(), vec![first_event(live(), log_id)], None));
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    }
    append(&store, live(), vec![login("a")]);
    assert_valid(&store, live(), 1);
    let last = first_event(other(2), Ulid::new(TIMESTAMP_MS_MAX, random));
    wait(store.import(other(2), vec![last], None)).unwrap();
    append(&store, other(2), vec![login("after it")]);
    assert_valid(&store, other(2), 2);
}

#[test]
fn a_request_larger_than_a_frame_can_be_is_refused() {
    const FRAME_MAX: usize = 16 << 20;
    /// What a request takes besides the text of its only event.
    const OVERHEAD: usize = 88 + 84 + 92;
    let stage = Stage::new();
    let options = Options { segment_bytes_first: 17 << 20, segment_bytes_max: 17 << 20, ..stage.options() };
    let store = stage.try_open(&options).unwrap();
    let around = big(0).text.as_str().len();
    let largest = FRAME_MAX - OVERHEAD - around;
    let refused = try_append(&store, live(), vec![big(largest + 1)]);
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    append(&store, live(), vec![big(largest)]);
    append(&store, live(), vec![login("a")]);
    assert_valid(&store, live(), 2);
    let stage = stage.killed();
    let store = stage.try_open(&Options { disk: Arc::new(stage.disk.clone()), ..options }).unwrap();
    assert_eq!(findings(&store), []);
    assert_valid(&store, live(), 2);
}
