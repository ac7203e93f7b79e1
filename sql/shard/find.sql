-- find: where a job is, for calls of the router by the id of a job whose group may have moved.

create function trax.where_is(
    id bigint,
    is_dead_letter boolean default false
)
returns text
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    if id is null then
        raise exception 'argument "id" must not be null'
            using errcode = '22004',
                detail = 'The argument "id" is null.',
                hint = 'Specify the id that trax.enqueue returned, or that of a dead letter: id => 1';
    end if;
    if is_dead_letter then
        return case
            when exists (select from trax.dead_letter d where d.id = id and d.resolved_at is null) then 'here'
            when exists (
                select
                from trax.departure d
                where d.cargo -> 'dead_letters' @> jsonb_build_array(jsonb_build_object('id', id))
            ) then 'departed'
            -- A letter that trax.depart() marked as moved with its group has not ended here.
            when exists (
                select
                from trax.dead_letter d
                where d.id = id
                    and not (d.status = 'acknowledged' and coalesce(d.resolution_note, '') ~ '^moved to shard [0-9]+$')
            ) then 'ended'
        end;
    end if;
    return case
        when exists (select from trax.work_queue q where q.job_id = id)
            or exists (select from trax.lease l where l.job_id = id) then 'here'
        when exists (
            select
            from trax.departure d
            where d.cargo -> 'jobs' @> jsonb_build_array(jsonb_build_object('job_id', id))
        ) then 'departed'
        when exists (select from trax.run r where r.job_id = id and r.final) then 'ended'
    end;
end;
$$;
comment on function trax.where_is(bigint, boolean) is
    'Returns where a job or dead letter is: here, departed (on its way to another shard) or ended (or resolved); null when it is unknown.';

create function trax.known_jobs(
    cargo jsonb
)
returns bigint[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(array_agg(j.job_id), '{}')
    from (
        select (q ->> 'job_id')::bigint
        from jsonb_array_elements($1 -> 'jobs') q
    ) j (job_id)
    where exists (select from trax.work_queue q where q.job_id = j.job_id)
        or exists (select from trax.lease l where l.job_id = j.job_id)
        or exists (select from trax.run r where r.job_id = j.job_id and r.final)
$$;
comment on function trax.known_jobs(jsonb) is
    'Internal. Returns the jobs of a batch that wait, run or have ended here: the shard that sent them was restored from a backup that is older than their move.';

create function trax.guests(
    at_most int
)
returns table (
    job_id bigint,
    group_name text
)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    with own as (
        select
            trax.shard_of(s.last_value)::bigint << 43 as first,
            (trax.shard_of(s.last_value)::bigint + 1) << 43 as beyond
        from trax.work_queue_job_id_seq s
    )
    (
        select q.job_id, q.group_name
        from own o
        join trax.work_queue q on q.job_id < o.first
        limit $1
    )
    union all
    (
        select q.job_id, q.group_name
        from own o
        join trax.work_queue q on q.job_id >= o.beyond
        limit $1
    )
    union all
    (
        select l.job_id, l.group_name
        from own o
        join trax.lease l on l.job_id < o.first
            or l.job_id >= o.beyond
        limit $1
    )
$$;
comment on function trax.guests(int) is
    'Internal. Returns jobs that wait or run here and that another shard has given their ids, some of each kind.';
