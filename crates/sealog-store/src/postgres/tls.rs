//! TLS to the database, as its URL asks for it.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, io};

use sha2::{Digest, Sha256, Sha384, Sha512};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{self, CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_rustls::{TlsConnector, client};

/// What of the server's certificate is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    Nothing,
    Authority,
    AuthorityAndName,
}

/// Whom to believe.
#[derive(Debug)]
pub(super) enum Roots {
    System,
    File(PathBuf),
}

#[derive(Clone)]
pub(super) struct Tls {
    pub check: Check,
    config: Arc<ClientConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("check", &self.check).finish_non_exhaustive()
    }
}

impl Tls {
    pub(super) fn new(check: Check, roots: &Roots) -> Result<Tls, String> {
        let provider = Arc::new(ring::default_provider());
        let authority = match check {
            Check::Nothing => None,
            Check::Authority | Check::AuthorityAndName => {
                let verifier = WebPkiServerVerifier::builder_with_provider(
                    Arc::new(load(roots)?),
                    Arc::clone(&provider),
                );
                Some(verifier.build().map_err(|error| format!("cannot use the root certificates: {error}"))?)
            }
        };
        let verifier =
            Verifier { provider: Arc::clone(&provider), authority, name: check == Check::AuthorityAndName };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(Tls { check, config: Arc::new(config) })
    }
}

fn load(roots: &Roots) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    match roots {
        Roots::System => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
        }
        Roots::File(path) => {
            let wrong = |error: &dyn fmt::Display| format!("sslrootcert {}: {error}", path.display());
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
                store.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
            }
        }
    }
    if store.is_empty() {
        return Err("there are no root certificates; give a file with sslrootcert".into());
    }
    Ok(store)
}

/// The URL's mode decides what is checked, as everywhere else with PostgreSQL; whoever wants to know whom
/// they talk to asks for `verify-full`.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    authority: Option<Arc<WebPkiServerVerifier>>,
    name: bool,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        match authority.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.name => Ok(ServerCertVerified::assertion()),
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Stream;
    type TlsConnect = Connect;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Connect> {
        let name = ServerName::try_from(domain.to_owned()).map_err(io::Error::other)?;
        Ok(Connect { connector: TlsConnector::from(Arc::clone(&self.config)), name })
    }
}

pub(super) struct Connect {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl TlsConnect<Socket> for Connect {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { Ok(Stream(Box::new(self.connector.connect(self.name, socket).await?))) })
    }
}

pub(super) struct Stream(Box<client::TlsStream<Socket>>);

impl TlsStream for Stream {
    /// Ties the password's proof to the certificate that this side has seen: whoever stands in between with
    /// another one cannot pass it on (RFC 5929, SCRAM-SHA-256-PLUS).
    fn channel_binding(&self) -> ChannelBinding {
        let (_, connection) = self.0.get_ref();
        let certificate = connection.peer_certificates().and_then(|chain| chain.first());
        certificate
            .and_then(|certificate| server_end_point(certificate))
            .map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

/// The hash of a certificate by the hash function of its signature, as RFC 5929 wants it: SHA-256 in place of
/// MD5 and SHA-1. Nothing for a signature that has no hash function of its own (Ed25519), for which the RFC
/// says nothing and PostgreSQL has no binding either.
fn server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    // Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm SEQUENCE { algorithm OBJECT IDENTIFIER,
    // parameters }, signatureValue }
    let (content, _) = der(certificate, SEQUENCE)?;
    let (_, rest) = der(content, SEQUENCE)?;
    let (algorithm, _) = der(rest, SEQUENCE)?;
    let (oid, parameters) = der(algorithm, OBJECT_IDENTIFIER)?;
    let hash = match oid {
        RSA_PSS => pss_hash(parameters)?,
        _ => SIGNATURES.iter().find(|(known, _)| *known == oid)?.1,
    };
    Some(match hash {
        HashFunction::Sha256 => Sha256::digest(certificate).to_vec(),
        HashFunction::Sha384 => Sha384::digest(certificate).to_vec(),
        HashFunction::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HashFunction {
    Sha256,
    Sha384,
    Sha512,
}

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// `[0]` of the parameters of RSASSA-PSS.
const PSS_HASH: u8 = 0xa0;

/// 1.2.840.113549.1.1.10
const RSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a];
const SIGNATURES: [(&[u8], HashFunction); 9] = [
    // 1.2.840.113549.1.1: RSA with MD5, SHA-1, SHA-256, SHA-384, SHA-512
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x04], HashFunction::Sha256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05], HashFunction::Sha256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b], HashFunction::Sha256),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c], HashFunction::Sha384),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d], HashFunction::Sha512),
    // 1.2.840.10045.4: ECDSA with SHA-1, SHA-256, SHA-384, SHA-512
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01], HashFunction::Sha256),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02], HashFunction::Sha256),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03], HashFunction::Sha384),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04], HashFunction::Sha512),
];

