//! The checks on a request before it reaches the database.
//!
//! Invariants: the host is a configured one, so that no other site's name leads here; the user is
//! known if users are configured; and a request that changes something comes from a page of this
//! origin with the token issued to that page.

use std::time::Instant;

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, StatusCode};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use hmac::Mac;

use crate::Options;
use crate::identity::{Identity, Passwords, Person, keyed};
use crate::shared::Shared;
use crate::trouble::Trouble;

/// The cookie that the form tokens of a browser are bound to.
pub(crate) const SESSION: &str = "trax_session";

/// Refuses a host that is not configured.
pub(crate) fn check_host(options: &Options, headers: &HeaderMap) -> Result<(), Trouble> {
    let host = text(headers, HOST.as_str()).unwrap_or_default();
    let known = |name: &String| name.eq_ignore_ascii_case(host);
    if options.hosts.is_empty() || options.hosts.iter().any(known) {
        return Ok(());
    }
    Err(Trouble::new(
        StatusCode::MISDIRECTED_REQUEST,
        format!("this page is not served as \"{host}\""),
    )
    .hint("If it should be, start it with: trax web --host NAME"))
}

/// Returns the user of a request.
pub(crate) async fn person(shared: &Shared, headers: &HeaderMap) -> Result<Person, Trouble> {
    match &*shared.identity() {
        Identity::Nobody => Ok(Person::default()),
        Identity::Header { name, roles } => {
            // Two headers mean that one is the proxy's and one was added by a client.
            let mut values = headers.get_all(name).iter();
            let (first, second) = (values.next(), values.next());
            let person = first
                .and_then(|value| std::str::from_utf8(value.as_bytes()).ok())
                .map(str::trim)
                .filter(|value| !value.is_empty() && second.is_none());
            let person = person.ok_or_else(|| {
                Trouble::new(
                    StatusCode::UNAUTHORIZED,
                    format!("the proxy must name one person in {name}"),
                )
            })?;
            with_role(person, roles.of(person))
        }
        Identity::Passwords { roles, .. } => {
            let (name, password) = basic(headers).ok_or_else(who)?;
            check_password(shared, &name, &password, session(headers)).await?;
            match roles {
                Some(roles) => with_role(&name, roles.of(&name)),
                None => Ok(Person {
                    name: Some(name),
                    role: None,
                }),
            }
        }
    }
}

fn who() -> Trouble {
    Trouble::new(
        StatusCode::UNAUTHORIZED,
        "a name and a password are required",
    )
}

fn with_role(name: &str, role: Option<&str>) -> Result<Person, Trouble> {
    let role = role.ok_or_else(|| {
        Trouble::forbidden(format!("\"{name}\" has no role"))
            .hint("Ask the operator of trax web to add a line to the file of --roles.")
    })?;
    Ok(Person {
        name: Some(name.to_owned()),
        role: Some(role.to_owned()),
    })
}

/// Checks a password. Slow checks run one at a time, so that guessing does not occupy every
/// processor. After too many wrong passwords, a known password is accepted only from a browser that
/// gave it before. Otherwise the fast answer would confirm a guess at the speed of a comparison.
async fn check_password(
    shared: &Shared,
    name: &str,
    password: &str,
    session: Option<&str>,
) -> Result<(), Trouble> {
    let identity = shared.identity();
    let Identity::Passwords { passwords, .. } = &*identity else {
        return Err(who());
    };
    let prove = |passwords: &Passwords| {
        if let Some(session) = session {
            passwords.prove(name, session);
        }
    };
    if passwords.is_known(name, password) {
        if passwords.may_guess(name, Instant::now()) {
            prove(passwords);
            return Ok(());
        }
        if session.is_some_and(|session| passwords.is_proven(name, session)) {
            return Ok(());
        }
    }
    let _one = shared.guess.lock().await;
    if !passwords.may_guess(name, Instant::now()) {
        return Err(Trouble::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too many wrong passwords for this name",
        )
        .hint("Wait a minute, then try again."));
    }
    let (again, tried, password) = (identity.clone(), name.to_owned(), password.to_owned());
    let verified = tokio::task::spawn_blocking(move || match &*again {
        Identity::Passwords { passwords, .. } => passwords.verify(&tried, &password),
        _ => false,
    });
    if verified.await.unwrap_or(false) {
        prove(passwords);
        return Ok(());
    }
    passwords.guessed_wrong(name, Instant::now());
    Err(who())
}

fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let (scheme, code) = text(headers, AUTHORIZATION.as_str())?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") || code.len() > 1_000 {
        return None;
    }
    let plain = String::from_utf8(BASE64.decode(code.trim()).ok()?).ok()?;
    let (name, password) = plain.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

