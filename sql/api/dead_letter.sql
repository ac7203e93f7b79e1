-- Dead letters.

-- A manifest that runs only once and has had that run has no future run that could be stopped.
create view trax.stopped_schedule as
select
    m.name as manifest, d.id as dead_letter_id, d.job_id, d.created_at as stopped_at, d.reason, d.last_error
from trax.dead_letter d
join trax.manifest m on m.manifest_id = d.manifest_id
join trax.manifest_state s on s.manifest_id = d.manifest_id
where d.status = 'awaiting_intervention'
    and m.on_dead_letter = 'stop'
    and m.enabled
    and not m.dormant
    and pg_catalog.num_nonnulls(m.cron, m.every, m.run_at, m.depends_mode) = 1
    and s.parked_on is distinct from 'ended'
    and (m.run_at is null or s.parked_on is distinct from 'outcome');
comment on view trax.stopped_schedule is 'The enabled schedules that queue nothing until a dead letter is resolved.';
comment on column trax.stopped_schedule.manifest is 'Name of the manifest.';
comment on column trax.stopped_schedule.dead_letter_id is 'What it waits for: trax.requeue_dead_letter() or trax.acknowledge_dead_letter() of this id lets it go on.';
comment on column trax.stopped_schedule.job_id is 'The job that failed.';
comment on column trax.stopped_schedule.stopped_at is 'When that failed for good.';
comment on column trax.stopped_schedule.reason is 'Why it was given up.';
comment on column trax.stopped_schedule.last_error is 'The error of its last attempt.';

create function trax.requeue_dead_letter(
    id bigint,
    note text default null,
    fresh boolean default false
)
returns bigint
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_requeue_dead_letter';
comment on function trax.requeue_dead_letter(bigint, text, boolean) is
    'Queues a new job with new attempts in place of a dead one and returns its id. The job continues after the recorded steps, or with fresh from the start. Refused (55000) without fresh when undo jobs were queued, and (23505) while another job has its unique key.';

create function trax.acknowledge_dead_letter(
    id bigint,
    note text default null
)
returns boolean
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_acknowledge_dead_letter';
comment on function trax.acknowledge_dead_letter(bigint, text) is
    'Resolves a dead letter without running anything, so that its manifest''s schedule continues; returns false when it was resolved before.';

create function trax.record_again(
    job_id bigint,
    new_job_id bigint
)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    missing constant text := case when job_id is null then 'job_id' when new_job_id is null then 'new_job_id' end;
begin
    if missing is not null then
        raise exception 'argument "%" must not be null', missing
            using errcode = '22004',
                detail = format('The argument "%s" is null.', missing),
                hint = format('Specify the id of a job: %s => 1', missing);
    end if;
    insert into trax.audit (action, kind, name, note)
    values ('queue_again', 'job', job_id::text, format('as job %s', new_job_id));
end;
$$;
comment on function trax.record_again(bigint, bigint) is
    'Records in trax.audit that the caller queued an ended job again, and as which job.';

create function trax.requeue_dead_letters(
    task text default null,
    manifest text default null,
    group_name text default null,
    since timestamptz default null,
    max_count int default null
)
returns bigint
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_requeue_dead_letters';
comment on function trax.requeue_dead_letters(text, text, text, timestamptz, int) is
    'Requeues unresolved dead letters that match all filters, the oldest first, at most max_count; returns how many. Leaves those whose unique key another job has, with a warning.';
