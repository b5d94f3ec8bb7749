//! The chapter on upgrading of docs/operating.md, from the data of an earlier build, on both stores, and
//! back.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use crate::support::*;
use sealog_core::id::ChainId;
use sealog_store::Store;
use sealog_store::embedded::EmbeddedStore;
use sealog_testing::fixture::{BUILDS, Fixture, restore};
use sealog_testing::{ends, postgres, wait};
use serde_json::Value;

/// `sealog migrate` with a flag, on a data directory or a database.
fn migrate(settings: &[(&str, &str)], args: &[&str]) -> (Option<i32>, String, String) {
    ended(sealog().arg("migrate").args(args).envs(settings.iter().copied()).output().unwrap())
}

fn versions(settings: &[(&str, &str)]) -> (Option<i32>, BTreeMap<String, (u64, u64)>) {
    let (code, said, noted) = migrate(settings, &["--status", "--json"]);
    let status: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{noted}"));
    let row = |schema: &Value| {
        let (made, wanted) = (schema["made"].as_u64().unwrap(), schema["wanted"].as_u64().unwrap());
        (schema["name"].as_str().unwrap().to_owned(), (made, wanted))
    };
    (code, status["schemas"].as_array().unwrap().iter().map(row).collect())
}

/// The last number and hash of each chain of a fixture.
fn expected(fixture: &Fixture) -> BTreeMap<ChainId, (u64, String)> {
    fixture.chains().into_iter().map(|(chain, seq, hash, _)| (chain, (seq, hash.to_owned()))).collect()
}

fn assert_has_events(data: &Path, fixture: &Fixture) {
    let store = EmbeddedStore::open(data, &Default::default()).unwrap();
    for (chain, (seq, hash)) in expected(fixture) {
        let event =
            wait(store.range(chain, sealog_store::Range { from: seq, to: seq, bytes_max: 1 })).unwrap();
        let sealog_core::verify::Item::Event(event) = &event.items[0] else { panic!("{chain} has {seq}") };
        assert_eq!(event.head().hash.to_string(), hash, "{chain}");
        assert!(sealog_testing::verify(&store, chain).broken.is_none(), "{chain}");
    }
}

#[test]
fn an_embedded_store_is_upgraded_by_a_start_and_the_copy_of_its_control_data_leads_back() {
    for build in BUILDS {
        for name in ["stopped", "killed"] {
            let fixture = Fixture::load(build, name);
            let dir = fixture.unpacked(&format!("{name}.tar.gz"));
            let data = dir.path();
            let settings = [("SEALOG_DATA_DIR", data.to_str().unwrap())];
            let (code, before) = versions(&settings);
            let (made, wanted) = before["control.db"];
            assert!(code == Some(1) && made < wanted, "{before:?}");
            let (code, said, _) = migrate(&settings, &["--dry-run"]);
            assert!(
                code == Some(0) && said.contains(&format!("would run steps {} to {wanted}", made + 1)),
                "{said}"
            );
            assert_eq!(versions(&settings).1, before, "neither of them changes anything");
            let copy = data.join(format!("control.db.{made}"));
            // There and back, twice: each time as an operator would.
            for round in 0..2 {
                assert_eq!(versions(&settings).1["control.db"], (made, wanted), "{round}");
                let server = serve(data);
                server.await_drained();
                assert_eq!(server.get("-", "/readyz").0, 200);
                let log = server.begun.clone() + &server.stop();
                assert!(log.contains("copied the control data of an earlier version aside"), "{log}");
                for step in made + 1..=wanted {
                    let said = format!("\"ran a migration step of the control data\",\"step\":{step},");
                    assert!(log.contains(&said), "{step}: {log}");
                }
                assert_eq!(
                    versions(&settings),
                    (Some(0), [("control.db".to_owned(), (wanted, wanted))].into())
                );
                assert_has_events(data, &fixture);
                fs::rename(&copy, data.join("control.db")).unwrap();
                for left in ["control.db-wal", "control.db-shm"] {
                    let _ = fs::remove_file(data.join(left));
                }
            }
        }
    }
}