/// Browsers pad; some scripts do not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns the session in the browser's cookie.
pub(crate) fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = text(headers, COOKIE.as_str())?;
    let ours = |pair: &str| {
        let (name, value) = pair.trim().split_once('=')?;
        let is_ours = name == SESSION && value.len() == 32;
        (is_ours && value.bytes().all(|b| b.is_ascii_hexdigit())).then_some(())?;
        Some(pair.trim().len() - value.len())
    };
    cookies
        .split(';')
        .find_map(|pair| ours(pair).map(|at| &pair.trim()[at..]))
}

/// Returns whether the browser uses TLS to a proxy in front. A client that falsely claims so only
/// prevents its own cookie from being sent back.
pub(crate) fn is_encrypted(headers: &HeaderMap) -> bool {
    let said = text(headers, "x-forwarded-proto").and_then(|list| list.split(',').next());
    let forwarded = text(headers, "forwarded").unwrap_or_default();
    said.is_some_and(|scheme| scheme.trim().eq_ignore_ascii_case("https"))
        || forwarded.to_ascii_lowercase().contains("proto=https")
}

/// Returns the token that a form of this session and user must carry.
pub(crate) fn token(key: &[u8; 32], session: &str, person: &Person) -> String {
    let mut mac = keyed(key);
    mac.update(session.as_bytes());
    mac.update(person.name.as_deref().unwrap_or_default().as_bytes());
    hex(&mac.finalize().into_bytes())
}

/// Refuses a request for a change that does not come from a page of this site.
pub(crate) fn check_act(
    headers: &HeaderMap,
    wanted: &str,
    token: Option<&str>,
) -> Result<(), Trouble> {
    let host = text(headers, HOST.as_str()).unwrap_or_default();
    let same = match text(headers, ORIGIN.as_str()) {
        Some(origin) => origin.split_once("://").is_some_and(|(scheme, name)| {
            scheme.starts_with("http") && name.eq_ignore_ascii_case(host)
        }),
        None => false,
    };
    let site = text(headers, "sec-fetch-site");
    if !same || site.is_some_and(|site| site != "same-origin") {
        return Err(Trouble::forbidden(
            "the request did not come from a page of this site",
        ));
    }
    let kind = text(headers, CONTENT_TYPE.as_str()).unwrap_or_default();
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return Err(Trouble::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the request is not a submitted form",
        ));
    }
    // Compares in constant time for equal lengths. The token is short-lived, but the comparison
    // costs nothing.
    let given = token.unwrap_or_default().as_bytes();
    let differ = given
        .iter()
        .zip(wanted.as_bytes())
        .fold(0, |all, (a, b)| all | (a ^ b));
    if given.len() != wanted.len() || differ != 0 {
        return Err(Trouble::forbidden(
            "this form belongs to another session, or trax web has restarted since",
        )
        .hint("Go back, reload the page, and try again."));
    }
    Ok(())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (
                axum::http::HeaderName::from_static(name),
                axum::http::HeaderValue::from_static(value),
            )
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn credentials_are_read_with_and_without_padding() {
        for code in ["YTpi", "YTpiYw==", "YTpiYw", "YTpiYmI=", "YTpiYmI"] {
            let mut headers = HeaderMap::new();
            let value = format!("Basic {code}").parse().expect("a header");
            headers.insert(AUTHORIZATION, value);
            let (name, password) = basic(&headers).expect(code);
            assert_eq!(name, "a");
            assert!(password.starts_with('b'), "{password}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, "Basic a b".parse().expect("a header"));
        assert_eq!(basic(&headers), None);
    }

    #[test]
    fn an_act_comes_from_our_origin_with_our_token() {
        let form = ("content-type", "application/x-www-form-urlencoded");
        let host = ("host", "a:1");
        let act = |lines: &[(&'static str, &'static str)], token| {
            check_act(&headers(lines), "abc", token).is_ok()
        };
        let origin = ("origin", "http://a:1");
        assert!(act(&[host, origin, form], Some("abc")));
        assert!(act(
            &[host, origin, form, ("sec-fetch-site", "same-origin")],
            Some("abc")
        ));
        assert!(!act(
            &[host, origin, form, ("sec-fetch-site", "same-site")],
            Some("abc")
        ));
        assert!(!act(&[host, ("origin", "http://b:1"), form], Some("abc")));
        assert!(!act(&[host, ("origin", "null"), form], Some("abc")));
        assert!(!act(&[host, form], Some("abc")));
        assert!(!act(&[host, origin], Some("abc")));
        assert!(!act(&[host, origin, form], Some("abd")));
        assert!(!act(&[host, origin, form], None));
    }

    #[test]
    fn the_cookie_is_ours_or_none() {
        let one = "trax_session=00112233445566778899aabbccddeeff";
        assert_eq!(session(&headers(&[("cookie", one)])), Some(&one[13..]));
        assert_eq!(session(&headers(&[("cookie", "trax_session=x")])), None);
        assert_eq!(
            session(&headers(&[("cookie", "other=1; trax_session=")])),
            None
        );
    }
}
