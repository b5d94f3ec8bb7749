//! What the machine can do without Sealog: the other side of every ratio.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::driver::{Run, nanos};
use crate::machine::cpu_time;
use crate::workload;

/// A file of zeros that is on disk before the first append, which is how the store prepares its segments.
/// Appends go round in it.
#[derive(Debug)]
pub struct BareLog {
    file: File,
    bytes: u64,
    at: u64,
    payload: Vec<u8>,
}

impl BareLog {
    pub fn create(path: &Path, bytes: u64, group_bytes_max: usize) -> io::Result<BareLog> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        // In pieces as large as those of the store, see `embedded/log/segment.rs`.
        let zeros = vec![0; 64 << 10];
        let mut at = 0;
        while at < bytes {
            file.write_all_at(&zeros, at)?;
            at += zeros.len() as u64;
        }
        file.sync_all()?;
        let mut payload = Vec::with_capacity(group_bytes_max + 1024);
        let mut n = 0;
        while payload.len() < group_bytes_max {
            payload.extend_from_slice(workload::text(n).as_str().as_bytes());
            n += 1;
        }
        Ok(BareLog { file, bytes: at, at: 0, payload })
    }

    /// Writes and syncs groups of this many bytes one after the other; each counts as one request with
    /// `events` events.
    pub fn append(&mut self, group_bytes: usize, events: u64, limit: Duration) -> io::Result<Run> {
        let mut run = Run { latencies_ns: Vec::with_capacity(1 << 20), ..Run::default() };
        let (start, cpu) = (Instant::now(), cpu_time());
        while run.elapsed < limit {
            let sent = Instant::now();
            if self.at + group_bytes as u64 > self.bytes {
                self.at = 0;
            }
            self.file.write_all_at(&self.payload[..group_bytes], self.at)?;
            self.file.sync_data()?;
            self.at += group_bytes as u64;
            run.requests += 1;
            run.events += events;
            let now = Instant::now();
            run.latencies_ns.push(nanos(now - sent));
            run.elapsed = now - start;
        }
        run.cpu = cpu_time() - cpu;
        Ok(run)
    }
}

/// MB by the clock, and by CPU time, which others on the machine change less.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub per_s: f64,
    pub per_cpu_s: f64,
}

/// The bytes that are hashed for some events, one after the other.
#[derive(Debug)]
pub struct Messages {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
}

impl Messages {
    /// Of the first events, up to this many bytes.
    pub fn of(events: u64, bytes_max: usize) -> Messages {
        let mut messages = Messages { bytes: Vec::new(), lengths: Vec::new() };
        for n in 0..events {
            if messages.bytes.len() >= bytes_max {
                break;
            }
            let message = workload::hashed_bytes(n);
            messages.bytes.extend_from_slice(message.as_bytes());
            messages.lengths.push(message.len());
        }
        messages
    }

    /// SHA-256 over all of it as one message: the fastest that one core can hash.
    pub fn hash_whole(&self, limit: Duration) -> Rate {
        self.rate(limit, || {
            std::hint::black_box(Sha256::digest(&self.bytes));
        })
    }

    /// One digest for each event: what the specification makes unavoidable.
    pub fn hash_each(&self, limit: Duration) -> Rate {
        self.rate(limit, || {
            let mut rest = &self.bytes[..];
            for length in &self.lengths {
                let (message, after) = rest.split_at(*length);
                std::hint::black_box(Sha256::digest(message));
                rest = after;
            }
        })
    }

    fn rate(&self, limit: Duration, hash: impl Fn()) -> Rate {
        let (start, cpu) = (Instant::now(), cpu_time());
        let mut rounds = 0;
        while start.elapsed() < limit {
            hash();
            rounds += 1;
        }
        let mb = rounds as f64 * self.bytes.len() as f64 / 1e6;
        Rate { per_s: mb / start.elapsed().as_secs_f64(), per_cpu_s: mb / (cpu_time() - cpu).as_secs_f64() }
    }
}
