//! The driver's TLS connector: rustls with the feature `tls`; without it, a connector that refuses
//! addresses that need TLS.

#[cfg(feature = "tls")]
mod rustls;
#[cfg(feature = "tls")]
mod verifier;
#[cfg(feature = "tls")]
pub(crate) use self::rustls::{Connector, connector};

#[cfg(not(feature = "tls"))]
pub(crate) use self::without::{Connector, connector};

#[cfg(not(feature = "tls"))]
mod without {
    use crate::address::{Address, SslMode};
    use crate::error::{Error, Result};

    pub(crate) type Connector = tokio_postgres::NoTls;

    pub(crate) fn connector(address: &Address) -> Result<Connector> {
        let mode = address.sslmode();
        if mode >= SslMode::Require {
            return Err(Error::Tls(format!(
                "sslmode={} requires TLS, but this program was built without it; enable the feature \"tls\" of trax_client",
                mode.as_str()
            )));
        }
        Ok(tokio_postgres::NoTls)
    }
}
