//! TLS by rustls: reads the files that an address names and sets up trust in them.

use std::cmp::Reverse;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};
use tokio_postgres_rustls::MakeRustlsConnect;
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode;

use super::verifier::{Trust, Verifier};
use crate::address::{Address, SslMode};
use crate::error::{Error, Result};

pub(crate) type Connector = MakeRustlsConnect;

/// Returns the TLS connector for one connection. Reads the files that the address names.
pub(crate) fn connector(address: &Address) -> Result<Connector> {
    // Set explicitly: the program may have installed another process-wide default.
    let provider = Arc::new(ring::default_provider());
    let wrong = |error: rustls::Error| Error::Tls(error.to_string());
    let verifier = Verifier {
        trust: trust(address, &provider)?,
        provider: Arc::clone(&provider),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(address)?)
        .map_err(wrong)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity(address)? {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(wrong)?,
        None => builder.with_no_client_auth(),
    };
    config.enable_sni = address.tls.get("sslsni") != Some("0");
    Ok(MakeRustlsConnect::new(config))
}

/// Returns the versions of TLS between `ssl_min_protocol_version` and `ssl_max_protocol_version`.
fn versions(address: &Address) -> Result<Vec<&'static SupportedProtocolVersion>> {
    let limit = |parameter| {
        let rank = |name: &str| match name {
            "TLSv1.3" => 13,
            "TLSv1.2" => 12,
            _ => 11,
        };
        address.tls.get(parameter).map(rank)
    };
    let least = limit("ssl_min_protocol_version").unwrap_or(12);
    let most = limit("ssl_max_protocol_version").unwrap_or(13);
    let known = [(12, &version::TLS12), (13, &version::TLS13)];
    let allowed: Vec<_> = known
        .into_iter()
        .filter(|(rank, _)| (least..=most).contains(rank))
        .map(|(_, version)| version)
        .collect();
    if allowed.is_empty() {
        return Err(Error::Tls(
            "ssl_min_protocol_version and ssl_max_protocol_version exclude both TLSv1.2 and TLSv1.3, \
             the only versions that this program supports"
                .to_owned(),
        ));
    }
    Ok(allowed)
}

/// Returns the trusted CAs and how strictly to verify; `None` if nothing is verified. A CA file
/// that exists is used in every mode, as in libpq.
fn trust(address: &Address, provider: &Arc<CryptoProvider>) -> Result<Option<Trust>> {
    let mode = address.sslmode();
    let named = address.tls.get("sslrootcert");
    if named == Some("system") && mode != SslMode::VerifyFull {
        // The system's CAs issue certificates to anybody.
        return Err(Error::Tls(format!(
            "sslrootcert=system with sslmode={} would trust any server; use sslmode=verify-full",
            mode.as_str()
        )));
    }
    if mode == SslMode::Disable {
        return Ok(None);
    }
    let (roots, known) = if named == Some("system") {
        (of_the_system()?, Vec::new())
    } else {
        // As in libpq, a missing file is ignored in modes that do not need it.
        let path = named.map(PathBuf::from);
        let path = path.filter(|path| mode >= SslMode::VerifyCa || path.exists());
        match path.or_else(|| Address::home_file("root.crt").filter(|_| named.is_none())) {
            Some(path) => of_file(&path)?,
            None if mode < SslMode::VerifyCa => return Ok(None),
            None => {
                return Err(Error::Tls(format!(
                    "sslmode={} requires the certificate of a CA; use sslrootcert=FILE or sslrootcert=system, or put \
                     it into ~/.postgresql/root.crt",
                    mode.as_str()
                )));
            }
        }
    };
    let crls = revocation_lists(address)?;
    let known = if crls.is_empty() { known } else { Vec::new() };
    let builder =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let chain = builder
        .with_crls(crls)
        .enforce_revocation_expiration()
        .build()
        .map_err(|error| Error::Tls(error.to_string()))?;
    Ok(Some(Trust {
        chain,
        known,
        name: mode == SslMode::VerifyFull,
    }))
}

fn of_file(path: &Path) -> Result<(RootCertStore, Vec<CertificateDer<'static>>)> {
    let known = certificates("sslrootcert", path)?;
    let mut roots = RootCertStore::empty();
    for certificate in &known {
        roots
            .add(certificate.clone())
            .map_err(|error| Error::Tls(format!("sslrootcert {}: {error}", path.display())))?;
    }
    Ok((roots, known))
}

