//! The PostgreSQL installation for servers, and the template data directory that they copy.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Error;

/// The arguments of initdb for the template. Only the user can reach the socket's directory, so
/// sockets are trusted; any user can reach a port.
const INITDB: &[&str] = &[
    "--no-sync",
    "--auth-local=trust",
    "--auth-host=scram-sha-256",
    "--username=postgres",
    "--encoding=UTF8",
    "--locale=C",
];

/// A PostgreSQL installation and the account that its servers run under.
#[derive(Clone, Debug)]
pub(crate) struct Install {
    bindir: PathBuf,
    version: String,
    /// The account `postgres` if this process runs as root, which PostgreSQL refuses.
    account: Option<(u32, u32)>,
}

impl Install {
    /// Finds an installation: from `PG_CONFIG`, `pg_config` in the path, or the newest under
    /// /usr/lib/postgresql.
    pub(crate) fn find() -> Result<Self, Error> {
        let bindir = bindir()?;
        let version = output(Command::new(bindir.join("postgres")).arg("--version"))?;
        let me = fs::metadata("/proc/self").map_err(Error::of("/proc/self"))?;
        let account = if me.uid() == 0 {
            Some(account("postgres")?)
        } else {
            None
        };
        Ok(Install {
            bindir,
            version: version.trim().to_owned(),
            account,
        })
    }

    /// Returns a command of this installation under the right account, without environment
    /// variables that affect a server.
    pub(crate) fn command(&self, program: &str) -> Command {
        self.prepare(Command::new(self.bindir.join(program)))
    }

    /// Returns a command of the system under the servers' account.
    pub(crate) fn foreign_command(&self, program: &str) -> Command {
        self.prepare(Command::new(program))
    }

    fn prepare(&self, mut command: Command) -> Command {
        // A backtrace in every DETAIL would make errors incomparable.
        command
            .env_remove("RUST_BACKTRACE")
            .env_remove("RUST_LIB_BACKTRACE");
        for name in [
            "PGDATA",
            "PGPORT",
            "PGHOST",
            "PGDATABASE",
            "PGUSER",
            "PGOPTIONS",
        ] {
            command.env_remove(name);
        }
        if let Some((uid, gid)) = self.account {
            command.uid(uid).gid(gid);
        }
        command.current_dir("/");
        command
    }

    /// Creates a directory that only the servers' account can use.
    pub(crate) fn make_dir(&self, path: &Path) -> Result<(), Error> {
        fs::create_dir(path).map_err(Error::of(path.display()))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            .map_err(Error::of(path.display()))?;
        if let Some((uid, gid)) = self.account {
            chown(path, Some(uid), Some(gid)).map_err(Error::of(path.display()))?;
        }
        Ok(())
    }

    /// Returns the directory of all templates and servers of this user, creating it if missing.
    pub(crate) fn home(&self) -> Result<PathBuf, Error> {
        let me = fs::metadata("/proc/self")
            .map_err(Error::of("/proc/self"))?
            .uid();
        let home = std::env::temp_dir().join(format!("trax-testkit-{me}"));
        match fs::create_dir(&home) {
            Ok(()) => {
                // Servers under another account need to traverse it; only the owner may write.
                fs::set_permissions(&home, fs::Permissions::from_mode(0o711))
                    .map_err(Error::of(home.display()))?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::of(home.display())(error)),
        }
        let found = fs::symlink_metadata(&home).map_err(Error::of(home.display()))?;
        if !found.is_dir() || found.uid() != me {
            return Err(Error::new(format!(
                "{} is not this user's directory",
                home.display()
            )));
        }
        Ok(home)
    }

    /// Returns the initialized data directory that servers copy, made once per version and
    /// installation.
    pub(crate) fn template(&self, home: &Path) -> Result<PathBuf, Error> {
        let mut key = DefaultHasher::new();
        (&self.bindir, &self.version, INITDB).hash(&mut key);
        let template = home.join(format!("template-{:016x}", key.finish()));
        if template.join("PG_VERSION").exists() {
            return Ok(template);
        }
        // A single thread or process makes the template; the others wait and find it.
        let lock = home.join("template.lock");
        let maker = fs::File::create(&lock).map_err(Error::of(lock.display()))?;
        maker.lock().map_err(Error::of(lock.display()))?;
        if template.join("PG_VERSION").exists() {
            return Ok(template);
        }
        let making = home.join("making");
        if making.exists() {
            fs::remove_dir_all(&making).map_err(Error::of(making.display()))?;
        }
        self.make_dir(&making)?;
        let mut initdb = self.command("initdb");
        initdb.args(INITDB).arg("--pgdata").arg(&making);
        output(&mut initdb)?;
        fs::rename(&making, &template).map_err(Error::of(template.display()))?;
        Ok(template)
    }
}

fn bindir() -> Result<PathBuf, Error> {
    let named = std::env::var_os("PG_CONFIG");
    let pg_config = named.clone().unwrap_or_else(|| "pg_config".into());
    match output(Command::new(&pg_config).arg("--bindir")) {
        Ok(text) => {
            let bindir = PathBuf::from(text.trim());
            // Client packages also contain a pg_config; its directory has no server.
            if bindir.join("initdb").exists() {
                return Ok(bindir);
            }
        }
        // If PG_CONFIG is set and does not work, that is an error: no other place is searched.
        Err(error) if named.is_some() => return Err(error),
        Err(_) => {}
    }
    let mut majors: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().filter_map(|e| major(&e.path())).collect())
        .unwrap_or_default();
    majors.sort();
    majors.pop().map(|(_, path)| path).ok_or_else(|| {
        Error::new(
            "no PostgreSQL server was found: install one (apt install postgresql-15), \
             or set PG_CONFIG to its pg_config",
        )
    })
}

fn major(path: &Path) -> Option<(u32, PathBuf)> {
    let number = path.file_name()?.to_str()?.parse().ok()?;
    let bindir = path.join("bin");
    bindir.join("initdb").exists().then_some((number, bindir))
}

/// Returns the user and group ids of an account in /etc/passwd.
fn account(name: &str) -> Result<(u32, u32), Error> {
    let passwd = fs::read_to_string("/etc/passwd").map_err(Error::of("/etc/passwd"))?;
    passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.first() == Some(&name))
        .and_then(|fields| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?)))
        .ok_or_else(|| {
            Error::new(format!(
                "PostgreSQL refuses to run as root, and there is no account \"{name}\" to use"
            ))
        })
}

/// Runs a command to its end and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(Error::of(&program))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Error::new(format!(
            "{program} failed ({}): {}",
            output.status,
            said.trim()
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
