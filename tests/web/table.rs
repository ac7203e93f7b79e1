//! The tables of the doctor, the tokens, the audit and the manifests: their numbers and names are
//! those of the database.

use super::client::{Web, between};
use super::number::filled;
use harness::session::{Session, session};
use harness::shared_server;
use std::collections::BTreeSet;

/// Returns the text of an element, without its tags.
fn text(html: &str) -> String {
    let mut text = String::new();
    let mut is_tag = false;
    for c in html.chars() {
        is_tag |= c == '<';
        if !is_tag {
            text.push(c);
        }
        is_tag &= c != '>';
    }
    for (code, c) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&amp;", "&"),
    ] {
        text = text.replace(code, c);
    }
    text.trim().to_owned()
}

/// Returns these columns of a table of a page, as psql prints rows.
fn columns(page: &str, table: &str, wanted: &[usize]) -> String {
    let body = between(page, &format!("aria-label=\"{table}\""), "</table>");
    let rows = body.split("<tr>").skip(2).map(|row| {
        let cells: Vec<String> = row
            .split("<td")
            .skip(1)
            .map(|cell| text(&format!("<td{cell}")))
            .collect();
        let cells = wanted.iter().map(|place| cells[*place].clone());
        cells.collect::<Vec<_>>().join("|")
    });
    rows.collect::<Vec<_>>().join("\n")
}

/// The database of the numbers, with manifests that ran and tokens that are waited for.
async fn more(s: &Session) {
    filled(s).await;
    s.get(
        "select trax.schedule('ran', task => 'ran', cron => '15 4 * * *', timezone => 'Europe/Berlin', max_retries => 0);
        select trax.acquire_token('licence', 'another', 2, '1 min'), trax.acquire_token('disk', 'one <b>', 1, '5 min')",
    )
    .await;
    for end in ["complete(job_id, token)", "fail(job_id, token, 'no')"] {
        s.get(&format!(
            "select trax.trigger('ran'); select trax.{end} from trax.claim_next(tasks => '{{ran}}')"
        ))
        .await;
    }
    s.get("select trax.acknowledge_dead_letter(id, 'seen') from trax.dead_letter where manifest = 'ran'")
        .await;
}

#[tokio::test]
async fn the_tokens_and_the_audit_are_those_of_the_database() {
    let (database, s) = session().await;
    more(&s).await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let tokens = "select name, 'held', slot || ' of ' || max_holders, holder from trax.concurrency_token order by name, slot";
    let shown = columns(&web.page("/tokens").await, "Tokens", &[0, 1, 2, 3]);
    assert_eq!(shown, s.get(tokens).await);
    assert_eq!(shown.lines().count(), 3);
    let audit = "select role, program, action || ' ' || replace(kind, '_', ' '), name, note from trax.audit order by at desc, id desc";
    let page = web.page("/audit").await;
    let shown = columns(&page, "Audit", &[1, 2, 3, 4, 5]);
    assert_eq!(shown, s.get(audit).await);
    assert!(shown.lines().count() >= 6, "{shown}");
}

#[tokio::test]
async fn the_findings_and_the_state_of_the_doctor_are_those_of_the_database() {
    let (database, s) = session().await;
    more(&s).await;
    s.get("select trax.schedule('stops ' || n, task => 't', cron => '@daily', max_retries => 0) from generate_series(1, 4) n;
        select trax.trigger('stops ' || n) from generate_series(1, 4) n;
        select trax.fail(job_id, token, 'it broke') from trax.claim_next('w', 4, tasks => '{t}')")
        .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page("/doctor?check=1").await;
    // Without ages and times, which pass.
    let found = "select cause, count(*) from trax.diagnose() group by cause order by 1";
    for line in s.get(found).await.lines() {
        let (cause, count) = line.split_once('|').expect("a cause and its count");
        let cause = cause.replace('_', " ");
        let cards: Vec<&str> = page
            .split("<h3>")
            .filter(|card| card.contains(&format!(": {cause}")))
            .collect();
        let shown = match cards.as_slice() {
            [card] if card.contains(" times</h3>") => {
                between(card, &format!(": {cause}, "), " times")
            }
            cards => &cards.len().to_string(),
        };
        assert_eq!(shown, count, "{cause}: {page}");
    }
    let stopped = "select detail from trax.diagnose() where cause = 'schedule_stopped'";
    let texts = text(&page);
    for detail in s.get(stopped).await.lines() {
        assert!(texts.contains(detail), "{detail}: {texts}");
    }
    let state = "select item, value, case when healthy is false then 'wrong' else 'as it should be' end from trax.status()";
    assert_eq!(columns(&page, "State", &[0, 1, 2]), s.get(state).await);
    // The runs of the test itself have no jobs.
    let violations = "select left(c::text, 1000) from trax.check() c limit 100";
    let shown = columns(&page, "Violations", &[0]);
    // trax.check() has no order.
    let sorted = |lines: &str| lines.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(sorted(&shown), sorted(&s.get(violations).await));
    assert!(!shown.is_empty());
}

#[tokio::test]
async fn the_numbers_of_a_manifest_are_those_of_the_database() {
    let (database, s) = session().await;
    more(&s).await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page("/manifests").await;
    let list = "select name, task, group_name from trax.manifest order by name";
    assert_eq!(columns(&page, "Manifests", &[0, 1, 2]), s.get(list).await);
    let all = between(&page, "aria-label=\"Manifests\"", "</table>");
    let row = between(all, "href=\"/manifests/ran\">", "</tr>");
    assert!(row.contains("1 of the last 2 failed"), "{page}");
    let one = web.page("/manifests/ran").await;
    let runs = "select job_id, attempt, state, error from trax.run where manifest = 'ran' order by finished_at desc";
    assert_eq!(
        columns(&one, "Its last attempts", &[0, 1, 2, 5]),
        s.get(runs).await
    );
    let longest = "select max(extract(epoch from finished_at - started_at)) < 60 from trax.run where manifest = 'ran'";
    assert_eq!(s.get(longest).await, "t");
    assert!(
        one.contains("aria-label=\"2 attempts, the longest "),
        "{one}"
    );
    let times = "select local_time, note from trax.preview('ran', now(), 10)";
    assert_eq!(
        columns(&one, "Its next ten times", &[1, 2]),
        s.get(times).await
    );
}
