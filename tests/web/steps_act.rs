//! Acts on jobs with steps: signals, forks, cancels of a tree, and letters whose steps are undone.

use super::client::{Web, between};
use super::cluster::{cluster, location, web};
use super::steps::sign_up;
use crate::router::has_plproxy;
use harness::session::{Session, session};
use harness::shared_server;

const STATES: &str = "select string_agg(job_id || ' ' || state, ', ' order by job_id) from trax.job
    where job_id <= 4 and (state <> 'in_progress' or not exists (select from trax.lease l where l.job_id = job.job_id and l.cancel_requested))";

#[tokio::test]
async fn a_signal_is_sent_with_its_payload_and_what_is_wrong_is_said() {
    let (database, s) = session().await;
    let id = sign_up(&s).await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page(&format!("/jobs/{id}")).await;
    // The name that the job waits for is filled in.
    let link = format!("/act/send-signal?job={id}&amp;name=click");
    assert!(page.contains(&link), "{page}");
    let act = format!("/act/send-signal?job={id}&name=click");
    let form = web.page(&act).await;
    assert!(form.contains("name=\"name\" value=\"click\""), "{form}");
    assert!(
        !form.contains("trax.audit"),
        "no reason is asked for that nobody keeps: {form}"
    );
    for (fields, status, words) in [
        (
            "name=&payload=",
            400,
            &[
                "the name of the signal is missing",
                "Type it, for example: approved",
            ][..],
        ),
        (
            "name=click&payload=yes",
            400,
            &[
                "the payload is not JSON: ",
                "a text in quotes of its own: &quot;yes&quot;",
            ],
        ),
        ("name=+click&payload=1", 400, &["name"]),
        (
            "name=click&payload=%22%5Cu0000%22",
            400,
            &["unsupported Unicode escape sequence"],
        ),
    ] {
        let answer = web.act(&act, &format!("job={id}&{fields}"), &[]).await;
        assert_eq!(answer.status, status, "{fields}: {}", answer.body);
        for part in words {
            assert!(
                answer.body.contains(part),
                "{fields}: {part}: {}",
                answer.body
            );
        }
        // The form is shown again, with its values.
        assert!(
            answer.body.contains("role=\"alert\""),
            "{fields}: {}",
            answer.body
        );
        assert!(
            answer.body.contains("<textarea name=\"payload\""),
            "{fields}: {}",
            answer.body
        );
    }
    let kept = web
        .act(&act, &format!("job={id}&name=click&payload=%7Bx"), &[])
        .await;
    let typed = between(&kept.body, "<textarea name=\"payload\"", "</textarea>");
    assert!(typed.ends_with(">{x"), "{typed}");
    let sent = "select count(*) from trax.signal where sent_at is not null";
    assert_eq!(s.get(sent).await, "0");

    let fields = format!("job={id}&name=click&payload=%7B%22from%22%3A+1%7D&signal_id=a");
    let tried = web.act(&act, &format!("{fields}&try=1"), &[]).await;
    assert!(
        tried.body.contains("would answer: <b>sent</b>"),
        "{}",
        tried.body
    );
    assert!(
        !tried.body.contains("It would change nothing"),
        "{}",
        tried.body
    );
    assert_eq!(s.get(sent).await, "0", "it was a trial");
    let done = web.act(&act, &fields, &[]).await;
    assert_eq!(done.status, 200, "{}", done.body);
    assert!(done.body.contains("answered: <b>sent</b>"), "{}", done.body);
    let shown = "payload =&gt; '{&quot;from&quot;: 1}'::jsonb, signal_id =&gt; 'a')";
    assert!(done.body.contains(shown), "{}", done.body);
    let payload = "select name, payload, signal_id from trax.signal";
    assert_eq!(s.get(payload).await, "click|{\"from\": 1}|a");
    let again = web.act(&act, &fields, &[]).await;
    assert_eq!(again.status, 409, "{}", again.body);
    assert!(
        again.body.contains("a signal with this id was sent"),
        "{}",
        again.body
    );
    s.get(&format!("select trax.cancel({id})")).await;
    let ended = web.act(&act, &format!("job={id}&name=click"), &[]).await;
    assert_eq!(ended.status, 409, "{}", ended.body);
    assert!(
        ended
            .body
            .contains("this job has ended: the signal was not sent"),
        "{}",
        ended.body
    );
    let unknown = web
        .act("/act/send-signal?job=999", "job=999&name=click", &[])
        .await;
    assert_eq!(unknown.status, 404, "{}", unknown.body);
    let page = web.page(&format!("/jobs/{id}")).await;
    assert!(!page.contains("/act/send-signal"), "{page}");
}

