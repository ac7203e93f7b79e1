//! Objects of another role on a shard, in a schema that is in the search path of the router's
//! roles.

use super::{Cluster, has_plproxy};
use harness::session::Session;

/// Makes functions and an operator that match the router's statements better than those of
/// `pg_catalog` with polymorphic types. Each records the role that runs it.
fn plant(mallory: &str, victim: &str) -> String {
    let lure = |name: &str, argument: &str, result: &str, value: &str| {
        format!(
            "create function \"{victim}\".{name}({argument}) returns {result} language plpgsql as $body$
            begin
                insert into \"{victim}\".loot values (current_user || ' {name}');
                {value};
            end $body$;"
        )
    };
    let all = "return query select pg_catalog.unnest($1)";
    [
        format!(
            "set role {mallory}; create schema \"{victim}\"; grant usage on schema \"{victim}\" to public;
            create table \"{victim}\".loot (t text); grant insert on \"{victim}\".loot to public;"
        ),
        lure("unnest", "bigint[]", "setof bigint", all),
        lure("unnest", "text[]", "setof text", all),
        lure("to_jsonb", "timestamptz", "jsonb", "return pg_catalog.to_jsonb($1)"),
        lure("path", "jsonb, jsonb", "text", "return $1::text"),
        format!(
            "create operator \"{victim}\".#>> (function = \"{victim}\".path, leftarg = jsonb, rightarg = jsonb); reset role;"
        ),
    ]
    .concat()
}

#[tokio::test]
async fn no_function_of_a_stranger_runs_on_a_shard() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    let name = cluster.database.name();
    let (mallory, victim) = (format!("{name}_mallory"), format!("{name}_victim"));
    s.get(&format!(
        "create role {victim} login; create role {name}_runs login"
    ))
    .await;
    for (database, shard) in &cluster.shards {
        let database = database.name();
        shard
            .get(&format!(
                "create role {mallory}; grant create on database {database} to {mallory};
                create role {victim} login; create role {name}_runs login;"
            ))
            .await;
        for victim in [&*victim, "postgres"] {
            shard.get(&plant(&mallory, victim)).await;
        }
    }
    s.get(&format!("select trax.grant_access('{victim}', 'admin')"))
        .await;

    let group = cluster.group_on(1).await;
    let statement = format!("'select 1', group_name => '{group}', run_as => '{name}_runs'");
    let id = s
        .number(&format!("select trax.enqueue_sql({statement})"))
        .await;
    s.get(&format!("call trax_router.move_group('{group}', 2, null)"))
        .await;
    let v = Session::as_role(&cluster.database, &victim).await;
    for call in [
        format!("select count(*) from trax.get_jobs('{{{id}}}')"),
        format!("select trax.cancel({id})"),
        "select trax.schedule('m', 't', every => '1 h')".to_owned(),
        "select count(*) from trax.preview('m')".to_owned(),
        "select count(*) from trax.preview_cron('* * * * *')".to_owned(),
        "select count(*) from trax.explain_manifest('m')".to_owned(),
        "select count(*) from trax.acquire_token('t', 'h', 1, '1 min')".to_owned(),
        "select count(*) from trax.status()".to_owned(),
        "select count(*) from trax.metrics()".to_owned(),
    ] {
        v.get(&call).await;
    }
    for (_, shard) in &cluster.shards {
        for victim in [&*victim, "postgres"] {
            let loot = format!("select string_agg(distinct t, ', ') from \"{victim}\".loot");
            assert_eq!(shard.get(&loot).await, "", "{victim}");
        }
    }
}

/// SQL words that a parenthesis may follow.
const WORDS: [&str; 7] = [
    "any", "coalesce", "exists", "extract", "in", "operator", "select",
];
/// Operators for which `pg_catalog` has exactly the types used by the statements.
const EXACT: [&str; 5] = ["=", ">", ">>", "=>", "-"];

#[tokio::test]
async fn what_a_statement_for_a_shard_calls_is_found_without_a_path() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(1).await;
    let sources = "select p.proname || ' ' || translate(p.prosrc, e'\\n', ' ') from pg_proc p
        join pg_language l on l.oid = p.prolang where l.lanname = 'plproxy'";
    let sources = cluster.router.get(sources).await;
    assert!(sources.lines().count() > 40, "{sources}");
    for source in sources.lines() {
        let (_, statement) = source.split_once(';').expect("connect comes first");
        // Without literals.
        let statement: String = statement.split('\'').step_by(2).collect();
        for (at, _) in statement.match_indices('(') {
            let before = statement[..at].trim_end();
            let word = before.rsplit(|c: char| !c.is_alphanumeric() && !"_.".contains(c));
            let word = word.into_iter().next().unwrap_or_default();
            let is_found = word.is_empty() || word.contains('.') || WORDS.contains(&word);
            assert!(is_found, "{word} in {source}");
        }
        let qualified = statement.replace("operator(pg_catalog.#>>)", "");
        let qualified = qualified.replace("operator(pg_catalog.||)", "");
        for operator in qualified.split(|c| !"+-*/<>=~!@#%^&|`?".contains(c)) {
            let is_found = operator.is_empty() || EXACT.contains(&operator);
            assert!(is_found, "{operator} in {source}");
        }
    }
}

