//! A cut: up to where a log is durable at one moment, and what its files alone do not tell.

use std::io;
use std::path::Path;

use sealog_core::id::{ChainId, Mode};

use crate::embedded::data_dir::Directory;
use crate::embedded::open_log::Log;
use crate::embedded::store::EmbeddedStore;
use crate::segments::{LogCut, SegmentCut, Segments};

impl Segments for EmbeddedStore {
    /// The id of the salt of its indexes.
    fn store_id(&self) -> u64 {
        self.log(Mode::Live).contents.salt.id()
    }

    fn cut(&self) -> [LogCut; 2] {
        [self.log(Mode::Live).cut(), self.log(Mode::Test).cut()]
    }

    fn read_segment(&self, mode: Mode, number: u64, from: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
        let gone = || io::Error::new(io::ErrorKind::NotFound, format!("there is no segment {number}"));
        let segment = self.log(mode).contents.segment(number).ok_or_else(gone)?;
        let mut bytes = vec![0; bytes_max];
        let filled = segment.file.read_at(&mut bytes, from)?;
        bytes.truncate(filled);
        Ok(bytes)
    }

    fn directory(&self) -> Option<&Path> {
        EmbeddedStore::directory(self).map(Directory::path)
    }
}

impl Log {
    fn cut(&self) -> LogCut {
        let contents = &self.contents;
        // Before the end: what is dropped later is missing, which a copy notices, and what was dropped
        // earlier is not looked for.
        let (dropped_through, dropped) = contents.dropped_file();
        let unproven =
            |id: ChainId| contents.chains.get(id).is_some_and(|chain| chain.with(|state| state.unproven));
        let chains = contents.chains.all();
        let lost = chains.iter().filter(|chain| unproven(chain.id));
        let lost = lost.map(|chain| (chain.id, chain.head().recorded)).collect();
        let (plan, commit) = contents.durable();
        // A segment is closed before anything in the next one is durable, so all before the last have an end.
        let cut = |number: u64| {
            let bytes = if number == plan.segment { plan.end } else { contents.end_of(number)?.final_len };
            Some(SegmentCut { number, salt: contents.segment(number)?.salt, bytes })
        };
        let numbers = contents.segment_numbers().into_iter();
        let counted = numbers.filter(|number| (dropped_through + 1..=plan.segment).contains(number));
        LogCut {
            mode: contents.mode,
            commit,
            segments: counted.filter_map(cut).collect(),
            dropped_through,
            dropped,
            lost,
            unproven_to: self.unproven_to(),
        }
    }
}
