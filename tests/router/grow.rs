//! Additional shards: new groups use the new places, active groups stay, and no id changes.

use super::cluster::{address, shard, shard_server};
use super::move_group::call;
use super::{Cluster, has_plproxy};
use harness::process::run_quietly;
use harness::session::Session;
use harness::shared_server;

#[tokio::test]
async fn from_two_to_four_nothing_at_work_moves() {
    if !has_plproxy() {
        return;
    }
    let mut cluster = Cluster::of(2).await;
    let s = &cluster.router;
    s.get(
        "select trax.enqueue('a', group_name => 'g' || n) from generate_series(1, 40) n;
        select trax.schedule('m' || n, 't', group_name => 'h' || n) from generate_series(1, 10) n;
        select trax.configure_group('only_settings', max_active_jobs => 1);
        select trax.configure_group('default', max_per_key => 5)",
    )
    .await;
    let where_are = "select string_agg(trax_router.shard_of_group(g)::text, '' order by g)
        from (select 'g' || n from generate_series(1, 40) n union select 'h' || n from generate_series(1, 10) n
            union select 'only_settings') t (g)";
    let before = s.get(where_are).await;
    let states = "select string_agg(state, ' ' order by job_id) from trax.get_jobs(array(
        select job_id from ids))";
    s.get("create temp table ids as select trax.enqueue('b', concurrency_key => 'k' || n) as job_id from generate_series(1, 20) n")
        .await;
    let ids = s.get("select array_agg(job_id) from ids").await;

    let more = [shard_server(), shard_server()];
    for server in &more {
        cluster.add(server).await;
    }
    let s = &cluster.router;
    let settings = "select max_per_key from trax.manifest_group where name = 'default'";
    assert_eq!(
        cluster.shard(3).get(settings).await,
        "5",
        "a spread group has its settings everywhere"
    );
    let places = "select * from trax_router.spread_places()";
    assert_eq!(
        s.get(places).await,
        "1|256|0\n2|256|0\n3|256|256\n4|256|256"
    );
    assert_eq!(s.get(places).await, "1|256|0\n2|256|0\n3|256|0\n4|256|0");
    assert_eq!(s.get(where_are).await, before);
    assert_eq!(s.get(states).await.matches("queued").count(), 20);
    assert_eq!(s.get("select array_agg(job_id) from ids").await, ids);
    let keyed = "select count(distinct trax.shard_of(trax.enqueue('b', concurrency_key => 'k' || n))) from generate_series(1, 40) n";
    assert_eq!(s.get(keyed).await, "4");
    let new = "select count(distinct trax_router.shard_of_group('new' || n)) from generate_series(1, 60) n";
    assert_eq!(s.get(new).await, "4");
    s.get(
        "select trax.trigger('m3'); select trax.schedule('m3', 't', priority => 2, group_name => 'h3')",
    )
    .await;
}

/// The configuration that each shard has, and that a new shard must get.
const CONFIGURED: &str = "select jsonb_build_object(
        'groups', (select jsonb_agg(to_jsonb(g) - 'updated_at' - 'created_at' order by g.name) from trax.manifest_group g where g.name = 'default'),
        'tasks', (select jsonb_agg(to_jsonb(t) - 'updated_at' - 'created_at' order by t.name) from trax.task t),
        'rates', (select jsonb_agg(to_jsonb(r) - 'created_at' - 'changed_at' order by r.name) from trax.rate r),
        'closures', (select jsonb_agg(to_jsonb(c) order by c.rate, c.key) from trax.rate_closure c),
        'paused', (select jsonb_agg(i.pause_reason) from trax.instance i where i.paused_at is not null))";

