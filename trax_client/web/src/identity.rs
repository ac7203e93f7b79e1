//! Identifies users, by a header that a proxy sets or a password in a file, and maps them to roles.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::http::HeaderName;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// How users are identified.
#[derive(Debug)]
pub enum Identity {
    /// Not at all: every visitor has the role of the connection.
    Nobody,
    /// By this header, set by a proxy that has authenticated the user.
    Header { name: HeaderName, roles: Roles },
    /// By a password from a file.
    Passwords {
        passwords: Passwords,
        /// `None`: every user has the role of the connection.
        roles: Option<Roles>,
    },
}

impl Identity {
    /// Returns the roles from the file.
    pub fn roles(&self) -> Option<&Roles> {
        match self {
            Identity::Nobody => None,
            Identity::Header { roles, .. } => Some(roles),
            Identity::Passwords { roles, .. } => roles.as_ref(),
        }
    }

    /// Returns whether a user is known and has this role.
    pub(crate) fn knows(&self, person: &Person) -> bool {
        let name = person.name.as_deref();
        let has_password = match self {
            Identity::Passwords { passwords, .. } => {
                name.is_some_and(|name| passwords.hashes.contains_key(name))
            }
            _ => true,
        };
        let role = self
            .roles()
            .map(|roles| name.and_then(|name| roles.of(name)));
        has_password && role.is_none_or(|role| role == person.role.as_deref())
    }
}

/// A user, and the role they act as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) name: Option<String>,
    /// `None`: the role of the connection.
    pub(crate) role: Option<String>,
}

/// The database role of each user.
#[derive(Debug, Default)]
pub struct Roles(HashMap<String, String>);

impl Roles {
    /// Parses lines of a name and a role, separated by space. `#` begins a comment, and the name
    /// `*` stands for all users without a line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut roles = HashMap::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, role] = words.as_slice() else {
                return Err(format!("line {}: write a name and a role", i + 1));
            };
            // To the server, "none" is the role of the connection and "public" is every role.
            if ["none", "public"].contains(&role.to_lowercase().as_str()) {
                return Err(format!("line {}: \"{role}\" is not a role", i + 1));
            }
            if roles
                .insert((*name).to_owned(), (*role).to_owned())
                .is_some()
            {
                return Err(format!("line {}: \"{name}\" has a line already", i + 1));
            }
        }
        Ok(Roles(roles))
    }

    /// Returns all roles in the file.
    pub fn roles(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(String::as_str)
    }

    pub(crate) fn of(&self, name: &str) -> Option<&str> {
        // `*` is not a user's name; only the file may contain it.
        let own = self.0.get(name).filter(|_| name != "*");
        own.or_else(|| self.0.get("*")).map(String::as_str)
    }
}

/// The maximum number of wrong passwords for a name within [`GUESSES_WITHIN`]. After that no
/// password is checked.
const GUESSES: u32 = 10;
const GUESSES_WITHIN: Duration = Duration::from_secs(60);
/// The maximum number of browsers remembered. Beyond it all are forgotten, and must give the
/// password again while a name is under attack.
const PROVEN: usize = 10_000;

/// Names and password hashes, as `htpasswd -B` writes them.
pub struct Passwords {
    hashes: HashMap<String, String>,
    key: [u8; 32],
    /// Keyed tags of verified passwords. A hash is slow by design, and every request carries a
    /// password.
    verified: Mutex<HashMap<String, Vec<u8>>>,
    /// Keyed tags of browsers that gave the right password, by name and session.
    proven: Mutex<BTreeSet<Vec<u8>>>,
    /// The number of wrong passwords and when they began, by name. Unknown names share one entry,
    /// so that the map cannot be flooded.
    wrong: Mutex<HashMap<Option<String>, (u32, Instant)>>,
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passwords").finish_non_exhaustive()
    }
}

