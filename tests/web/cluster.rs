//! The pages at a router, for all shards together and for each.

use super::client::{Answer, Web, between};
use super::driver::Browser;
use crate::router::{Cluster, has_plproxy};
use harness::shared_server;

/// A router with two shards and a group on each, with one and two jobs.
pub(super) async fn cluster() -> (Cluster, [String; 2]) {
    let cluster = Cluster::of(2).await;
    let groups = [cluster.group_on(1).await, cluster.group_on(2).await];
    for (group, count) in groups.iter().zip([1, 2]) {
        let sql = format!(
            "select count(*) from trax.enqueue_many('waits', array_fill('1'::jsonb, array[{count}]), group_name => '{group}')"
        );
        cluster.router.get(&sql).await;
    }
    (cluster, groups)
}

pub(super) async fn web(cluster: &Cluster, arguments: &[&str]) -> Web {
    Web::of(shared_server(), &cluster.database, arguments).await
}

/// Returns the target of a redirect.
pub(super) fn location(answer: &Answer) -> &str {
    assert_eq!(answer.status, 303, "{}", answer.body);
    between(&answer.head, "location: ", "\r\n")
}

pub(super) async fn waiting(cluster: &Cluster, shard: usize) -> i64 {
    let id = "select job_id from trax.work_queue order by job_id limit 1";
    let id = cluster.shard(shard).get(id).await;
    id.parse().expect("a number")
}

#[tokio::test]
async fn the_overview_of_a_router_adds_up_its_shards() {
    if !has_plproxy() {
        return;
    }
    let (cluster, groups) = cluster().await;
    let dies = "select trax.enqueue('dies', max_retries => 0);
        select trax.fail(job_id, token, 'no') from trax.claim_next('w', tasks => '{dies}')";
    cluster.shard(2).get(dies).await;
    let ran = "insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, task, group_name, input)
        select 1000 + i, at, at, at - i * interval '1 s', at, 1, 0, true, 'completed', 't', 'g', '1'
        from generate_series(1, 20) i cross join (select now() - interval '1 min') a (at)";
    cluster.shard(1).get(ran).await;
    let plan = format!(
        "select trax.schedule('first', 't', run_at => now() + interval '1 day', group_name => '{}');
        select trax.schedule('second', 't', cron => '@hourly', group_name => '{}')",
        groups[0], groups[1]
    );
    cluster.router.get(&plan).await;
    let web = web(&cluster, &[]).await;
    let page = web.page("/").await;
    assert!(page.contains("data-number=\"ready\">3</span>"), "{page}");
    assert!(page.contains("data-number=\"dead\">1</span>"), "{page}");
    let shards = between(&page, "aria-label=\"Shards\"><table>", "</table>");
    let (first, second) = shards.split_once("href=\"/shards/2\"").expect("both");
    assert!(first.contains("href=\"/shards/1\""), "{first}");
    assert!(second.contains(cluster.shards[1].0.name()), "{second}");
    let busiest = between(&page, "aria-label=\"Groups\"", "</table>");
    let (busy, other) = busiest.split_once(groups[0].as_str()).expect("both");
    assert!(busy.contains(&groups[1]), "the busiest is first: {busiest}");
    assert!(busy.contains("href=\"/shards/2/jobs?group="), "{busy}");
    assert!(other.contains(">1</a>"), "{other}");
    let fires = between(&page, "aria-label=\"What fires next\"", "</table>");
    let (soon, later) = fires.split_once("second</a>").expect("both");
    assert!(!soon.contains("first</a>"), "{fires}");
    assert!(
        later.contains("href=\"/shards/1/manifests/first\""),
        "{later}"
    );
    assert!(
        page.contains("failed</a> <b>below 0.01</b> a second, 1 in all"),
        "{page}"
    );
    // The durations of each shard, which are no sum.
    let durations = between(&page, "aria-label=\"Durations\"", "</table>");
    let (first, second) = durations.split_once("href=\"/shards/2\"").expect("both");
    for quantile in ["10 s", "19 s", "20 s"] {
        assert!(first.contains(&format!("<div>{quantile}</div>")), "{first}");
    }
    assert_eq!(second.matches("<div>none</div>").count(), 3, "{second}");
    // The page of a shard equals that of its database.
    let one = web.page("/shards/2").await;
    assert!(one.contains("data-number=\"ready\">2</span>"), "{one}");
    assert!(one.contains("data-live=\"/shards/2/live\""), "{one}");
    assert!(one.contains("stylesheet\" href=\"/style.css\""), "{one}");
}