#[tokio::test]
async fn a_shard_that_joins_has_the_configuration_of_the_others() {
    if !has_plproxy() {
        return;
    }
    // Each function whose call goes to several shards stores one of these, or acts on jobs.
    let routes = include_str!("../../sql/router/route.sql").lines();
    let each: Vec<&str> = routes
        .filter(|line| line.contains("', 'each', "))
        .filter_map(|line| line.split('\'').nth(1))
        .collect();
    let stored = "configure_group configure_rate close_rate drop_rate configure_task reset_task pause resume";
    let act = "cancel_group trigger_group";
    assert_eq!(each.join(" "), format!("{act} {stored}"));

    let mut cluster = Cluster::of(2).await;
    let more = [shard_server(), shard_server()];
    cluster
        .router
        .get(
            "select trax.configure_group('default', max_per_key => 5);
            select trax.configure_rate('api', 60, '1 mon 2 days 03:04:05.5', burst => 2);
            select trax.configure_rate('plain', 1, '1 h');
            select trax.close_rate('api', until => 'infinity');
            select trax.close_rate('api', 'k', '2100-01-01 00:00+00');
            select trax.configure_task('mail', max_retries => 3, backoff => 1.5, timeout => '1 mon');
            select trax.apply('{\"tasks\": [{\"name\": \"load\", \"retry_delay\": 7}]}', source => 'etl');
            select trax.pause('new disks')",
        )
        .await;
    cluster.add(&more[0]).await;
    let first = cluster.shard(1).get(CONFIGURED).await;
    assert_eq!(cluster.shard(2).get(CONFIGURED).await, first);
    assert_eq!(cluster.shard(3).get(CONFIGURED).await, first);
    for part in [r#""burst": 2"#, "infinity", r#"["new disks"]"#, "etl"] {
        assert!(first.contains(part), "{part}: {first}");
    }

    // A pause of a single shard is not that of a new one.
    cluster.router.get("select trax.resume()").await;
    cluster.shard(1).get("select trax.pause('alone')").await;
    cluster.add(&more[1]).await;
    let paused = "select count(*) from trax.instance where paused_at is not null";
    assert_eq!(cluster.shard(4).get(paused).await, "0");
}

#[tokio::test]
async fn places_wait_for_whoever_has_just_placed_a_job() {
    if !has_plproxy() {
        return;
    }
    let mut cluster = Cluster::of(1).await;
    let server = shard_server();
    cluster.add(&server).await;
    let other = Session::of(&cluster.database).await;
    // Some of a hundred groups would move.
    cluster
        .router
        .get("begin; select trax.enqueue('a', group_name => 'late' || n) from generate_series(1, 100) n")
        .await;
    let pid = other.pid();
    let spreading = other.spawn("select count(*) from trax_router.spread_places()");
    cluster.router.sees_waiting(pid).await;
    cluster.router.get("commit").await;
    let (_other, spread) = spreading.await.expect("it does not panic");
    assert_eq!(spread, Ok("2".to_owned()));
    let on_first = "select count(*) from generate_series(1, 100) n where trax_router.shard_of_group('late' || n) = 1";
    assert_eq!(cluster.router.get(on_first).await, "100");
}

#[tokio::test]
async fn whoever_adds_a_shard_and_whoever_begins_a_move_wait_for_each_other_in_one_order() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let server = shard_server();
    let (database, _) = shard(&server, 3).await;
    let (holder, adder, mover) = (
        Session::of(&cluster.database).await,
        Session::of(&cluster.database).await,
        Session::of(&cluster.database).await,
    );
    let s = &cluster.router;
    holder
        .get("begin; lock table trax_router.place in share mode")
        .await;
    let (adding, moving) = (adder.pid(), mover.pid());
    let add = address(&server, &database, 3);
    let added = adder.spawn(format!("select trax_router.add_shard({add})"));
    s.sees_waiting(adding).await;
    let moved = mover.spawn(call(&group, 2));
    s.sees_waiting(moving).await;
    holder.get("commit").await;
    let (_adder, added) = added.await.expect("it does not panic");
    assert!(added.is_ok(), "{added:?}");
    let (_mover, moved) = moved.await.expect("it does not panic");
    assert_eq!(moved, Ok("0".to_owned()));
}

