-- Ending an attempt.

create function trax.complete(
    job_id bigint,
    token uuid,
    output jsonb default null,
    detail jsonb default null
)
returns boolean
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_complete';
comment on function trax.complete(bigint, uuid, jsonb, jsonb) is
    'Records that a job is done; returns false, and changes nothing, when the lease is lost. In the transaction of the job''s own writes, their effect happens exactly once. detail is stored beside the output.';

create function trax.complete_many(
    job_ids bigint[],
    tokens uuid[],
    outputs jsonb[] default null
)
returns setof bigint
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_complete_many';
comment on function trax.complete_many(bigint[], uuid[], jsonb[]) is
    'Records that jobs are done, and returns those whose lease was still held.';

create function trax.fail(
    job_id bigint,
    token uuid,
    error text,
    detail jsonb default null,
    retry_in interval default null,
    permanent boolean default false,
    close_rate boolean default false
)
returns text
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_fail';
comment on function trax.fail(bigint, uuid, text, jsonb, interval, boolean, boolean) is
    'Records that an attempt failed. Returns ''retrying'' when the job is queued again, ''dead'' when it has ended, ''lost'' when the lease is lost. A job that was cancelled ends as cancelled and returns ''dead''. With close_rate, nothing of the job''s rate and key starts for retry_in, as after trax.close_rate().';

create function trax.acknowledge_cancel(
    job_id bigint,
    token uuid
)
returns boolean
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_acknowledge_cancel';
comment on function trax.acknowledge_cancel(bigint, uuid) is
    'Records that a worker stopped as requested, or as the timeout is over: the job ends as cancelled, or after a timeout as failed. Returns false when the lease is lost, or neither holds.';

create function trax.cancel_own(
    job_id bigint,
    token uuid,
    reason text default null
)
returns boolean
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_cancel_own';
comment on function trax.cancel_own(bigint, uuid, text) is
    'Ends a pointless job as cancelled, with the reason as the error of the run; no retry and no dead letter follows. Returns false when the lease is lost.';

create function trax.cancel(
    job_id bigint,
    tree boolean default true
)
returns text
language c volatile parallel unsafe
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_cancel';
comment on function trax.cancel(bigint, boolean) is
    'Cancels a job and, with tree, its living descendants, also of an ended job. Returns ''cancelled'' when the job waited, ''requested'' when its worker is asked to stop, ''finished'' when it has ended, ''unknown'' when there is none.';
