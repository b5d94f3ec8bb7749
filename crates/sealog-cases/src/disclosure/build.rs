//! A package under way: which file is open, how far it has got, and what was written.

use std::sync::Arc;

use sealog_control::{FoundEvent, PackageId};
use sealog_core::id::TenantId;
use sha2::Sha256;

use super::finder::kinds_for_person;
use super::node::EventView;
use super::package::archive::ArchiveWriter;
use super::package::documents::{self, About, Item, Summary, YourData};
use super::package::{EVENTS_CSV, EVENTS_JSON, YOUR_DATA};
use super::review::Disclosure;

/// A file that is written from events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    YourData,
    Json,
    Csv,
}

/// A package under way.
pub(super) struct Build {
    pub id: PackageId,
    pub tenant_id: TenantId,
    pub attempt: u64,
    /// By which it is known whether the position of the job is this one's.
    pub steps: u64,
    pub about: Arc<About>,
    pub disclosure: Arc<Disclosure>,
    /// Those that are disclosed, newest last, and their order in the file for people.
    pub events: Vec<FoundEvent>,
    pub by_month: Vec<usize>,
    pub file: Option<File>,
    pub at: usize,
    pub your_data: YourData,
    pub summary: Summary,
    pub writer: ArchiveWriter,
    pub sha256: Sha256,
    pub pieces: u64,
    /// What is not a whole piece yet, or not kept yet.
    pub rest: Vec<u8>,
    /// Once the archive is complete.
    pub manifest: Option<String>,
}

impl Build {
    pub fn begin_file(&mut self, file: File) {
        (self.file, self.at) = (Some(file), 0);
        match file {
            File::YourData => {
                self.writer.begin(YOUR_DATA);
                let begin = YourData::begin(&self.about);
                self.writer.write(begin.as_bytes());
            }
            File::Json => self.writer.begin(EVENTS_JSON),
            File::Csv => {
                self.writer.begin(EVENTS_CSV);
                self.writer.write(documents::csv_header().as_bytes());
            }
        }
    }

    pub fn put(&mut self, file: File, found: FoundEvent, view: &EventView) {
        let (project_id, kinds) = (found.new.project_id.to_string(), found.new.found);
        let disclosed = self.disclosure.compare(found, view.clone()).disclosed;
        let item = Item { view: disclosed, project_id, found: kinds_for_person(kinds) };
        let mut out = Vec::new();
        match file {
            File::YourData => {
                self.summary.count(&self.about, &item.view, kinds);
                out = self.your_data.put(&self.about, &item).into_bytes();
            }
            File::Json => documents::put_json(&item, &self.about, self.writer.size() == 0, &mut out),
            File::Csv => documents::put_csv(&item, &self.about, &mut out),
        }
        self.writer.write(&out);
    }

    pub fn end_file(&mut self, file: File) {
        match file {
            File::YourData => {
                self.writer.write(YourData::end().as_bytes());
                self.writer.end();
                self.begin_file(File::Json);
            }
            File::Json => {
                self.writer.write(documents::end_json(self.events.is_empty()));
                self.writer.end();
                self.begin_file(File::Csv);
            }
            File::Csv => {
                self.writer.end();
                self.file = None;
            }
        }
    }
}
