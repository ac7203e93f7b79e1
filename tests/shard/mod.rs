//! The extension `trax_shard`: what a database has beside trax once it is in a cluster. The moves
//! themselves are tested behind a router.

use harness::process::{Scratch, run_quietly};
use harness::rights::{assert_matrix, default_privileges_for, rights};
use harness::session::{Session, session};
use harness::shared_server;
use std::collections::BTreeSet;
use trax_client::testkit::Database;

/// The rights of levels on the objects of trax alone, and on those of `trax_shard`.
const MATRICES: [&str; 2] = [
    include_str!("../whole/access/matrix.txt"),
    include_str!("matrix.txt"),
];

/// The functions and tables of an extension, by name.
async fn members(s: &Session, extension: &str) -> BTreeSet<String> {
    let sql = format!(
        "select coalesce(p.proname, c.relname)
         from pg_extension e
         join pg_depend d on d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid and d.deptype = 'e'
         left join pg_proc p on d.classid = 'pg_proc'::regclass and p.oid = d.objid
         left join pg_class c on d.classid = 'pg_class'::regclass and c.oid = d.objid
         where e.extname = '{extension}' and coalesce(p.oid, c.oid) is not null"
    );
    s.get(&sql).await.lines().map(str::to_owned).collect()
}

/// A new role of this database's own.
async fn role(db: &Database, s: &Session, name: &str, options: &str) -> String {
    let role = format!("{}_{name}", db.name());
    s.get(&format!("create role {role} {options}")).await;
    role
}

#[tokio::test]
async fn a_database_that_is_in_no_cluster_has_no_object_of_one() {
    let (_db, s) = session().await;
    assert!(members(&s, "trax_shard").await.is_empty());
    s.get("select trax.join_cluster()").await;
    let shard = members(&s, "trax_shard").await;
    assert!(shard.len() > 20, "{shard:?}");
    assert!(shard.contains("departure") && shard.contains("depart"));
    s.get("select trax.join_cluster()").await;
    assert_eq!(members(&s, "trax_shard").await, shard, "once");
    s.assert_healthy().await;

    let refusal = s.refusal("drop extension trax").await;
    assert!(refusal.detail.contains("trax_shard"), "{refusal}");
    s.get("drop extension trax_shard").await;
    let left = "select count(*) from pg_proc where pronamespace = 'trax'::regnamespace and proname = 'depart'";
    assert_eq!(s.number(left).await, 0);
    let job = s.enqueue("'a'").await;
    s.get("select trax.adopt()").await;
    let claimed = s.claim_one("").await;
    s.get(&format!("select trax.complete({})", claimed.key()))
        .await;
    let why = format!("select reason from trax.explain_job({job})");
    assert_eq!(s.get(&why).await, "ended");
    s.assert_healthy().await;
    s.get("drop extension trax").await;
}

#[tokio::test]
async fn levels_cover_the_objects_of_a_shard_also_those_granted_before() {
    let (db, s) = session().await;
    let mut levels = vec![("PUBLIC", role(&db, &s, "public", "login").await)];
    for level in ["reader", "producer", "worker", "admin"] {
        levels.push((level, role(&db, &s, level, "login").await));
    }
    let grant = |level: &str, role: &str| format!("select trax.grant_access('{role}', '{level}')");
    for (level, role) in &levels[1..3] {
        s.get(&grant(level, role)).await;
    }
    s.get("select trax.join_cluster()").await;
    for (level, role) in &levels[3..] {
        s.get(&grant(level, role)).await;
    }
    assert_matrix(&s, "trax", &levels, &MATRICES.concat()).await;
    s.assert_healthy().await;
    for (_, role) in &levels[1..] {
        let causes = format!(
            "select detail from trax.diagnose(role => '{role}') where cause = 'missing_grants'"
        );
        assert_eq!(s.get(&causes).await, "");
    }
    let limited = role(&db, &s, "limited", "login").await;
    s.get(&format!(
        "select trax.grant_access('{limited}', 'worker', tasks => '{{a}}')"
    ))
    .await;
    let them = Session::as_role(&db, &limited).await;
    assert_eq!(them.get("select trax.where_is(1)").await, "");
    s.get(&format!("select trax.revoke_access('{limited}')"))
        .await;
    let refusal = them.refusal("select trax.where_is(1)").await;
    assert_eq!(refusal.code, "42501", "{refusal}");
}

