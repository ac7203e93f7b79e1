//! The rights to the pages, and the results of forged requests.

use super::client::{Web, between};
use harness::process::Scratch;
use harness::session::session;
use harness::shared_server;

/// Header lines, a form, and the expected status.
type Forged<'a> = (&'a [(&'a str, &'a str)], &'a str, u16);

const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

#[tokio::test]
async fn an_act_needs_our_host_our_origin_and_our_token() {
    let (database, s) = session().await;
    let id = s.enqueue("'t'").await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let form = web.get(&format!("/act/cancel?job={id}")).await;
    let token = between(&form.body, "name=\"token\" value=\"", "\"");
    let cookie = format!("trax_session={}", between(&form.head, "trax_session=", ";"));
    assert!(
        form.head.contains("HttpOnly; SameSite=Strict"),
        "{}",
        form.head
    );
    let origin = format!("http://{}", web.host());
    let right = format!("token={token}&job={id}");
    let ours = [
        ("Origin", origin.as_str()),
        ("Cookie", cookie.as_str()),
        FORM,
    ];

    let forged: [Forged<'_>; 7] = [
        (
            &[("Origin", "http://evil.example"), ours[1], FORM],
            &right,
            403,
        ),
        (&[("Origin", "null"), ours[1], FORM], &right, 403),
        (&[ours[1], FORM], &right, 403),
        (
            &[ours[0], ours[1], FORM, ("Sec-Fetch-Site", "cross-site")],
            &right,
            403,
        ),
        (&[ours[0], FORM], &right, 403),
        (
            &[ours[0], ours[1], ("Content-Type", "text/plain")],
            &right,
            415,
        ),
        (&ours, &format!("job={id}"), 403),
    ];
    for (lines, body, status) in forged {
        let answer = web.ask("POST", "/act/cancel", lines, body).await;
        assert_eq!(answer.status, status, "{lines:?} {body}: {}", answer.body);
    }
    let evil = web.ask("GET", "/", &[("Host", "evil.example")], "").await;
    assert_eq!(evil.status, 421, "{}", evil.body);
    assert!(!evil.body.contains(database.name()), "{}", evil.body);
    let long = format!("{right}&reason={}", "x".repeat(20_000));
    let answer = web.ask("POST", "/act/cancel", &ours, &long).await;
    assert_eq!(answer.status, 413, "{}", answer.body);
    // A value that is too long is refused, not truncated.
    let long = format!("{right}&reason={}", "x".repeat(1_001));
    let answer = web.ask("POST", "/act/cancel", &ours, &long).await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert!(
        answer.body.contains("a value is longer than 1000 bytes"),
        "{}",
        answer.body
    );
    let state = format!("select state from trax.job where job_id = {id}");
    assert_eq!(s.get(&state).await, "queued", "nothing was done");

    let why = format!("{} läuft schief 🦀: 100 %", "weil es ".repeat(60));
    let reason: String = why.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let form = format!("{right}&reason={reason}");
    let answer = web.ask("POST", "/act/cancel", &ours, &form).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(s.get(&state).await, "cancelled");
    let program = "select program from trax.audit where action = 'cancel'";
    assert_eq!(s.get(program).await, format!("trax web: {why}"));
    assert!(web.page("/audit").await.contains(&why));
}

#[tokio::test]
async fn every_answer_says_what_a_browser_may_not_do() {
    let (database, _s) = session().await;
    let web = Web::of(shared_server(), &database, &[]).await;
    for path in ["/", "/jobs", "/nothing", "/script.js", "/act/cancel"] {
        let head = web.get(path).await.head;
        assert!(
            head.contains("default-src 'none'; script-src 'self'"),
            "{path}: {head}"
        );
        assert!(!head.contains("unsafe"), "{path}: {head}");
        assert!(
            head.contains("nosniff") && head.contains("x-frame-options: DENY"),
            "{path}: {head}"
        );
    }
    let page = web.page("/").await;
    assert!(
        !page.contains("style=") && !page.contains("onclick"),
        "{page}"
    );
    assert!(
        !page.contains("http://") && !page.contains("https://"),
        "{page}"
    );
}