#[tokio::test]
async fn selected_jobs_get_the_same_signal() {
    let (database, s) = session().await;
    for _ in 0..3 {
        s.enqueue("'asks'").await;
    }
    let web = Web::of(shared_server(), &database, &[]).await;
    let list = web.page("/jobs?state=queued").await;
    assert!(list.contains("formaction=\"/act/send-signal\""), "{list}");
    let done = web
        .act("/act/send-signal?job=1&job=3", "job=1&job=3&name=go", &[])
        .await;
    assert_eq!(done.status, 200, "{}", done.body);
    let sent = "select string_agg(job_id || ' ' || name, ', ' order by job_id) from trax.signal";
    assert_eq!(s.get(sent).await, "1 go, 3 go");
}

#[tokio::test]
async fn a_tree_is_cancelled_or_one_job_of_it() {
    for (act, states) in [
        (
            "cancel-alone",
            "1 cancelled, 2 completed, 3 in_progress, 4 queued",
        ),
        ("cancel-tree", "1 cancelled, 2 completed, 4 cancelled"),
    ] {
        let (database, s) = session().await;
        let id = sign_up(&s).await;
        let web = Web::of(shared_server(), &database, &[]).await;
        let page = web.page(&format!("/jobs/{id}")).await;
        for button in ["cancel-tree", "cancel-alone"] {
            assert!(page.contains(&format!("/act/{button}?job={id}")), "{page}");
        }
        assert!(!page.contains("/act/cancel?"), "{page}");
        let path = format!("/act/{act}?job={id}");
        let form = web.page(&path).await;
        let tree = if act == "cancel-tree" {
            "true"
        } else {
            "false"
        };
        assert!(form.contains(&format!("tree =&gt; {tree})")), "{form}");
        let done = web.act(&path, &format!("job={id}&reason=why"), &[]).await;
        assert_eq!(done.status, 200, "{}", done.body);
        assert_eq!(s.get(STATES).await, states);
        let audit = "select program from trax.audit where action = 'cancel'";
        assert_eq!(s.get(audit).await, "trax web: why");
        // A job without living children has one button.
        let leaf = web.page("/jobs/2").await;
        assert!(!leaf.contains("cancel-tree"), "{leaf}");
    }
}

/// Ends the sign-up with one that is completed.
async fn complete(s: &Session, id: i64) {
    for sql in [
        format!("select trax.send_signal({id}, 'click')"),
        "select trax.complete(job_id, token) from trax.claim_next('v', tasks => '{sign_up}')"
            .to_owned(),
    ] {
        s.get(&sql).await;
    }
}