#[tokio::test]
async fn default_privileges_give_no_right_on_a_shard() {
    let (db, s) = session().await;
    let team = role(&db, &s, "team", "login").await;
    let before = rights(&s, &team, "trax").await;
    default_privileges_for(&s, &team, &["tables", "sequences", "functions"]).await;
    s.get("create extension trax_shard").await;
    assert_eq!(rights(&s, &team, "trax").await, before);
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_owner_of_trax_creates_it_in_the_same_version() {
    let (db, s) = session().await;
    let owner = s.get("select current_user").await;
    let other = role(&db, &s, "other", "superuser").await;
    s.get(&format!("set role {other}")).await;
    let refusal = s.refusal("create extension trax_shard").await;
    assert_eq!(refusal.code, "42501", "{refusal}");
    assert!(refusal.detail.contains(&other), "{refusal}");
    assert_eq!(
        refusal.hint,
        format!("Type: set role {owner}; create extension trax_shard")
    );
    s.get("select trax.join_cluster()").await;
    let owners =
        "select distinct pg_get_userbyid(extowner) from pg_extension where extname like 'trax%'";
    assert_eq!(s.get(owners).await, owner, "whoever joins the cluster");
    s.get("drop extension trax_shard; reset role").await;

    let version = "update pg_extension set extversion = '0.99.1' where extname = 'trax'";
    s.get("begin").await;
    s.get(version).await;
    let refusal = s.refusal("create extension trax_shard").await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    assert!(refusal.message.contains("trax 0.99.1"), "{refusal}");
    s.get("rollback").await;
}

#[tokio::test]
async fn code_of_others_on_a_table_of_a_shard_is_refused() {
    let (db, s) = session().await;
    let other = role(&db, &s, "other", "").await;
    // A session has checked the tables once before those of a shard exist.
    s.enqueue("'a'").await;
    s.get(&format!(
        "select trax.join_cluster(); create schema authorization {other};
         create function {other}.look() returns trigger language plpgsql as 'begin return new; end';
         alter function {other}.look() owner to {other};
         create trigger look after insert on trax.departure for each row execute function {other}.look()"
    ))
    .await;
    let refusal = s.refusal("select trax.depart('g', 2)").await;
    assert!(refusal.to_string().contains(&other), "{refusal}");
    let causes = "select count(*) from trax.diagnose() where cause = 'code_of_others'";
    assert_eq!(s.number(causes).await, 1);
}

#[tokio::test]
async fn a_copy_of_a_shard_is_adopted_by_an_explicit_word() {
    let (database, s) = session().await;
    s.get("select trax.set_shard(5), trax.enqueue_many('t', array['1', '2']::jsonb[])")
        .await;
    s.get("truncate trax.adoption; select trax.adopt()").await;
    assert_eq!(s.claim("").await.len(), 1, "a number alone is no cluster");
    s.get("select trax.join_cluster(); truncate trax.adoption")
        .await;
    let s = Session::of(&database).await;
    assert_eq!(s.refusal("select trax.adopt()").await.code, "55000");
    s.get("select trax.adopt(keep => true)").await;
    assert_eq!(s.claim("").await.len(), 1);
    s.get("select trax.adopt()").await;
}

#[tokio::test]
async fn a_dump_of_a_shard_has_what_is_on_its_way_and_the_rights() {
    let (db, s) = session().await;
    let reader = role(&db, &s, "reader", "login").await;
    s.get(&format!(
        "select trax.grant_access('{reader}', 'reader'); select trax.set_shard(3); select trax.join_cluster();
         select trax.enqueue('a', group_name => 'g', unique_key => 'k');
         select trax.put_settings('here', '{{}}', 7)"
    ))
    .await;
    let depart = "select count from trax.depart('g', 7)";
    s.get(depart).await;
    assert_eq!(s.get(depart).await, "1");
    s.get("insert into trax.arrival (source, group_name, batch) select target, group_name, batch from trax.departure")
        .await;
    let everything = "select jsonb_agg(to_jsonb(d)) from trax.departure d
        union all select jsonb_agg(to_jsonb(a)) from trax.arrival a
        union all select jsonb_agg(to_jsonb(h)) from trax.group_home h";
    let before = s.get(everything).await;

    let name = format!("{}_copy", db.name());
    let copy = shared_server().plain_database(&name).await;
    let copy = copy.expect("a database is made");
    let scratch = Scratch::new(&name);
    let file = scratch.path().join("dump");
    run_quietly(
        shared_server()
            .command("pg_dump")
            .args(["-Fc", db.name(), "--file"])
            .arg(&file),
    );
    run_quietly(
        shared_server()
            .command("pg_restore")
            .args(["--exit-on-error", "--dbname", &name])
            .arg(&file),
    );
    let s = Session::of(&copy).await;
    assert_eq!(s.get(everything).await, before);
    let refusal = s.refusal("select trax.adopt()").await;
    assert!(
        refusal.hint.contains("trax_router.adopt_shard(3)"),
        "{refusal}"
    );
    s.get("select trax.adopt(keep => true)").await;
    let job = (3_i64 << 43) + 1;
    let them = Session::as_role(&copy, &reader).await;
    let place = format!("select trax.where_is({job})");
    assert_eq!(them.get(&place).await, "departed");
    let why = format!("select reason from trax.explain_job({job})");
    assert_eq!(them.get(&why).await, "departed");
    assert_eq!(them.get("select count(*) from trax.departure").await, "1");
    s.assert_healthy().await;
}

/// Returns the number of jobs, and of their signals, in the next batch of a group.
async fn departs(s: &Session) -> String {
    s.get(
        "select d.count, jsonb_array_length(d.cargo -> 'signals'), d.is_over
        from trax.depart('g', 2, max_count => 10) d",
    )
    .await
}

#[tokio::test]
async fn a_signal_that_is_being_sent_goes_with_its_job() {
    for manifest in [false, true] {
        let (db, s) = session().await;
        s.get("select trax.join_cluster()").await;
        let job = match manifest {
            false => s.enqueue("'t', group_name => 'g'").await,
            true => {
                s.get(
                    "select trax.schedule('m', 't', every => '1 h', group_name => 'g');
                    update trax.manifest_state set next_run_at = now(), next_scheduled_for = now();
                    select count(*) from trax.tick()",
                )
                .await;
                s.number("select job_id from trax.work_queue").await
            }
        };
        assert_eq!(departs(&s).await, "0||f", "the group is disabled first");
        let send = format!("select trax.send_signal({job}, 'go', '1')");
        let sender = Session::of(&db).await;
        sender.get("begin").await;
        assert_eq!(sender.get(&send).await, "sent");
        assert_eq!(departs(&s).await, "0||f", "{manifest}: it waits");
        sender.get("commit").await;

        s.get("begin").await;
        assert_eq!(departs(&s).await, "1|1|f", "{manifest}");
        let pid = sender.pid();
        let sending = sender.spawn(send);
        s.sees_waiting(pid).await;
        s.get("commit").await;
        let (sender, said) = sending.await.expect("it does not panic");
        assert_eq!(said, Ok("unknown".to_owned()), "{manifest}: it has gone");
        assert_eq!(sender.number("select count(*) from trax.signal").await, 0);
    }
}

#[tokio::test]
async fn the_signals_of_a_dead_job_go_with_its_dead_letter() {
    let (_db, s) = session().await;
    s.get("select trax.join_cluster()").await;
    let id = s.enqueue("'t', group_name => 'g'").await;
    s.get(&format!("select trax.send_signal({id}, 'go', '1')"))
        .await;
    let job = s.claim_one("").await;
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        job.key()
    ))
    .await;
    assert_eq!(departs(&s).await, "0|1|f", "no job, and the signal");
    assert_eq!(s.number("select count(*) from trax.signal").await, 0);
}