#[tokio::test]
async fn a_group_stays_where_the_router_has_it_whatever_handlers_enqueue_elsewhere() {
    if !has_plproxy() {
        return;
    }
    let mut cluster = Cluster::of(2).await;
    let mut here = Vec::new();
    for shard in [1, 2] {
        here.push(cluster.group_on(shard).await);
    }
    for (group, shard) in here.iter().zip([1, 2]) {
        cluster
            .router
            .get(&format!(
                "select trax.enqueue('a', group_name => '{group}')"
            ))
            .await;
        cluster
            .shard(3 - shard)
            .get(&format!(
                "select trax.enqueue('b', group_name => '{group}')"
            ))
            .await;
    }
    // A database that was in use before it joins keeps its groups.
    let server = shard_server();
    cluster.add(&server).await;
    cluster
        .shard(3)
        .get("select trax.enqueue('c', group_name => 'own' || n) from generate_series(1, 8) n")
        .await;
    let s = &cluster.router;
    s.get("select trax_router.spread_places()").await;
    for (group, shard) in here.iter().zip(["1", "2"]) {
        let place = format!("select trax_router.shard_of_group('{group}')");
        assert_eq!(s.get(&place).await, shard, "{group}");
    }
    let own = "select string_agg(trax_router.shard_of_group('own' || n)::text, '') from generate_series(1, 8) n";
    assert_eq!(s.get(own).await, "33333333");
}

#[tokio::test]
async fn a_group_is_placed_by_hand_unless_it_is_at_work_elsewhere() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    s.get(&format!(
        "select trax.configure_group('{group}', max_active_jobs => 4)"
    ))
    .await;
    s.get(&format!("select trax_router.place_group('{group}', 2)"))
        .await;
    let job = s
        .number(&format!(
            "select trax.enqueue('a', group_name => '{group}')"
        ))
        .await;
    assert_eq!(job >> 43, 2);
    let limit = format!("select max_active_jobs from trax.manifest_group where name = '{group}'");
    assert_eq!(cluster.shard(2).get(&limit).await, "4", "with its settings");
    let refusal = s
        .refusal(&format!("select trax_router.place_group('{group}', 1)"))
        .await;
    assert_eq!(refusal.code, "55000");
    assert_eq!(
        refusal.message,
        format!("group \"{group}\" is at work on shard 2")
    );
    s.get(&format!("select trax_router.spread_group('{group}')"))
        .await;
    let spread = format!(
        "select count(distinct trax.shard_of(trax.enqueue('a', group_name => '{group}'))) from generate_series(1, 60)"
    );
    assert_eq!(s.get(&spread).await, "2");
    assert_eq!(cluster.shard(1).get(&limit).await, "4");
    s.get(&format!("select trax.cancel_group('{group}')")).await;
    s.get(&format!("select trax_router.place_group('{group}', 1)"))
        .await;
    assert_eq!(s.get(&spread).await, "1");
    s.get("select trax_router.place_group('default', 2)").await;
    assert_eq!(s.get("select trax.shard_of(trax.enqueue('a'))").await, "2");
    for (call, code) in [
        ("select trax_router.place_group('', 1)", "22023"),
        ("select trax_router.place_group('g', 9)", "42704"),
        ("select trax_router.place_group('g', null)", "42704"),
        ("select trax_router.spread_group(null)", "22023"),
    ] {
        assert_eq!(s.refusal(call).await.code, code, "{call}");
    }
}

