//! Verifies the server's certificate by libpq's rules.
//!
//! webpki verifies the chain. Three rules are OpenSSL's and not webpki's, and are implemented here.
//! A self-signed certificate listed in `sslrootcert` is trusted, even if it is marked as a CA's. A
//! certificate without a name of the right kind in its subjectAltName is matched by its common
//! name. A certificate of X.509 version 1 may prove possession of its key if nothing else is
//! verified.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, PeerMisbehaved, SignatureScheme,
};
use x509_cert::Certificate;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::COMMON_NAME;
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::time::Validity;

/// Verifies a server's certificate.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) provider: Arc<CryptoProvider>,
    /// The trusted certificates; `None` if nothing is verified.
    pub(super) trust: Option<Trust>,
}

#[derive(Debug)]
pub(super) struct Trust {
    pub(super) chain: Arc<WebPkiServerVerifier>,
    /// The certificates of `sslrootcert`; empty if revocation lists apply.
    pub(super) known: Vec<CertificateDer<'static>>,
    /// Whether the name is verified: `verify-full`.
    pub(super) name: bool,
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
        let Some(trust) = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        let itself = parsed(end_entity)?.tbs_certificate;
        if itself.issuer == itself.subject && trust.known.iter().any(|known| known == end_entity) {
            check_time(&itself.validity, now)?;
        } else {
            let verified = trust.chain.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            );
            // webpki checks the name last, so all else is valid here; the name is checked below.
            if let Err(refused) = verified
                && !matches!(
                    refused,
                    Error::InvalidCertificate(
                        CertificateError::NotValidForName
                            | CertificateError::NotValidForNameContext { .. }
                    )
                )
            {
                return Err(refused);
            }
        }
        if trust.name {
            check_name(end_entity, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    // Possession of the certificate's key is always verified, as channel binding depends on it.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let tls12_only = [
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA512,
        ];
        if tls12_only.contains(&dss.scheme) {
            return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
        }
        self.verify_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

impl Verifier {
    /// Verifies a signature with the key of a certificate of any version.
    fn verify_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let cert = parsed(cert)?;
        let info = &cert.tbs_certificate.subject_public_key_info;
        let algorithm = info.algorithm.to_der().map_err(unreadable)?;
        let key = info.subject_public_key.raw_bytes();
        let known = &self.provider.signature_verification_algorithms;
        let (_, ways) = known
            .mapping
            .iter()
            .find(|(scheme, _)| *scheme == dss.scheme)
            .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        let fits = ways
            .iter()
            .filter(|way| contents(&algorithm) == way.public_key_alg_id().as_ref())
            .any(|way| way.verify_signature(key, message, dss.signature()).is_ok());
        if fits {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(CertificateError::BadSignature.into())
        }
    }
}

/// Returns the contents of a DER sequence shorter than 128 bytes, such as an algorithm identifier.
fn contents(sequence: &[u8]) -> &[u8] {
    sequence.get(2..).unwrap_or_default()
}

fn parsed(cert: &CertificateDer<'_>) -> Result<Certificate, Error> {
    Certificate::from_der(cert).map_err(unreadable)
}

fn unreadable(error: x509_cert::der::Error) -> Error {
    CertificateError::Other(OtherError(Arc::new(error))).into()
}

