//! The reasons for failed TLS handshakes, worded for the user.

use std::io;

#[cfg(feature = "tls")]
use rustls::{CertificateError, Error};

/// Returns the reason for a failed handshake.
#[cfg(feature = "tls")]
pub(crate) fn explain(error: &io::Error) -> String {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    let Some(Error::InvalidCertificate(refused)) = cause else {
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
            "the server's certificate is not for \"{}\" but for {}",
            expected.to_str(),
            presented.join(", ")
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired".to_owned()
        }
        CertificateError::Revoked => {
            "the server's certificate is revoked by a list of sslcrl".to_owned()
        }
        CertificateError::UnknownRevocationStatus => {
            "sslcrl contains no list of the CA that signed the server's certificate".to_owned()
        }
        CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. } => {
            "the revocation list in sslcrl has expired; get the latest from the CA".to_owned()
        }
        CertificateError::Other(cause) if cause.to_string().contains("UnsupportedCertVersion") => {
            "the server's certificate has X.509 version 1, which this program cannot verify; sign it \
             as version 3 (openssl x509 -req with -extfile)"
                .to_owned()
        }
        CertificateError::Other(cause) => {
            format!("the server's certificate is refused: {cause}")
        }
        other => format!("the server's certificate is refused: {other}"),
    }
}

/// Returns the reason for a failed handshake.
#[cfg(not(feature = "tls"))]
pub(crate) fn explain(error: &io::Error) -> String {
    error.to_string()
}
