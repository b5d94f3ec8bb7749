//! A connection of the generator: TCP, or TLS on top of it.

use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::outcome::Outcome;

/// A certificate of a server that is measured, its key, and a client that believes it.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub file: PathBuf,
    pub key: PathBuf,
    pub client: Arc<ClientConfig>,
}

impl Certificate {
    /// Makes one in this directory: by `openssl`, on the curve that most certificates are on.
    pub fn make(dir: &Path) -> Outcome<Certificate> {
        std::fs::create_dir_all(dir)?;
        let (file, key) = (dir.join("cert.pem"), dir.join("key.pem"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args([Path::new("-keyout"), &key, Path::new("-out"), &file])
            .output()
            .map_err(|error| format!("openssl cannot be run: {error}; install it"))?;
        if !made.status.success() {
            return Err(format!("openssl: {}", String::from_utf8_lossy(&made.stderr)).into());
        }
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&file)?)?;
        let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Certificate { file, key, client: Arc::new(client) })
    }
}

#[derive(Debug)]
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Connects, and has agreed on keys when it returns.
    pub fn connect(address: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> Outcome<Stream> {
        let mut tcp = TcpStream::connect(address)?;
        tcp.set_nodelay(true)?;
        let Some(tls) = tls else { return Ok(Stream::Plain(tcp)) };
        let mut session = ClientConnection::new(Arc::clone(tls), ServerName::try_from("localhost")?)?;
        while session.is_handshaking() {
            session.complete_io(&mut tcp)?;
        }
        Ok(Stream::Tls(Box::new(StreamOwned::new(session, tcp))))
    }

    pub fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) => &tls.sock,
        }
    }

    /// Whether it has taken bytes that the kernel has not.
    pub fn has_unsent(&self) -> bool {
        matches!(self, Stream::Tls(tls) if tls.conn.wants_write())
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(tcp) => tcp.read(into),
            Stream::Tls(tls) => tls.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(tcp) => tcp.write(bytes),
            Stream::Tls(tls) => tls.write(bytes),
        }
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Plain(tcp) => tcp.write_vectored(parts),
            Stream::Tls(tls) => tls.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(tcp) => tcp.flush(),
            Stream::Tls(tls) => tls.flush(),
        }
    }
}
