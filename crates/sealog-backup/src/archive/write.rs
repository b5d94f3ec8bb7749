//! Writes an archive: members whose length is known only when they end, each with its digest.

use std::io::{self, Seek, SeekFrom, Write};

use indicatif::ProgressBar;
use sealog_cli::exit::{Exit, Failure};
use sealog_cli::files::Part as PartFile;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::manifest::{Listed, MANIFEST, Manifest, other_page, stem};
use super::pages::{Chain, Page, Part, Rows};
use crate::stream::{BLOCK, header};
use crate::unhex::unhex;

/// Of a file with events. A chain that is longer goes on in the next file: no tool has to read a file that is
/// larger than this.
const EVENTS_BYTES_MAX: u64 = 1 << 30;

type Ask<'a> = &'a mut dyn FnMut(Part) -> Result<Page, Failure>;

pub(super) struct Writer {
    part: PartFile,
    files: Vec<Listed>,
    open: Option<Open>,
    events_bytes_max: u64,
}

struct Open {
    name: String,
    begins: u64,
    bytes: u64,
    sha256: Sha256,
}

impl Writer {
    pub(super) fn new(part: PartFile) -> Writer {
        Writer { part, files: Vec::new(), open: None, events_bytes_max: EVENTS_BYTES_MAX }
    }

    pub(super) fn files(&self) -> &[Listed] {
        &self.files
    }

