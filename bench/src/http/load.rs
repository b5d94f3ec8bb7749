//! The generator: many connections on one thread, without a runtime, each with one request under way.
//!
//! **Closed loop**: an answer is followed by the next request at once. **Open loop**: requests are due at a
//! fixed rate, whatever the server does, and each one's time counts from the moment when it was due, also
//! when no connection was free then. Otherwise a server that stalls would be asked less just while it is slow
//! (coordinated omission), and the stall would count once.

use std::collections::BTreeMap;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use tokio_rustls::rustls::ClientConfig;

use super::answer::Answers;
use super::stream::Stream;
use crate::driver::nanos;
use crate::outcome::Outcome;

/// A request, in parts that are shared with others like it and written together.
#[derive(Debug)]
pub struct Request {
    pub parts: [Bytes; 3],
    /// What it adds to its chain if it is accepted.
    pub events: u32,
    pub chain: usize,
    pub expected: u16,
}

/// Where requests come from.
pub trait Source {
    fn next(&mut self) -> Request;
}

#[derive(Clone, Copy, Debug)]
pub enum Pace {
    Closed,
    /// Requests in a second.
    Open(f64),
}

pub struct Load<'a> {
    /// Connections are spread over them.
    pub addresses: &'a [SocketAddr],
    pub tls: Option<&'a Arc<ClientConfig>>,
    pub connections: usize,
    pub pace: Pace,
    pub warm_up: Duration,
    pub limit: Duration,
    /// An answer that is neither success nor error: a queue that asks to come back later.
    pub busy: Option<u16>,
    /// Ends a closed loop before its time.
    pub stop: Option<&'a AtomicBool>,
    /// Counts acknowledged events, for runs that end with the server.
    pub tally: Option<&'a AtomicU64>,
    /// Called now and then with what is known up to now, for a line that people look at.
    pub tick: &'a dyn Fn(&str),
}

/// What came of it. Everything but `acknowledged` is about the time after the warm-up.
#[derive(Debug, Default)]
pub struct Loaded {
    pub requests: u64,
    pub events: u64,
    pub elapsed: Duration,
    pub latencies_ns: Vec<u64>,
    /// Of the generator's thread.
    pub own_cpu: Duration,
    /// Events that were answered with success, by chain, from the first request to the last.
    pub acknowledged: Vec<u64>,
    /// Wrong answers by status, from the first request to the last, and what the first of them said.
    pub errors: BTreeMap<u16, u64>,
    pub first_error: String,
    pub busy: u64,
}

impl Loaded {
    pub fn requests_per_s(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }

    pub fn events_per_s(&self) -> f64 {
        self.events as f64 / self.elapsed.as_secs_f64()
    }
}

const TIMER: u64 = u64::MAX;
/// A server that says nothing for this long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// What is still due when the time is over may take this much longer.
const LATE_MAX: Duration = Duration::from_secs(20);

struct Connection {
    stream: Stream,
    answers: Answers,
    request: Option<Sent>,
    /// Whether the kernel has been asked to say when more can be written.
    waits_to_write: bool,
}

struct Sent {
    request: Request,
    written: usize,
    /// When it was sent, or should have been.
    due: Instant,
}

impl Load<'_> {
    /// Calls `window` when the warm-up is over and again when the time is, to read the server's counters at
    /// the same moments.
    pub fn run(&self, source: &mut dyn Source, window: &mut dyn FnMut()) -> Outcome<Loaded> {
        Running::new(self, source)?.run(window)
    }
}

struct Running<'a> {
    load: &'a Load<'a>,
    source: &'a mut dyn Source,
    epoll: OwnedFd,
    timer: OwnedFd,
    connections: Vec<Connection>,
    idle: Vec<usize>,
    in_flight: usize,
    buffer: Vec<u8>,
    begin: Instant,
    end: Instant,
    /// When the next request is due, in the open loop, and how far apart they are.
    due: Instant,
    interval: Duration,
    loaded: Loaded,
}

