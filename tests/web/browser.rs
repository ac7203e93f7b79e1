//! The pages in a real Chromium, driven through WebDriver, which is HTTP and JSON.

use super::client::Web;
use harness::process::{Process, Scratch};
use harness::session::session;
use harness::{PATIENCE, eventually, shared_server};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A browser; it ends with its driver.
struct Browser {
    _driver: Process,
    _profile: Scratch,
    port: u16,
    session: String,
}

impl Browser {
    async fn start() -> Self {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0");
        let driver = Process::start(command);
        let said = driver.says("successfully on port", PATIENCE).await;
        let port = said
            .split("successfully on port ")
            .nth(1)
            .and_then(|rest| rest.split('.').next()?.trim().parse().ok());
        let port = port.unwrap_or_else(|| panic!("a port: {said}"));
        let profile = Scratch::new("chromium");
        let directory = format!("--user-data-dir={}", profile.path().display());
        let options = json!({"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", directory]});
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}
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

    async fn post(&self, what: &str, body: Value) -> Value {
        let path = format!("/session/{}/{what}", self.session);
        ask(self.port, "POST", &path, Some(&body)).await
    }

    async fn open(&self, url: &str) {
        self.post("url", json!({"url": url})).await;
    }

    async fn size(&self, width: u32, height: u32) {
        // A headless window is never narrower than 500 by itself.
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        let command = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics});
        self.post("goog/cdp/execute", command).await;
    }

    /// Returns what a function of the page returns.
    async fn script(&self, text: &str) -> Value {
        self.post("execute/sync", json!({"script": text, "args": []}))
            .await
    }

    async fn click(&self, css: &str) {
        let found = self
            .post("element", json!({"using": "css selector", "value": css}))
            .await;
        let element = found
            .as_object()
            .and_then(|all| all.values().next()?.as_str());
        let element = element.unwrap_or_else(|| panic!("{css}: {found}"));
        self.post(&format!("element/{element}/click"), json!({}))
            .await;
    }

    /// Writes what is to be seen of the whole page into target/.
    async fn picture(&self, name: &str) {
        let command =
            json!({"cmd": "Page.captureScreenshot", "params": {"captureBeyondViewport": true}});
        let image = self.post("goog/cdp/execute", command).await;
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

    /// Returns what the browser complained of.
    async fn complaints(&self) -> String {
        self.post("se/log", json!({"type": "browser"}))
            .await
            .to_string()
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
    // The driver keeps the connection open: read as much as it announces.
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

#[tokio::test]
async fn a_person_looks_around_cancels_a_job_and_sees_the_number_move() {
    let (database, s) = session().await;
    s.get(
        "select trax.configure_group('reports', max_active_jobs => 4);
        select trax.schedule('nightly report', task => 'report.build', cron => '0 2 * * *', timezone => 'Europe/Berlin', group_name => 'reports');
        select trax.schedule('mail the report', task => 'mail.send', depends_on => '{nightly report}');
        select count(*) from trax.enqueue_many('mail.send', array_fill('{\"to\": \"ada@example.org\"}'::jsonb, array[30]));
        select trax.enqueue('image.resize', max_retries => 0, concurrency_key => 'disk') from generate_series(1, 3);
        select trax.fail(job_id, token, 'no space left on device') from trax.claim_next('worker 2', tasks => '{image.resize}');
        select trax.complete(job_id, token, '{\"sent\": true}') from trax.claim_next('worker 1', 5, tasks => '{mail.send}');
        select trax.fail(job_id, token, 'connection refused', retry_in => '0') from trax.claim_next('worker 1', tasks => '{mail.send}');
        select count(*) from trax.claim_next('worker 1', 2, tasks => '{mail.send}');
        select trax.trigger('nightly report');
        select trax.complete(job_id, token) from trax.claim_next('worker 3', tasks => '{report.build}');
        select * from trax.tick()",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let browser = Browser::start().await;
    let site = format!("http://{}", web.host());
    let retried = s
        .number("select min(job_id) from trax.run where not final")
        .await;
    let pages = [
        ("overview", "/".to_owned()),
        ("jobs", "/jobs".to_owned()),
        ("job", format!("/jobs/{retried}")),
        ("manifests", "/manifests".to_owned()),
        ("manifest", "/manifests/nightly%20report".to_owned()),
        ("groups", "/groups".to_owned()),
        ("dead", "/dead".to_owned()),
        ("workers", "/workers".to_owned()),
        ("tokens", "/tokens".to_owned()),
        ("doctor", "/doctor".to_owned()),
        ("audit", "/audit".to_owned()),
    ];
    for (name, path) in &pages {
        for width in [1280, 390] {
            browser.size(width, 900).await;
            browser.open(&format!("{site}{path}")).await;
            let title = browser.script("return document.title").await.to_string();
            assert!(title.contains("trax"), "{path}: {title}");
            let wide = "return document.documentElement.scrollWidth - window.innerWidth";
            let over = browser.script(wide).await.as_i64();
            assert!(
                over.is_some_and(|over| over <= 0),
                "{path} is {over:?} too wide at {width}"
            );
            browser.picture(&format!("{name}-{width}.png")).await;
        }
    }

    // A viewer looks at the overview while somebody cancels a job.
    let waiting = s
        .number("select max(job_id) from trax.work_queue where task = 'mail.send'")
        .await;
    browser.size(1280, 900).await;
    browser.open(&format!("{site}/jobs/{waiting}")).await;
    browser.click("a[href^='/act/cancel']").await;
    browser.picture("act-1280.png").await;
    browser.click("button[type=submit]").await;
    let said = browser
        .script("return document.getElementById('result').textContent")
        .await;
    assert_eq!(said.as_str(), Some("The server answered: cancelled"));
    browser.open(&format!("{site}/")).await;
    let number = "return document.querySelector('[data-number=ready]').textContent";
    let before = browser.script(number).await;
    let one = s
        .number("select min(job_id) from trax.work_queue where waits_for is null")
        .await;
    s.get(&format!("select trax.cancel({one})")).await;
    eventually("the number moves", PATIENCE, async || {
        let now = browser.script(number).await;
        if now == before {
            Err(now.to_string())
        } else {
            Ok(())
        }
    })
    .await;
    let complaints = browser.complaints().await;
    assert_eq!(complaints, "[]", "the browser is content");
}