#[tokio::test]
async fn a_reader_has_no_button_and_a_forged_act_is_refused() {
    let (database, s) = session().await;
    let reader = format!("reader_of_{}", database.name());
    s.get(&format!(
        "create role {reader} login; select trax.grant_access('{reader}', 'reader')"
    ))
    .await;
    let id = s.enqueue("'t'").await;
    s.get("select trax.schedule('m', task => 't', cron => '@daily')")
        .await;
    let web = Web::as_user(shared_server(), &database, &reader, &[]).await;
    for path in [
        "/",
        "/jobs",
        "/manifests",
        "/manifests/m",
        "/groups",
        "/dead",
        "/workers",
        "/tokens",
        "/doctor",
    ] {
        let page = web.page(path).await;
        assert!(!page.contains("class=\"button\""), "{path}: {page}");
        assert!(!page.contains("method=\"post\""), "{path}: {page}");
    }
    let page = web.page(&format!("/jobs/{id}")).await;
    assert!(!page.contains("class=\"button\""), "{page}");
    let asked = web.get(&format!("/act/cancel?job={id}")).await;
    assert_eq!(asked.status, 403, "{}", asked.body);

    // A form served while the role had the right, and submitted after the right was revoked.
    let revoke = format!("revoke execute on function trax.cancel(bigint, boolean) from {reader}");
    s.get(&revoke.replace("revoke", "grant").replace(" from ", " to "))
        .await;
    let form = web.get(&format!("/act/cancel?job={id}")).await;
    s.get(&revoke).await;
    let token = between(&form.body, "name=\"token\" value=\"", "\"");
    let cookie = format!("trax_session={}", between(&form.head, "trax_session=", ";"));
    let origin = format!("http://{}", web.host());
    let lines = [
        ("Origin", origin.as_str()),
        ("Cookie", cookie.as_str()),
        FORM,
    ];
    let body = format!("token={token}&job={id}");
    let forged = web.ask("POST", "/act/cancel", &lines, &body).await;
    assert_eq!(forged.status, 403, "{}", forged.body);
    assert!(
        forged.body.contains("may not call trax.cancel"),
        "{}",
        forged.body
    );
    assert_eq!(
        s.get(&format!("select state from trax.job where job_id = {id}"))
            .await,
        "queued"
    );
}

#[tokio::test]
async fn two_people_at_once_act_as_their_own_roles() {
    let (database, s) = session().await;
    let name = database.name();
    let (admin, reader, door) = (
        format!("a_{name}"),
        format!("r_{name}"),
        format!("d_{name}"),
    );
    s.get(&format!(
        "create role {admin}; create role {reader}; create role {door} login noinherit;
        grant {admin}, {reader} to {door};
        select trax.grant_access('{admin}', 'admin'), trax.grant_access('{reader}', 'reader')"
    ))
    .await;
    let files = Scratch::new("roles");
    let roles = files.path().join("roles");
    std::fs::write(&roles, format!("anna {admin}\n* {reader}\n")).expect("it is written");
    let roles = roles.display().to_string();
    let arguments = [
        "--trust-header",
        "X-User",
        "--roles",
        roles.as_str(),
        "--connections",
        "1",
    ];
    let web = Web::as_user(shared_server(), &database, &door, &arguments).await;

    let nobody = web.get("/").await;
    assert_eq!(nobody.status, 401, "{}", nobody.body);
    let two = web
        .ask("GET", "/", &[("X-User", "anna"), ("X-User", "bert")], "")
        .await;
    assert_eq!(two.status, 401, "{}", two.body);

    let ids: Vec<i64> = {
        let mut ids = Vec::new();
        for _ in 0..20 {
            ids.push(s.enqueue("'t'").await);
        }
        ids
    };
    let work = ids.iter().map(|id| {
        let web = &web;
        async move {
            let path = format!("/act/cancel?job={id}");
            let bert = [("X-User", "bert")];
            let fields = format!("job={id}&reason=why+%25+not");
            let (done, refused) = tokio::join!(
                web.act(&path, &fields, &[("X-User", "anna")]),
                web.ask("GET", &path, &bert, ""),
            );
            assert_eq!(done.status, 200, "{}", done.body);
            assert_eq!(refused.status, 403, "{}", refused.body);
            let page = web.ask("GET", &format!("/jobs/{id}"), &bert, "").await;
            assert!(page.body.contains("bert, role r_"), "{}", page.body);
        }
    });
    for one in work {
        one.await;
    }
    let pages: Vec<_> = (0..30)
        .map(|i| {
            let person = if i % 2 == 0 { "anna" } else { "bert" };
            let role = if i % 2 == 0 {
                "anna, role a_"
            } else {
                "bert, role r_"
            };
            let web = &web;
            async move {
                let page = web.ask("GET", "/jobs", &[("X-User", person)], "").await;
                assert!(page.body.contains(role), "{person}: {}", page.body);
            }
        })
        .collect();
    let mut pages = pages.into_iter();
    while let (Some(a), Some(b)) = (pages.next(), pages.next()) {
        tokio::join!(a, b);
    }

    let audit = format!(
        "select count(*) from trax.audit where action = 'cancel' and role = '{admin}' \
         and program = 'trax web, anna: why % not'"
    );
    assert_eq!(s.number(&audit).await, 20);
    let page = web.ask("GET", "/audit", &[("X-User", "anna")], "").await;
    assert!(
        page.body.contains("trax web, anna: why % not"),
        "{}",
        page.body
    );
}