impl Passwords {
    /// Parses lines `name:hash` with bcrypt hashes.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut hashes = HashMap::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = i + 1;
            let (name, hash) = line
                .split_once(':')
                .ok_or(format!("line {at}: write name:hash"))?;
            if !hash.starts_with("$2") || hash.len() != 60 {
                return Err(format!(
                    "line {at}: not a bcrypt hash; make it with: htpasswd -B"
                ));
            }
            hashes.insert(name.to_owned(), hash.to_owned());
        }
        if hashes.is_empty() {
            return Err("it names no person; add one with: htpasswd -B FILE NAME".to_owned());
        }
        Ok(Passwords {
            hashes,
            key: rand::random(),
            verified: Mutex::new(HashMap::new()),
            proven: Mutex::default(),
            wrong: Mutex::new(HashMap::new()),
        })
    }

    fn counted(&self, name: &str) -> Option<String> {
        self.hashes.contains_key(name).then(|| name.to_owned())
    }

    /// Returns how long no password for this name will be checked, if there were too many wrong
    /// ones.
    pub(crate) fn pause(&self, name: &str, now: Instant) -> Option<Duration> {
        let Ok(wrong) = self.wrong.lock() else {
            return Some(GUESSES_WITHIN);
        };
        let (count, since) = *wrong.get(&self.counted(name))?;
        let left = GUESSES_WITHIN.saturating_sub(now.duration_since(since));
        (count >= GUESSES && !left.is_zero()).then_some(left)
    }

    /// Records a wrong password.
    pub(crate) fn guessed_wrong(&self, name: &str, now: Instant) {
        let Ok(mut wrong) = self.wrong.lock() else {
            return;
        };
        let (count, since) = wrong.entry(self.counted(name)).or_insert((0, now));
        if now.duration_since(*since) >= GUESSES_WITHIN {
            (*count, *since) = (0, now);
        }
        *count += 1;
    }

    fn tag(&self, name: &str, secret: &str) -> Hmac<Sha256> {
        let mut mac = keyed(&self.key);
        mac.update(&name.len().to_be_bytes());
        mac.update(name.as_bytes());
        mac.update(secret.as_bytes());
        mac
    }

    /// Returns whether this password has been verified before.
    pub(crate) fn is_known(&self, name: &str, password: &str) -> bool {
        let tag = match self.verified.lock() {
            Ok(verified) => verified.get(name).cloned(),
            Err(_) => None,
        };
        tag.is_some_and(|tag| self.tag(name, password).verify_slice(&tag).is_ok())
    }

    /// Records that a browser gave the right password for this name.
    pub(crate) fn prove(&self, name: &str, session: &str) {
        if let Ok(mut proven) = self.proven.lock() {
            if proven.len() >= PROVEN {
                proven.clear();
            }
            proven.insert(self.tag(name, session).finalize().into_bytes().to_vec());
        }
    }

    /// Returns whether a browser has given the right password for this name.
    pub(crate) fn is_proven(&self, name: &str, session: &str) -> bool {
        let tag = self.tag(name, session).finalize().into_bytes().to_vec();
        self.proven.lock().is_ok_and(|proven| proven.contains(&tag))
    }

    /// Returns whether the password is right. Slow: must run on a thread that may block. An unknown
    /// name takes as long as a known one.
    pub(crate) fn verify(&self, name: &str, password: &str) -> bool {
        let known = self.hashes.get(name);
        let Some(hash) = known.or_else(|| self.hashes.values().next()) else {
            return false;
        };
        let right = bcrypt::verify(password, hash).unwrap_or(false) && known.is_some();
        if right && let Ok(mut verified) = self.verified.lock() {
            let tag = self.tag(name, password).finalize().into_bytes().to_vec();
            verified.insert(name.to_owned(), tag);
        }
        right
    }
}

/// Returns the beginning of a keyed tag.
pub(crate) fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    // HMAC accepts keys of any length.
    Hmac::new_from_slice(key).unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_star_stands_for_everybody_else_and_is_nobodys_name() {
        let roles =
            Roles::parse("anna trax_admin # the boss\n* trax_reader\n").expect("it is right");
        assert_eq!(roles.of("anna"), Some("trax_admin"));
        assert_eq!(roles.of("bert"), Some("trax_reader"));
        let roles = Roles::parse("anna trax_admin").expect("it is right");
        assert_eq!(roles.of("*"), None);
        assert!(Roles::parse("anna").is_err());
        assert!(Roles::parse("a b\na c").is_err());
        for role in ["none", "NONE", "public"] {
            assert!(Roles::parse(&format!("* {role}")).is_err(), "{role}");
        }
    }

    #[test]
    fn a_password_is_right_once_and_then_known() {
        let hash = bcrypt::hash("secret", 4).expect("it hashes");
        let passwords = Passwords::parse(&format!("anna:{hash}\n")).expect("it is right");
        assert!(!passwords.is_known("anna", "secret"));
        assert!(!passwords.verify("anna", "wrong"));
        assert!(!passwords.verify("bert", "secret"));
        assert!(passwords.verify("anna", "secret"));
        assert!(passwords.is_known("anna", "secret"));
        assert!(!passwords.is_known("anna", "secret2"));
        assert!(Passwords::parse("anna:secret").is_err());
    }

    #[test]
    fn after_some_wrong_passwords_none_is_looked_at_for_a_while() {
        let hash = bcrypt::hash("secret", 4).expect("it hashes");
        let passwords =
            Passwords::parse(&format!("anna:{hash}\nbert:{hash}\n")).expect("it is right");
        let now = Instant::now();
        for _ in 0..GUESSES {
            assert_eq!(passwords.pause("anna", now), None);
            assert_eq!(passwords.pause("x", now), None);
            passwords.guessed_wrong("anna", now);
            passwords.guessed_wrong("y", now);
        }
        let pause = |name, after: u64| passwords.pause(name, now + Duration::from_secs(after));
        assert_eq!(pause("anna", 20), Some(Duration::from_secs(40)));
        assert_eq!(
            pause("z", 0),
            Some(GUESSES_WITHIN),
            "unknown names count together"
        );
        assert_eq!(pause("bert", 0), None);
        assert_eq!(pause("anna", 60), None);
        passwords.guessed_wrong("anna", now + GUESSES_WITHIN);
        assert_eq!(pause("anna", 61), None, "counting begins anew");
    }
}
