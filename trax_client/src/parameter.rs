//! The parameters of a connection string, parsed as libpq does, and more strictly where a mistake
//! would put a part of a password into error messages.

use std::borrow::Cow;
use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;

use crate::error::{Error, chain};

/// Each parameter with its last value. A password may contain any bytes.
pub(crate) type Parameters = BTreeMap<String, Vec<u8>>;

/// The reason why a text is invalid. Never contains a part of it that may be secret.
#[derive(Debug)]
pub(crate) struct Fault(Cow<'static, str>);

impl From<&'static str> for Fault {
    fn from(text: &'static str) -> Self {
        Fault(text.into())
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Error::Address(fault.0.into_owned())
    }
}

const NEITHER: &str =
    "it is neither postgres://host/database nor parameters such as host=/socket/dir dbname=x";
const OPEN_AT: &str = "there is an @ in the user name, the password, the name of the database or a parameter behind a \
                       password; write it as %40, and / and ? in a password as %2F and %3F";
const UNKNOWN: &str = "it contains an unknown parameter; a password with a space must be in quotes, password='...', \
                       and an @ in the password of a URL must be written as %40";
const OPEN_SPACE: &str =
    "it contains a word without a value; a password with a space must be in quotes, password='...'";

/// Returns the parameters of a URL or of `key=value` pairs.
pub(crate) fn parse(text: &str) -> Result<Parameters, Fault> {
    let scheme = ["postgresql://", "postgres://"];
    match scheme.iter().find_map(|scheme| text.strip_prefix(scheme)) {
        Some(rest) => of_url(rest),
        None => of_pairs(text),
    }
}

/// Returns the driver's configuration. `text` is the connection string that the parameters come
/// from.
pub(crate) fn config(mut parameters: Parameters, text: &str) -> Result<Config, Fault> {
    let password = parameters.remove("password");
    let mut pairs = String::new();
    for (name, value) in parameters {
        let value = text_of(value)?;
        // As in libpq, an empty value of these counts as not set.
        let may_be_empty = [
            "host",
            "hostaddr",
            "port",
            "user",
            "dbname",
            "options",
            "application_name",
        ];
        if value.is_empty() && may_be_empty.contains(&name.as_str()) {
            continue;
        }
        let is_shown = ["host", "user", "dbname"].contains(&name.as_str());
        if is_shown && value.contains("://") && value.contains('@') {
            return Err(Fault(
                format!("{name} is an address; give it alone, as the address").into(),
            ));
        }
        // The driver's name for the parameter.
        let name = match name.as_str() {
            "keepalives_count" => "keepalives_retries",
            name => name,
        };
        let value = value.replace('\\', "\\\\").replace('\'', "\\'");
        let pair = format!("{name}='{value}' ");
        match pair.parse::<Config>() {
            Ok(_) => pairs.push_str(&pair),
            Err(error) => return Err(refused_by_driver(name, &error, text)),
        }
    }
    let mut config: Config = pairs.parse().map_err(|error| Fault(chain(&error).into()))?;
    if let Some(password) = password.filter(|password| !password.is_empty()) {
        config.password(password);
    }
    Ok(config)
}

/// Returns whether the text of a parameter's name or value may be part of a password.
pub(crate) fn may_be_secret(text: &str) -> bool {
    let query = text.split_once('?').map_or("", |(_, query)| query);
    text.contains("password") || query.contains('@')
}

/// Returns the driver's error about a parameter. An error about an unknown name is replaced, as the
/// name may be part of a password.
fn refused_by_driver(name: &str, error: &tokio_postgres::Error, text: &str) -> Fault {
    let said = std::error::Error::source(error).map_or_else(|| chain(error), chain);
    if !said.starts_with("unknown option") {
        return Fault(said.into());
    }
    let is_word = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if is_word && !may_be_secret(text) {
        return Fault(format!("unknown parameter \"{name}\"").into());
    }
    Fault(UNKNOWN.into())
}

