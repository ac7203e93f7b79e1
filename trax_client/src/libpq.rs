//! The parameters of libpq, and their environment variables, whose requirements this library cannot
//! meet. Ignoring them would make the connection weaker than requested.

use crate::error::{Error, Result};
use crate::parameter::{Parameters, text_of};

/// The parameters, each with its variable and the values that require nothing, beside an empty one.
const UNSUPPORTED: [(&str, &str, &[&str]); 4] = [
    ("require_auth", "PGREQUIREAUTH", &[]),
    ("requirepeer", "PGREQUIREPEER", &[]),
    ("sslcertmode", "PGSSLCERTMODE", &["allow"]),
    ("gssencmode", "PGGSSENCMODE", &["disable", "prefer"]),
];

/// Removes the parameters from an address; an error if one of them sets a requirement. It shows the
/// value unless it may be secret.
pub(crate) fn take_unsupported(parameters: &mut Parameters, may_be_secret: bool) -> Result<()> {
    for (name, _, idle) in UNSUPPORTED {
        let Some(value) = parameters.remove(name) else {
            continue;
        };
        let value = text_of(value)?;
        if value.is_empty() || idle.contains(&value.as_str()) {
            continue;
        }
        let shown = if may_be_secret { "..." } else { &value };
        let instead: Vec<String> = idle.iter().map(|idle| format!("{name}={idle}")).collect();
        let remedy = match instead.is_empty() {
            true => "leave it out".to_owned(),
            false => format!("write {}", instead.join(" or ")),
        };
        return Err(Error::Address(format!(
            "{name} is \"{shown}\", which libpq can see to and this program cannot; {remedy}"
        )));
    }
    Ok(())
}

/// Returns an error if one of the variables sets a requirement.
pub(crate) fn refuse_unsupported(variable: impl Fn(&str) -> Option<String>) -> Result<()> {
    for (_, name, idle) in UNSUPPORTED {
        let set = variable(name).filter(|value| !value.is_empty());
        if let Some(value) = set.filter(|value| !idle.contains(&value.as_str())) {
            return Err(Error::Address(format!(
                "{name} is \"{value}\", which libpq can see to and this program cannot; unset it"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libpq_alone_can_see_to_is_refused() {
        let with = |name: &str, value: &str| {
            refuse_unsupported(|wanted| (wanted == name).then(|| value.to_owned()))
        };
        for (name, value) in [
            ("PGREQUIREAUTH", "scram-sha-256"),
            ("PGREQUIREPEER", "postgres"),
            ("PGSSLCERTMODE", "require"),
            ("PGGSSENCMODE", "require"),
        ] {
            let said = with(name, value).expect_err("it is refused").to_string();
            assert!(said.contains(name) && said.contains("unset"), "{said}");
            assert!(with(name, "").is_ok(), "{name}");
        }
        assert!(with("PGSSLCERTMODE", "allow").is_ok());
        assert!(with("PGGSSENCMODE", "prefer").is_ok());
    }
}
