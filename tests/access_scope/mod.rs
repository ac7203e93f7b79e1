//! A role's limits to tasks and groups: they apply to enqueueing, changing and claiming, and cannot
//! be bypassed.

mod family;
mod level;

use harness::process::{Scratch, run_quietly};
use harness::session::{Refusal, Session, session};
use harness::{database, shared_server};
use trax_client::testkit::Database;

/// A role with this level and these limits, and a session of that role.
async fn limited(db: &Database, s: &Session, name: &str, grant: &str) -> (String, Session) {
    let role = format!("{}_{name}", db.name());
    s.get(&format!(
        "create role {role} login; select trax.grant_access('{role}', {grant})"
    ))
    .await;
    let them = Session::as_role(db, &role).await;
    (role, them)
}

/// Checks that each statement is refused with 42501 and names the statement for an admin to type.
async fn assert_denied(them: &Session, statements: &[&str]) {
    for sql in statements {
        let refusal = them.refusal(sql).await;
        assert_eq!(refusal.code, "42501", "{sql}: {refusal}");
        assert!(
            refusal.message.starts_with("permission denied for task")
                || refusal.message.starts_with("permission denied for job")
                || refusal.message.starts_with("permission denied for the job")
                || refusal
                    .message
                    .starts_with("permission denied for manifest")
                || refusal.message.starts_with("row ")
                || refusal.message.starts_with("permission denied for group"),
            "{sql}: {refusal}"
        );
        assert!(
            refusal.hint.contains("select trax.grant_access('"),
            "{sql}: {refusal}"
        );
        assert!(refusal.detail.contains("may use"), "{sql}: {refusal}");
    }
}

const MAIL: &str = "tasks => array['mail.send', 'mail.log'], groups => array['mail']";

