//! The libpq environment variables whose requirements this library cannot meet. Ignoring them would
//! make the connection weaker than requested.

use crate::error::{Error, Result};

/// The variables, each with the values that require nothing.
const UNSUPPORTED: [(&str, &[&str]); 4] = [
    ("PGREQUIREAUTH", &[""]),
    ("PGREQUIREPEER", &[""]),
    ("PGSSLCERTMODE", &["", "allow"]),
    ("PGGSSENCMODE", &["", "disable", "prefer"]),
];

/// Returns an error if one of the variables sets a requirement.
pub(crate) fn refuse_unsupported(variable: impl Fn(&str) -> Option<String>) -> Result<()> {
    for (name, idle) in UNSUPPORTED {
        if let Some(value) = variable(name).filter(|value| !idle.contains(&value.as_str())) {
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