#[tokio::test]
async fn a_password_of_the_file_opens_the_pages() {
    let (database, _s) = session().await;
    let files = Scratch::new("passwords");
    let passwords = files.path().join("passwords");
    // anna:secret, in the format of htpasswd -nbBC 4.
    let line = "anna:$2b$04$OLQ0tSN20k40HSoAtXUHouNlPjVWaORfbPv87UmWG2mPWXcPhuP5G";
    std::fs::write(&passwords, line).expect("it is written");
    let passwords = passwords.display().to_string();
    let web = Web::of(
        shared_server(),
        &database,
        &["--password-file", passwords.as_str()],
    )
    .await;
    let asked = web.get("/").await;
    assert_eq!(asked.status, 401, "{}", asked.body);
    assert!(
        asked.head.contains("Basic realm=\"trax\""),
        "{}",
        asked.head
    );
    let wrong = web
        .ask(
            "GET",
            "/",
            &[("Authorization", "Basic YW5uYTp3cm9uZw==")],
            "",
        )
        .await;
    assert_eq!(wrong.status, 401, "{}", wrong.body);
    let right = web
        .ask(
            "GET",
            "/",
            &[("Authorization", "Basic YW5uYTpzZWNyZXQ=")],
            "",
        )
        .await;
    assert_eq!(right.status, 200, "{}", right.body);
    assert!(right.body.contains("anna, role postgres"), "{}", right.body);
}

#[tokio::test]
async fn beyond_loopback_the_pages_of_strangers_are_read_only() {
    let (database, s) = session().await;
    let id = s.enqueue("'t'").await;
    let arguments = ["--listen", "0.0.0.0:0", "--host", "trax.example"];
    let web = Web::of(shared_server(), &database, &arguments).await;
    assert!(web.output().contains("read-only"), "{}", web.output());
    let host = [("Host", "trax.example")];
    let page = web.ask("GET", &format!("/jobs/{id}"), &host, "").await;
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(
        page.body.contains("This page is read-only"),
        "{}",
        page.body
    );
    assert!(!page.body.contains("class=\"button\""), "{}", page.body);
    let asked = web
        .ask("GET", &format!("/act/cancel?job={id}"), &host, "")
        .await;
    assert_eq!(asked.status, 403, "{}", asked.body);
}

#[tokio::test]
async fn behind_https_the_cookie_is_secure_and_nowhere_else() {
    let (database, _s) = session().await;
    let web = Web::of(shared_server(), &database, &[]).await;
    for (lines, is_secure) in [
        (&[][..], false),
        (&[("X-Forwarded-Proto", "http")][..], false),
        (&[("X-Forwarded-Proto", "https")][..], true),
        (&[("Forwarded", "for=1.2.3.4;proto=https")][..], true),
        (
            &[("Forwarded", "proto=https, for=10.0.0.1;proto=http")][..],
            false,
        ),
        (&[("X-Forwarded-Proto", "https, http")][..], false),
    ] {
        let head = web.ask("GET", "/", lines, "").await.head;
        assert!(head.contains("SameSite=Strict"), "{head}");
        assert_eq!(head.contains("; Secure"), is_secure, "{lines:?}: {head}");
    }
}

