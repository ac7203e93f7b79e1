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
/// The cookie in which the script of the pages names the time zone.
pub(crate) const ZONE: &str = "trax_zone";

/// Refuses a host that is not configured.
pub(crate) fn check_host(options: &Options, headers: &HeaderMap) -> Result<(), Trouble> {
    let host = text(headers, HOST.as_str()).unwrap_or_default();
    let known = |name: &String| name.eq_ignore_ascii_case(host);
    if options.hosts.is_empty() || options.hosts.iter().any(known) {
        return Ok(());
    }
    let refusal = Trouble::new(
        StatusCode::MISDIRECTED_REQUEST,
        format!("this page is not served as \"{host}\""),
    );
    Err(match text(headers, "x-forwarded-host") {
        // The browser's name is another: a proxy has replaced it.
        Some(name) if !name.eq_ignore_ascii_case(host) => refusal.hint(format!(
            "{PASS_ON} Then start the pages with: trax web --host {name}"
        )),
        _ if host.is_empty() => refusal.hint(format!("The request has no name. {PASS_ON}")),
        _ => refusal.hint(format!(
            "If it should be, start it with: trax web --host {host}"
        )),
    })
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
        if passwords.pause(name, Instant::now()).is_none() {
            prove(passwords);
            return Ok(());
        }
        if session.is_some_and(|session| passwords.is_proven(name, session)) {
            return Ok(());
        }
    }
    let _one = shared.guess.lock().await;
    if let Some(pause) = passwords.pause(name, Instant::now()) {
        let mut refusal = Trouble::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too many wrong passwords for this name",
        );
        refusal.retry_after = Some(pause);
        return Err(refusal.hint(format!(
            "No password is checked now, not even the right one. Try again in {} s.",
            pause.as_secs().max(1)
        )));
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
    let is_ours = |value: &&str| value.len() == 32 && value.bytes().all(|b| b.is_ascii_hexdigit());
    cookies(headers, SESSION).find(is_ours)
}

/// Returns the value of a cookie.
pub(crate) fn cookie<'h>(headers: &'h HeaderMap, name: &'static str) -> Option<&'h str> {
    cookies(headers, name).next()
}

fn cookies<'h>(headers: &'h HeaderMap, name: &'static str) -> impl Iterator<Item = &'h str> {
    let all = text(headers, COOKIE.as_str()).unwrap_or_default();
    let pairs = all
        .split(';')
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .filter(move |(n, _)| *n == name)
        .map(|(_, value)| value)
}

/// Returns whether the proxy in front was reached by TLS. Each proxy adds its entry at the end, so
/// the last one is that of the nearest proxy; earlier ones may be a client's invention.
pub(crate) fn is_encrypted(headers: &HeaderMap) -> bool {
    let is_https = |scheme: &str| {
        scheme
            .trim()
            .trim_matches('"')
            .eq_ignore_ascii_case("https")
    };
    let proto = |pair: &str| {
        let (name, scheme) = pair.split_once('=')?;
        (name.trim().eq_ignore_ascii_case("proto")).then(|| is_https(scheme))
    };
    last(headers, "x-forwarded-proto").is_some_and(is_https)
        || last(headers, "forwarded")
            .is_some_and(|hop| hop.split(';').find_map(proto) == Some(true))
}

/// Returns the last entry of a list in one or more headers of this name.
fn last<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let list = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    let (mut start, mut is_quoted) = (0, false);
    for (place, c) in list.char_indices() {
        is_quoted ^= c == '"';
        if c == ',' && !is_quoted {
            start = place + 1;
        }
    }
    Some(&list[start..])
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
    let origin = text(headers, ORIGIN.as_str()).and_then(|origin| origin.split_once("://"));
    let name = origin
        .filter(|(scheme, _)| scheme.starts_with("http"))
        .map(|(_, name)| name);
    let site = text(headers, "sec-fetch-site");
    if site.is_some_and(|site| site != "same-origin") {
        return Err(stranger());
    }
    match name {
        Some(name) if name.eq_ignore_ascii_case(host) => {}
        // The browser says that it is a page of this site, or a proxy names the same host: only the
        // Host header differs.
        Some(name) if site.is_some() || text(headers, "x-forwarded-host") == Some(name) => {
            return Err(swallowed(name, host));
        }
        _ => return Err(stranger()),
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

fn stranger() -> Trouble {
    Trouble::forbidden("the request did not come from a page of this site")
}

/// Returns the refusal of a form that came through a proxy which replaces the Host header.
fn swallowed(name: &str, host: &str) -> Trouble {
    let message = format!("the browser is at \"{name}\", but the request is for \"{host}\"");
    let mut trouble = Trouble::forbidden(message);
    trouble.detail =
        Some("A proxy in front replaces the name, so it cannot be checked.".to_owned());
    trouble.hint(format!(
        "{PASS_ON} Then start the pages with: trax web --host {name}"
    ))
}

/// The settings for a proxy.
const PASS_ON: &str = "Let the proxy pass the name on. nginx: proxy_set_header Host $http_host; \
    Apache: ProxyPreserveHost On; HAProxy, Caddy and Traefik pass it on unless told otherwise.";

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
    fn only_the_nearest_proxy_says_whether_the_browser_uses_tls() {
        for (name, value, encrypted) in [
            ("x-forwarded-proto", "https", true),
            ("x-forwarded-proto", "HTTPS", true),
            ("x-forwarded-proto", "http, https", true),
            ("x-forwarded-proto", "https, http", false),
            ("forwarded", "for=1.2.3.4;proto=https", true),
            (
                "forwarded",
                "for=\"[2001:db8::1, x]:4711\"; Proto=\"https\"",
                true,
            ),
            ("forwarded", "proto=https, for=10.0.0.1;proto=http", false),
            ("forwarded", "proto=https, for=10.0.0.1", false),
            ("forwarded", "for=\"proto=https\"", false),
            ("forwarded", "host=proto=https", false),
        ] {
            assert_eq!(
                is_encrypted(&headers(&[(name, value)])),
                encrypted,
                "{name}: {value}"
            );
        }
        let mut two = headers(&[("forwarded", "proto=https")]);
        let near = axum::http::HeaderValue::from_static("proto=http");
        two.append("forwarded", near);
        assert!(
            !is_encrypted(&two),
            "the header of the nearest proxy is the last"
        );
    }

    #[test]
    fn a_proxy_that_replaces_the_name_is_told_what_to_set() {
        let form = ("content-type", "application/x-www-form-urlencoded");
        let ours = [
            ("host", "127.0.0.1:8740"),
            ("origin", "https://jobs.example"),
            form,
        ];
        let refusal = |more: (&'static str, &'static str)| {
            let lines = headers(&[&ours[..], &[more]].concat());
            check_act(&lines, "abc", Some("abc")).expect_err("the name differs")
        };
        for more in [
            ("sec-fetch-site", "same-origin"),
            ("x-forwarded-host", "jobs.example"),
        ] {
            let hint = refusal(more).hint.expect("it says what to do");
            assert!(hint.contains("proxy_set_header Host $http_host"), "{hint}");
            assert!(hint.ends_with("trax web --host jobs.example"), "{hint}");
        }
        for more in [
            ("sec-fetch-site", "cross-site"),
            ("x-forwarded-host", "other.example"),
        ] {
            assert!(refusal(more).hint.is_none(), "{more:?}");
        }
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
