//! Waits in a procedure.

use harness::session::session;

/// Statements after a wait in a procedure have the isolation level of the session.
#[tokio::test]
async fn a_wait_leaves_the_isolation_of_the_session() {
    let (_db, s) = session().await;
    let job_id = s.enqueue("'a'").await;
    s.get("create table public.seen (after text, level text)")
        .await;
    let waits = [
        (
            "await_job",
            format!("call trax.await_job({job_id}, '0 s', state, output, error)"),
        ),
        (
            "await_jobs",
            format!("call trax.await_jobs(array[{job_id}], '0 s', ended)"),
        ),
        (
            "await_token",
            "call trax.await_token('n', 'h', 1, '1 h', '0 s', slot, token, error_at)".to_owned(),
        ),
        (
            "wait_for_work",
            "call trax.wait_for_work('1 ms')".to_owned(),
        ),
    ];
    let calls: Vec<String> = waits
        .iter()
        .map(|(name, call)| {
            format!(
                "{call};
                 insert into public.seen values ('{name}', current_setting('transaction_isolation'));
                 commit;"
            )
        })
        .collect();
    s.get(&format!(
        "create procedure public.waits() language plpgsql as $$
         declare
             state text; output jsonb; error text; ended bigint[]; slot int; token uuid; error_at timestamptz;
         begin
             {}
         end $$;
         set default_transaction_isolation = 'serializable'",
        calls.join("\n")
    ))
    .await;
    s.get("call public.waits()").await;
    assert_eq!(
        s.get("select string_agg(after, ' ' order by after) from public.seen where level = 'serializable'")
            .await,
        "await_job await_jobs await_token wait_for_work"
    );
}