#[test]
fn a_database_is_upgraded_by_the_command_and_a_dump_leads_back() {
    for build in BUILDS {
        let fixture = Fixture::load(build, "postgres");
        let node = fixture.unpacked("postgres-node.tar.gz");
        let database = postgres::cluster().database();
        restore(&database, &fixture.dir.join("postgres.sql.gz"));
        let url = database.url();
        let settings = [("SEALOG_STORE", url.as_str())];
        let (code, before) = versions(&settings);
        let (made, wanted) = before["sealog_control"];
        assert!(code == Some(1) && made < wanted, "{before:?}");
        // A server changes no tables that are there.
        let mut command = serving(sealog(), node.path());
        command.env("SEALOG_STORE", &url);
        let output = ends("a server without its tables ends", move || command.output().unwrap());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains("run `sealog migrate`"), "{said}");
        assert_eq!(versions(&settings).1, before);
        assert_eq!(migrate(&settings, &[]).0, Some(0));
        assert_eq!(versions(&settings).0, Some(0));
        let mut command = serving(sealog(), node.path());
        command.env("SEALOG_STORE", &url);
        let server = start(command);
        server.await_drained();
        server.stop();
        let chains = expected(&fixture).len();
        let (code, said, noted) = ended(
            sealog()
                .args(["restore", "check", "--json"])
                .env("SEALOG_STORE", &url)
                .env("SEALOG_DATA_DIR", node.path())
                .output()
                .unwrap(),
        );
        let checked: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{noted}"));
        assert_eq!(
            (code, &checked["broken"], &checked["lost"]),
            (Some(0), &Value::Array(vec![]), &Value::Array(vec![]))
        );
        assert!(checked["chains"].as_u64().unwrap() >= chains as u64, "{checked}");
        // Back: the dump of before the upgrade, in an empty database.
        let earlier = postgres::cluster().database();
        restore(&earlier, &fixture.dir.join("postgres.sql.gz"));
        assert_eq!(versions(&[("SEALOG_STORE", &*earlier.url())]).1, before);
    }
}

#[test]
fn a_store_of_a_newer_version_is_refused_by_the_name_of_the_program_that_wrote_it_and_stays_as_it_is() {
    let (_dir, data) = data_dir();
    serve(&data).stop();
    // A copy has no write-ahead log: its header is all there is to read.
    let (control, copy) = (data.join("control.db"), data.join("copy"));
    sealog_control::copy_of_directory(&data, &copy).unwrap();
    for left in ["control.db-wal", "control.db-shm"] {
        let _ = fs::remove_file(data.join(left));
    }
    fs::rename(copy, &control).unwrap();
    let own = fs::read(&control).unwrap();
    let own: u32 = u32::from_be_bytes(own[68..72].try_into().unwrap());
    let parts: Vec<u32> = env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse().unwrap()).collect();
    assert_eq!(own, parts[0] << 20 | parts[1] << 10 | parts[2], "each version says that it was there");
    let mut file = fs::OpenOptions::new().write(true).open(&control).unwrap();
    for (at, number) in [(60, 99_u32), (68, 9 << 20 | 8 << 10 | 7)] {
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&number.to_be_bytes()).unwrap();
    }
    let before = fs::read(&control).unwrap();
    let told = "\"control.db version 99\", by Sealog 9.8.7; use that version, or a newer one";
    let settings = [("SEALOG_DATA_DIR", data.to_str().unwrap())];
    for args in
        [&["migrate", "--status"][..], &["migrate", "--dry-run"], &["serve", "--listen", "127.0.0.1:0"]]
    {
        let (code, said, noted) = ended(sealog().args(args).envs(settings).output().unwrap());
        assert!(code == Some(1) && noted.contains(told), "{args:?}: {said}{noted}");
    }
    let (_, said, noted) = ended(sealog().arg("check").envs(settings).output().unwrap());
    assert!((said + &noted).contains("Sealog 9.8.7"));
    assert!(fs::read(&control).unwrap() == before);

    let database = postgres::cluster().database();
    let url = database.url();
    let settings = [("SEALOG_STORE", url.as_str())];
    assert_eq!(migrate(&settings, &[]).0, Some(0));
    database.sql("INSERT INTO sealog.migrations (version) VALUES (99); COMMENT ON TABLE sealog.migrations IS 'Sealog 9.8.7'");
    let (code, _, noted) = migrate(&settings, &[]);
    let told = "the schema has the unknown version 99, by Sealog 9.8.7; use that version, or a newer one";
    assert!(code == Some(1) && noted.contains(told), "{noted}");
    let (code, said, noted) = migrate(&settings, &["--status"]);
    assert!(
        code == Some(1) && said.contains("sealog: version 99") && noted.contains("Sealog 9.8.7"),
        "{said}{noted}"
    );
}
