//! Tables with an administrator's additions: which additions require statements instead of direct
//! writes, and the effects of those statements.

use super::{how, lives};
use harness::session::{Session, session};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Checks how the three tables are written with a foreign trigger of this form.
async fn assert_written(trigger: &str, expected: &str) {
    let (_db, s) = session().await;
    s.get("create function public.nothing() returns trigger language plpgsql as 'begin return null; end'")
        .await;
    for table in ["work_queue", "lease", "run"] {
        s.get(&format!(
            "create trigger other {trigger} on trax.{table} execute function public.nothing()"
        ))
        .await;
    }
    assert_eq!(how(&s).await, expected, "{trigger}");
    lives(&s).await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn what_cannot_see_how_rows_are_written_needs_no_statement() {
    assert_written("after truncate", "written directly").await;
    let statements = |tables: &[&str]| {
        let tables: Vec<_> = tables
            .iter()
            .map(|table| format!("trax.{table} (trigger \"other\")"))
            .collect();
        format!("written by statements: {}", tables.join(", "))
    };
    assert_written("after insert", &statements(&["work_queue", "lease", "run"])).await;
    assert_written("after update", &statements(&["lease"])).await;
    assert_written("after delete", &statements(&["work_queue", "lease"])).await;
    let (_db, s) = session().await;
    s.get("alter table trax.lease enable row level security")
        .await;
    assert_eq!(how(&s).await, "written directly", "of the owner");
    s.get("alter table trax.lease force row level security")
        .await;
    assert!(how(&s).await.contains("row security"));
}

/// The statements that a trigger sees for 100 jobs, and the rows in each.
#[tokio::test]
async fn the_rows_of_a_call_are_written_by_one_statement() {
    let (_db, s) = session().await;
    s.get(
        "create table public.seen (what text, rows bigint);
         create function public.came() returns trigger language plpgsql as $$
         begin
             insert into public.seen select tg_op || ' ' || split_part(tg_table_name, '_2', 1), count(*) from rows;
             return null;
         end $$;",
    )
    .await;
    for table in ["work_queue", "lease", "run"] {
        for (event, rows) in [("insert", "new"), ("update", "new"), ("delete", "old")] {
            s.get(&format!(
                "create trigger {event}_seen after {event} on trax.{table} referencing {rows} table as rows
                     for each statement execute function public.came()"
            ))
            .await;
        }
    }
    s.get(
        "select trax.enqueue_many('a', array_fill('{}'::jsonb, array[100]));
         create table public.mine as select job_id, token from trax.claim_next(max_jobs => 100);
         select trax.heartbeat(array_agg(job_id), array_agg(token)) from public.mine;
         select trax.complete_many(array_agg(job_id), array_agg(token), array_agg(to_jsonb(job_id))) from public.mine",
    )
    .await;
    assert_eq!(
        s.get("select string_agg(what || ' ' || rows, ', ' order by what) from public.seen")
            .await,
        "DELETE lease 100, DELETE work_queue 100, INSERT lease 100, INSERT run 100, INSERT work_queue 100, UPDATE lease 100"
    );
    assert_eq!(
        s.get("select count(*) from trax.run where output = to_jsonb(job_id)")
            .await,
        "100"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_batch_of_large_values_is_written_in_several_statements() {
    let (_db, s) = session().await;
    s.get("alter table trax.work_queue add note int; alter table trax.run add note int")
        .await;
    s.get(
        "select trax.enqueue_many('a', array_agg(jsonb_build_object('n', n, 'text', repeat('x', 1000000))))
         from generate_series(1, 150) n",
    )
    .await;
    assert_eq!(
        s.get(
            "select count(*), sum((input ->> 'n')::int), min(length(input ->> 'text')) from trax.work_queue"
        )
        .await,
        "150|11325|1000000"
    );
}

#[tokio::test]
async fn a_trigger_that_keeps_a_row_is_named_and_nothing_is_lost() {
    let (_db, s) = session().await;
    s.get("create function public.keep() returns trigger language plpgsql as 'begin return null; end'")
        .await;
    s.get("select trax.enqueue('a') from generate_series(1, 3)")
        .await;
    let job = s.claim_one("lease => '1 h'").await;
    for (table, event, call) in [
        (
            "work_queue",
            "delete",
            "select * from trax.claim_next()".to_owned(),
        ),
        (
            "lease",
            "delete",
            format!("select trax.complete({})", job.key()),
        ),
        (
            "lease",
            "update",
            format!(
                "select * from trax.heartbeat(array[{}], array['{}'::uuid])",
                job.id, job.token
            ),
        ),
    ] {
        s.get(&format!(
            "create trigger keep before {event} on trax.{table} for each row execute function public.keep()"
        ))
        .await;
        let refusal = s.refusal(&call).await;
        assert_eq!(refusal.code, "55000", "{refusal}");
        assert!(refusal.message.ends_with(table), "{refusal}");
        s.get(&format!("drop trigger keep on trax.{table}")).await;
    }
    assert_eq!(s.claim("max_jobs => 9").await.len(), 2);
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
    s.assert_healthy().await;
}

/// A session that met a rule which discards a statement replans it after the rule is dropped.
#[tokio::test]
async fn a_rule_that_discards_is_refused_and_leaves_nothing_behind() {
    let (db, s) = session().await;
    let administrator = Session::of(&db).await;
    for (event, table, call) in [
        ("insert", "work_queue", "select trax.enqueue('a')"),
        (
            "insert",
            "concurrency_token",
            "select trax.acquire_token('n', 'h', 1, '1 h')",
        ),
        (
            "update",
            "manifest_group",
            "select count(trax.configure_group('g', priority => 3))",
        ),
    ] {
        s.get(call).await;
        administrator
            .get(&format!(
                "create rule never as on {event} to trax.{table} do instead nothing"
            ))
            .await;
        let refusal = s.attempt(call).await;
        if let Err(refusal) = &refusal {
            assert!(
                ["55000", "0A000"].contains(&refusal.code.as_str()),
                "{refusal}"
            );
        }
        administrator
            .get(&format!(
                "drop rule never on trax.{table}; delete from trax.concurrency_token"
            ))
            .await;
        assert!(!s.get(call).await.is_empty(), "{call}");
        // Without the rule, any change of the table invalidates the plan.
        administrator
            .get(&format!(
                "alter table trax.{table} add note text default 'x'"
            ))
            .await;
        administrator
            .get("delete from trax.concurrency_token")
            .await;
        assert!(!s.get(call).await.is_empty(), "{call}");
        administrator
            .get(&format!("alter table trax.{table} drop note"))
            .await;
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn triggers_of_others_run_with_the_settings_of_the_session() {
    let (_db, s) = session().await;
    s.get(
        "create table public.seen (settings text);
         create function public.look() returns trigger language plpgsql as $$
         begin
             insert into public.seen select string_agg(name || ' ' || setting, ', ' order by name)
             from pg_settings where name ~ '^enable_(seqscan|hashjoin|mergejoin)$';
             return null;
         end $$",
    )
    .await;
    for table in ["work_queue", "lease", "run"] {
        s.get(&format!(
            "create trigger look after insert or update or delete on trax.{table}
                 for each row execute function public.look()"
        ))
        .await;
    }
    lives(&s).await;
    assert_eq!(
        s.get("select distinct settings from public.seen").await,
        "enable_hashjoin on, enable_mergejoin on, enable_seqscan on"
    );
    s.get("set enable_seqscan = off; truncate public.seen")
        .await;
    lives(&s).await;
    assert_eq!(
        s.get("select distinct settings from public.seen").await,
        "enable_hashjoin on, enable_mergejoin on, enable_seqscan off"
    );
}

#[tokio::test]
async fn an_index_that_is_missing_is_named() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    s.get("alter index trax.work_queue_ready rename to other")
        .await;
    let refusal = s.refusal("select * from trax.claim_next()").await;
    assert_eq!(refusal.code, "55000");
    assert!(
        refusal.message.contains("trax.work_queue_ready"),
        "{refusal}"
    );
    s.get("alter index trax.other rename to work_queue_ready")
        .await;
    s.claim_one("").await;
}

/// Triggers are created and dropped while other sessions check for code on the tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_beside_triggers_that_come_and_go_meet_no_error() {
    let (db, s) = session().await;
    s.get(
        "create function public.same() returns trigger language plpgsql as 'begin return new; end'",
    )
    .await;
    let done = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (session, done) = (Session::of(&db).await, done.clone());
        tasks.push(tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                completes_any(&session).await;
            }
        }));
    }
    for _ in 0..300 {
        s.get(
            "create trigger same before insert on trax.work_queue for each row execute function public.same()",
        )
        .await;
        s.get("drop trigger same on trax.work_queue").await;
    }
    done.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("nobody met an error");
    }
    s.assert_healthy().await;
}

async fn completes_any(s: &Session) {
    s.get("select trax.enqueue('a'); select trax.complete(job_id, token) from trax.claim_next()")
        .await;
}
