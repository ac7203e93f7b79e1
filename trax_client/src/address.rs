//! The address of the database and the protection of the connection.
//!
//! An *address* is a connection string of libpq, as a URL or as `key=value` pairs. The driver
//! parses all of its parameters except the password file, and of TLS more than on and off. This
//! module takes those out and stores them beside the driver's `Config`.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::str::FromStr;

use tokio_postgres::Config;
use tokio_postgres::config::SslMode as DriverMode;

use crate::environment;
use crate::error::{Error, Result};
use crate::libpq;
use crate::parameter;
use crate::tls_parameter::{PARAMETERS, Tls, choices};

/// The use of TLS: libpq's `sslmode`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum SslMode {
    /// No TLS.
    Disable,
    /// No TLS unless the server requires it. The certificate is verified only if a CA is available.
    Allow,
    /// TLS when the server offers it; falls back to no TLS when it fails. The default.
    Prefer,
    /// TLS is required. The certificate is verified only when `sslrootcert` is set, as with
    /// `VerifyCa`.
    Require,
    /// The certificate must be signed by a CA of `sslrootcert`.
    VerifyCa,
    /// As `VerifyCa`, and the certificate must match the host in the address.
    VerifyFull,
}

impl SslMode {
    /// Returns the mode as written in an address.
    pub fn as_str(self) -> &'static str {
        match self {
            SslMode::Disable => "disable",
            SslMode::Allow => "allow",
            SslMode::Prefer => "prefer",
            SslMode::Require => "require",
            SslMode::VerifyCa => "verify-ca",
            SslMode::VerifyFull => "verify-full",
        }
    }
}

impl FromStr for SslMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "disable" => Ok(SslMode::Disable),
            "allow" => Ok(SslMode::Allow),
            "prefer" => Ok(SslMode::Prefer),
            "require" => Ok(SslMode::Require),
            "verify-ca" => Ok(SslMode::VerifyCa),
            "verify-full" => Ok(SslMode::VerifyFull),
            other => Err(Error::Address(format!(
                "invalid sslmode \"{other}\"; use one of {}",
                choices("sslmode").join(", ")
            ))),
        }
    }
}

/// The address of the database: the driver's `Config`, which it dereferences to, and libpq's
/// parameters for TLS: `sslmode`, `sslrootcert`, `sslcert`, `sslkey`, `sslcrl`, `sslcrldir`,
/// `sslsni`, `ssl_min_protocol_version`, `ssl_max_protocol_version` and `channel_binding`; and
/// `passfile`.
///
/// ```
/// use trax_client::{Address, SslMode};
///
/// let address: Address =
/// "postgres://app@db.example.org/app?sslmode=verify-full&sslrootcert=/etc/ca.pem".parse()?;
/// assert_eq!(address.sslmode(), SslMode::VerifyFull);
/// assert_eq!(address.get_dbname(), Some("app"));
/// # Ok::<(), trax_client::Error>(())
/// ```
///
/// TLS needs the cargo feature `tls`; without it, connecting fails in every mode from `require` on.
/// The files are read for each connection, so a certificate can be renewed while a worker runs.
/// `sslrootcert=system` uses the CAs of the machine and implies `verify-full`. Files that are not
/// named are looked up in `~/.postgresql`, as in libpq. TLS is not used over a Unix socket. Three
/// things differ from libpq: a named revocation list that cannot be read is an error, a key with a
/// passphrase is not supported, and neither is a server certificate of X.509 version 1 signed by a
/// CA.
///
/// An address without a password takes that of its host from the password file, `passfile` or else
/// `~/.pgpass`, for each connection. A file to which group or others have access is not used.
#[derive(Clone, Debug)]
pub struct Address {
    config: Config,
    pub(crate) tls: Tls,
}

impl From<Config> for Address {
    fn from(config: Config) -> Self {
        Address {
            config,
            tls: Tls::default(),
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parameters = parameter::parse(text)?;
        let (mut tls, may_be_secret) = (Tls::default(), parameter::may_be_secret(text));
        for (name, _) in PARAMETERS {
            if let Some(value) = parameters.remove(name) {
                tls.set(name, parameter::text_of(value)?, may_be_secret)
                    .map_err(Error::Address)?;
            }
        }
        libpq::take_unsupported(&mut parameters, may_be_secret)?;
        let config = parameter::config(parameters, text)?;
        Ok(Address { config, tls })
    }
}

impl Deref for Address {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.config
    }
}

impl DerefMut for Address {
    fn deref_mut(&mut self) -> &mut Config {
        &mut self.config
    }
}

