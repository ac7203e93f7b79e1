//! The parameters of an address that the driver does not have, under their libpq names: those of
//! TLS, and the password file.

use std::collections::BTreeMap;

/// These parameters, with values as libpq accepts them. Missing ones have libpq's defaults.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tls(BTreeMap<&'static str, String>);

/// The parameters that the driver does not have, each with libpq's environment variable.
pub(crate) const PARAMETERS: [(&str, &str); 11] = [
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
    ("sslcrl", "PGSSLCRL"),
    ("sslcrldir", "PGSSLCRLDIR"),
    ("sslsni", "PGSSLSNI"),
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    ("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION"),
    ("channel_binding", "PGCHANNELBINDING"),
    ("passfile", "PGPASSFILE"),
];

/// Returns the possible values of a parameter that does not name a file.
pub(crate) fn choices(parameter: &str) -> &'static [&'static str] {
    match parameter {
        "sslmode" => &[
            "disable",
            "allow",
            "prefer",
            "require",
            "verify-ca",
            "verify-full",
        ],
        "sslsni" => &["0", "1"],
        "ssl_min_protocol_version" | "ssl_max_protocol_version" => {
            &["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"]
        }
        "channel_binding" => &["disable", "prefer", "require"],
        _ => &[],
    }
}

impl Tls {
    /// Sets a parameter. An error shows the value unless it may be secret.
    pub(crate) fn set(
        &mut self,
        parameter: &str,
        value: String,
        secret: bool,
    ) -> Result<(), String> {
        let known = PARAMETERS.iter().find(|(name, _)| *name == parameter);
        let (parameter, _) = known.expect("only these parameters are taken out");
        // As in libpq, an empty value counts as not set.
        if value.is_empty() {
            return Ok(());
        }
        let choices = choices(parameter);
        if !choices.is_empty() && !choices.contains(&value.as_str()) {
            let value = match secret {
                true => String::new(),
                false => format!(" \"{value}\""),
            };
            return Err(format!(
                "invalid {parameter}{value}; use one of {}",
                choices.join(", ")
            ));
        }
        self.0.insert(parameter, value);
        Ok(())
    }

    pub(crate) fn get(&self, parameter: &str) -> Option<&str> {
        self.0.get(parameter).map(String::as_str)
    }

    /// Sets a parameter to one of its values.
    pub(crate) fn put(&mut self, parameter: &'static str, value: &str) {
        self.0.insert(parameter, value.to_owned());
    }

    /// Copies the parameters that are not set here from `other`. The minimum protocol version and
    /// the channel binding are also copied if those of `other` are stricter.
    pub(crate) fn complete(&mut self, other: &Tls) {
        // A key is useful only with its own certificate.
        let has_certificate = self.get("sslcert").is_some();
        for (&parameter, theirs) in &other.0 {
            let takes = match (parameter, self.get(parameter)) {
                ("sslkey", None) => !has_certificate,
                (_, None) => true,
                ("channel_binding" | "ssl_min_protocol_version", Some(own)) => {
                    let rank = |value| choices(parameter).iter().position(|one| *one == value);
                    rank(own) < rank(theirs)
                }
                (_, Some(_)) => false,
            };
            if takes {
                self.put(parameter, theirs);
            }
        }
    }
}