    /// Everything but the manifest.
    pub(super) fn put_all(
        &mut self,
        tenant: &Value,
        chains: &[Chain],
        bar: &ProgressBar,
        ask: Ask<'_>,
    ) -> Result<(), Failure> {
        self.begin("tenant.json".into())?;
        self.put_line(&tenant.to_string())?;
        self.end()?;
        for (name, of) in [
            ("projects.ndjson", Rows::Projects),
            ("keys.ndjson", Rows::Keys),
            ("monitor-tokens.ndjson", Rows::MonitorTokens),
            ("actions.ndjson", Rows::Actions),
            ("settings.ndjson", Rows::Settings),
            ("members.ndjson", Rows::Members),
        ] {
            self.begin(name.into())?;
            self.put_rows(&of, ask, &mut |_| Ok(()))?;
            self.end()?;
        }
        for package in self.put_cases(ask)? {
            self.put_package(&package, ask)?;
        }
        for chain in chains {
            self.put_chain(chain, bar, ask)?;
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Each case with what belongs to it. Packages that are kept.
    fn put_cases(&mut self, ask: Ask<'_>) -> Result<Vec<Value>, Failure> {
        self.begin("cases.ndjson".into())?;
        let mut cases = Vec::new();
        self.put_rows(&Rows::Cases, ask, &mut |row| {
            cases.push(text(&row, "case_id"));
            Ok(())
        })?;
        let (mut searches, mut packages) = (Vec::new(), Vec::new());
        for case in cases {
            self.put_rows(&Rows::Entries(case.clone()), ask, &mut |_| Ok(()))?;
            self.put_rows(&Rows::Letters(case.clone()), ask, &mut |_| Ok(()))?;
            self.put_rows(&Rows::Searches(case.clone()), ask, &mut |row| {
                searches.push(text(&row, "search_id"));
                Ok(())
            })?;
            for search in searches.drain(..) {
                self.put_rows(&Rows::Found(search), ask, &mut |_| Ok(()))?;
            }
            self.put_rows(&Rows::Packages(case), ask, &mut |row| {
                if row["sha256"].is_string() && row["dropped_at"].is_null() {
                    packages.push(row);
                }
                Ok(())
            })?;
        }
        self.end()?;
        Ok(packages)
    }

    fn put_package(&mut self, row: &Value, ask: Ask<'_>) -> Result<(), Failure> {
        let id = text(row, "package_id");
        self.begin(format!("packages/{id}.zip"))?;
        for piece in 0.. {
            let Page::Piece(content) = ask(Part::PackagePiece { id: id.clone(), piece })? else {
                return Err(other_page());
            };
            let Some(content) = content else { break };
            self.put(&unhex(&content).ok_or_else(other_page)?)?;
        }
        let sha256 = self.end()?;
        if row["sha256"] != *sha256 {
            let gone = format!("the package {id} expired during the export or is damaged; try again");
            return Err(Failure::new(Exit::Failure, gone));
        }
        Ok(())
    }

    fn put_chain(&mut self, chain: &Chain, bar: &ProgressBar, ask: Ask<'_>) -> Result<(), Failure> {
        let Chain { project_id, mode, last_seq: to, .. } = chain;
        let name = |number: u32| format!("events/{}.{number:06}.ndjson", stem(project_id, mode));
        let (mut number, mut from) = (1, chain.first_seq);
        self.begin(name(number))?;
        while from <= *to {
            let part = Part::Events { project_id: project_id.clone(), mode: mode.clone(), from, to: *to };
            let Page::Lines { lines, next } = ask(part)? else { return Err(other_page()) };
            for line in &lines {
                if self.open.as_ref().is_some_and(|open| open.bytes >= self.events_bytes_max) {
                    self.end()?;
                    number += 1;
                    self.begin(name(number))?;
                }
                self.put_line(line)?;
            }
            bar.inc(lines.len() as u64);
            let Some(next) = next else { break };
            from = next.parse().ok().filter(|next| *next > from).ok_or_else(other_page)?;
        }
        self.end().map(drop)
    }

    fn put_rows(
        &mut self,
        of: &Rows,
        ask: Ask<'_>,
        seen: &mut dyn FnMut(Value) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut after = None;
        loop {
            let Page::Lines { lines, next } = ask(Part::Rows { of: of.clone(), after })? else {
                return Err(other_page());
            };
            for line in &lines {
                self.put_line(line)?;
                seen(serde_json::from_str(line).map_err(|_| other_page())?)?;
            }
            if next.is_none() {
                return Ok(());
            }
            after = next;
        }
    }

    /// The manifest, and the end of the archive, durably.
    pub(super) fn finish(mut self, manifest: &Manifest) -> Result<PartFile, Failure> {
        self.begin(MANIFEST.into())?;
        self.put_line(&serde_json::to_string_pretty(manifest).expect("texts and numbers"))?;
        self.end()?;
        let ended = self.part.write_all(&[0; 2 * BLOCK]).and_then(|()| self.part.sync());
        self.written(ended)?;
        Ok(self.part)
    }

    fn begin(&mut self, name: String) -> Result<(), Failure> {
        let begins = self.part.stream_position();
        let begins = self.written(begins)?;
        let head = header(&name, 0).and_then(|header| self.part.write_all(header.as_bytes()));
        self.written(head)?;
        self.open = Some(Open { name, begins, bytes: 0, sha256: Sha256::new() });
        Ok(())
    }

    fn put_line(&mut self, line: &str) -> Result<(), Failure> {
        self.put(line.as_bytes())?;
        self.put(b"\n")
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let open = self.open.as_mut().expect("a member is begun before it is written");
        open.bytes += bytes.len() as u64;
        open.sha256.update(bytes);
        let written = self.part.write_all(bytes);
        self.written(written)
    }

    /// Its digest.
    fn end(&mut self) -> Result<String, Failure> {
        let Open { name, begins, bytes, sha256 } = self.open.take().expect("a member ends once");
        let sha256 = hex::encode(sha256.finalize());
        let ended = (|| {
            let over = usize::try_from(bytes % BLOCK as u64).unwrap_or_default();
            self.part.write_all(&[0; BLOCK][..(BLOCK - over) % BLOCK])?;
            let end = self.part.stream_position()?;
            self.part.seek(SeekFrom::Start(begins))?;
            self.part.write_all(header(&name, bytes)?.as_bytes())?;
            self.part.seek(SeekFrom::Start(end)).map(drop)
        })();
        self.written(ended)?;
        self.files.push(Listed { name, bytes, sha256: sha256.clone() });
        Ok(sha256)
    }

    fn written<T>(&self, written: io::Result<T>) -> Result<T, Failure> {
        written.map_err(|error| {
            let path = self.part.becomes();
            Failure::new(Exit::Failure, format!("cannot write {}: {error}; no file was left", path.display()))
        })
    }
}

fn text(row: &Value, name: &str) -> String {
    row[name].as_str().unwrap_or_default().to_owned()
}
