//! Connections to the service, plain or with TLS.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{self, CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::http::address::Address;

pub(crate) type Sender = SendRequest<Full<Bytes>>;

/// What has happened if the first byte of an answer begins a TLS record.
pub(crate) const SPEAKS_TLS: &str = "the port speaks TLS";

#[derive(Clone)]
pub(crate) struct Connector {
    tls: Option<TlsConnector>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("is_tls", &self.tls.is_some()).finish()
    }
}

impl Connector {
    /// Believes whom the system believes; `SSL_CERT_FILE` names others.
    pub fn new(address: &Address) -> Result<Connector, String> {
        if !address.is_tls {
            return Ok(Connector { tls: None });
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err("this system has no root certificates: install them (ca-certificates on Debian), or set SSL_CERT_FILE to a file".into());
        }
        Connector::rooted(roots)
    }

    /// Believes the authorities of this file alone.
    pub fn believing(address: &Address, file: &Path) -> Result<Connector, String> {
        let mut roots = RootCertStore::empty();
        let certificates =
            CertificateDer::pem_file_iter(file).map_err(|error| format!("cannot read it: {error}"))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| format!("has a malformed certificate: {error}"))?;
            roots.add(certificate).map_err(|error| format!("has an unusable certificate: {error}"))?;
        }
        if roots.is_empty() {
            return Err("has no certificate in PEM form".into());
        }
        if address.is_tls { Connector::rooted(roots) } else { Ok(Connector { tls: None }) }
    }

    fn rooted(roots: RootCertStore) -> Result<Connector, String> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Connector { tls: Some(TlsConnector::from(Arc::new(config))) })
    }

    /// Believes anyone who has the private key of the certificate that they show.
    pub fn believing_anyone(address: &Address) -> Result<Connector, String> {
        if !address.is_tls {
            return Ok(Connector { tls: None });
        }
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
            .with_no_client_auth();
        Ok(Connector { tls: Some(TlsConnector::from(Arc::new(config))) })
    }

    pub async fn connect(&self, address: &Address) -> io::Result<Sender> {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => begin(Plain { stream, has_begun: false }).await,
            Some(tls) => {
                let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
                begin(tls.connect(name, stream).await?).await
            }
        }
    }
}

/// Looks at signatures, and not at who vouches for whom.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

macro_rules! signatures {
    ($($method:ident),*) => { $(
        fn $method(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            crypto::$method(message, certificate, signature, &self.0.signature_verification_algorithms)
        }
    )* };
}

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    signatures!(verify_tls12_signature, verify_tls13_signature);

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A connection without TLS. It notices a TLS record in place of an answer, which would otherwise be an
/// answer that is not HTTP.
struct Plain {
    stream: TcpStream,
    has_begun: bool,
}

impl AsyncRead for Plain {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if let Some(first) = buffer.filled().get(before)
            && !self.has_begun
        {
            self.has_begun = true;
            // An alert, or a handshake.
            if matches!(first, 0x15 | 0x16) {
                return Poll::Ready(Err(io::Error::other(SPEAKS_TLS)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Plain {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

async fn begin(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> io::Result<Sender> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Ends with its connection; what went wrong reaches whoever waits for an answer.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}