#[tokio::test]
async fn a_list_of_a_router_has_a_part_for_each_shard_and_leads_to_it() {
    if !has_plproxy() {
        return;
    }
    let (cluster, groups) = cluster().await;
    let web = web(&cluster, &["--base", "/trax"]).await;
    let page = web
        .page("/jobs?state=queued&before=99999999999999999")
        .await;
    let (first, second) = page.split_once("<h2>Shard 2</h2>").expect("two parts");
    assert_eq!(first.matches("/trax/shards/1/jobs/").count(), 1, "{first}");
    assert_eq!(
        second.matches("/trax/shards/2/jobs/").count(),
        2,
        "{second}"
    );
    assert!(first.contains("action=\"/trax/jobs\""), "one form: {first}");
    assert!(!second.contains("<form class=\"filters\""), "{second}");
    // The filter is kept between a shard and the cluster, but not the position in the list.
    let shards = between(&page, "aria-label=\"Shards\">", "</nav>");
    assert!(
        shards.contains("href=\"/trax/shards/2/jobs?state=queued\""),
        "{shards}"
    );
    assert!(
        shards.contains("href=\"/trax/jobs?state=queued\" aria-current"),
        "{shards}"
    );
    let narrowed = web.page(&format!("/jobs?group={}", groups[0])).await;
    assert!(
        narrowed.contains("No job matches"),
        "of shard 2: {narrowed}"
    );

    let id = waiting(&cluster, 2).await;
    let found = web.get(&format!("/jobs/{id}")).await;
    assert_eq!(location(&found), format!("/trax/shards/2/jobs/{id}"));
    let job = web.page(&format!("/shards/2/jobs/{id}")).await;
    assert!(job.contains(&format!("<h1>Job {id}")), "{job}");
    let plan = format!(
        "select trax.schedule('a manifest', 't', group_name => '{}')",
        groups[1]
    );
    cluster.router.get(&plan).await;
    let found = web.get("/manifests/a%20manifest").await;
    assert_eq!(location(&found), "/trax/shards/2/manifests/a%20manifest");
    for (path, status) in [
        ("/jobs/123", 404),
        ("/jobs/none", 404),
        ("/manifests/nobody", 404),
        ("/shards/7", 404),
        ("/shards/x/jobs", 404),
        ("/shards/2/nothing", 404),
        ("/nothing", 404),
        ("/jobs?state=odd", 400),
        ("/jobs?from=abc", 400),
        ("/jobs?stat=queued", 400),
        ("/shards/2/jobs?from=abc", 400),
        ("/?from=abc", 400),
    ] {
        let answer = web.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
    }
    for list in [
        "manifests",
        "groups",
        "dead",
        "workers",
        "tokens",
        "doctor",
        "audit",
    ] {
        let page = web.page(&format!("/{list}")).await;
        assert_eq!(page.matches("<h1>").count(), 1, "{list}: {page}");
        assert!(page.contains("<h2>Shard 1</h2>"), "{list}: {page}");
        web.page(&format!("/shards/1/{list}")).await;
    }
    let document = web.page("/shards/2/export").await;
    assert!(document.contains("a manifest"), "{document}");
}

#[tokio::test]
async fn a_shard_that_is_away_is_named_and_the_others_are_shown() {
    if !has_plproxy() {
        return;
    }
    let (cluster, groups) = cluster().await;
    let web = web(&cluster, &[]).await;
    cluster
        .router
        .get("select trax_router.close_shard(1, 'new <disks>')")
        .await;
    let page = web.page("/").await;
    assert!(
        page.contains("<h2>shard 1 is closed</h2><p>new &lt;disks&gt;</p>"),
        "{page}"
    );
    assert!(page.contains("data-number=\"ready\">2</span>"), "{page}");
    let one = web.get("/shards/1").await;
    assert_eq!(one.status, 503, "{}", one.body);
    assert!(
        one.body.contains("trax_router.open_shard(1)"),
        "{}",
        one.body
    );
    let jobs = web.page("/jobs").await;
    assert!(
        jobs.contains("<h2>Shard 2</h2>") && !jobs.contains("<h2>Shard 1</h2>"),
        "{jobs}"
    );
    let done = web.act("/act/pause", "reason=why", &[]).await;
    for words in ["done in part", "shard 1 is closed", "Shard 2 answered"] {
        assert!(done.body.contains(words), "{words}: {}", done.body);
    }
    let done = web.act("/shards/2/act/resume", "", &[]).await;
    assert!(done.body.contains(": done</h1>"), "{}", done.body);
    cluster.router.get("select trax_router.open_shard(1)").await;

    // Shards that the router named before stay visible while it does not answer.
    harness::eventually("it is back", harness::PATIENCE, async || {
        let page = web.page("/jobs").await;
        match page.contains("<h2>Shard 1</h2>") {
            true => Ok(()),
            false => Err(page),
        }
    })
    .await;
    let name = cluster.database.name();
    let admin = shared_server().database("router_is_off").await;
    let admin = harness::session::Session::of(&admin.expect("a database is made")).await;
    admin
        .get(&format!(
            "alter database {name} allow_connections false;
            select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity where datname = '{name}'"
        ))
        .await;
    harness::eventually("the router is missed", harness::PATIENCE, async || {
        let page = web.page("/jobs").await;
        match page.contains("The router does not answer") && page.contains("<h2>Shard 2</h2>") {
            true => Ok(()),
            false => Err(page),
        }
    })
    .await;
    let id = waiting(&cluster, 2).await;
    let job = web.page(&format!("/shards/2/jobs/{id}")).await;
    assert!(job.contains(&groups[1]), "{job}");
}