/// Returns the lists of `sslcrl` and of the files in `sslcrldir`, or of `~/.postgresql/root.crl`. A
/// named list that cannot be read is an error; libpq continues without it.
fn revocation_lists(address: &Address) -> Result<Vec<CertificateRevocationListDer<'static>>> {
    let file = address.tls.get("sslcrl").map(PathBuf::from);
    let dir = address.tls.get("sslcrldir").map(PathBuf::from);
    let mut all = Vec::new();
    let home = || Address::home_file("root.crl");
    let file = if dir.is_some() {
        file
    } else {
        file.or_else(home)
    };
    if let Some(path) = file {
        all.extend(lists_in("sslcrl", &path)?);
    }
    if let Some(dir) = dir {
        let wrong =
            |error: std::io::Error| Error::Tls(format!("sslcrldir {}: {error}", dir.display()));
        for entry in dir.read_dir().map_err(wrong)? {
            let path = entry.map_err(wrong)?.path();
            if path.is_file() {
                all.extend(lists_in("sslcrldir", &path)?);
            }
        }
    }
    // Of several lists of one CA the verifier uses the first, and libpq the latest.
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    all.sort_by_cached_key(|list| Reverse(validity(list, now)));
    Ok(all)
}

/// Returns whether a list is valid at `now`, and when it was issued, as time since 1970. A list
/// that cannot be parsed sorts last; the verifier reports it.
fn validity(list: &CertificateRevocationListDer<'_>, now: Duration) -> (bool, Duration) {
    let Ok(list) = CertificateList::from_der(list) else {
        return (false, Duration::ZERO);
    };
    let issued = list.tbs_cert_list.this_update.to_unix_duration();
    let until = list.tbs_cert_list.next_update;
    let is_over = until.is_some_and(|until| until.to_unix_duration() < now);
    (issued <= now && !is_over, issued)
}

fn lists_in(parameter: &str, path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>> {
    let lists: Result<Vec<_>, _> =
        CertificateRevocationListDer::pem_file_iter(path).and_then(Iterator::collect);
    match lists {
        Ok(lists) if !lists.is_empty() => Ok(lists),
        Ok(_) => Err(Error::Tls(format!(
            "{parameter} {}: this file contains no certificate revocation list",
            path.display()
        ))),
        Err(error) => Err(Error::Tls(format!(
            "{parameter} {}: {error}",
            path.display()
        ))),
    }
}

fn of_the_system() -> Result<RootCertStore> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // As elsewhere, an unreadable certificate does not prevent use of the others.
    let (added, _) = roots.add_parsable_certificates(loaded.certs);
    match (added, loaded.errors.first()) {
        (0, Some(error)) => Err(Error::Tls(format!("sslrootcert=system: {error}"))),
        (0, None) => Err(Error::Tls(
            "sslrootcert=system: this machine has no CA certificates; install ca-certificates"
                .to_owned(),
        )),
        _ => Ok(roots),
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Returns the certificate of this client, if it has one.
fn identity(address: &Address) -> Result<Option<Identity>> {
    let file = |parameter, name| {
        let named = address.tls.get(parameter).map(PathBuf::from);
        named.or_else(|| Address::home_file(name))
    };
    if address.sslmode() == SslMode::Disable {
        return Ok(None);
    }
    let Some(cert) = file("sslcert", "postgresql.crt") else {
        return Ok(None);
    };
    let Some(key) = file("sslkey", "postgresql.key") else {
        return Err(Error::Tls(format!(
            "there is no key for the certificate {}; use sslkey=FILE",
            cert.display()
        )));
    };
    let chain = certificates("sslcert", &cert)?;
    Ok(Some((chain, private_key(&key)?)))
}

/// Reads the private key. As in libpq, a key that other users can read is refused, except that a
/// key owned by root may be readable by its group.
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let wrong = |cause: String| Error::Tls(format!("sslkey {}: {cause}", path.display()));
    let found = path.metadata().map_err(|error| wrong(error.to_string()))?;
    if !found.is_file() {
        return Err(wrong("it is not a regular file".to_owned()));
    }
    let of_others = if found.uid() == 0 { 0o037 } else { 0o077 };
    if found.mode() & of_others != 0 {
        return Err(wrong(format!(
            "other users can read or change it; use: chmod 600 '{}'",
            path.display()
        )));
    }
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let is_encrypted = text.windows(9).any(|part| part == b"ENCRYPTED");
        wrong(match is_encrypted {
            true => {
                "it is encrypted, which this program does not support; openssl pkey -in FILE -out \
                     PLAIN writes it without a passphrase"
                    .to_owned()
            }
            false => error.to_string(),
        })
    })
}

fn certificates(parameter: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = |cause: &dyn std::fmt::Display| {
        Error::Tls(format!("{parameter} {}: {cause}", path.display()))
    };
    let all: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(&error))?;
    if all.is_empty() {
        return Err(wrong(&"this file contains no certificate"));
    }
    Ok(all)
}
