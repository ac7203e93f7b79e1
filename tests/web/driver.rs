//! A real Chromium, driven through WebDriver, which is HTTP and JSON.

use harness::process::{Process, Scratch};
use harness::{PATIENCE, eventually};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Options of axe-core: all of its rules, those whose findings depend on colours, and the others.
pub(super) const ALL_RULES: &str = "{}";
const RULES_OF_COLOURS: &str = r#"{"runOnly": ["color-contrast", "link-in-text-block"]}"#;
const OTHER_RULES: &str = r#"{"rules": {
    "color-contrast": {"enabled": false}, "link-in-text-block": {"enabled": false}
}}"#;

/// A browser; it ends when this is dropped.
pub(super) struct Browser {
    _driver: Process,
    _profile: Scratch,
    port: u16,
    session: String,
}

impl Browser {
    pub(super) async fn start() -> Self {
        let profile = Scratch::new("chromium");
        let (driver, port) = start_driver(&profile).await;
        // The shell draws no windows and menus, as the whole browser does without a screen too.
        let options = json!({
            "binary": "/usr/bin/chromium-headless-shell",
            "args": ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        });
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options, "timeouts": {"script": PATIENCE.as_secs() * 1000},
            "goog:loggingPrefs": {"browser": "ALL"}
        }}});
        let made = ask(port, "POST", "/session", Some(&wanted)).await;
        let session = made["sessionId"].as_str().expect("a session").to_owned();
        Browser {
            _driver: driver,
            _profile: profile,
            port,
            session,
        }
    }

    pub(super) async fn post(&self, what: &str, body: Value) -> Value {
        let path = format!("/session/{}/{what}", self.session);
        ask(self.port, "POST", &path, Some(&body)).await
    }

    pub(super) async fn open(&self, url: &str) {
        self.post("url", json!({"url": url})).await;
    }

    pub(super) async fn size(&self, width: u32, height: u32) {
        // A headless window is otherwise at least 500 pixels wide.
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics)
            .await;
        // A picture of a long page would end where its scrollbar begins.
        self.devtools("Emulation.setScrollbarsHidden", json!({"hidden": true}))
            .await;
    }

    /// Calls a function of the browser's DevTools protocol.
    pub(super) async fn devtools(&self, name: &str, parameters: Value) -> Value {
        let command = json!({"cmd": name, "params": parameters});
        self.post("goog/cdp/execute", command).await
    }

    /// Presses a key, as a keyboard does.
    pub(super) async fn press(&self, key: &str, code: u32) {
        for kind in ["keyDown", "keyUp"] {
            let text = if key == "Enter" { "\r" } else { "" };
            self.devtools(
                "Input.dispatchKeyEvent",
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}),
            )
            .await;
        }
    }

    /// Opens a page on a large and a small screen, light and dark; checks its title, width and
    /// accessibility. The dark changes only colours, and the width none (style.css), so that each
    /// rule of axe-core is checked where its finding can differ.
    pub(super) async fn reads(&self, link: &str, name: &str) {
        let looks: [(u32, [_; 2]); 2] = [
            (
                1280,
                [("light", Some(ALL_RULES)), ("dark", Some(RULES_OF_COLOURS))],
            ),
            (360, [("light", Some(OTHER_RULES)), ("dark", None)]),
        ];
        for (width, schemes) in looks {
            self.size(width, 900).await;
            self.scheme("light").await;
            self.open(link).await;
            let title = self.script("return document.title").await.to_string();
            assert!(title.contains("trax"), "{link}: {title}");
            let wide = "return document.documentElement.scrollWidth - window.innerWidth";
            let over = self.script(wide).await.as_i64();
            assert!(
                over.is_some_and(|over| over <= 0),
                "{link} is {over:?} too wide at {width}"
            );
            for (scheme, rules) in schemes {
                self.scheme(scheme).await;
                self.picture(&format!("{name}-{width}-{scheme}.png")).await;
                let barriers = match rules {
                    Some(rules) => self.barriers(rules).await,
                    None => Vec::new(),
                };
                assert!(
                    barriers.is_empty(),
                    "{link} at {width}, {scheme}: {barriers:#?}"
                );
            }
        }
    }

    /// Sets the colour scheme that the user prefers: light or dark.
    pub(super) async fn scheme(&self, scheme: &str) {
        let wanted = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", wanted).await;
    }

    /// Returns the serious findings of axe-core on the page, a line for each element.
    pub(super) async fn barriers(&self, rules: &str) -> Vec<String> {
        // Half a megabyte, which the page keeps.
        if self.script("return !window.axe").await == true {
            self.script(&axe()).await;
        }
        let run = "const [rules, done] = arguments;
            axe.run(document, {resultTypes: ['violations'], ...JSON.parse(rules)}).then(
                (found) => done(found.violations
                    .filter((v) => v.impact === 'serious' || v.impact === 'critical')
                    .flatMap((v) => v.nodes.map((n) => v.id + ': ' + n.html + ' ' + n.failureSummary))),
                (error) => done(['axe: ' + error]))";
        let found = self
            .post("execute/async", json!({"script": run, "args": [rules]}))
            .await;
        let found = found.as_array().expect("a list").clone();
        found.iter().map(Value::to_string).collect()
    }

    /// Evaluates a script on the page and returns its result.
    pub(super) async fn script(&self, text: &str) -> Value {
        self.post("execute/sync", json!({"script": text, "args": []}))
            .await
    }

    pub(super) async fn click(&self, css: &str) {
        let element = self.element(css).await;
        self.post(&format!("element/{element}/click"), json!({}))
            .await;
    }

    /// Types into a field, key by key.
    pub(super) async fn types(&self, css: &str, text: &str) {
        let element = self.element(css).await;
        // A form may have the stored value.
        self.post(&format!("element/{element}/clear"), json!({}))
            .await;
        self.post(&format!("element/{element}/value"), json!({"text": text}))
            .await;
    }

    async fn element(&self, css: &str) -> String {
        let found = self
            .post("element", json!({"using": "css selector", "value": css}))
            .await;
        let element = found
            .as_object()
            .and_then(|all| all.values().next()?.as_str());
        element
            .unwrap_or_else(|| panic!("{css}: {found}"))
            .to_owned()
    }

    /// Writes a picture of the whole page into target/pictures if `TRAX_PICTURES` is set.
    pub(super) async fn picture(&self, name: &str) {
        if std::env::var_os("TRAX_PICTURES").is_none() {
            return;
        }
        let all = json!({"captureBeyondViewport": true});
        let image = self.devtools("Page.captureScreenshot", all).await;
        let text = image["data"].as_str().expect("a picture");
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/pictures");
        std::fs::create_dir_all(&directory).expect("it is made");
        let mut bytes = Vec::new();
        let (mut bits, mut count) = (0_u32, 0);
        for digit in text.bytes().filter(|digit| *digit != b'=') {
            let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
            let value = digits.iter().position(|d| *d == digit).expect("base64");
            bits = (bits << 6) | u32::try_from(value).expect("six bits");
            count += 6;
            if count >= 8 {
                count -= 8;
                bytes.push(u8::try_from((bits >> count) & 0xff).expect("eight bits"));
            }
        }
        std::fs::write(directory.join(name), bytes).expect("it is written");
    }

    /// Waits until a script on the page returns this, since a click may return before the next page
    /// loads.
    pub(super) async fn shows(&self, text: &str, expected: &str) {
        eventually(expected, PATIENCE, async || match self.script(text).await {
            Value::String(now) if now == expected => Ok(()),
            now => Err(now.to_string()),
        })
        .await;
    }

    /// Returns the browser's console messages.
    pub(super) async fn complaints(&self) -> String {
        self.post("se/log", json!({"type": "browser"}))
            .await
            .to_string()
    }
}