#[tokio::test]
async fn who_guesses_passwords_is_soon_not_listened_to() {
    let (database, _s) = session().await;
    let files = Scratch::new("guesses");
    let passwords = files.path().join("passwords");
    let line = "anna:$2b$04$OLQ0tSN20k40HSoAtXUHouNlPjVWaORfbPv87UmWG2mPWXcPhuP5G";
    std::fs::write(&passwords, line).expect("it is written");
    let passwords = passwords.display().to_string();
    let web = Web::of(
        shared_server(),
        &database,
        &["--password-file", passwords.as_str()],
    )
    .await;
    let wrong = [("Authorization", "Basic YW5uYTp3cm9uZw==")];
    let right = [("Authorization", "Basic YW5uYTpzZWNyZXQ=")];
    // Two browsers give the right password; a third has an invented cookie.
    let cookie = |digit: &str| format!("trax_session={}", digit.repeat(32));
    let (a, b, c) = (cookie("a"), cookie("b"), cookie("c"));
    for browser in [&a, &b] {
        let lines = [right[0], ("Cookie", browser.as_str())];
        let first = web.ask("GET", "/", &lines, "").await;
        assert_eq!(first.status, 200, "{}", first.body);
    }
    let mut statuses = Vec::new();
    for _ in 0..12 {
        statuses.push(web.ask("GET", "/", &wrong, "").await.status);
    }
    assert_eq!(statuses[..10], [401; 10]);
    assert_eq!(statuses[10..], [429; 2]);
    for browser in [&a, &b] {
        let lines = [right[0], ("Cookie", browser.as_str())];
        let known = web.ask("GET", "/", &lines, "").await;
        assert_eq!(known.status, 200, "who was known still is: {}", known.body);
        let lines = [wrong[0], ("Cookie", browser.as_str())];
        assert_eq!(web.ask("GET", "/", &lines, "").await.status, 429);
    }
    // Other clients cannot learn whether a password is right.
    let lines = [right[0], ("Cookie", c.as_str())];
    for lines in [&right[..], &lines] {
        assert_eq!(web.ask("GET", "/", lines, "").await.status, 429);
    }
    // The refusal says when to come back, and asks for no other password, for any name.
    let nobody = [("Authorization", "Basic bm9ib2R5Ondyb25n")];
    for _ in 0..10 {
        assert_eq!(web.ask("GET", "/", &nobody, "").await.status, 401);
    }
    for lines in [&right, &wrong, &nobody] {
        let refused = web.ask("GET", "/jobs", lines, "").await;
        assert_eq!(refused.status, 429, "{}", refused.body);
        let head = refused.head.to_lowercase();
        assert!(head.contains("\r\nretry-after: "), "{head}");
        assert!(!head.contains("www-authenticate"), "{head}");
        assert!(
            refused.body.contains("not even the right one"),
            "{}",
            refused.body
        );
    }
    // Without a password the browser is asked for one.
    let asked = web.get("/").await;
    assert_eq!(asked.status, 401, "{}", asked.body);
    assert!(asked.head.contains("Basic realm"), "{}", asked.head);
}

#[tokio::test]
async fn a_proxy_that_replaces_the_host_is_answered_with_what_to_set() {
    let (database, s) = session().await;
    let id = s.enqueue("'t'").await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let form = web.get(&format!("/act/cancel?job={id}")).await;
    let token = between(&form.body, "name=\"token\" value=\"", "\"");
    let cookie = format!("trax_session={}", between(&form.head, "trax_session=", ";"));
    let lines = [
        ("Origin", "https://jobs.example"),
        ("Sec-Fetch-Site", "same-origin"),
        ("Cookie", cookie.as_str()),
        FORM,
    ];
    let body = format!("token={token}&job={id}");
    let refused = web.ask("POST", "/act/cancel", &lines, &body).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    for words in [
        "proxy_set_header Host $http_host",
        "trax web --host jobs.example",
    ] {
        assert!(refused.body.contains(words), "{words}: {}", refused.body);
    }
    let lines = [("Host", "backend"), ("X-Forwarded-Host", "jobs.example")];
    let refused = web.ask("GET", "/", &lines, "").await;
    assert_eq!(refused.status, 421, "{}", refused.body);
    assert!(
        refused.body.contains("trax web --host jobs.example"),
        "{}",
        refused.body
    );
    let state = format!("select state from trax.job where job_id = {id}");
    assert_eq!(s.get(&state).await, "queued");
}
