//! Downloads of exports: in pieces, sealed before the first, the same each time; on both stores.

use std::sync::Arc;
use std::time::Duration;

use sealog_control::*;
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Uuid};
use sealog_service::evidence::exports::{
    CreateError, Exporter, Format, Frozen, KEPT_MAX, PIECE_BYTES, manifest,
};
use sealog_service::ingest::Ingest;
use sealog_service::people::notify::Notifier;
use sealog_service::records::system_chain::{Drain, Turns, Wake};
use sealog_store::{Store, StoreError};
use sealog_testing::doubtful::{Doubt, DoubtfulStore};
use sealog_testing::*;
use sha2::{Digest, Sha256};

use crate::both::furnish;

const TENANT: TenantId = TenantId(Uuid([1; 16]));
const PERSON: PersonId = PersonId(Uuid([3; 16]));

fn chain() -> ChainId {
    ChainId { tenant_id: TENANT, project_id: ProjectId(Uuid([2; 16])), mode: Mode::Live }
}

struct Stage {
    store: Arc<DoubtfulStore>,
    control: Arc<Control>,
    exporter: Exporter,
    runtime: tokio::runtime::Runtime,
}

impl Stage {
    fn new(store: Arc<dyn Store>, control: Control) -> Stage {
        let (store, control) = (DoubtfulStore::new(store), Arc::new(control));
        let world = StillWorld::random_at(MORNING_MS);
        furnish(&control, TENANT, PERSON);
        let drain = Drain {
            control: Arc::clone(&control),
            store: Arc::clone(&store) as _,
            ingest: Ingest::new(Arc::clone(&store) as _, None, Arc::default()),
            world: Arc::clone(&world) as _,
            wake: Wake::default(),
            every: Duration::from_secs(600),
            turns: Turns::default(),
        };
        let exporter = Exporter {
            control: Arc::clone(&control),
            store: Arc::clone(&store) as _,
            notifier: Notifier::new(&Arc::clone(&control), Arc::clone(&world) as _),
            world,
            drain: Arc::new(drain),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Stage { store, control, exporter, runtime }
    }

    fn create(&self, format: Format, query: &str) -> Export {
        self.try_create(format, query).unwrap()
    }

    fn try_create(&self, format: Format, query: &str) -> Result<Export, CreateError> {
        let frozen = Frozen::read(query, chain()).unwrap();
        let grants = Grants::default();
        self.runtime.block_on(self.exporter.create(PERSON, chain(), format, frozen, &grants))
    }

    /// All pieces of a download.
    fn download(&self, export: &Export) -> Result<Vec<Vec<u8>>, StoreError> {
        self.runtime.block_on(async {
            let mut download = self.exporter.download(PERSON, export.clone()).await?;
            let mut pieces = Vec::new();
            while let Some(piece) = download.next().await? {
                pieces.push(piece);
            }
            Ok(pieces)
        })
    }

    fn totals(&self, export: &Export) -> Option<ExportTotals> {
        wait(self.control.export_by_id(export.new.id)).unwrap().unwrap().totals
    }
}

fn on_both(rule: fn(Stage)) {
    crate::both::on_both(|store, control| rule(Stage::new(store, control)));
}

#[test]
fn an_organisation_keeps_1000_exports_and_one_that_was_downloaded_gives_way() {
    on_both(|stage| {
        assert_eq!(KEPT_MAX, 1000);
        append(&*stage.store, chain(), vec![login("1")]);
        let first = stage.create(Format::Ndjson, "");
        for n in 1..1000u64 {
            let mut id = [9; 16];
            id[..8].copy_from_slice(&n.to_be_bytes());
            let new = NewExport { id: ExportId(Uuid(id)), ..first.new.clone() };
            wait(stage.control.create_export(new, 1000, Records::none())).unwrap().unwrap();
        }
        assert_eq!(stage.try_create(Format::Csv, ""), Err(CreateError::TooMany));
        stage.download(&first).unwrap();
        let totals = stage.totals(&first).unwrap();
        stage.create(Format::Csv, "");
        assert_eq!(wait(stage.control.export_by_id(first.new.id)), Ok(None));
        // The chain says what it was: a file of it can still be held against its sum.
        let records = wait(stage.control.pending_records(TENANT, 2000)).unwrap();
        let removed = records.iter().find(|record| record.draft.contains("sealog.export_removed")).unwrap();
        assert!(removed.draft.contains(&format!("export/{}", first.new.id.0)), "{}", removed.draft);
        assert!(removed.draft.contains(&totals.sha256.to_string()), "{}", removed.draft);
        assert_eq!(stage.try_create(Format::Csv, ""), Err(CreateError::TooMany));
    });
}

#[test]
fn a_download_is_read_in_pieces_of_256_kilobytes_as_it_is_asked_for() {
    on_both(|stage| {
        assert_eq!(PIECE_BYTES, 256 << 10);
        let body = format!(r#"{{"action":"a.b","metadata":{{"k":"{}"}}}}"#, "x".repeat(20_000));
        for _ in 0..10 {
            append(&*stage.store, chain(), (0..10).map(|_| draft(&body)).collect());
        }
        let export = stage.create(Format::Ndjson, "");
        let read = stage.store.events_read();
        stage.runtime.block_on(async {
            let mut download = stage.exporter.download(PERSON, export.clone()).await.unwrap();
            let first = download.next().await.unwrap().unwrap();
            assert!(first.len() < 2 * PIECE_BYTES, "{}", first.len());
            assert!(stage.store.events_read() - read < 30, "the rest was not asked for");
        });
        assert_eq!(stage.totals(&export), None, "one that was dropped in the middle counts nothing");
        let pieces = stage.download(&export).unwrap();
        assert!(pieces.len() > 5 && pieces.iter().all(|piece| piece.len() < 2 * PIECE_BYTES));
        let whole = pieces.concat();
        let totals = stage.totals(&export).unwrap();
        assert_eq!((totals.rows, totals.bytes), (100, whole.len() as u64));
        assert_eq!(totals.sha256, Hash(Sha256::digest(&whole).into()));
        assert_eq!(stage.download(&export).unwrap().concat(), whole);
    });
}

#[test]
fn a_filter_that_matches_nothing_gives_way_after_each_piece() {
    on_both(|stage| {
        let body = format!(r#"{{"action":"a.b","metadata":{{"k":"{}"}}}}"#, "x".repeat(20_000));
        for _ in 0..5 {
            append(&*stage.store, chain(), (0..10).map(|_| draft(&body)).collect());
        }
        // Text has no index.
        let export = stage.create(Format::Ndjson, "q=%22none%22");
        let read = stage.store.events_read();
        stage.runtime.block_on(async {
            let mut download = stage.exporter.download(PERSON, export.clone()).await.unwrap();
            assert_eq!(download.next().await, Ok(Some(vec![])));
            assert!(stage.store.events_read() - read < 30, "one piece");
        });
        assert!(stage.download(&export).unwrap().concat().is_empty());
        assert_eq!(stage.totals(&export).unwrap().rows, 0);
    });
}

#[test]
fn a_download_that_cannot_be_sealed_has_no_first_byte() {
    on_both(|stage| {
        append(&*stage.store, chain(), vec![login("a")]);
        let export = stage.create(Format::Csv, "");
        stage.store.fail_system_writes(true);
        assert!(stage.download(&export).is_err());
        assert_eq!(stage.totals(&export), None);
        stage.store.fail_system_writes(false);
        stage.download(&export).unwrap();
        assert_eq!(wait(stage.control.count_records()), Ok(0));
    });
}

#[test]
fn a_download_whose_events_were_changed_ends_before_its_end() {
    on_both(|stage| {
        append(&*stage.store, chain(), vec![login("a"), login("b"), login("c")]);
        let export = stage.create(Format::Ndjson, "");
        stage.download(&export).unwrap();
        let totals = stage.totals(&export);
        for doubt in [Doubt::Missing, Doubt::Damaged, Doubt::Changed(|event| event.sealed.hash = Hash::ZERO)]
        {
            stage.store.doubt(2, doubt);
            assert!(stage.download(&export).is_err(), "{doubt:?}");
            stage.store.trust();
        }
        stage.download(&export).unwrap();
        assert_eq!(stage.totals(&export), totals);
    });
}

#[test]
fn a_filter_passes_over_what_does_not_match_and_days_narrow_the_range() {
    on_both(|stage| {
        append(&*stage.store, chain(), (0..50).map(|n| login(&n.to_string())).collect());
        let export = stage.create(Format::Ndjson, "actor_id=7");
        assert_eq!((export.new.first_seq, export.new.last_seq), (1, 50));
        assert_eq!(
            stage.download(&export).unwrap().concat().iter().filter(|byte| **byte == b'\n').count(),
            1
        );
        let export = stage.create(Format::Csv, "date_to=2001-01-01");
        assert_eq!((export.new.first_seq, export.new.last_seq), (1, 0));
        assert_eq!(stage.download(&export).unwrap().len(), 1, "the header");
        let export = stage.create(Format::Csv, "date_from=2101-01-01");
        assert_eq!((export.new.first_seq, export.new.last_seq), (51, 50));
        assert_eq!(stage.totals(&export), None);
        stage.download(&export).unwrap();
        assert_eq!(stage.totals(&export).unwrap().rows, 0);
    });
}

fn actors(pieces: &[Vec<u8>]) -> Vec<String> {
    let text = String::from_utf8(pieces.concat()).unwrap();
    let actor =
        |line: &str| line.split("\"actor_id\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    text.lines().map(actor).collect()
}

#[test]
fn a_search_leaves_out_what_it_does_not_ask_for_and_its_numbers_narrow_the_range() {
    on_both(|stage| {
        append(&*stage.store, chain(), (0..50).map(|n| login(&n.to_string())).collect());
        let exported = |query: &str| {
            let export = stage.create(Format::Ndjson, query);
            let first = stage.download(&export).unwrap();
            append(&*stage.store, chain(), vec![login("7")]);
            assert_eq!(stage.download(&export).unwrap(), first, "what comes later is not part of it");
            (actors(&first), export.new.first_seq, export.new.last_seq)
        };
        let actors = |all: &[&str]| all.iter().map(|actor| (*actor).to_owned()).collect::<Vec<_>>();
        assert_eq!(exported("q=actor%3A7+actor%3A9"), (actors(&["7", "9"]), 1, 50));
        let found = exported("q=actor%3A4*+-actor%3A44+seq%3A44..46");
        assert_eq!(found, (actors(&["43", "45"]), 44, 46));
        // Beside the filters of the API, which must hold too.
        assert_eq!(exported("actor_id=9&q=actor%3A7+actor%3A9").0, actors(&["9"]));
        let (none, first, last) = exported("q=seq%3A1000..");
        assert!(none.is_empty() && first == last + 1, "{first} {last}");
        let (none, first, last) = exported("q=to%3A2001-01-01");
        assert_eq!((none, first, last), (vec![], 1, 0));
    });
}

#[test]
fn an_export_of_a_window_says_that_links_can_be_checked_and_one_of_a_search_does_not() {
    on_both(|stage| {
        append(&*stage.store, chain(), (0..5).map(|n| login(&n.to_string())).collect());
        for (query, is_whole) in [("q=seq%3A2..4", true), ("q=actor%3A2", false), ("q=-seq%3A3", false)] {
            let export = stage.create(Format::Ndjson, query);
            let manifest = manifest::to_json(&export, &[("q".into(), "as it is".into())]);
            assert_eq!(manifest["links_and_gaps_can_be_checked"], is_whole, "{query}");
            assert_eq!(manifest["query"]["q"], "as it is");
        }
    });
}

#[test]
fn a_query_that_indexes_answer_reads_few_events_and_has_the_bytes_of_one_that_reads_all() {
    on_both(|stage| {
        for n in 0..20 {
            let rare = |at| if at == 50 && n % 5 == 0 { "rare" } else { "usual" };
            append(&*stage.store, chain(), (0..100).map(|at| login(rare(at))).collect());
        }
        let exported = |query: &str| {
            let export = stage.create(Format::Csv, query);
            let read = stage.store.events_read();
            let file = stage.download(&export).unwrap().concat();
            (file, stage.store.events_read() - read)
        };
        let (whole, read) = exported("q=%22rare%22");
        assert_eq!((actors_of_csv(&whole), read), (4, 2000), "text has no index");
        for query in ["q=actor%3Arare", "actor_id=rare", "q=actor%3Arare+actor%3Anobody+-action%3Ax"] {
            let (file, read) = exported(query);
            assert!(file == whole, "{query}");
            assert!(read <= 10, "{query}: {read}");
        }
        let (file, _) = exported("q=actor%3Anobody");
        assert_eq!(actors_of_csv(&file), 0, "the header alone");
        let (file, _) = exported("q=actor%3Arare+seq%3A52..1000");
        assert_eq!(actors_of_csv(&file), 1, "no more than its range");
    });
}

fn actors_of_csv(file: &[u8]) -> usize {
    String::from_utf8(file.to_vec()).unwrap().lines().count() - 1
}

#[test]
fn of_more_than_ten_thousand_events_that_indexes_lead_to_the_range_is_read() {
    on_both(|stage| {
        for n in 0..125 {
            let actor = if n < 20 { "other" } else { "usual" };
            append(&*stage.store, chain(), (0..100).map(|_| login(actor)).collect());
        }
        let export = stage.create(Format::Ndjson, "actor_id=usual");
        let read = stage.store.events_read();
        stage.download(&export).unwrap();
        assert_eq!(stage.totals(&export).unwrap().rows, 10_500);
        let read = stage.store.events_read() - read;
        assert!((22_500..24_000).contains(&read), "ten thousand, and then all: {read}");
    });
}

#[test]
fn the_worst_events_are_exported_in_every_format_in_pieces_of_a_bounded_size() {
    on_both(|stage| {
        let worst = worst::worst_events("usr_1");
        for (_, body) in &worst {
            append(&*stage.store, chain(), vec![draft(body)]);
        }
        for format in Format::ALL {
            let pieces = stage.download(&stage.create(format, "")).unwrap();
            // A piece ends with the event that fills it. In a CSV each quote of its text stands twice.
            let longest = pieces.iter().map(Vec::len).max().unwrap();
            assert!(longest <= PIECE_BYTES + 4 * 262_144, "{format:?}: {longest} bytes");
            let text = String::from_utf8(pieces.concat()).unwrap();
            let rows = if format == Format::Ndjson {
                text.lines().count()
            } else {
                text.matches("user.login").count()
            };
            assert_eq!(rows, worst.len(), "{format:?}");
            assert!(text.matches("usr_1").count() >= worst.len(), "{format:?}");
        }
    });
}