#[tokio::test]
async fn a_job_is_forked_from_a_step_or_behind_all() {
    let (database, s) = session().await;
    let id = sign_up(&s).await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let act = format!("/act/fork?job={id}");
    let page = web.page(&format!("/jobs/{id}")).await;
    assert!(!page.contains("/act/fork"), "it has not ended: {page}");
    let early = web.act(&act, &format!("job={id}"), &[]).await;
    assert_eq!(early.status, 409, "{}", early.body);
    assert!(early.body.contains("has not ended"), "{}", early.body);
    complete(&s, id).await;
    let page = web.page(&format!("/jobs/{id}")).await;
    assert!(page.contains(&format!("/act/fork?job={id}\"")), "{page}");
    let form = web.page(&format!("{act}&step=east")).await;
    let steps = between(&form, "<select name=\"step\">", "</select>");
    assert_eq!(steps.matches("<option").count(), 5, "{steps}");
    assert!(
        steps.contains("<option value=\"east\" selected>"),
        "{steps}"
    );
    assert!(form.contains("from_step =&gt; 'east'"), "{form}");
    for (fields, words) in [
        ("step=nowhere", "has no step &quot;nowhere&quot;"),
        ("step=east&input=%7Bx", "the input is not JSON: "),
    ] {
        let answer = web.act(&act, &format!("job={id}&{fields}"), &[]).await;
        assert_eq!(answer.status, 400, "{fields}: {}", answer.body);
        assert!(answer.body.contains(words), "{fields}: {}", answer.body);
        assert!(
            answer.body.contains("role=\"alert\""),
            "{fields}: {}",
            answer.body
        );
    }
    let new = "select q.job_id, q.input, (select string_agg(t.step, ', ' order by t.step_id) from trax.step t where t.job_id = q.job_id)
        from trax.work_queue q where q.task = 'sign_up'";
    for (fields, expected) in [
        (
            "step=east&input=%7B%22customer%22%3A+%22bob%22%7D",
            "{\"customer\": \"bob\"}|welcome, a while",
        ),
        (
            "step=",
            "{\"customer\": \"ada\"}|welcome, a while, east, west",
        ),
    ] {
        let done = web
            .act(&act, &format!("job={id}&{fields}&reason=again"), &[])
            .await;
        assert_eq!(done.status, 200, "{fields}: {}", done.body);
        let forked = s.get(new).await;
        let (job, rest) = forked.split_once('|').expect("a row");
        assert_eq!(rest, expected, "{fields}");
        assert!(
            done.body
                .contains(&format!("href=\"/jobs/{job}\">the new job")),
            "{}",
            done.body
        );
        s.get(&format!("select trax.cancel({job}, tree => false)"))
            .await;
    }
    let audit =
        "select count(*) from trax.audit where action = 'fork' and program = 'trax web: again'";
    assert_eq!(s.get(audit).await, "2");
}

#[tokio::test]
async fn a_letter_whose_steps_are_undone_begins_from_the_start() {
    let (database, s) = session().await;
    for undo in ["'{\"task\": \"undo\"}'", "null"] {
        s.enqueue("'dies', max_retries => 0").await;
        s.get("select count(*) from trax.claim_next('w', tasks => '{dies}')")
            .await;
        s.get(&format!(
            "select trax.record_step(job_id, token, 'a', '1', {undo}) from trax.lease"
        ))
        .await;
        s.get("select trax.fail(job_id, token, 'no') from trax.lease")
            .await;
    }
    s.enqueue("'dies', max_retries => 0").await;
    s.get("select trax.fail(job_id, token, 'no') from trax.claim_next('w', tasks => '{dies}')")
        .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page("/dead").await;
    for (id, requeue, fresh) in [(1, false, true), (2, true, true), (3, true, false)] {
        assert_eq!(
            page.contains(&format!("/act/requeue?id={id}\"")),
            requeue,
            "{id}: {page}"
        );
        assert_eq!(
            page.contains(&format!("/act/requeue-fresh?id={id}\"")),
            fresh,
            "{id}: {page}"
        );
    }
    let job = s
        .get("select job_id from trax.dead_letter where id = 1")
        .await;
    let page = web.page(&format!("/jobs/{job}")).await;
    assert!(!page.contains("/act/again"), "{page}");
    assert!(
        page.contains("/act/requeue-fresh?id=1\">Queue again from the start"),
        "{page}"
    );
    let refused = web.act("/act/requeue?id=1", "id=1", &[]).await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    assert!(
        refused.body.contains("fresh =&gt; true"),
        "{}",
        refused.body
    );
    // The others are requeued together, and it is counted.
    let done = web.act("/act/requeue-many", "task=dies", &[]).await;
    assert_eq!(done.status, 200, "{}", done.body);
    let said = "<b>2, and leaves 1 whose steps are being undone</b>";
    assert!(done.body.contains(said), "{}", done.body);
    let done = web
        .act("/act/requeue-fresh?id=1", "id=1&reason=mended", &[])
        .await;
    assert_eq!(done.status, 200, "{}", done.body);
    let steps = "select count(*) from trax.work_queue q where q.task = 'dies' and q.steps is null";
    assert_eq!(
        s.get(steps).await,
        "2",
        "the first begins anew, the third had no steps"
    );
}