fn of_url(text: &str) -> Result<Parameters, Fault> {
    let mut read = Parameters::new();
    let until = |text: &str, ends: &[char]| text.find(ends).unwrap_or(text.len());
    let at = until(text, &['@', '/']);
    let (credentials, rest) = match text[at..].strip_prefix('@') {
        Some(rest) => (&text[..at], rest),
        None => ("", text),
    };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (user, password) = match credentials.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (credentials, None),
    };
    // libpq takes the text after the first @ as the host, which errors show. A password that
    // contains %XX was encoded, so every @ in it was as well.
    let is_open = place.contains('@')
        || user.contains('?')
        || credentials.contains("password=")
        || (password.is_some_and(|password| !password.contains('%')) && query.contains('@'));
    if is_open {
        return Err(OPEN_AT.into());
    }
    let mut add = |name: &str, value: &str| -> Result<(), Fault> {
        if !value.is_empty() {
            read.insert(name.to_owned(), decoded(value)?);
        }
        Ok(())
    };
    add("user", user)?;
    add("password", password.unwrap_or_default())?;
    let hosts_end = hosts(place, &mut add)?;
    add(
        "dbname",
        place[hosts_end..].strip_prefix('/').unwrap_or_default(),
    )?;
    of_query(query, &mut read)?;
    Ok(read)
}

/// Parses `host:port,[ip]:port` and returns where it ends.
fn hosts(
    place: &str,
    add: &mut impl FnMut(&str, &str) -> Result<(), Fault>,
) -> Result<usize, Fault> {
    let (mut hosts, mut ports) = (String::new(), String::new());
    let mut rest = place;
    loop {
        let host = match rest.strip_prefix('[') {
            Some(inner) => {
                let (ip, after) = inner.split_once(']').ok_or("a [ has no ]")?;
                if ip.is_empty() || !(after.is_empty() || after.starts_with([':', '/', ','])) {
                    return Err("the text in [ ] is not a host, or other text follows it".into());
                }
                rest = after;
                ip
            }
            None => {
                let end = rest.find([':', '/', ',']).unwrap_or(rest.len());
                let (host, after) = rest.split_at(end);
                rest = after;
                host
            }
        };
        hosts.push_str(host);
        if let Some(after) = rest.strip_prefix(':') {
            let (port, after) = after.split_at(after.find(['/', ',']).unwrap_or(after.len()));
            ports.push_str(port);
            rest = after;
        }
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None => break,
        }
        hosts.push(',');
        ports.push(',');
    }
    add("host", &hosts)?;
    add("port", &ports)?;
    Ok(place.len() - rest.len())
}

fn of_query(query: &str, read: &mut Parameters) -> Result<(), Fault> {
    for part in query.strip_suffix('&').unwrap_or(query).split('&') {
        if query.is_empty() {
            break;
        }
        let (name, value) = part
            .split_once('=')
            .filter(|(_, value)| !value.contains('='))
            .ok_or("the text after ? must be name=value, joined by &; write other = and & as %3D and %26")?;
        let name = text_of(decoded(name)?)?;
        let value = decoded(value)?;
        // The spelling of the JDBC driver.
        match name.as_str() {
            "ssl" if value == b"true" => read.insert("sslmode".to_owned(), b"require".to_vec()),
            _ => read.insert(name, value),
        };
    }
    Ok(())
}

