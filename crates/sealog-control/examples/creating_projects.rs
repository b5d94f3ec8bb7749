//! Creates projects of one tenant in the control data of a directory, one after the other, and says on
//! standard output which were acknowledged, until it is killed. `tests/suite/files.rs` reads that and does
//! the killing.
//!
//! `creating_projects DIR FROM`: lines `acked N`, from `FROM` on. What the n-th project is like the test
//! knows too.

use std::io::Write;
use std::path::Path;

use sealog_control::{Control, NewProject};
use sealog_core::catalog::FrameworkSet;
use sealog_core::id::{ProjectId, TenantId, Uuid};
use sealog_store::embedded::EmbeddedStore;
use sealog_testing::{MORNING_MS, StillWorld, small, wait};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, from] = &arguments[..] else {
        eprintln!("usage: creating_projects DIR FROM");
        std::process::exit(2);
    };
    let store = EmbeddedStore::open(Path::new(dir), &small(&StillWorld::new())).expect("the store opens");
    let control = Control::embedded(&store).expect("the control data opens");
    for n in from.parse().expect("a number").. {
        let created = wait(control.create_project(project(n), vec![])).expect("the disk works");
        assert!(created.is_some(), "the tenant is there");
        let mut out = std::io::stdout().lock();
        writeln!(out, "acked {n}").and_then(|()| out.flush()).expect("the reader is there");
    }
}

fn project(n: u64) -> NewProject {
    let mut id = [0xAB; 16];
    id[..8].copy_from_slice(&n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    NewProject {
        id: ProjectId::from_random(id),
        tenant_id: TenantId(Uuid([1; 16])),
        name: format!("Project {n}"),
        frameworks: FrameworkSet::from_bits(0xFFF),
        created_at_ms: MORNING_MS,
    }
}
