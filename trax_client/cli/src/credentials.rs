//! Credentials: what of this program's environment is not for the programs that it starts.
//!
//! With them a job could do whatever its worker may: end other jobs, or, with the password of an
//! administrator, all.

/// What libpq and this program take a password, or the place of one, from.
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

/// Keeps what this process was started with, and its memory, from the programs that it starts: they
/// are the same user's, and could read it in /proc. Root reads it still.
pub(crate) fn hide() {
    #[cfg(target_os = "linux")]
    // SAFETY: sets a flag of this process. It cannot fail with this value.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
}

/// What programs that are started get beyond the rest of the environment; part of the arguments.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct PassedVariables {
    /// Also pass this variable to the program, one of DATABASE_URL, PGPASSWORD, PGPASSFILE,
    /// PGSERVICE, PGSERVICEFILE, PGSSLCERT, PGSSLKEY and PGSSLPASSWORD, which are otherwise
    /// withheld; may be repeated
    #[arg(long = "pass-env", value_name = "NAME")]
    names: Vec<String>,
}

impl PassedVariables {
    /// Returns the variables that a program does not get.
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
        let names = vec!["PGPASSWORD".to_owned(), "HOME".to_owned()];
        let withheld: Vec<&str> = PassedVariables { names }.withheld().collect();
        assert!(withheld.contains(&"DATABASE_URL"));
        assert!(!withheld.contains(&"PGPASSWORD"));
        assert_eq!(PassedVariables::default().withheld().count(), OURS.len());
    }
}