#[tokio::test]
async fn a_reader_sees_payloads_and_no_act_and_a_limited_producer_its_own_tasks() {
    let (database, s) = session().await;
    let id = sign_up(&s).await;
    let name = database.name();
    let (reader, producer) = (format!("r_{name}"), format!("p_{name}"));
    s.get(&format!(
        "create role {reader} login; create role {producer} login;
        select trax.grant_access('{reader}', 'reader'), trax.grant_access('{producer}', 'producer', tasks => '{{other}}')"
    ))
    .await;
    let web = Web::as_user(shared_server(), &database, &reader, &[]).await;
    let page = web.page(&format!("/jobs/{id}")).await;
    assert!(page.contains("sent to ada"), "{page}");
    assert!(
        !page.contains("class=\"button\"") && !page.contains("/act/"),
        "{page}"
    );
    for act in ["send-signal", "fork", "cancel-tree", "cancel-alone"] {
        let asked = web.get(&format!("/act/{act}?job={id}")).await;
        assert_eq!(asked.status, 403, "{act}: {}", asked.body);
    }
    // Without the level of a reader nothing is read, also not the names of steps.
    let web = Web::as_user(shared_server(), &database, &producer, &[]).await;
    assert_eq!(web.get(&format!("/jobs/{id}")).await.status, 403);
    let form = web.page(&format!("/act/fork?job={id}")).await;
    assert!(!form.contains("welcome"), "{form}");
    // Both levels: the buttons are there, and the server refuses jobs of other tasks.
    s.get(&format!("grant {reader} to {producer}")).await;
    let page = web.page(&format!("/jobs/{id}")).await;
    assert!(page.contains("/act/send-signal"), "{page}");
    let refused = web
        .act(
            &format!("/act/send-signal?job={id}"),
            &format!("job={id}&name=click"),
            &[],
        )
        .await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    assert!(
        refused.body.contains("permission denied for job"),
        "{}",
        refused.body
    );
    assert_eq!(
        s.get("select count(*) from trax.signal where sent_at is not null")
            .await,
        "0"
    );
}

#[tokio::test]
async fn at_a_router_steps_are_shown_and_acts_done_on_the_shard_of_the_job() {
    if !has_plproxy() {
        return;
    }
    let (cluster, _) = cluster().await;
    let id = sign_up(cluster.shard(2)).await;
    let web = web(&cluster, &[]).await;
    let found = web.get(&format!("/jobs/{id}")).await;
    assert_eq!(location(&found), format!("/shards/2/jobs/{id}"));
    let page = web.page(&format!("/shards/2/jobs/{id}")).await;
    assert!(
        page.contains("It is suspended in step <b>confirmed</b>"),
        "{page}"
    );
    let tree = between(&page, "<h2>Children</h2>", "<h2>");
    assert!(tree.contains("href=\"/shards/2/jobs/"), "{tree}");
    let overview = web.page("/").await;
    assert!(
        overview.contains("data-number=\"suspended\">1</span>"),
        "{overview}"
    );
    let act = format!("/shards/2/act/send-signal?job={id}");
    let done = web
        .act(&act, &format!("job={id}&name=click&payload=1"), &[])
        .await;
    assert!(done.body.contains("<b>sent</b>"), "{}", done.body);
    complete(cluster.shard(2), id).await;
    let act = format!("/shards/2/act/fork?job={id}");
    let form = web.page(&act).await;
    assert!(form.contains("<option value=\"welcome\""), "{form}");
    let done = web.act(&act, &format!("job={id}&step=east"), &[]).await;
    assert_eq!(done.status, 200, "{}", done.body);
    let new = between(&done.body, "href=\"/jobs/", "\"");
    let found = web.get(&format!("/jobs/{new}")).await;
    assert_eq!(location(&found), format!("/shards/2/jobs/{new}"));
    let act = format!("/shards/2/act/cancel-alone?job={new}");
    let done = web.act(&act, &format!("job={new}"), &[]).await;
    assert!(done.body.contains("<b>cancelled</b>"), "{}", done.body);
}