#[tokio::test]
async fn a_shard_chooses_neither_the_shard_nor_the_group_of_a_batch() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let s = &cluster.router;
    let group = cluster.group_on(1).await;
    s.get(&format!(
        "select trax.enqueue('a', group_name => '{group}')"
    ))
    .await;
    let departs = |target: usize, of: &str| {
        format!(
            "truncate trax.departure; insert into trax.departure (group_name, target, cargo)
            values ('{group}', {target}, jsonb_build_object('jobs', jsonb_build_array(jsonb_build_object(
                'job_id', 99, 'task', 'sql', 'run_as', 'postgres', 'group_name', '{of}'))))"
        )
    };
    let shard = cluster.shard(1);
    shard.get(&departs(3, &group)).await;
    let call = format!("call trax_router.move_group('{group}', 2, null)");
    let refusal = s.refusal(&call).await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    assert!(refusal.message.contains("to shard 3"), "{refusal}");
    shard.get(&departs(2, "another")).await;
    let refusal = s.refusal(&call).await;
    assert_eq!(refusal.code, "22023", "{refusal}");
    for number in [2, 3] {
        let jobs = "select count(*) from trax.work_queue";
        assert_eq!(cluster.shard(number).get(jobs).await, "0", "{number}");
    }
    shard.get("truncate trax.departure").await;
    assert_eq!(s.get(&call).await, "1");
}

#[tokio::test]
async fn a_reader_keeps_nobody_from_scheduling() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(1).await;
    let s = &cluster.router;
    let reader = format!("{}_reader", cluster.database.name());
    for session in [s, cluster.shard(1)] {
        session.get(&format!("create role {reader} login")).await;
    }
    s.get(&format!("select trax.grant_access('{reader}', 'reader')"))
        .await;
    let r = Session::as_role(&cluster.database, &reader).await;
    r.get(
        "begin isolation level repeatable read;
        select trax_router.refuse_old_snapshot(array(select g::text from generate_series(1, 20000) g))",
    )
    .await;
    s.get("set statement_timeout = '20s'; select trax.schedule('m', 't')")
        .await;
    r.get("commit").await;
}

#[tokio::test]
async fn the_number_of_no_role_reaches_no_shard() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(1).await;
    for call in [
        "select trax.grant_access(3999999999::oid::regrole, 'admin')",
        "select trax.revoke_access(3999999999::oid::regrole)",
    ] {
        let refusal = cluster.router.refusal(call).await;
        assert_eq!(refusal.code, "42704", "{call}: {refusal}");
        assert!(refusal.message.contains("3999999999"), "{refusal}");
        assert_eq!(refusal.detail, "No row of pg_roles has this name or oid.");
    }
}

#[tokio::test]
async fn a_statement_that_moves_stays_that_of_the_role_with_its_name() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    let role = format!("{}_owner", cluster.database.name());
    // Role oids differ on the second server.
    for n in 0..5 {
        let other = format!("create role {role}_{n}");
        cluster.shard(2).get(&other).await;
    }
    for session in [s, cluster.shard(1), cluster.shard(2)] {
        session.get(&format!("create role {role} login")).await;
    }
    let group = cluster.group_on(1).await;
    let statement = format!("run_as => '{role}', group_name => '{group}'");
    s.get(&format!(
        "select trax.enqueue_sql('select 1', {statement});
        select trax.schedule('m', sql => 'select 2', every => '1 h', {statement})"
    ))
    .await;
    cluster
        .shard(1)
        .get(&format!(
            "insert into trax.dead_letter (job_id, attempts, priority, created_at, task, group_name, reason, input, run_as)
            select 1, 1, 0, now(), 'sql', '{group}', 'no', input, run_as from trax.work_queue limit 1"
        ))
        .await;
    s.get(&format!("call trax_router.move_group('{group}', 2, null)"))
        .await;
    let numbers = format!(
        "select count(*), count(*) filter (where (r.input ->> 'role_oid')::oid = '{role}'::regrole)
        from (
            select input from trax.work_queue where run_as = '{role}'
            union all
            select input from trax.manifest where run_as = '{role}'
            union all
            select input from trax.dead_letter where run_as = '{role}'
        ) r"
    );
    assert_eq!(cluster.shard(2).get(&numbers).await, "3|3");
}
