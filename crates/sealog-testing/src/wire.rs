//! A wire between a node and its database that can be told to fail.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::eventually;

/// Passes everything on, until a message comes that has a certain text in it.
pub struct Wire {
    pub port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    told: Mutex<Option<(Told, &'static str)>>,
    caught: AtomicBool,
    go_on: AtomicBool,
    is_down: AtomicBool,
    clients: Mutex<Vec<TcpStream>>,
}

/// What becomes of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The database never hears of it, and the connection is cut.
    CutBefore,
    /// The database hears of it, its answer never arrives, and the connection is cut.
    CutAfter,
    /// The database hears of it later.
    Hold,
}

impl Wire {
    pub fn to(port: u16) -> Wire {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let wire = Wire { port: listener.local_addr().unwrap().port(), state: Arc::default() };
        let state = Arc::clone(&wire.state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if state.is_down.load(Ordering::SeqCst) {
                    continue;
                }
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
                state.clients.lock().unwrap().push(client.try_clone().unwrap());
                let (answers, back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let silent = Arc::new(AtomicBool::new(false));
                let (state, is_silent) = (Arc::clone(&state), Arc::clone(&silent));
                std::thread::spawn(move || pass_back(answers, back, &is_silent));
                std::thread::spawn(move || state.pass_on(client, server, &silent));
            }
        });
        wire
    }

    /// From now on the next message with this text is caught.
    pub fn catch(&self, how: Told, text: &'static str) {
        self.state.caught.store(false, Ordering::SeqCst);
        self.state.go_on.store(false, Ordering::SeqCst);
        *self.state.told.lock().unwrap() = Some((how, text));
    }

    pub fn has_caught(&self) -> bool {
        self.state.caught.load(Ordering::SeqCst)
    }

    /// What was caught goes on, or is cut: until then the database does not find out.
    pub fn release(&self) {
        self.state.go_on.store(true, Ordering::SeqCst);
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.state.clients.lock().unwrap().len()
    }

    /// Cuts every connection, and all that come.
    pub fn take_down(&self) {
        self.state.is_down.store(true, Ordering::SeqCst);
        for client in self.state.clients.lock().unwrap().drain(..) {
            let _ = client.shutdown(Shutdown::Both);
        }
    }
}

impl State {
    fn pass_on(&self, mut client: TcpStream, mut server: TcpStream, silent: &AtomicBool) {
        let mut buffer = vec![0; 1 << 20];
        let mut is_derived = false;
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            let says =
                |text: &str| buffer[..count].windows(text.len()).any(|window| window == text.as_bytes());
            // What is derived from events is committed in the background, at any moment, and says so at its
            // beginning.
            is_derived |= says("synchronous_commit = off");
            let how = match *self.told.lock().unwrap() {
                Some((how, text)) if says(text) && !is_derived => Some(how),
                _ => None,
            };
            is_derived &= !says("COMMIT\0");
            if how.is_some() {
                *self.told.lock().unwrap() = None;
            }
            silent.store(how == Some(Told::CutAfter), Ordering::SeqCst);
            let may_go_on = || eventually("it may go on", || self.go_on.load(Ordering::SeqCst));
            if how == Some(Told::Hold) {
                self.caught.store(true, Ordering::SeqCst);
                may_go_on();
            }
            if how != Some(Told::CutBefore) && server.write_all(&buffer[..count]).is_err() {
                break;
            }
            if matches!(how, Some(Told::CutBefore | Told::CutAfter)) {
                self.caught.store(true, Ordering::SeqCst);
                may_go_on();
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }
}

fn pass_back(mut server: TcpStream, mut client: TcpStream, is_silent: &AtomicBool) {
    let mut buffer = vec![0; 1 << 20];
    while let Ok(count @ 1..) = server.read(&mut buffer) {
        if !is_silent.load(Ordering::SeqCst) && client.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}