impl Drop for Browser {
    /// Ends the browser, which a killed driver would leave behind.
    fn drop(&mut self) {
        let end = || -> std::io::Result<()> {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let (session, port) = (&self.session, self.port);
            write!(
                stream,
                "DELETE /session/{session} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"
            )?;
            // The answer arrives when the browser has ended.
            stream.read(&mut [0; 1024]).map(|_| ())
        };
        if let Err(error) = end() {
            eprintln!("the browser at port {} stays: {error}", self.port);
        }
    }
}

/// Returns the program of axe-core.
fn axe() -> String {
    let place = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../target/tools/axe/node_modules/axe-core/axe.min.js");
    std::fs::read_to_string(&place)
        .unwrap_or_else(|error| panic!("{place:?}: {error}; run scripts/setup"))
}

/// Starts the driver, which makes the browser's profile in this directory; returns its port too.
async fn start_driver(profile: &Scratch) -> (Process, u16) {
    const STARTED: &str = "successfully on port ";
    loop {
        let mut command = Command::new("chromedriver");
        command.env("TMPDIR", profile.path());
        command.arg("--port=0");
        let driver = Process::start(command);
        // The driver takes a free IPv6 port, and ends if another program uses the same IPv4 port.
        let said = eventually("the driver starts or ends", PATIENCE, async || {
            let said = driver.output();
            match said.contains(STARTED) || said.contains("port not available") {
                true => Ok(said),
                false => Err(said),
            }
        })
        .await;
        if let Some((_, rest)) = said.split_once(STARTED) {
            let port = rest
                .split('.')
                .next()
                .and_then(|port| port.trim().parse().ok());
            return (driver, port.unwrap_or_else(|| panic!("a port: {said}")));
        }
    }
}

async fn ask(port: u16, method: &str, path: &str, body: Option<&Value>) -> Value {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("it listens");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    // The driver keeps the connection open, so read the announced length.
    let mut answer = Vec::new();
    let mut part = vec![0; 65_536];
    loop {
        let count = stream.read(&mut part).await.expect("it answers");
        answer.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            assert!(count > 0, "{path}: {text}");
            continue;
        };
        let head = head.to_lowercase();
        let length = head.split("content-length:").nth(1);
        let length: usize = length
            .and_then(|rest| rest.lines().next()?.trim().parse().ok())
            .unwrap_or(0);
        if body.len() >= length || count == 0 {
            let told: Value = serde_json::from_str(body).expect("JSON");
            assert!(head.starts_with("http/1.1 200"), "{path}: {told}");
            return told["value"].clone();
        }
    }
}