impl Address {
    /// Returns the address in the environment variable DATABASE_URL. Parts that it does not set, or
    /// all of them without it, are those of libpq's variables: PGHOST, PGPORT, PGUSER, PGDATABASE,
    /// PGPASSWORD, PGPASSFILE, and the variables for TLS, such as PGSSLMODE. Without PGHOST the
    /// server is on this machine.
    ///
    /// # Errors
    /// [`Error::Address`] when a variable has a value that libpq does not accept, or when
    /// PGREQUIREAUTH, PGREQUIREPEER, PGSSLCERTMODE or PGGSSENCMODE asks for a feature that only
    /// libpq has.
    pub fn from_environment() -> Result<Self> {
        let address = match environment::variable("DATABASE_URL") {
            Some(url) => url.parse()?,
            None => Address::from(Config::new()),
        };
        address.or_environment(environment::variable)
    }

    /// Sets the parts that the address does not set from libpq's variables, which `variable` looks
    /// up.
    ///
    /// # Errors
    /// As [`Address::from_environment`].
    pub fn or_environment(mut self, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        libpq::refuse_unsupported(&variable)?;
        environment::complete(&mut self.config, &variable)?;
        for (parameter, name) in PARAMETERS {
            if self.tls.get(parameter).is_none()
                && let Some(value) = variable(name)
            {
                self.tls
                    .set(parameter, value, false)
                    .map_err(Error::Address)?;
            }
        }
        Ok(self)
    }

    /// Copies the TLS parameters and the password file that this address does not set from `other`,
    /// and TLS parameters that are stricter there.
    pub(crate) fn complete_tls(&mut self, other: &Address) {
        self.tls.complete(&other.tls);
        let (floor, is_said) = (other.sslmode(), other.tls.get("sslmode").is_some());
        if self.sslmode() < floor && (is_said || floor > SslMode::Prefer) {
            self.tls.put("sslmode", floor.as_str());
        }
    }

    /// Returns the environment variables that set the TLS parameters and the password file of this
    /// address, for a child process.
    pub fn environment(&self) -> Vec<(&'static str, &str)> {
        let said = |(parameter, name)| Some((name, self.tls.get(parameter)?));
        PARAMETERS.into_iter().filter_map(said).collect()
    }

    /// Returns the TLS mode.
    pub fn sslmode(&self) -> SslMode {
        let said = self.tls.get("sslmode").and_then(|mode| mode.parse().ok());
        said.unwrap_or(match self.config.get_ssl_mode() {
            _ if self.tls.get("sslrootcert") == Some("system") => SslMode::VerifyFull,
            DriverMode::Disable => SslMode::Disable,
            DriverMode::Require => SslMode::Require,
            _ => SslMode::Prefer,
        })
    }

    /// Returns an address for another server, with the TLS parameters and the password file of this
    /// one.
    pub fn with_config(&self, config: Config) -> Self {
        let mut tls = self.tls.clone();
        tls.put("sslmode", self.sslmode().as_str());
        Address { config, tls }
    }

