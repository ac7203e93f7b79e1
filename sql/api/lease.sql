-- Holding a lease.

create function trax.heartbeat(
    job_ids bigint[],
    tokens uuid[],
    lease interval default null,
    ahead bigint[] default null
)
returns table (
    job_id bigint,
    held boolean,
    cancel_requested boolean,
    lease_expires_at timestamptz
)
language c volatile parallel unsafe security definer
rows 10
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_heartbeat';
comment on function trax.heartbeat(bigint[], uuid[], interval, bigint[]) is
    'Extends leases, and returns for each job whether its lease is still held, and whether it should stop. Records that the jobs have begun, except those of ahead.';

create function trax.release(
    job_id bigint,
    token uuid,
    delay interval default null
)
returns boolean
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_release';
comment on function trax.release(bigint, uuid, interval) is
    'Returns a job to the queue without spending its attempt, claimable now or after a delay; returns false when the lease is lost.';

create function trax.report_progress(
    job_id bigint,
    token uuid,
    progress jsonb
)
returns boolean
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_report_progress';
comment on function trax.report_progress(bigint, uuid, jsonb) is
    'Records the progress of an attempt, at most 8 KiB, which trax.job shows until the lease ends; returns false when the lease is lost.';

create function trax.report_worker(
    name text,
    period interval,
    state text default 'running',
    info jsonb default null
)
returns boolean
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_report_worker';
comment on function trax.report_worker(text, interval, text, jsonb) is
    'Reports in trax.worker that a worker lives: call it every period, with the state running, stopping or stopped (which removes it). A worker that has not reported for two periods is gone. info (8 KiB) is kept when it is null. Returns false while another transaction, such as an open claim of this worker, holds the entry; then report again. Commit at once.';

create function trax.deadline_changed_manually()
returns trigger
language c
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_deadline_changed_manually';
comment on function trax.deadline_changed_manually() is
    'Internal. Wakes the scheduler when a statement of a user changes the deadline of a lease.';
create trigger lease_deadline_changed_manually
after update of started_at, lease_expires_at, timeout_at on trax.lease
for each statement execute function trax.deadline_changed_manually();

-- Claims and heartbeats fire no trigger, and the extension's statements move no deadline earlier.
create function trax.deadline_moved_manually()
returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if new.started_at < old.started_at and new.timeout_at = old.timeout_at then
        new.timeout_at := new.timeout_at - (old.started_at - new.started_at);
    end if;
    if new.started_at < old.started_at then
        new.extended_at := coalesce(new.extended_at, old.started_at);
    end if;
    if new.lease_expires_at < old.lease_expires_at then
        -- Recorded extensions no longer count.
        delete from trax.lease_extension e
        where e.job_id = new.job_id;
    end if;
    if new.lease_expires_at <= clock_timestamp() and new.lease_expires_at < old.lease_expires_at then
        -- Leaves no length for an allowance to grant again.
        new.extended_at := new.lease_expires_at;
    end if;
    new.reap_at := null;
    return new;
end;
$$;
comment on function trax.deadline_moved_manually() is
    'Internal. Makes the reaper check at a deadline that a statement of a user moves to an earlier time, and take that deadline as final.';
create trigger lease_deadline_moved_manually
before update of started_at, lease_expires_at, timeout_at on trax.lease
for each row
when (
    new.started_at < old.started_at
    or new.lease_expires_at < old.lease_expires_at
    or new.timeout_at < old.timeout_at
)
execute function trax.deadline_moved_manually();
