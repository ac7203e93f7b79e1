//! Parallel plans: each function that is declared safe or restricted runs in them.

use super::errors::furnished;
use harness::session::Session;

/// Calls with a value for each argument that has no default.
const CALLS: &str = "
    select format(
        'select count(*) from trax.%I(%s)', p.proname,
        (
            select string_agg(coalesce(v.value, 'null') || '::' || format_type(a.type, null), ', ' order by a.place)
            from unnest(p.proargtypes::oid[]) with ordinality a (type, place)
            left join (
                values
                    ('bigint', (select '''' || max(job_id) || '''' from trax.work_queue)), ('int', '1'), ('text', '''g'''),
                    ('name', '''postgres'''), ('interval', '''1 min'''), ('jsonb', '''{}'''), ('text[]', '''{g}'''),
                    ('timestamptz', 'now()'), ('uuid', 'gen_random_uuid()'), ('boolean', 'false')
            ) v (type, value) on to_regtype(v.type) = a.type
            where a.place <= p.pronargs - p.pronargdefaults
        )
    )
    from pg_proc p
    where p.pronamespace = 'trax'::regnamespace
        and p.prokind = 'f'
        and p.proparallel <> 'u'
        and p.prorettype not in ('trigger'::regtype, 'event_trigger'::regtype)
    union all
    select format('select count(*) from trax.%I', c.relname)
    from pg_class c
    where c.relnamespace = 'trax'::regnamespace
        and c.relkind = 'v'
    order by 1";

async fn in_parallel(s: &Session) {
    s.get(
        "select set_config(name, 'on', false) from pg_settings
         where name in ('force_parallel_mode', 'debug_parallel_query')",
    )
    .await;
}

#[tokio::test]
async fn each_function_and_view_that_may_runs_in_a_parallel_plan() {
    let s = furnished().await;
    s.get("select trax.configure_rate('g', 1, '1 h'), trax.enqueue('later', run_at => '2100-01-01', rate => 'g')")
        .await;
    let calls = s.get(CALLS).await;
    assert!(
        calls.contains("trax.status()") && calls.contains("trax.explain_job("),
        "{calls}"
    );
    in_parallel(&s).await;
    let mut failed = Vec::new();
    for call in calls.lines() {
        if let Err(refusal) = s.attempt(call).await
            && (refusal.code.starts_with("XX") || refusal.message.contains("parallel"))
        {
            failed.push(format!("{call}\n  {refusal}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