/// Decodes %XX.
fn decoded(text: &str) -> Result<Vec<u8>, Fault> {
    let is_hex = |code: &str| {
        code.get(..2)
            .is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    if !text.split('%').skip(1).all(is_hex) {
        return Err(
            "a % must be followed by two hexadecimal digits; the sign itself is %25".into(),
        );
    }
    let bytes: Vec<u8> = percent_decode_str(text).collect();
    if bytes.contains(&0) {
        return Err("%00 is not a valid character".into());
    }
    Ok(bytes)
}

/// Returns a value as text, or an error if it is not UTF-8.
pub(crate) fn text_of(value: Vec<u8>) -> Result<String, Fault> {
    String::from_utf8(value).map_err(|_| "a value is not UTF-8".into())
}

fn of_pairs(text: &str) -> Result<Parameters, Fault> {
    let mut read = Parameters::new();
    let space = |c: char| matches!(c, ' ' | '\t'..='\r');
    let mut rest = text.trim_start_matches(space);
    if !rest.is_empty() && !rest.contains('=') {
        return Err(NEITHER.into());
    }
    while !rest.is_empty() {
        let end = rest.find(|c| c == '=' || space(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if name.contains("://") {
            return Err(NEITHER.into());
        }
        let after = after.trim_start_matches(space);
        let after = after.strip_prefix('=').ok_or(OPEN_SPACE)?;
        let (value, after) = value(after.trim_start_matches(space), space)?;
        read.insert(name.to_owned(), value.into_bytes());
        rest = after.trim_start_matches(space);
    }
    Ok(read)
}

/// Returns the value at the beginning of a text, without its quotes, and the rest of the text.
fn value(text: &str, space: impl Fn(char) -> bool) -> Result<(String, &str), Fault> {
    let (quoted, text) = match text.strip_prefix('\'') {
        Some(inner) => (true, inner),
        None => (false, text),
    };
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            _ if !quoted && space(letter) => return Ok((value, &text[at..])),
            _ => value.push(letter),
        }
    }
    match quoted {
        true => Err("a quote is not closed".into()),
        false => Ok((value, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::seq::IndexedRandom;
    use std::ffi::{CStr, CString, c_char, c_int, c_void};

    /// An entry of the array that libpq returns, one for each parameter.
    #[repr(C)]
    struct LibpqOption {
        keyword: *const c_char,
        variable: *const c_char,
        compiled: *const c_char,
        value: *const c_char,
        label: *const c_char,
        display: *const c_char,
        size: c_int,
    }

    type Parse = unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> *const LibpqOption;

    /// Returns libpq's parser, from the library that psql uses. If there is none, prints a message
    /// and returns `None`.
    fn libpq() -> Option<Parse> {
        // SAFETY: the name is NUL-terminated; loading libpq runs no code of the caller.
        let library = unsafe { libc::dlopen(c"libpq.so.5".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            eprintln!("skipped: there is no libpq.so.5 to compare with");
            return None;
        }
        // SAFETY: the library stays loaded, and the name is NUL-terminated.
        let found = unsafe { libc::dlsym(library, c"PQconninfoParse".as_ptr()) };
        assert!(!found.is_null());
        // SAFETY: the function has had this type since libpq 5.3.
        Some(unsafe { std::mem::transmute::<*mut c_void, Parse>(found) })
    }

    /// Returns the parameters that libpq parses. The memory is leaked, which is harmless in a test.
    fn read_by(parse: Parse, text: &str) -> Result<Parameters, String> {
        let text = CString::new(text).expect("no text here has a zero");
        let mut message = std::ptr::null_mut();
        // SAFETY: the text is NUL-terminated, and the message is only written.
        let mut option = unsafe { parse(text.as_ptr(), &mut message) };
        if option.is_null() {
            // SAFETY: without a result there is a message, which is NUL-terminated.
            let message = unsafe { CStr::from_ptr(message) };
            return Err(message.to_string_lossy().into_owned());
        }
        let mut read = Parameters::new();
        // SAFETY: the array of NUL-terminated texts ends with an element without a keyword.
        while let Some(keyword) = unsafe { (*option).keyword.as_ref() } {
            // SAFETY: as above.
            let (keyword, value) = unsafe { (CStr::from_ptr(keyword), (*option).value.as_ref()) };
            if let Some(value) = value {
                // SAFETY: as above.
                let value = unsafe { CStr::from_ptr(value) }.to_bytes().to_vec();
                read.insert(keyword.to_string_lossy().into_owned(), value);
            }
            // SAFETY: the last element has no keyword, and this element has one.
            option = unsafe { option.add(1) };
        }
        Ok(read)
    }

    const NASTY: &str = "postgres://u:a@b?x=c@h/d
postgres://u:a@b?options=c@h/d
postgres://h/d?application_name=a@b
postgres://u:pa/ss@h/d
postgres://u:pa/ss?w@h/d
postgres://u:p?q@h/d
postgres://h?user=a&password=se@cret
postgres://h:7?password=se@cret
postgres://
postgres://@
postgres://:@h
postgresql://u:p@[::1]:5433/d
postgres://u@[::1/d
postgres://u@[]/d
postgres://u@[::1]x/d
postgres://[::1],h:1,[::2]:3/d
postgres://h:/d
postgres://h1:1,h2:2/d?sslmode=
postgres://h1,h2:2?user=a
postgres://h,,g/d
postgres://u:p@,/d
postgres://h/d?ssl=true
postgres://h/d?ssl=1
postgres://h/d?host=x&host=y
postgres://h/d?
postgres://h/d?&
postgres://h/d?user=a&
postgres://h/d?user=a&&port=1
postgres://h/d?a
postgres://h/d?application_name=a=b
postgres://h/d?us%65r=a
postgres://h/%zz
postgres://h/%00
postgres://h/%c3%a4?options=%FF
postgres://h/d?application_name=%4
postgres://u%3Ax:p%40@h
postgres://%2Fvar%2Frun/d
postgres://h/a/b
postgres://?host=x
postgres:///d?host=/tmp
postgres://u:p@h/postgres://x
POSTGRES://u:s@h/d?sslmode=x
postgres:/h
host=
host= user=x
host='' user=x
password=a b
password=a b=c
a=b
host=h host=g
 host = h
=x
host=h=g
'host'=x
host='a''b'
host='a\\'b'
host=a\\ b
host=a\\
host='a\\
host='x'user=y
host=h user
user=\u{a0}x
dbname=postgres://u:s@h/d
host=ä user='ö ü'";

    /// Asserts that both parse the text alike or both refuse it. An @ that libpq accepts may be
    /// refused.
    fn compare(parse_by_libpq: Parse, text: &str) {
        match (parse(text), read_by(parse_by_libpq, text)) {
            (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs, "{text}"),
            (Ok(ours), Err(theirs)) => {
                // Names are compared with those that the driver knows, later.
                let unknown = ["invalid connection option", "invalid URI query parameter"];
                let known = unknown.iter().any(|unknown| theirs.contains(unknown));
                assert!(known, "{text}: {ours:?}, and libpq says {theirs}");
            }
            (Err(ours), Ok(theirs)) => {
                // Except in an IP address, where libpq accepts any character at first.
                let may = [OPEN_AT, NEITHER, "a value is not UTF-8"].contains(&&*ours.0);
                assert!(
                    may || text.contains('['),
                    "{text}: {ours:?}, and libpq reads {theirs:?}"
                );
            }
            (Err(_), Err(_)) => {}
        }
    }

    #[test]
    fn libpq_reads_the_same_or_refuses_too() {
        let Some(libpq) = libpq() else { return };
        for text in NASTY
            .lines()
            .chain(["host=h\tport=1\nuser=u\u{b}dbname=d", "", "  "])
        {
            compare(libpq, text);
        }
        let parts = [
            "postgres://",
            "host",
            "=",
            "user",
            "password",
            "port",
            "dbname",
            "sslmode",
            "a",
            "1",
            "@",
            "/",
            "?",
            "&",
            ":",
            ",",
            "[",
            "]",
            "%",
            "%40",
            "%2F",
            "%0",
            "'",
            "\\",
            " ",
            "\t",
            "\u{a0}",
            "ü",
            "::1",
            "x y",
            "ssl=true",
        ];
        let mut random = rand::rng();
        for _ in 0..50_000 {
            let count = rand::random_range(0..12);
            let text: String = (0..count)
                .filter_map(|_| parts.choose(&mut random))
                .copied()
                .collect();
            compare(libpq, &text);
            compare(libpq, &format!("postgres://{text}"));
        }
    }
}