#[tokio::test]
async fn what_is_no_shard_is_not_added() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(1).await;
    let s = &cluster.router;
    let server = shared_server();
    let plain = server
        .plain_database(&format!("{}_plain", cluster.database.name()))
        .await;
    let plain = plain.expect("a database is made");
    let add = |words: &str| format!("select trax_router.add_shard({words})");
    let refusal = s.refusal(&add(&address(server, &plain, 2))).await;
    assert!(
        refusal.message.contains("does not have the extension trax"),
        "{refusal}"
    );
    assert!(refusal.hint.contains("trax.set_shard(2)"), "{refusal}");
    let own_server = shard_server();
    let (database, _) = shard(&own_server, 5).await;
    let refusal = s.refusal(&add(&address(&own_server, &database, 2))).await;
    assert_eq!(
        refusal.message,
        "the database at this address is shard 5, not 2"
    );
    for (words, message) in [
        (
            "1024, 'host=x'",
            "argument \"number\" must be between 0 and 1023",
        ),
        (
            "null, 'host=x'",
            "argument \"number\" must be between 0 and 1023",
        ),
        (
            "2, 'postgresql://x/y'",
            "argument \"address\" must be words of libpq",
        ),
        ("2, null", "argument \"address\" must be words of libpq"),
        (
            "2, 'host=x password=y'",
            "argument \"address\" must not have a password",
        ),
        (
            "2, 'host=x sslpassword=y'",
            "argument \"address\" must not have a password",
        ),
        (
            "2, 'host=127.0.0.1 port=1 dbname=x'",
            "shard 2 cannot be reached",
        ),
    ] {
        assert_eq!(s.refusal(&add(words)).await.message, message);
    }
    // The same address changes nothing; another address is reported as a move.
    let (first, _) = &cluster.shards[0];
    let known = s.get("select address from trax_router.shards()").await;
    assert_eq!(s.get(&add(&format!("1, '{known}'"))).await, "has places");
    let other = known.replace("127.0.0.1", "localhost");
    let refusal = s.refusal(&add(&format!("1, '{other}'"))).await;
    assert!(
        refusal.hint.contains("trax_router.move_shard(1,"),
        "{refusal}"
    );
    s.get(&format!("select trax_router.move_shard(1, '{other}')"))
        .await;
    s.get("select trax.enqueue('a')").await;
    assert!(first.name().starts_with("shard_"));
}

#[tokio::test]
async fn a_dump_of_the_router_has_its_shards_and_places() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    s.get("select trax_router.place_group('mine', 2); select trax.schedule('m', 't', group_name => 'mine')").await;
    let restored = shared_server()
        .plain_database(&format!("{}_copy", cluster.database.name()))
        .await
        .expect("a database is made");
    let file = shared_server()
        .socket_dir()
        .join(format!("{}.dump", cluster.database.name()));
    run_quietly(
        shared_server()
            .command("pg_dump")
            .args(["--format=custom", "--file"])
            .arg(&file)
            .args(["--dbname", cluster.database.name()]),
    );
    run_quietly(
        shared_server()
            .command("pg_restore")
            .args(["--exit-on-error", "--dbname", restored.name()])
            .arg(&file),
    );
    let all = "select count(*), count(distinct shard) from trax_router.place";
    let copy = Session::of(&restored).await;
    assert_eq!(copy.get(all).await, "1024|2");
    assert_eq!(
        copy.get("select trax.shard_of(trax.trigger('m'))").await,
        "2"
    );
    assert_eq!(copy.get("select * from trax_router.manifest").await, "m|2");
}

#[tokio::test]
async fn a_group_stays_as_long_as_a_key_of_an_ended_job_lives() {
    if !has_plproxy() {
        return;
    }
    let mut cluster = Cluster::of(2).await;
    let keyed = "select trax.enqueue('a', group_name => 'e' || n, unique_key => 'u' || n, unique_for => '1 h')
        from generate_series(1, 40) n";
    let first = cluster.router.get(keyed).await;
    for shard in [1, 2] {
        let complete = "select count(trax.complete(job_id, token)) from trax.claim_next('w', 100)";
        cluster.shard(shard).get(complete).await;
    }
    let server = shard_server();
    cluster.add(&server).await;
    let s = &cluster.router;
    s.get("select trax_router.spread_places()").await;
    assert_eq!(s.get(keyed).await, first, "no key is taken twice");
}