impl<'a> Running<'a> {
    fn new(load: &'a Load<'a>, source: &'a mut dyn Source) -> Outcome<Running<'a>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), epoll::EventFlags::IN)?;
        let mut connections = Vec::with_capacity(load.connections);
        for (at, address) in (0..load.connections).zip(load.addresses.iter().cycle()) {
            let stream = Stream::connect(*address, load.tls)?;
            stream.tcp().set_nonblocking(true)?;
            epoll::add(&epoll, stream.tcp(), epoll::EventData::new_u64(at as u64), epoll::EventFlags::IN)?;
            connections.push(Connection {
                stream,
                answers: Answers::default(),
                request: None,
                waits_to_write: false,
            });
        }
        let begin = Instant::now() + load.warm_up;
        let interval = match load.pace {
            Pace::Closed => Duration::ZERO,
            Pace::Open(per_s) => Duration::try_from_secs_f64(1.0 / per_s)?,
        };
        Ok(Running {
            load,
            source,
            epoll,
            timer,
            idle: (0..connections.len()).rev().collect(),
            connections,
            in_flight: 0,
            buffer: vec![0; 128 << 10],
            begin,
            end: begin + load.limit,
            due: Instant::now(),
            interval,
            loaded: Loaded { latencies_ns: Vec::with_capacity(1 << 20), ..Loaded::default() },
        })
    }

    fn run(mut self, window: &mut dyn FnMut()) -> Outcome<Loaded> {
        let thread_cpu = || {
            let time = clock_gettime(ClockId::ThreadCPUTime);
            Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
        };
        let (mut own_cpu, mut begun, mut ended) = (Duration::ZERO, false, false);
        let mut shown = Instant::now();
        let mut events = Vec::with_capacity(self.connections.len() + 1);
        let silence = Timespec { tv_sec: i64::try_from(SILENCE_MAX.as_secs())?, tv_nsec: 0 };
        let mut now = Instant::now();
        loop {
            if !begun && now >= self.begin {
                begun = true;
                window();
                own_cpu = thread_cpu();
                self.begin = Instant::now();
                self.end = self.begin + self.load.limit;
            }
            let stopped = self.load.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
            // One answer is waited for, however short the time was.
            let closed = matches!(self.load.pace, Pace::Closed);
            let enough = !closed || self.loaded.requests > 0 || !self.loaded.errors.is_empty();
            if begun && !ended && (stopped || now >= self.end && (enough || now > self.end + LATE_MAX)) {
                ended = true;
                window();
                self.loaded.own_cpu = thread_cpu() - own_cpu;
                self.loaded.elapsed = if closed { now - self.begin } else { self.load.limit };
            }
            self.send_what_is_due(now, ended)?;
            if ended && self.in_flight == 0 {
                return Ok(self.loaded);
            }
            if ended && now > self.end + LATE_MAX {
                return Err(format!("{} requests were not answered in time", self.in_flight).into());
            }
            if now - shown > Duration::from_millis(500) {
                shown = now;
                self.show(now);
            }
            events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&silence))?;
            if events.is_empty() {
                return Err(format!("no answer for {} s", SILENCE_MAX.as_secs()).into());
            }
            for event in events.drain(..) {
                let event: epoll::Event = event;
                if event.data.u64() == TIMER {
                    let mut expirations = [0; 8];
                    // Nothing to read means that it was set anew since.
                    let _ = rustix::io::read(&self.timer, &mut expirations);
                    continue;
                }
                let (at, flags) = (usize::try_from(event.data.u64())?, event.flags);
                if self.connections[at].waits_to_write && flags.contains(epoll::EventFlags::OUT) {
                    self.write(at)?;
                }
                if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                    self.read(at, ended)?;
                }
            }
            now = Instant::now();
        }
    }

    fn show(&self, now: Instant) {
        let (requests, left) = (self.loaded.requests as f64, self.end.saturating_duration_since(now));
        let elapsed = now.saturating_duration_since(self.begin).as_secs_f64();
        if elapsed > 0.0 {
            let errors: u64 = self.loaded.errors.values().sum();
            let errors = if errors > 0 { format!(", {errors} errors") } else { String::new() };
            (self.load.tick)(&format!(
                "{:.0} requests/s, {:.0} s left{errors}",
                requests / elapsed,
                left.as_secs_f64()
            ));
        }
    }

    fn send_what_is_due(&mut self, now: Instant, ended: bool) -> Outcome<()> {
        if matches!(self.load.pace, Pace::Closed) {
            while !ended && let Some(at) = self.idle.pop() {
                self.send(at, now)?;
            }
            return Ok(());
        }
        // What was due before the end is sent, however late: leaving it out would be the very omission that
        // this loop is there to avoid.
        while self.due <= now && self.due < self.end {
            let Some(at) = self.idle.pop() else { return Ok(()) };
            self.send(at, self.due)?;
            self.due += self.interval;
        }
        // An absolute time would need the kernel's clock; the little that has passed since `now` makes it a
        // little late, and counts.
        let wait = self.due.min(self.end).saturating_duration_since(now).max(Duration::from_nanos(1));
        let value = Timespec { tv_sec: i64::try_from(wait.as_secs())?, tv_nsec: wait.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        if !ended {
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        }
        Ok(())
    }

    fn send(&mut self, at: usize, due: Instant) -> Outcome<()> {
        let request = self.source.next();
        self.connections[at].request = Some(Sent { request, written: 0, due });
        self.in_flight += 1;
        self.write(at)
    }

    fn write(&mut self, at: usize) -> Outcome<()> {
        let connection = &mut self.connections[at];
        let Some(sent) = &mut connection.request else { return Ok(()) };
        let length: usize = sent.request.parts.iter().map(Bytes::len).sum();
        let wanted = loop {
            // TLS has taken all of it, and the kernel may not have.
            if sent.written == length {
                match connection.stream.flush() {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(format!("cannot send: {error}").into()),
                }
                break connection.stream.has_unsent();
            }
            let mut skip = sent.written;
            let mut parts = [IoSlice::new(&[]); 3];
            for (slice, part) in parts.iter_mut().zip(&sent.request.parts) {
                let skipped = skip.min(part.len());
                *slice = IoSlice::new(&part[skipped..]);
                skip -= skipped;
            }
            match connection.stream.write_vectored(&parts) {
                Ok(0) => return Err("a connection was closed".into()),
                Ok(written) => sent.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("cannot send: {error}").into()),
            }
            if sent.written == length {
                break connection.stream.has_unsent();
            }
        };
        if wanted != connection.waits_to_write {
            connection.waits_to_write = wanted;
            let flags =
                if wanted { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            epoll::modify(&self.epoll, connection.stream.tcp(), epoll::EventData::new_u64(at as u64), flags)?;
        }
        Ok(())
    }

    fn read(&mut self, at: usize, ended: bool) -> Outcome<()> {
        let connection = &mut self.connections[at];
        let status = match connection.stream.read(&mut self.buffer) {
            Ok(0) => return Err("the server closed a connection".into()),
            Ok(length) => connection.answers.feed(&self.buffer[..length])?,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            Err(error) => return Err(format!("cannot read: {error}").into()),
        };
        let Some(status) = status else { return Ok(()) };
        let sent = connection.request.take().ok_or("an answer to no request")?;
        let now = Instant::now();
        self.in_flight -= 1;
        self.idle.push(at);
        if Some(status) == self.load.busy {
            self.loaded.busy += 1;
            return Ok(());
        }
        if status != sent.request.expected {
            if self.loaded.errors.is_empty() {
                let body = String::from_utf8_lossy(&self.connections[at].answers.kept).into_owned();
                self.loaded.first_error = format!("{status}: {body}");
            }
            *self.loaded.errors.entry(status).or_default() += 1;
            return Ok(());
        }
        let acknowledged = &mut self.loaded.acknowledged;
        if acknowledged.len() <= sent.request.chain {
            acknowledged.resize(sent.request.chain + 1, 0);
        }
        acknowledged[sent.request.chain] += u64::from(sent.request.events);
        if let Some(tally) = self.load.tally {
            tally.fetch_add(sent.request.events.into(), Ordering::Relaxed);
        }
        // The closed loop counts what was answered in the time, the open one what was due in it.
        let counts = match self.load.pace {
            Pace::Closed => now >= self.begin && !ended,
            Pace::Open(_) => sent.due >= self.begin,
        };
        if counts {
            self.loaded.requests += 1;
            self.loaded.events += u64::from(sent.request.events);
            self.loaded.latencies_ns.push(nanos(now - sent.due));
        }
        Ok(())
    }
}
