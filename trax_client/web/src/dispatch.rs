//! From a request to its response: the gate, the page or act, and the headers common to all
//! responses.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{OriginalUri, Request};
use axum::http::header::{
    CACHE_CONTROL, HeaderName, HeaderValue, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE,
};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use maud::html;

use crate::identity::{Identity, Person};
use crate::moment::Zone;
use crate::response::{asset, page};
use crate::shared::Shared;
use crate::trouble::Trouble;
use crate::visit::{Values, Visit};
use crate::{gate, layout, route};

/// The maximum length of an act's form, in bytes.
const FORM: usize = 16 * 1024;

pub(crate) const STYLE: &str = include_str!("asset/style.css");
pub(crate) const SCRIPT: &str = include_str!("asset/script.js");

/// Nothing is loaded from other origins, no inline script runs, and no page can be framed.
const SAFETY: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Returns the response to a request.
pub(crate) async fn answer(shared: &Arc<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let inner = parts.uri.path().to_owned();
    let outer = parts.extensions.get::<OriginalUri>();
    let outer = outer.map_or(inner.as_str(), |uri| uri.0.path());
    // The part of the path that an outer router removed is prefixed to every link.
    let mounted = outer
        .strip_suffix(inner.as_str())
        .unwrap_or_else(|| outer.trim_end_matches('/'));
    let base = format!("{}{mounted}", shared.options.base);
    let path = inner.trim_start_matches('/').to_owned();

    let known = gate::session(&parts.headers).map(str::to_owned);
    let session = known
        .clone()
        .unwrap_or_else(|| gate::hex(&rand::random::<[u8; 16]>()));
    let mut visit = Visit {
        base: base.clone(),
        path,
        place: None,
        query: Values::default(),
        person: Person::default(),
        read_only: shared
            .options
            .read_only
            .then_some("This page is read-only: no way to identify people is configured."),
        token: String::new(),
        zone: gate::cookie(&parts.headers, gate::ZONE).map_or(Zone::UTC, |name| {
            let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
            Zone::named(&name)
        }),
    };
    let answered = enter(shared, &parts, body, &mut visit, &session).await;
    let mut response = match answered {
        Ok(response) => response,
        Err(trouble) => refusal(&visit, &trouble, &shared.identity()),
    };
    let headers = response.headers_mut();
    for (name, value) in SAFETY {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if known.is_none() && parts.method == Method::GET {
        let place = if base.is_empty() { "/" } else { &base };
        let secure = if gate::is_encrypted(&parts.headers) {
            "; Secure"
        } else {
            ""
        };
        let cookie = format!(
            "{}={session}; Path={place}; HttpOnly; SameSite=Strict{secure}",
            gate::SESSION
        );
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            headers.insert(SET_COOKIE, cookie);
        }
    }
    response
}

async fn enter(
    shared: &Arc<Shared>,
    parts: &axum::http::request::Parts,
    body: Body,
    visit: &mut Visit,
    session: &str,
) -> Result<Response, Trouble> {
    gate::check_host(&shared.options, &parts.headers)?;
    visit.person = gate::person(shared, &parts.headers).await?;
    visit.token = gate::token(&shared.key, session, &visit.person);
    visit.query = Values::parse(parts.uri.query().unwrap_or_default())?;
    if parts.method == Method::POST {
        let form = to_bytes(body, FORM).await.map_err(|_| {
            Trouble::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("a form may have {FORM} bytes"),
            )
        })?;
        let form = Values::parse(&String::from_utf8_lossy(&form))?;
        gate::check_act(&parts.headers, &visit.token, form.get("token"))?;
        if let Some(why) = visit.read_only {
            return Err(Trouble::forbidden(why));
        }
        return route::act(shared, visit, &form).await;
    }
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Err(Trouble::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "pages are asked for with GET",
        ));
    }
    match visit.path.as_str() {
        "style.css" => return Ok(asset("text/css; charset=utf-8", STYLE)),
        "script.js" => return Ok(asset("text/javascript; charset=utf-8", SCRIPT)),
        _ => {}
    }
    route::show(shared, visit).await
}

fn refusal(visit: &Visit, trouble: &Trouble, identity: &Identity) -> Response {
    let body = html! {
        h1 { (trouble.message) }
        @if let Some(detail) = &trouble.detail { p { (detail) } }
        @if let Some(hint) = &trouble.hint { p .hint { (hint) } }
    };
    let mut response = page(layout::bare(visit, &trouble.message, &body));
    *response.status_mut() = trouble.status;
    // Without a new challenge the browser keeps the password, to be sent again after the pause.
    if let Some(pause) = trouble.retry_after {
        let seconds = HeaderValue::from(pause.as_secs().max(1));
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    if trouble.status == StatusCode::UNAUTHORIZED && matches!(identity, Identity::Passwords { .. })
    {
        let ask = HeaderValue::from_static("Basic realm=\"trax\", charset=\"UTF-8\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, ask);
    }
    response
}
