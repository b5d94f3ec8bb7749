//! TLS from files: a certificate and its key, followed while the server runs. What cannot be used never takes
//! the place of what can.

mod not_after;

use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use sealog_core::time::iso_ms;
use sealog_service::ingest::stamp::Stamp;
use sealog_store::sync::{lock, read, write};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::server::TlsStream;
use zeroize::Zeroizing;

/// How often the files are looked at. A change is taken when it is the same at two looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The first byte of a client that speaks TLS: a record with a handshake in it. No request begins with it.
pub(crate) const HANDSHAKE: u8 = 22;

/// Most that a file with a chain of certificates or a key may have.
const FILE_BYTES_MAX: u64 = 1 << 20;

const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

/// A certificate that follows its files.
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    acceptor: TlsAcceptor,
    /// For HTTP/1.1 alone.
    acceptor_1: TlsAcceptor,
    in_use: Arc<InUse>,
    files: Mutex<Followed>,
    /// Told by whoever does not want to wait for the next look.
    now: Notify,
    pub(crate) figures: Figures,
}

/// What is counted for the metrics.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) taken: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) handshakes_failed: AtomicU64,
}

/// What connections are answered with.
struct InUse(RwLock<Loaded>);

#[derive(Clone)]
struct Loaded {
    key: Arc<CertifiedKey>,
    not_after_s: u64,
}

impl fmt::Debug for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InUse").field("not_after_s", &read(&self.0).not_after_s).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for InUse {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&read(&self.0).key))
    }
}

type Stamps = [Option<Stamp>; 2];

/// What is known of the files.
struct Followed {
    in_use: Stamps,
    /// As they were at the last look.
    settling: Stamps,
    /// What was refused already, and why.
    refused: Option<(Stamps, String)>,
}

/// What a look at the files has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    Same,
    /// They are others, perhaps not yet both.
    Settling,
    Taken {
        not_after_s: u64,
    },
    Refused {
        why: String,
    },
    /// Nothing that has not been said.
    RefusedBefore,
}

