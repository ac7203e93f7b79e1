//! Requests to a small HTTP server of this machine.

use crate::{PATIENCE, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends a request unchanged; returns the status line and the body.
pub async fn ask(port: u16, request: &str) -> Result<(String, String), String> {
    let told = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .map_err(told)?;
    stream.write_all(request.as_bytes()).await.map_err(told)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map_err(told)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(answer.clone())?;
    let length = format!("Content-Length: {}", body.len());
    if !request.starts_with("HEAD") && !head.contains(&length) {
        return Err(format!("{length}: {head}"));
    }
    let status = head.lines().next().unwrap_or("");
    Ok((status.to_owned(), body.to_owned()))
}

/// Requests a path; returns the status and the body.
pub async fn get(port: u16, path: &str) -> Result<(u16, String), String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    let (line, body) = ask(port, &request).await?;
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((status.ok_or(line)?, body))
}

/// Waits until a path answers with this status; returns the body.
pub async fn status_becomes(port: u16, path: &str, wanted: u16) -> String {
    eventually(&format!("{path} {wanted}"), PATIENCE, async || {
        match get(port, path).await? {
            (status, body) if status == wanted => Ok(body),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await
}
