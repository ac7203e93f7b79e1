//! The password file of libpq: the parameter `passfile`, PGPASSFILE, or `~/.pgpass`.
//!
//! A line is `host:port:database:user:password`. `*` matches any value, and `\` escapes a colon or
//! itself. The first line that matches has the password; a line that begins with `#` is a comment.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::address::Address;
use crate::environment::SOCKET_DIR;

/// The default directories of sockets. Lines for `localhost` are for the servers in them.
const SOCKET_DIRS: [&str; 2] = [SOCKET_DIR, "/tmp"];
/// The permissions of group and others.
const OF_OTHERS: u32 = 0o077;

impl Address {
    /// Sets the password from the password file for the first host of the address, if the address
    /// has none. Returns the reason for which a file is not used; a file that cannot be read counts
    /// as missing.
    pub(crate) fn take_password_from_file(&mut self) -> Option<String> {
        if self.get_password().is_some() {
            return None;
        }
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".pgpass"));
        let path = self.tls.get("passfile").map(PathBuf::from).or_else(home)?;
        match text_of(&path) {
            Ok(text) => {
                if let Some(password) = find(&text, &key(self)) {
                    self.password(password);
                }
                None
            }
            Err(reason) => reason,
        }
    }
}

/// Returns the text of the file, or the reason for which it is not used, if there is one to tell.
fn text_of(path: &Path) -> Result<Vec<u8>, Option<String>> {
    let found = std::fs::metadata(path).map_err(|_| None)?;
    if !found.is_file() {
        return Err(None);
    }
    if found.permissions().mode() & OF_OTHERS != 0 {
        let path = path.display();
        return Err(Some(format!(
            "the password file {path} is not used, because its group or others have access; type: chmod 600 {path}"
        )));
    }
    std::fs::read(path).map_err(|_| None)
}

/// Returns the values that a line must match, in order.
fn key(config: &Config) -> [String; 4] {
    let host = match (config.get_hosts().first(), config.get_hostaddrs().first()) {
        (Some(Host::Unix(directory)), _)
            if SOCKET_DIRS
                .iter()
                .any(|dir| directory.as_path() == Path::new(dir)) =>
        {
            "localhost".to_owned()
        }
        (Some(Host::Unix(directory)), _) => directory.display().to_string(),
        (Some(Host::Tcp(name)), _) => name.clone(),
        (None, Some(ip)) => ip.to_string(),
        (None, None) => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let user = config.get_user().unwrap_or_default();
    let database = config.get_dbname().unwrap_or(user);
    [host, port.to_string(), database.to_owned(), user.to_owned()]
}

/// Returns the password of the first line that matches.
fn find(text: &[u8], key: &[String; 4]) -> Option<Vec<u8>> {
    let lines = text.split(|byte| *byte == b'\n');
    lines
        .filter(|line| !line.starts_with(b"#"))
        .find_map(|line| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let password = key
                .iter()
                .try_fold(line, |rest, value| after(rest, value.as_bytes()))?;
            let (password, _) = field(password);
            Some(password).filter(|password| !password.is_empty())
        })
}

/// Returns the part of a line after its first field, if that matches a value.
fn after<'l>(line: &'l [u8], value: &[u8]) -> Option<&'l [u8]> {
    if let Some(rest) = line.strip_prefix(b"*:") {
        return Some(rest);
    }
    let (first, rest) = field(line);
    rest.filter(|_| first == value)
}

/// Returns the first field of a line without its escapes, and the part after its colon.
fn field(line: &[u8]) -> (Vec<u8>, Option<&[u8]>) {
    let mut field = Vec::new();
    let mut bytes = line.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b':' => return (field, Some(&line[at + 1..])),
            b'\\' => field.push(bytes.next().map_or(b'\\', |(_, escaped)| *escaped)),
            byte => field.push(*byte),
        }
    }
    (field, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_of_its_owner_alone_is_read() {
        let path = std::env::temp_dir().join(format!("password_file.{}", std::process::id()));
        std::fs::write(&path, "*:*:*:*:secret").expect("a file");
        let text = format!("host=h user=u passfile={}", path.display());
        let of_mode = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, permissions).expect("permissions");
            let mut address: Address = text.parse().expect("it is an address");
            let reason = address.take_password_from_file();
            (address.get_password().map(<[u8]>::to_vec), reason)
        };
        assert_eq!(of_mode(0o600), (Some(b"secret".to_vec()), None));
        let (password, reason) = of_mode(0o640);
        let reason = reason.expect("it is not used");
        assert!(
            password.is_none() && reason.contains("chmod 600"),
            "{reason}"
        );
        std::fs::remove_file(&path).expect("it exists");
        let mut given: Address = format!("{text} password=p").parse().expect("it is one");
        let mut missing: Address = text.parse().expect("it is an address");
        assert_eq!(missing.take_password_from_file(), None);
        assert_eq!(given.take_password_from_file(), None);
        assert_eq!(given.get_password(), Some(&b"p"[..]));
    }

    #[test]
    fn the_first_line_that_matches_has_the_password() {
        let text = br"# db.example.org:*:*:*:comment
:5432:jobs:app:no host
db.example.org:6432:*:app:pooler
db.example.org:5432:jobs:app:first:with more fields
db.example.org:*:*:*:second
localhost:5432:*:app:of a socket
\:\:1:5432:a\:b:c\\d:p\:w\\d
*:*:none:app:
/srv/pg:*:*:app:by path
10.0.0.7:*:*:app:by address
";
        for (address, expected) in [
            (
                "host=db.example.org port=6432 user=app dbname=x",
                Some("pooler"),
            ),
            ("host=db.example.org user=app dbname=jobs", Some("first")),
            ("host=db.example.org user=other dbname=jobs", Some("second")),
            ("host=/var/run/postgresql user=app", Some("of a socket")),
            ("host=/tmp user=app", Some("of a socket")),
            ("host=/srv/pg user=app", Some("by path")),
            ("host=::1 user='c\\\\d' dbname=a:b", Some(r"p:w\d")),
            ("host=db hostaddr=10.0.0.7 user=app", None),
            ("hostaddr=10.0.0.7 user=app", Some("by address")),
            ("host=elsewhere user=app dbname=none", None),
            ("host=elsewhere user=app dbname=jobs", None),
        ] {
            let config: Config = address.parse().expect("it is an address");
            let found = find(text, &key(&config));
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{address}");
        }
    }
}