fn check_time(validity: &Validity, now: UnixTime) -> Result<(), Error> {
    let now = Duration::from_secs(now.as_secs());
    if now < validity.not_before.to_unix_duration() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.to_unix_duration() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

/// Returns whether the certificate is issued for this host: by its subjectAltName, or by its common
/// name if that has no name of the same kind (host or IP address).
fn check_name(cert: &CertificateDer<'_>, host: &ServerName<'_>) -> Result<(), Error> {
    let by_alternative =
        ParsedCertificate::try_from(cert).and_then(|cert| verify_server_name(&cert, host));
    let names = Names::of(&parsed(cert)?);
    match by_alternative {
        Ok(()) => Ok(()),
        Err(_) if names.are_for(host) => Ok(()),
        Err(_) => Err(CertificateError::NotValidForNameContext {
            expected: host.to_owned(),
            presented: names.presented(),
        }
        .into()),
    }
}

/// The names in a certificate.
#[derive(Debug, Default)]
struct Names {
    hosts: Vec<String>,
    addresses: Vec<IpAddr>,
    common: Option<String>,
}

impl Names {
    fn of(cert: &Certificate) -> Self {
        let mut names = Self::default();
        if let Ok(Some((_, alternatives))) = cert.tbs_certificate.get::<SubjectAltName>() {
            for name in alternatives.0 {
                match name {
                    GeneralName::DnsName(host) => names.hosts.push(host.to_string()),
                    GeneralName::IpAddress(address) => {
                        names.addresses.extend(ip_address(address.as_bytes()));
                    }
                    _ => {}
                }
            }
        }
        let subject = cert.tbs_certificate.subject.0.iter();
        names.common = subject
            .flat_map(|set| set.0.iter())
            .find(|attribute| attribute.oid == COMMON_NAME)
            .and_then(|attribute| {
                let value = &attribute.value;
                let text = Utf8StringRef::try_from(value).map(|text| text.to_string());
                text.or_else(|_| PrintableStringRef::try_from(value).map(|t| t.to_string()))
                    .or_else(|_| Ia5StringRef::try_from(value).map(|t| t.to_string()))
                    .or_else(|_| TeletexStringRef::try_from(value).map(|t| t.to_string()))
                    .ok()
            });
        names
    }

    /// Checks names that webpki ignores: an IP address written as a host name, and the common name.
    fn are_for(&self, host: &ServerName<'_>) -> bool {
        let text = host.to_str();
        let common = |is_free: bool| {
            is_free
                && self
                    .common
                    .as_deref()
                    .is_some_and(|name| matches(name, &text))
        };
        match host {
            ServerName::IpAddress(_) => {
                self.hosts.iter().any(|name| *name == text) || common(self.addresses.is_empty())
            }
            _ => common(self.hosts.is_empty()),
        }
    }

    fn presented(self) -> Vec<String> {
        let addresses = self.addresses.iter().map(IpAddr::to_string);
        let mut all: Vec<String> = self.hosts.into_iter().chain(addresses).collect();
        if all.is_empty() {
            all.extend(self.common);
        }
        all.iter().map(|name| format!("{name:?}")).collect()
    }
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
    v4.or_else(|| <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok())
}

/// Returns whether a common name matches the host. A leading `*.` stands for one label.
fn matches(name: &str, host: &str) -> bool {
    match name.strip_prefix("*.") {
        Some(domain) => host
            .split_once('.')
            .is_some_and(|(_, of_host)| of_host.eq_ignore_ascii_case(domain)),
        None => name.eq_ignore_ascii_case(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(hosts: &[&str], addresses: &[&str], common: &str) -> Names {
        Names {
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            addresses: addresses.iter().flat_map(|text| text.parse()).collect(),
            common: Some(common.to_owned()),
        }
    }

    fn fits(names: &Names, host: &str) -> bool {
        names.are_for(&ServerName::try_from(host).expect("a name"))
    }

    #[test]
    fn a_common_name_counts_only_without_an_alternative_of_its_kind() {
        assert!(fits(&names(&[], &[], "db.example"), "DB.example"));
        assert!(!fits(&names(&["other"], &[], "db.example"), "db.example"));
        assert!(fits(&names(&[], &["10.0.0.1"], "db.example"), "db.example"));
        assert!(fits(&names(&["db"], &[], "10.0.0.1"), "10.0.0.1"));
        assert!(!fits(&names(&[], &["10.0.0.2"], "10.0.0.1"), "10.0.0.1"));
        assert!(fits(&names(&["10.0.0.1"], &[], "db"), "10.0.0.1"));
    }

    #[test]
    fn a_wildcard_stands_for_one_label() {
        assert!(matches("*.example.org", "db.example.ORG"));
        assert!(!matches("*.example.org", "a.db.example.org"));
        assert!(!matches("*.example.org", "example.org"));
        assert!(!matches("*", "db"));
    }
}