/// RSASSA-PSS names its hash function apart; SHA-1 where it does not.
fn pss_hash(parameters: &[u8]) -> Option<HashFunction> {
    let (parameters, _) = der(parameters, SEQUENCE)?;
    let Some((explicit, _)) = der(parameters, PSS_HASH) else { return Some(HashFunction::Sha256) };
    let (algorithm, _) = der(explicit, SEQUENCE)?;
    match der(algorithm, OBJECT_IDENTIFIER)?.0 {
        // 1.3.14.3.2.26, then 2.16.840.1.101.3.4.2.1 to 3
        [0x2b, 0x0e, 0x03, 0x02, 0x1a] | [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01] => {
            Some(HashFunction::Sha256)
        }
        [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02] => Some(HashFunction::Sha384),
        [0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03] => Some(HashFunction::Sha512),
        _ => None,
    }
}

/// The content of the DER element at the beginning, if it has this tag, and what follows it.
fn der(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = if *first < 0x80 {
        (usize::from(*first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        let length = digits
            .iter()
            .try_fold(0_usize, |length, digit| length.checked_mul(256)?.checked_add(usize::from(*digit)))?;
        (length, rest)
    };
    if *found != tag {
        return None;
    }
    rest.split_at_checked(length)
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[&[u8]]) -> Vec<u8> {
        let content = content.concat();
        let mut out = vec![tag, 0x82];
        out.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
        out.extend(content);
        out
    }

    fn certificate(algorithm: &[&[u8]]) -> Vec<u8> {
        let algorithm = element(SEQUENCE, algorithm);
        element(SEQUENCE, &[&element(SEQUENCE, &[&[7; 300]]), &algorithm, &element(0x03, &[&[0; 64]])])
    }

    #[test]
    fn a_certificate_is_bound_by_the_hash_function_of_its_signature_and_by_sha_256_instead_of_older_ones() {
        for (oid, hash) in SIGNATURES {
            let certificate = certificate(&[&element(OBJECT_IDENTIFIER, &[oid]), &[0x05, 0x00]]);
            let length = match hash {
                HashFunction::Sha256 => 32,
                HashFunction::Sha384 => 48,
                HashFunction::Sha512 => 64,
            };
            let bound = server_end_point(&certificate).unwrap();
            assert_eq!(bound.len(), length, "{oid:?}");
            assert!(length > 32 || bound == Sha256::digest(&certificate).to_vec());
        }
        let pss = element(OBJECT_IDENTIFIER, &[RSA_PSS]);
        let sha_512 = element(OBJECT_IDENTIFIER, &[&[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x03]]);
        let named = element(PSS_HASH, &[&element(SEQUENCE, &[&sha_512])]);
        assert_eq!(server_end_point(&certificate(&[&pss, &element(SEQUENCE, &[&named])])).unwrap().len(), 64);
        assert_eq!(server_end_point(&certificate(&[&pss, &element(SEQUENCE, &[])])).unwrap().len(), 32);
        let ed25519 = element(OBJECT_IDENTIFIER, &[&[0x2b, 0x65, 0x70]]);
        assert_eq!(server_end_point(&certificate(&[&ed25519])), None);
    }

    #[test]
    fn what_is_no_certificate_is_bound_by_nothing() {
        let whole = certificate(&[&element(OBJECT_IDENTIFIER, &[SIGNATURES[2].0])]);
        for length in 0..whole.len() {
            assert_eq!(server_end_point(&whole[..length]), None, "{length} bytes");
        }
        assert_eq!(server_end_point(&[0x30, 0xff, 0xff, 0xff]), None);
    }
}