#[tokio::test]
async fn live_numbers_of_a_router_are_sums_that_name_who_is_missing() {
    if !has_plproxy() {
        return;
    }
    let (cluster, _) = cluster().await;
    let web = web(&cluster, &[]).await;
    let first = web.event("/live").await;
    assert!(
        first.contains("\"ready\":\"3\"") && first.contains("\"away\":[]"),
        "{first}"
    );
    cluster
        .router
        .get("select trax_router.close_shard(1, 'new disks')")
        .await;
    let next = harness::eventually("it is missed", harness::PATIENCE, async || {
        let event = web.event("/live").await;
        match event.contains("\"away\":[1]") {
            true => Ok(event),
            false => Err(event),
        }
    })
    .await;
    assert!(next.contains("\"ready\":\"2\""), "{next}");
}

#[tokio::test]
async fn a_reader_of_the_cluster_looks_and_does_nothing() {
    if !has_plproxy() {
        return;
    }
    let (cluster, _) = cluster().await;
    let role = format!("looks_{}", cluster.database.name());
    let make = format!("create role {role} login");
    cluster.router.get(&make).await;
    for shard in [1, 2] {
        cluster.shard(shard).get(&make).await;
    }
    cluster
        .router
        .get(&format!("select trax.grant_access('{role}', 'reader')"))
        .await;
    let web = Web::as_user(shared_server(), &cluster.database, &role, &[]).await;
    for path in [
        "/",
        "/jobs",
        "/dead",
        "/groups",
        "/doctor",
        "/shards/1/groups",
    ] {
        let page = web.page(path).await;
        assert!(!page.contains("/act/"), "{path}: {page}");
        assert!(page.contains(&role), "{path}: {page}");
    }
    let form = web.get("/act/pause").await;
    assert_eq!(form.status, 403, "{}", form.body);
    // The role has lost its rights on one shard.
    cluster
        .shard(2)
        .get(&format!("select trax.revoke_access('{role}')"))
        .await;
    let page = web.page("/jobs").await;
    assert!(page.contains("<h2>Shard 1</h2>"), "{page}");
    assert!(page.contains("shard 2: "), "{page}");
    let sums = web.get("/live").await;
    assert_eq!(sums.status, 403, "they count shard 2: {}", sums.body);
}

#[tokio::test]
async fn the_pages_of_a_cluster_are_for_every_screen_and_reader() {
    if !has_plproxy() {
        return;
    }
    let (cluster, groups) = cluster().await;
    let dies = format!(
        "select trax.enqueue('dies', max_retries => 0);
        select trax.fail(job_id, token, 'no') from trax.claim_next('w', tasks => '{{dies}}');
        select trax.schedule('m', 't', cron => '@daily', group_name => '{}')",
        groups[1]
    );
    cluster.shard(2).get(&dies).await;
    cluster
        .router
        .get("select trax_router.close_shard(1, 'new disks')")
        .await;
    let web = web(&cluster, &[]).await;
    let browser = Browser::start().await;
    let site = format!("http://{}", web.host());
    for (name, path) in [
        ("all", "/"),
        ("all-jobs", "/jobs?state=failed"),
        ("all-dead", "/dead"),
        ("all-doctor", "/doctor"),
        ("shard", "/shards/2"),
    ] {
        browser.reads(&format!("{site}{path}"), name).await;
    }
    browser.open(&format!("{site}/")).await;
    harness::eventually("who is missing is named", harness::PATIENCE, async || {
        let said = browser
            .script("return document.getElementById('unknown').textContent")
            .await;
        match said.to_string().contains("Without shard 1") {
            true => Ok(()),
            false => Err(said.to_string()),
        }
    })
    .await;
    browser.open(&format!("{site}/dead")).await;
    browser.click("a[href^='/shards/2/act/requeue?']").await;
    browser.click("button[type=submit]").await;
    let result = "return document.getElementById('result')?.textContent.slice(0, 19) ?? ''";
    browser.shows(result, "The server answered").await;
    let complaints = browser.complaints().await;
    assert_eq!(complaints, "[]", "the browser is content");
}