    /// Returns the path of a file in `~/.postgresql`, if it exists.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "for TLS alone"))]
    pub(crate) fn home_file(name: &str) -> Option<PathBuf> {
        let path = PathBuf::from(std::env::var_os("HOME")?)
            .join(".postgresql")
            .join(name);
        path.is_file().then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Address {
        text.parse().expect("an address")
    }

    #[test]
    fn a_url_and_pairs_say_the_same() {
        let url = parsed(
            "postgres://u:p%40@h:7/d?connect_timeout=3&sslmode=verify-full&sslrootcert=%2Ftmp%2Fa%20b.pem",
        );
        let pairs = parsed(
            r"host=h port=7 user=u password='p@' dbname=d sslmode = verify-full sslrootcert='/tmp/a b.pem' connect_timeout=3",
        );
        for address in [&url, &pairs] {
            assert_eq!(address.sslmode(), SslMode::VerifyFull);
            assert_eq!(address.tls.get("sslrootcert"), Some("/tmp/a b.pem"));
            assert_eq!(address.get_password(), Some(&b"p@"[..]));
            assert_eq!(address.get_dbname(), Some("d"));
        }
        assert_eq!(url.get_connect_timeout(), pairs.get_connect_timeout());
    }

    #[test]
    fn a_text_that_is_no_address_is_reported_what_one_looks_like() {
        for text in ["nonsense", "postgres:/x", "mysql://h/d", "host"] {
            let error = text.parse::<Address>().map(drop);
            let said = error.expect_err("it is no address").to_string();
            assert!(said.contains("neither postgres://"), "{text}: {said}");
        }
    }

    #[test]
    fn a_password_with_an_at_is_not_shown() {
        for text in [
            "postgres://u:s3cret@s3cret@h/d",
            "postgresql://u:s3@cret@h",
            "postgres://u:s3@cret@h?sslmode=require",
            "postgres://u:s3@cre/t@h/d",
            "postgres://u:s3@cre/t@h/d?sslmode=require",
            "postgres://u:cret@cre/t/x@h",
            "postgres://u:s3@cre?options=cret@h/d",
            "postgres://u:s3@cre?sslmode=cret@h/d",
            "postgres://u:s3@cre/t?sslmode=cret@h/d",
            "postgres://h?user=a&password=s3@cret",
            "postgres://h:7?password=s3@cret",
        ] {
            let error = text.parse::<Address>().map(drop);
            let said = error.expect_err("it is refused").to_string();
            assert!(said.contains("%40") && !said.contains("cre"), "{said}");
        }
        for text in [
            "host=h password=my s3cret=1",
            "host=h password=my s3cret",
            "POSTGRES://u:s3cret@h/d?sslmode=x",
            "postgres://u:cret/s3?x=cret@h/d",
            "postgres://u:cret/s3?sslmode=cret@h/d",
            "postgres://u:s3%cret@h",
            "host=h password=''sslsni=s3cret",
            "dbname=postgres://u:s3cret@h/d",
            "host=h user='postgres://u:s3cret@h/d'",
        ] {
            let error = text.parse::<Address>().map(drop);
            let said = error.expect_err("it is refused").to_string();
            assert!(!said.contains("cre"), "{text}: {said}");
        }
        let right = parsed("postgres://u:p%40@h/d?application_name=a@b");
        assert_eq!(right.get_password(), Some(&b"p@"[..]));
    }

    #[test]
    fn a_mode_that_is_none_is_named() {
        let error = "host=h sslmode=verify-all".parse::<Address>();
        assert!(error.is_err_and(|e| e.to_string().contains("\"verify-all\"")));
        let error = "host=h sslmoder=require".parse::<Address>();
        assert!(error.is_err_and(|e| e.to_string().contains("sslmoder")));
    }

    #[test]
    fn a_parameter_that_requires_nothing_beyond_the_driver_is_taken() {
        for text in [
            "postgres://h/d?gssencmode=disable",
            "postgres://h/d?gssencmode=prefer",
            "postgres://h/d?gssencmode=",
            "host=h sslcertmode=allow require_auth='' requirepeer=''",
        ] {
            assert!(text.parse::<Address>().is_ok(), "{text}");
        }
        for (text, typed) in [
            (
                "postgres://h/d?gssencmode=require",
                "gssencmode is \"require\", which libpq can see to and this program cannot; \
                 write gssencmode=disable or gssencmode=prefer",
            ),
            ("host=h sslcertmode=require", "write sslcertmode=allow"),
            ("host=h requirepeer=postgres", "leave it out"),
        ] {
            let refused = text.parse::<Address>().map(drop);
            let said = refused.expect_err("it is refused").to_string();
            assert!(said.ends_with(typed), "{said}");
        }
        let open = "postgres://u:cret/s3?gssencmode=cret@h/d".parse::<Address>();
        let said = open.map(drop).expect_err("it is refused").to_string();
        assert!(!said.contains("cre"), "{said}");
    }

    #[test]
    fn the_environment_says_what_the_address_does_not() {
        let find = |name: &str| match name {
            "PGSSLMODE" => Some("require".to_owned()),
            "PGSSLROOTCERT" => Some("/ca".to_owned()),
            _ => None,
        };
        let address = parsed("host=h sslmode=disable").or_environment(find);
        let address = address.expect("the variables are right");
        assert_eq!(address.sslmode(), SslMode::Disable);
        let same = [("PGSSLMODE", "disable"), ("PGSSLROOTCERT", "/ca")];
        assert_eq!(address.environment(), same);
    }

    #[test]
    fn the_mode_of_a_config_counts() {
        let mut config = Config::new();
        assert_eq!(Address::from(config.clone()).sslmode(), SslMode::Prefer);
        config.ssl_mode(DriverMode::Require);
        assert_eq!(Address::from(config).sslmode(), SslMode::Require);
        assert_eq!(parsed("sslrootcert=system").sslmode(), SslMode::VerifyFull);
    }
}
