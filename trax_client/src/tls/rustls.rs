//! TLS by rustls: which certificates are trusted, and what is said of one that is not.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::address::{Address, SslMode};
use crate::error::{Error, Result};

pub(crate) type Connector = MakeRustlsConnect;

/// How to do the handshake of one connection; reads the files that the address names.
pub(crate) fn connector(address: &Address) -> Result<Connector> {
    // Named, not the process's default: whoever uses this library may have another one.
    let provider = Arc::new(ring::default_provider());
    let wrong = |error: rustls::Error| Error::Tls(error.to_string());
    let verifier: Arc<dyn ServerCertVerifier> = match trust(address)? {
        None => Arc::new(Lenient::Anybody(Arc::clone(&provider))),
        Some((mode, roots)) => {
            let strict =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                    .build()
                    .map_err(|error| Error::Tls(error.to_string()))?;
            match mode {
                SslMode::VerifyFull => strict,
                _ => Arc::new(Lenient::AnyName(strict)),
            }
        }
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match identity(address)? {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(wrong)?,
        None => builder.with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}

/// The CAs to trust and how strictly; none when nothing is verified.
fn trust(address: &Address) -> Result<Option<(SslMode, RootCertStore)>> {
    let mode = address.sslmode();
    if mode < SslMode::Require {
        return Ok(None);
    }
    if address.tls.root.as_deref() == Some("system") {
        return match mode {
            SslMode::VerifyFull => Ok(Some((mode, of_the_system()?))),
            // Anybody can have a certificate of theirs.
            _ => Err(Error::Tls(format!(
                "sslrootcert=system with sslmode={} would trust everybody; say sslmode=verify-full",
                mode.as_str()
            ))),
        };
    }
    let named = address.tls.root.as_ref().map(PathBuf::from);
    match named.or_else(|| Address::home_file("root.crt")) {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("sslrootcert", &path)? {
                roots.add(certificate).map_err(|error| {
                    Error::Tls(format!("sslrootcert {}: {error}", path.display()))
                })?;
            }
            Ok(Some((mode.max(SslMode::VerifyCa), roots)))
        }
        None if mode == SslMode::Require => Ok(None),
        None => Err(Error::Tls(format!(
            "sslmode={} needs to know whom to trust; say sslrootcert=FILE with the certificate of the CA, \
             sslrootcert=system, or put it into ~/.postgresql/root.crt",
            mode.as_str()
        ))),
    }
}

fn of_the_system() -> Result<RootCertStore> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // As everywhere: one that cannot be read does not stop the others.
    let (added, _) = roots.add_parsable_certificates(loaded.certs);
    match (added, loaded.errors.first()) {
        (0, Some(error)) => Err(Error::Tls(format!("sslrootcert=system: {error}"))),
        (0, None) => Err(Error::Tls(
            "sslrootcert=system: this machine has no certificates of CAs; install ca-certificates"
                .to_owned(),
        )),
        _ => Ok(roots),
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The certificate that this client shows, if it has one.
fn identity(address: &Address) -> Result<Option<Identity>> {
    let file = |named: &Option<String>, name| {
        let named = named.as_ref().map(PathBuf::from);
        named.or_else(|| Address::home_file(name))
    };
    if address.sslmode() == SslMode::Disable {
        return Ok(None);
    }
    let Some(cert) = file(&address.tls.cert, "postgresql.crt") else {
        return Ok(None);
    };
    let Some(key) = file(&address.tls.key, "postgresql.key") else {
        return Err(Error::Tls(format!(
            "there is no key for the certificate {}; say sslkey=FILE",
            cert.display()
        )));
    };
    let chain = certificates("sslcert", &cert)?;
    let key = PrivateKeyDer::from_pem_file(&key)
        .map_err(|error| Error::Tls(format!("sslkey {}: {error}", key.display())))?;
    Ok(Some((chain, key)))
}

fn certificates(parameter: &str, path: &std::path::Path) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = |cause: &dyn std::fmt::Display| {
        Error::Tls(format!("{parameter} {}: {cause}", path.display()))
    };
    let all: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(&error))?;
    if all.is_empty() {
        return Err(wrong(&"there is no certificate in this file"));
    }
    Ok(all)
}

/// Verifies less than rustls alone does.
#[derive(Debug)]
enum Lenient {
    /// `require`: encrypted, whoever it is.
    Anybody(Arc<CryptoProvider>),
    /// `verify-ca`: signed by a trusted CA, for whatever name.
    AnyName(Arc<WebPkiServerVerifier>),
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Lenient::AnyName(strict) = self else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified =
            strict.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The name is looked at last: all else is right.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    // That the other side has the certificate's key is verified always: channel binding stands on it.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match self {
            Lenient::Anybody(provider) => {
                let known = &provider.signature_verification_algorithms;
                verify_tls12_signature(message, cert, dss, known)
            }
            Lenient::AnyName(strict) => strict.verify_tls12_signature(message, cert, dss),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match self {
            Lenient::Anybody(provider) => {
                let known = &provider.signature_verification_algorithms;
                verify_tls13_signature(message, cert, dss, known)
            }
            Lenient::AnyName(strict) => strict.verify_tls13_signature(message, cert, dss),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        match self {
            Lenient::Anybody(provider) => provider
                .signature_verification_algorithms
                .supported_schemes(),
            Lenient::AnyName(strict) => strict.supported_verify_schemes(),
        }
    }
}

/// Why a handshake failed, for who has to act.
pub(crate) fn explain(error: &io::Error) -> String {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    let Some(rustls::Error::InvalidCertificate(refused)) = cause else {
        return error.to_string();
    };
    match refused {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the server's certificate is not signed by a CA of sslrootcert".to_owned()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "the server's certificate is not for \"{}\", it is for {}",
            expected.to_str(),
            presented.join(", ")
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired".to_owned()
        }
        CertificateError::Other(cause) => {
            format!("the server's certificate is refused: {cause}")
        }
        other => format!("the server's certificate is refused: {other}"),
    }
}