#[tokio::test]
async fn a_limited_producer_queues_its_tasks_in_its_groups_and_no_other() {
    let (db, s) = session().await;
    let (_, them) = limited(&db, &s, "mailer", &format!("'producer', {MAIL}")).await;
    s.get(
        "select trax.schedule('own', 'mail.send', every => '1 h', group_name => 'mail');
           select trax.schedule('other', 'bill.pay', every => '1 h', group_name => 'mail');
           select trax.schedule('elsewhere', 'mail.send', every => '1 h')",
    )
    .await;
    for sql in [
        "select trax.enqueue('mail.send', group_name => 'mail')",
        "select * from trax.enqueue_many('mail.log', array['1', '2']::jsonb[], group_name => 'mail')",
        "insert into trax.new_job (task, group_name) values ('mail.send', 'mail')",
        "select trax.trigger('own')",
    ] {
        them.get(sql).await;
    }
    s.get("select trax.enqueue('bill.pay', unique_key => 'of others')")
        .await;
    let before = s.everything().await;
    assert_denied(
        &them,
        &[
            "select trax.enqueue('mail.send', group_name => 'mail', unique_key => 'of others')",
            "insert into trax.new_job (task, group_name, unique_key) values ('mail.send', 'mail', 'of others')",
            "insert into trax.new_job (task, group_name, unique_key, on_duplicate) values ('mail.send', 'mail', 'of others', 'replace')",
            "select trax.enqueue('bill.pay', group_name => 'mail')",
            "select trax.enqueue('mail.send')",
            "select trax.enqueue('mail.send', group_name => 'billing')",
            "select * from trax.enqueue_many('mail.send', array['1']::jsonb[])",
            "insert into trax.new_job (task, group_name) values ('mail.send', 'mail'), ('bill.pay', 'mail')",
            "insert into trax.new_job (task) values ('mail.send')",
            "select trax.trigger('other')",
            "select trax.trigger('elsewhere')",
        ],
    )
    .await;
    assert_eq!(s.everything().await, before);
    let refused = them
        .refusal("select trax.enqueue('it''s', group_name => 'mail')")
        .await;
    assert!(
        refused.hint.ends_with(
            "'producer', tasks => array['mail.log', 'mail.send', 'it''s'], groups => array['mail'])"
        ),
        "{refused}"
    );
    let grant = &refused.hint[refused.hint.find("select").expect("what to type")..];
    s.get(grant).await;
    them.get("select trax.enqueue('it''s', group_name => 'mail')")
        .await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_limited_producer_neither_moves_nor_cancels_a_job_of_others_wherever_it_is() {
    let (db, s) = session().await;
    let (_, them) = limited(&db, &s, "mailer", &format!("'producer', {MAIL}")).await;
    let ended = s.enqueue("'bill.pay', unique_key => 'ended'").await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.complete({})", job.key())).await;
    let executed = s.enqueue("'bill.pay'").await;
    s.claim_one("").await;
    let waits = s
        .enqueue("'bill.pay', unique_key => 'bill', run_at => now() + interval '1 h'")
        .await;
    s.get("select trax.schedule('nightly', 'bill.pay')").await;
    let before = s.everything().await;
    for job in [ended, executed, waits] {
        let calls = [
            format!("select trax.cancel({job})"),
            format!("select trax.run_now({job})"),
            format!("select trax.change_job({job}, group_name => 'mail')"),
            format!("select trax.limit_queue_time({job}, '1 s')"),
            format!("select * from trax.get_jobs(array[{job}])"),
            format!("call trax.await_job({job}, '1 s', null, null, null)"),
            format!("call trax.await_jobs(array[{job}], '1 s', null)"),
            "select trax.enqueue('mail.send', group_name => 'mail', unique_key => 'bill')"
                .to_owned(),
            "select trax.enqueue('mail.send', group_name => 'mail', unique_key => 'bill', on_duplicate => 'replace')"
                .to_owned(),
            "insert into trax.new_job (task, group_name, unique_key, on_duplicate)
                values ('mail.send', 'mail', 'bill', 'replace')"
                .to_owned(),
            "select trax.trigger('nightly')".to_owned(),
        ];
        assert_denied(&them, &calls.each_ref().map(String::as_str)).await;
        // The refusal does not reveal the job's task or group either.
        for call in calls {
            let said = them.refusal(&call).await.to_string();
            assert!(
                !said.contains("bill") && !said.contains("default"),
                "{call}: {said}"
            );
        }
    }
    assert_eq!(s.everything().await, before);
    let own = them.enqueue("'mail.send', group_name => 'mail', run_at => now() + interval '1 h', unique_key => 'mail'").await;
    assert_eq!(
        them.enqueue("'mail.send', group_name => 'mail', unique_key => 'mail'")
            .await,
        own
    );
    assert_eq!(them.get(&format!("select trax.limit_queue_time({own}, '1 h'), trax.run_now({own}), trax.cancel({own}), trax.cancel({own}), trax.cancel(4711)")).await,
        "t|ready|cancelled|finished|unknown");
    let tokens = them
        .refusal("select * from trax.acquire_token('n', 'h', 1, '1 h')")
        .await;
    assert_eq!(tokens.code, "42501", "names of tokens are everybody's");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_limited_worker_claims_its_tasks_in_its_groups_and_no_other() {
    let (db, s) = session().await;
    let (_, them) = limited(&db, &s, "sender", &format!("'worker', {MAIL}")).await;
    let other = s
        .enqueue("'bill.pay', group_name => 'mail', priority => 31")
        .await;
    let elsewhere = s.enqueue("'mail.send', priority => 31").await;
    let own = s.enqueue("'mail.send', group_name => 'mail'").await;
    let second = s.enqueue("'mail.log', group_name => 'mail'").await;
    assert_eq!(
        them.get("select * from trax.waiting_tasks()").await,
        "mail.log\nmail.send"
    );
    assert_eq!(
        them.get("select * from trax.waiting_tasks('{default}')")
            .await,
        ""
    );
    assert_eq!(
        s.get("select * from trax.waiting_tasks('{default}')").await,
        "mail.send"
    );
    let jobs = them.claim("max_jobs => 10").await;
    assert_eq!(
        jobs.iter().map(|job| job.id).collect::<Vec<_>>(),
        [own, second]
    );
    assert_denied(
        &them,
        &[
            "select * from trax.claim_next(tasks => '{bill.pay}')",
            "select * from trax.claim_next(tasks => '{mail.send,bill.pay}')",
            "select * from trax.claim_next(groups => '{default}')",
            "select * from trax.claim_next(tasks => '{mail.send}', groups => '{mail,default}')",
            "select * from trax.complete_and_claim('{}', '{}', groups => '{default}')",
            "select trax.enqueue('bill.pay', group_name => 'mail')",
        ],
    )
    .await;
    let next = them.enqueue("'mail.log', group_name => 'mail'").await;
    let both = format!(
        "select completed_job_id, job_id from trax.complete_and_claim(array[{own}], array['{}'::uuid], max_jobs => 9)",
        jobs[0].token
    );
    assert_eq!(them.get(&both).await, format!("{own}|\n|{next}"));
    assert_eq!(
        them.get(&format!(
            "select trax.fail({}, 'no', permanent => true)",
            jobs[1].key()
        ))
        .await,
        "dead"
    );
    assert_eq!(them.claim("max_jobs => 10").await, []);
    // An outcome needs only the token.
    let job = s.claim_one("tasks => '{bill.pay}'").await;
    assert_eq!(job.id, other);
    assert_eq!(
        them.get(&format!("select trax.complete({})", job.key()))
            .await,
        "t"
    );
    assert_eq!(s.claim_ids("").await, [elsewhere]);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_limited_worker_activates_only_its_own_dependents() {
    let (db, s) = session().await;
    let (_, them) = limited(
        &db,
        &s,
        "sender",
        "'worker', tasks => array['parent', 'child']",
    )
    .await;
    s.get(
        "select trax.schedule('p', 'parent');
           select trax.schedule('mine', 'child', depends_on => '{p}', dormant => true);
           select trax.schedule('theirs', 'bill.pay', depends_on => '{p}', dormant => true);
           select trax.trigger('p')",
    )
    .await;
    them.claim_one("").await;
    them.get("select trax.activate('mine')").await;
    assert_denied(&them, &["select trax.activate('theirs')"]).await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_member_of_several_roles_may_do_what_each_of_them_may() {
    let (db, s) = session().await;
    let (mail, _) = limited(
        &db,
        &s,
        "mail",
        "'worker', tasks => array['mail'], groups => array['g']",
    )
    .await;
    let (bill, _) = limited(&db, &s, "bill", "'worker', tasks => array['bill']").await;
    let (read, _) = limited(&db, &s, "read", "'reader'").await;
    let (produce, _) = limited(&db, &s, "produce", "'producer'").await;
    let member = format!("{}_member", db.name());
    s.get(&format!(
        "create role {member} login in role {mail}, {bill}, {read}"
    ))
    .await;
    let them = Session::as_role(&db, &member).await;
    s.get("select trax.enqueue(t, group_name => g) from unnest('{mail,bill,other}'::text[]) t, unnest('{g,h}'::text[]) g").await;
    let claimed = "select task, group_name from trax.claim_next(max_jobs => 9) order by 1, 2";
    assert_eq!(them.get(claimed).await, "bill|g\nbill|h\nmail|g");
    assert_denied(
        &them,
        &["select * from trax.claim_next(tasks => '{mail}', groups => '{h}')"],
    )
    .await;
    // Each part of the filter is allowed but the combination is not, so the claim is restricted.
    assert_eq!(
        them.claim("tasks => '{mail,bill}', groups => '{g,h}'")
            .await,
        []
    );
    // A right to enqueue everything is not a right to claim everything.
    s.get(&format!("grant {produce} to {member}")).await;
    them.get("select trax.enqueue('other', group_name => 'h')")
        .await;
    assert_eq!(them.claim("max_jobs => 9").await, []);
    let (all, _) = limited(&db, &s, "all", "'worker'").await;
    s.get(&format!("grant {all} to {member}")).await;
    assert_eq!(them.claim("max_jobs => 9").await.len(), 4);
    // After SET ROLE the limits of that role apply.
    them.get(&format!("set role {bill}")).await;
    assert_denied(&them, &["select trax.enqueue('mail', group_name => 'g')"]).await;
    them.get(&format!("reset role; set role {all}")).await;
    them.get("select trax.enqueue('mail', group_name => 'g')")
        .await;
    them.get("reset role").await;
    s.get(&format!(
        "revoke {all} from {member}; revoke {produce} from {member}"
    ))
    .await;
    assert_denied(&them, &["select trax.enqueue('other')"]).await;
    s.get(&format!("alter role {member} superuser")).await;
    them.get("select trax.enqueue('other')").await;
    s.get(&format!("alter role {member} nosuperuser")).await;
    assert_denied(&them, &["select trax.enqueue('other')"]).await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_limits_are_those_of_whoever_calls_and_not_of_the_session() {
    let (db, s) = session().await;
    let (tenant, them) = limited(&db, &s, "tenant", &format!("'producer', {MAIL}")).await;
    let (app, _) = limited(&db, &s, "app", "'producer'").await;
    s.get(&format!(
        "create schema shop;
         grant usage, create on schema shop to {app}, {tenant};
         set role {app};
         create function shop.bill() returns bigint language sql security definer as $$select trax.enqueue('bill.pay')$$;
         create view shop.bills as select task from trax.new_job;
         grant insert on shop.bills to {tenant};
         reset role"
    ))
    .await;
    // A function owned by another role runs with its owner's limits, even when a tenant calls it.
    them.get("select shop.bill(); insert into shop.bills values ('bill.pay')")
        .await;
    assert_denied(&them, &["insert into trax.new_job values ('bill.pay')"]).await;
    // A tenant's function runs with the tenant's limits, whichever role calls it.
    them.get(
        "create function shop.trap(int) returns int language plpgsql immutable security definer as $$
            begin perform trax.enqueue('bill.pay'); return 1; end $$;
         create table shop.bait (n int);
         create view shop.door as select task from trax.new_job",
    )
    .await;
    assert_denied(&s, &["select shop.trap(1)"]).await;
    // CREATE INDEX, ANALYZE and vacuum evaluate a table's expressions as its owner.
    them.get(
        "create function shop.lure(int) returns int language plpgsql immutable as $$
            begin perform trax.enqueue('bill.pay'); return 1; end $$;
         create index on shop.bait (shop.lure(n))",
    )
    .await;
    s.get("insert into shop.bait values (1)").await;
    assert_eq!(
        s.number("select count(*) from trax.work_queue").await,
        3,
        "the superuser's own insert"
    );
    assert_denied(
        &s,
        &[
            "reindex table shop.bait",
            "insert into shop.door values ('bill.pay')",
        ],
    )
    .await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_change_reaches_connected_sessions_and_a_revoked_role_can_be_dropped() {
    let (db, s) = session().await;
    let (role, them) = limited(&db, &s, "tenant", "'worker'").await;
    s.get("select * from trax.enqueue_many('a', array_fill('1'::jsonb, array[9]))")
        .await;
    let grant = async |how: &str| {
        s.get(&format!("select trax.grant_access('{role}', {how})"))
            .await
    };
    let enqueue = "select trax.enqueue('b')";
    them.get(enqueue).await;
    assert_eq!(them.claim("").await.len(), 1);
    grant("'worker', tasks => array['c']").await;
    assert_denied(&them, &[enqueue]).await;
    assert_eq!(them.claim("").await, []);
    grant("'worker', tasks => array['b', 'b', 'c']").await;
    them.get(enqueue).await;
    assert_eq!(
        s.get("select tasks, groups from trax.access_scope").await,
        "{b,c}|"
    );
    assert_eq!(them.claim("max_jobs => 9").await.len(), 2);
    grant("'worker', groups => array['default']").await;
    assert_eq!(them.claim("").await.len(), 1);
    grant("'worker'").await;
    them.get("select * from trax.acquire_token('n', 'h', 1, '1 h')")
        .await;
    assert_eq!(s.get("select * from trax.access_scope").await, "");
    grant("'producer', tasks => array['c']").await;
    assert_denied(&them, &[enqueue]).await;
    // In an open transaction, the new limits apply from the next statement that takes a lock.
    them.get("begin").await;
    grant("'producer'").await;
    them.get("commit; select trax.enqueue('b')").await;
    grant("'producer', tasks => array['c']").await;
    s.get(&format!("select trax.revoke_access('{role}')")).await;
    assert_eq!(them.refusal(enqueue).await.code, "42501");
    assert_eq!(s.get("select * from trax.access_scope").await, "");
    drop(them);
    s.get(&format!("drop role {role}")).await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn limits_that_say_nothing_are_refused() {
    let (db, s) = session().await;
    let role = format!("{}_tenant", db.name());
    s.get(&format!("create role {role}")).await;
    for (how, code) in [
        ("'reader', tasks => '{a}'", "22023"),
        ("'admin', groups => '{a}'", "22023"),
        ("'none', groups => '{a}'", "22023"),
        ("'limited producer'", "22023"),
        ("'owner', tasks => '{a}'", "22023"),
        ("'producer', tasks => '{}'", "22023"),
        ("'producer', groups => array['']", "22023"),
        ("'worker', tasks => array['a', null]", "22004"),
    ] {
        let refusal = s
            .refusal(&format!("select trax.grant_access('{role}', {how})"))
            .await;
        assert_eq!(refusal.code, code, "{how}: {refusal}");
        assert!(
            !refusal.hint.is_empty() && !refusal.detail.is_empty(),
            "{how}: {refusal}"
        );
    }
    let unknown = s
        .refusal("select trax.grant_access('nobody_at_all', 'producer', tasks => '{a}')")
        .await;
    assert_eq!(unknown.code, "42704");
    s.assert_healthy().await;
}

/// A missing scope must not mean that every task and group is allowed.
#[tokio::test]
async fn a_limited_role_whose_scope_is_lost_may_do_nothing() {
    let (db, s) = session().await;
    let (role, them) = limited(&db, &s, "tenant", "'worker', tasks => array['a']").await;
    s.get(&format!(
        "alter role {role} rename to {role}_renamed; alter role {role}_renamed login"
    ))
    .await;
    let lost: Refusal = them.refusal("select trax.enqueue('a')").await;
    assert_eq!(lost.code, "42501");
    assert!(
        lost.detail.contains("trax.access_scope") && lost.hint.contains("trax.grant_access"),
        "{lost}"
    );
    assert_eq!(them.claim("").await, []);
    let found = s.get("select detail from trax.check() order by 1").await;
    assert_eq!(found.lines().count(), 2, "{found}");
    s.get(&format!(
        "select trax.grant_access('{role}_renamed', 'worker', tasks => array['b'])"
    ))
    .await;
    them.get("select trax.enqueue('b')").await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn limits_travel_with_a_dump() {
    let source = database().await;
    let s = Session::of(&source).await;
    let (role, _) = limited(&source, &s, "tenant", "'producer', tasks => array['a']").await;
    let name = format!("{}_restored", source.name());
    let target = shared_server()
        .plain_database(&name)
        .await
        .expect("a database is made");
    let files = Scratch::new("limits");
    let path = files.path().join("dump.sql");
    let script = run_quietly(shared_server().command("pg_dump").arg(source.name()));
    std::fs::write(&path, script).expect("the dump can be written");
    let mut psql = shared_server().command("psql");
    psql.args(["-Xq", "-v", "ON_ERROR_STOP=1", "-d", &name, "-f"])
        .arg(&path);
    run_quietly(&mut psql);
    let them = Session::as_role(&target, &role).await;
    them.get("select trax.enqueue('a')").await;
    assert_denied(&them, &["select trax.enqueue('b')"]).await;
}
