//! The responses: a page, a file, an asset, a redirection.

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue, LOCATION};
use axum::response::Response;
use maud::Markup;

use crate::trouble::Trouble;

pub(crate) fn page(markup: Markup) -> Response {
    let mut response = Response::new(Body::from(markup.into_string()));
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, html);
    response
}

/// Returns a document that the browser saves as a file.
pub(crate) fn file(document: String) -> Response {
    let mut response = Response::new(Body::from(document));
    for (name, value) in [
        (CONTENT_TYPE, "application/json"),
        (
            CONTENT_DISPOSITION,
            "attachment; filename=\"manifests.json\"",
        ),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

pub(crate) fn asset(kind: &'static str, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(
        CACHE_CONTROL,
        HeaderValue::from_static("private, max-age=300"),
    );
    response
}

/// Sends the browser to another page.
pub(crate) fn redirect(link: &str) -> Result<Response, Trouble> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let link =
        HeaderValue::from_str(link).map_err(|_| Trouble::missing("there is no such page"))?;
    response.headers_mut().insert(LOCATION, link);
    Ok(response)
}
