-- Dead letters.

create function trax.requeue_dead_letter(
    id bigint,
    note text default null
)
returns bigint
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_requeue_dead_letter';
comment on function trax.requeue_dead_letter(bigint, text) is
    'Queues a new job with new attempts in place of a dead one and returns its id.';

create function trax.acknowledge_dead_letter(
    id bigint,
    note text default null
)
returns boolean
language c volatile parallel unsafe security definer
set search_path = pg_catalog, pg_temp
as 'MODULE_PATHNAME', 'trax_acknowledge_dead_letter';
comment on function trax.acknowledge_dead_letter(bigint, text) is
    'Resolves a dead letter without running anything, and lets the schedule of its manifest continue; returns false when it was resolved before.';

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
    'Requeues unresolved dead letters that match all filters, the oldest first, at most max_count; returns how many.';