impl Tls {
    /// Reads both files, or says why they cannot be used.
    pub fn open(certificate: &Path, key: &Path) -> Result<Tls, String> {
        let stamps = stamps(certificate, key);
        let loaded = load(certificate, key)?;
        let in_use = Arc::new(InUse(RwLock::new(loaded)));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&in_use) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![HTTP_1.to_vec()];
        // Who comes back need not prove everything again. The keys of tickets are made at the start and
        // change by themselves.
        config.ticketer = ring::Ticketer::new().map_err(|error| error.to_string())?;
        let mut config_2 = config.clone();
        config_2.alpn_protocols.insert(0, HTTP_2.to_vec());
        Ok(Tls {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            acceptor: TlsAcceptor::from(Arc::new(config_2)),
            acceptor_1: TlsAcceptor::from(Arc::new(config)),
            in_use,
            files: Mutex::new(Followed { in_use: stamps, settling: stamps, refused: None }),
            now: Notify::new(),
            figures: Figures::default(),
        })
    }

    /// When the certificate in use ends, as Unix time.
    pub fn not_after_s(&self) -> u64 {
        read(&self.in_use.0).not_after_s
    }

    /// Why the files that are there now are not those in use.
    pub fn refused(&self) -> Option<String> {
        lock(&self.files).refused.as_ref().map(|(_, why)| why.clone())
    }

    /// Has the files looked at without waiting until they are at rest.
    pub fn look_now(&self) {
        self.now.notify_one();
    }

    /// Looks at the files and takes them when they are others: at rest, unless somebody has asked for it.
    /// Files that cannot be used are refused once; what is in use stays so.
    pub fn look(&self, asked: bool, now_s: u64) -> Looked {
        let mut files = lock(&self.files);
        let stamps = stamps(&self.certificate, &self.key);
        let settled = std::mem::replace(&mut files.settling, stamps) == stamps;
        if stamps == files.in_use {
            files.refused = None;
            return Looked::Same;
        }
        if !asked && files.refused.as_ref().is_some_and(|(refused, _)| *refused == stamps) {
            return Looked::RefusedBefore;
        }
        if !settled && !asked {
            return Looked::Settling;
        }
        let usable = load(&self.certificate, &self.key).and_then(|loaded| {
            // At the start there is nothing better; here there is.
            let has_ended = loaded.not_after_s <= now_s && loaded.not_after_s <= self.not_after_s();
            if has_ended { Err(ended(&self.certificate, loaded.not_after_s)) } else { Ok(loaded) }
        });
        match usable {
            Ok(loaded) => {
                let not_after_s = loaded.not_after_s;
                *write(&self.in_use.0) = loaded;
                (files.in_use, files.refused) = (stamps, None);
                self.figures.taken.fetch_add(1, Ordering::Relaxed);
                Looked::Taken { not_after_s }
            }
            Err(why) => {
                files.refused = Some((stamps, why.clone()));
                self.figures.refused.fetch_add(1, Ordering::Relaxed);
                Looked::Refused { why }
            }
        }
    }

    /// Agrees on keys with a client, and on HTTP/2 if that is offered and the client has it.
    pub(crate) async fn handshake(
        &self,
        stream: TcpStream,
        offers_http_2: bool,
    ) -> io::Result<TlsStream<TcpStream>> {
        let acceptor = if offers_http_2 { &self.acceptor } else { &self.acceptor_1 };
        let accepted = acceptor.accept(stream).await;
        if accepted.is_err() {
            self.figures.handshakes_failed.fetch_add(1, Ordering::Relaxed);
        }
        accepted
    }

    /// Says how things are, at the start.
    pub fn say(&self, now_s: u64) {
        let (file, until) = (self.certificate.display(), iso_ms(self.not_after_s() * 1000));
        if self.not_after_s() <= now_s {
            tracing::error!(%file, until, "TLS certificate expired; clients will reject it. Replace the file, it is reloaded automatically");
        } else {
            tracing::info!(%file, until, "TLS is on; the certificate is reloaded when its file changes");
        }
        let mode = std::fs::metadata(&self.key).map(|file| file.permissions().mode());
        if mode.is_ok_and(|mode| mode & 0o007 != 0) {
            let key = self.key.display();
            tracing::warn!(%key, "all users of this machine can read the private key; run chmod 600 on it");
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// Whether the client has chosen HTTP/2.
pub(crate) fn speaks_http_2(stream: &TlsStream<TcpStream>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(HTTP_2)
}

/// Looks at the files from time to time and when it is told to, away from the event loop.
pub(crate) async fn follow(tls: Option<&Arc<Tls>>, now_s: impl Fn() -> u64) {
    let Some(tls) = tls else { return };
    loop {
        let asked = tokio::select! {
            () = tls.now.notified() => true,
            () = tokio::time::sleep(LOOK_EVERY) => false,
        };
        let (file, now_s, looking) = (tls.certificate.display(), now_s(), Arc::clone(tls));
        let (sender, looked) = oneshot::channel();
        let thread = std::thread::Builder::new().name("sealog-tls".into());
        if let Err(error) = thread.spawn(move || sender.send(looking.look(asked, now_s))) {
            tracing::warn!(%file, %error, "cannot read the certificate; retrying");
        }
        match looked.await {
            Ok(Looked::Taken { not_after_s }) => {
                let until = iso_ms(not_after_s * 1000);
                tracing::info!(%file, until, "reloaded the certificate; new connections use it");
            }
            Ok(Looked::Refused { why }) => {
                let until = iso_ms(tls.not_after_s() * 1000);
                tracing::error!(%file, why, until, "cannot use the new certificate; the previous one stays in use");
            }
            Ok(Looked::Same) if asked => tracing::info!(%file, "the certificate has not changed"),
            Ok(Looked::Same | Looked::Settling | Looked::RefusedBefore) | Err(_) => {}
        }
    }
}

fn stamps(certificate: &Path, key: &Path) -> Stamps {
    [certificate, key].map(|path| Stamp::of(path).ok())
}

fn ended(certificate: &Path, not_after_s: u64) -> String {
    format!("{}: it expired on {}", certificate.display(), iso_ms(not_after_s * 1000))
}

fn load(certificate: &Path, key: &Path) -> Result<Loaded, String> {
    let of = |path: &Path, why: &dyn fmt::Display| format!("{}: {why}", path.display());
    let text = read_small(certificate).map_err(|error| of(certificate, &error))?;
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| of(certificate, &error))?;
    let Some(first) = chain.first() else {
        return Err(of(certificate, &"it contains no certificate (-----BEGIN CERTIFICATE-----)"));
    };
    let not_after_s =
        not_after::not_after_s(first).ok_or_else(|| of(certificate, &"cannot read its first certificate"))?;
    let text = read_small(key).map_err(|error| of(key, &error))?;
    let private = PrivateKeyDer::from_pem_slice(&text)
        .map_err(|_| of(key, &"it contains no private key (-----BEGIN PRIVATE KEY-----)"))?;
    let certified = CertifiedKey::from_der(chain, private, &ring::default_provider())
        .map_err(|error| format!("{} and {}: {error}", certificate.display(), key.display()))?;
    Ok(Loaded { key: Arc::new(certified), not_after_s })
}

/// Overwritten when dropped: one of them is a key.
fn read_small(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(Vec::with_capacity(16 << 10));
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(
            "it is larger than a megabyte; a certificate or key has a few kilobytes",
        ));
    }
    Ok(text)
}
