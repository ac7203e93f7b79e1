//! Calls with arguments that exceed the memory: each is refused, and no session ends.

use super::Restarted;
use harness::session::Session;
use std::path::Path;

/// Returns calls of each function of trax, one for each argument that can be large: that argument
/// has 30 MB, and the others are small or left out.
const CALLS: &str = "
with function as (
    select
        p.oid, p.proname, p.prokind, p.proargnames as names, p.pronargs - p.pronargdefaults as required,
        coalesce(p.proallargtypes, string_to_array(p.proargtypes::text, ' ')::oid[]) as types,
        coalesce(p.proargmodes, array_fill('i'::\"char\", array[p.pronargs])) as modes
    from pg_proc p
    where p.pronamespace = 'trax'::regnamespace
        and p.prorettype not in ('trigger'::regtype, 'event_trigger'::regtype)
), argument as (
    select
        f.oid, f.proname, f.prokind, place, f.names[place] as name, f.types[place]::regtype::text as type,
        f.modes[place] in ('i', 'b', 'v') as is_in,
        row_number() over (partition by f.oid order by place) > f.required as has_default
    from function f
    cross join generate_subscripts(f.types, 1) place
    where f.modes[place] in ('i', 'b', 'v')
        or f.prokind = 'p'
), large (type, value) as (
    values
        ('text', 'repeat(''x'', 30000000)'),
        ('jsonb', 'to_jsonb(repeat(''x'', 30000000))'),
        ('text[]', 'array_fill(''x''::text, array[4000000])'),
        ('bigint[]', 'array_fill(1::bigint, array[4000000])'),
        ('uuid[]', 'array_fill(gen_random_uuid(), array[2000000])'),
        ('jsonb[]', 'array_fill(''1''::jsonb, array[2000000])')
), small (type, value) as (
    values
        ('text', '''select 1'''), ('jsonb', '''{}'''), ('text[]', '''{x}'''), ('bigint[]', '''{1}'''),
        ('uuid[]', 'array[gen_random_uuid()]'), ('jsonb[]', '''{}'''), ('bigint', '1'), ('integer', '1'),
        ('interval', '''1 s'''), ('uuid', 'gen_random_uuid()'), ('regrole', '''postgres'''),
        ('timestamp with time zone', 'now()'), ('boolean', 'false'), ('double precision', '1')
)
select format('%s trax.%I(%s)', case a.prokind when 'p' then 'call' else 'select count(*) from' end, a.proname, (
    select string_agg(
        format('%I => %s', o.name, case when o.place = a.place then l.value when o.is_in then coalesce(s.value, 'null') else 'null' end),
        ', ' order by o.place
    )
    from argument o
    left join small s on s.type = o.type
    where o.oid = a.oid
        and (o.place = a.place or not o.is_in or not o.has_default)
))
from argument a
join large l on l.type = a.type
where a.is_in
order by 1";

#[tokio::test]
async fn an_argument_that_is_too_large_is_refused_and_ends_no_session() {
    let restarted = Restarted::by(|server| {
        let mut limited = server.command("/bin/sh");
        let postgres = server.command("postgres");
        let postgres = Path::new(postgres.get_program()).display();
        let data = server.data_dir();
        let data = data.display();
        limited.args([
            "-c",
            // Of these 200 MB a new session has 120 MB on PostgreSQL 15, and 62 MB on 18.
            &format!(
                "ulimit -v 200000
                 exec '{postgres}' -D '{data}' -c shared_buffers=16MB"
            ),
        ]);
        limited
    })
    .await;
    let db = &restarted.database;
    let bystander = Session::of(db).await;
    bystander.get("create extension trax_shard").await;
    let calls = bystander.get(CALLS).await;
    let calls: Vec<&str> = calls.lines().collect();
    assert!(calls.len() > 100, "{calls:?}");
    for call in calls {
        // A new session for each call, since a session keeps the memory that it has used.
        let s = Session::of(db).await;
        let Err(refused) = s.attempt(call).await else {
            continue;
        };
        let known = ["53200", "54000", "42704", "22004", "22023", "55000"];
        assert!(known.contains(&refused.code.as_str()), "{call}: {refused}");
    }
    // A call with the maximum number of jobs needs a part of that memory.
    let jobs = "array_fill(1::bigint, array[65536])";
    let tokens = "array_fill(gen_random_uuid(), array[65536])";
    for call in [
        format!("complete_many({jobs}, {tokens}, array_fill('1'::jsonb, array[65536]))"),
        format!("heartbeat({jobs}, {tokens})"),
        format!("get_jobs({jobs})"),
    ] {
        let s = Session::of(db).await;
        s.get(&format!("select count(*) from trax.{call}")).await;
    }
    // Only the beginning of an error is stored.
    let s = Session::of(db).await;
    let id = s.enqueue("'failing', max_retries => 0").await;
    let job = s.claim_one("tasks => '{failing}'").await;
    s.get(&format!(
        "select trax.fail({}, repeat('x', 20000000))",
        job.key()
    ))
    .await;
    let length = format!("select octet_length(error) from trax.run where job_id = {id}");
    assert_eq!(s.number(&length).await, 65_536);
    assert_eq!(bystander.number("select 1").await, 1);
}
