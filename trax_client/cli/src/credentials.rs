//! Credentials: the environment variables that are withheld from the programs that this program
//! starts.
//!
//! With them a job could do anything its worker may: end other jobs or, with an administrator's
//! password, anything.

/// The variables from which libpq and this program take a password or its location.
const OURS: [&str; 8] = [
    "DATABASE_URL",
    "PGPASSWORD",
    "PGPASSFILE",
    "PGSERVICE",
    "PGSERVICEFILE",
    "PGSSLCERT",
    "PGSSLKEY",
    "PGSSLPASSWORD",
];

/// Hides this process's environment, arguments and memory from the programs that it starts, which
/// run as the same user and could read them in /proc. Root can still read them.
pub(crate) fn hide() {
    #[cfg(target_os = "linux")]
    // SAFETY: sets a flag of this process; cannot fail with this value.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
}

/// The variables that started programs get beyond the rest of the environment; part of the
/// arguments.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct PassedVariables {
    /// Also pass this variable to the program, one of DATABASE_URL, PGPASSWORD, PGPASSFILE,
    /// PGSERVICE, PGSERVICEFILE, PGSSLCERT, PGSSLKEY and PGSSLPASSWORD, which are otherwise
    /// withheld; may be repeated
    #[arg(long = "pass-env", value_name = "NAME", value_parser = withheld)]
    names: Vec<String>,
}

/// Returns the name of a variable that a program does not get anyway.
fn withheld(name: &str) -> Result<String, String> {
    if !OURS.contains(&name) {
        return Err(format!(
            "only {} are withheld; a program gets every other variable without this option",
            OURS.join(", ")
        ));
    }
    match std::env::var_os(name) {
        Some(_) => Ok(name.to_owned()),
        None => {
            Err("the environment does not have it; set it, or leave this option out".to_owned())
        }
    }
}

impl PassedVariables {
    /// Returns the variables withheld from a program.
    pub(crate) fn withheld(&self) -> impl Iterator<Item = &'static str> + '_ {
        let passed = |name: &str| self.names.iter().any(|passed| passed == name);
        OURS.into_iter().filter(move |name| !passed(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_is_not_withheld() {
        let names = vec!["PGPASSWORD".to_owned()];
        let withheld: Vec<&str> = PassedVariables { names }.withheld().collect();
        assert!(withheld.contains(&"DATABASE_URL"));
        assert!(!withheld.contains(&"PGPASSWORD"));
        assert_eq!(PassedVariables::default().withheld().count(), OURS.len());
    }
}
