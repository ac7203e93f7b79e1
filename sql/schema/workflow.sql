-- workflow: what living jobs remember. Their steps, the signals sent to them, and the jobs that
-- they wait for; and which jobs are a graph. The steps of a job that has ended are in the last row
-- of trax.run.

create table trax.step (
    job_id bigint not null,
    step_id bigint generated always as identity,
    recorded_at timestamptz,
    attempt int not null,
    timed_out boolean not null default false,
    step text collate "C" not null,
    kind text not null,
    output jsonb,
    wait jsonb,
    undo jsonb,
    constraint step_pkey primary key (job_id, step),
    constraint step_kind_known check (kind in ('step', 'sleep', 'signal', 'child', 'jobs')),
    constraint step_only_waits_are_open check (recorded_at is not null or kind <> 'step'),
    constraint step_attempt_positive check (attempt > 0)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

comment on table trax.step is 'The steps of the jobs that wait or run: a result that is kept, or a wait. When the job ends they move into its last row of trax.run.';
comment on column trax.step.job_id is 'The job.';
comment on column trax.step.step_id is 'Number of the step; in the order of recording within a job.';
comment on column trax.step.recorded_at is 'When it was recorded; null while the job is suspended in it.';
comment on column trax.step.attempt is 'The attempt that recorded it, or that was suspended in it.';
comment on column trax.step.timed_out is 'True: the time of the wait was up before it ended otherwise.';
comment on column trax.step.step is 'Its name, unique in the job.';
comment on column trax.step.kind is 'step, sleep, signal, child (a job that was spawned) or jobs (a wait for children).';
comment on column trax.step.output is 'Result of a step, payload of a signal, id of a child, or the children as they ended.';
comment on column trax.step.wait is 'Of a wait: since when, and until, name and mode as they were given.';
comment on column trax.step.undo is 'The task, and its input, of the job that undoes it if this job fails for good or is cancelled.';

create table trax.signal (
    job_id bigint not null,
    sent_at timestamptz,
    taken_at timestamptz,
    position int not null,
    awaited boolean not null default false,
    name text collate "C" not null,
    signal_id text collate "C",
    payload jsonb,
    constraint signal_pkey primary key (job_id, name, position),
    constraint signal_position_positive check (position > 0),
    constraint signal_is_sent_or_awaited check (sent_at is not null or awaited),
    constraint signal_is_sent_before_it_is_taken check (taken_at is null or sent_at is not null)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create unique index signal_sent_once on trax.signal (job_id, signal_id) where signal_id is not null;

comment on table trax.signal is 'The signals of the jobs that wait or run, and those that dead jobs have not taken. A job that waits for one has a row for it that was not sent yet: the sender of the next signal fills it, and wakes the job.';
comment on column trax.signal.job_id is 'The job.';
comment on column trax.signal.sent_at is 'When it was sent; null while the job waits for it.';
comment on column trax.signal.taken_at is 'When the job received it.';
comment on column trax.signal.position is 'Its place among the signals of this name to this job, in the order of their commits, from 1.';
comment on column trax.signal.awaited is 'True: the job waited for it before it was sent.';
comment on column trax.signal.name is 'Its name.';
comment on column trax.signal.signal_id is 'The id that its sender gave it; a second signal with this id to the job is a duplicate.';
comment on column trax.signal.payload is 'What it says.';

create table trax.need (
    needed_job_id bigint not null,
    job_id bigint not null,
    one_is_enough boolean not null,
    awaits_requeue boolean not null default false,
    condition text collate "C" not null default 'ended',
    constraint need_pkey primary key (needed_job_id, job_id),
    constraint need_condition_known check (condition in ('completed', 'ended', 'failed'))
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
-- From its end, a job that has begun to need many others still needs the last: the first ones are
-- dead entries by then.
create index need_job on trax.need (job_id, needed_job_id);

comment on table trax.need is 'Which job waits for the end of which. An open batch also needs itself, until it is sealed.';
comment on column trax.need.needed_job_id is 'The job whose end is awaited.';
comment on column trax.need.job_id is 'The job that waits.';
comment on column trax.need.one_is_enough is 'True: it waits for the first of its jobs to end; false: for all.';
comment on column trax.need.awaits_requeue is 'True: while the dead letter of a needed job waits for a person, so does the job; false: it is cancelled.';
comment on column trax.need.condition is 'How the needed job must end: completed, ended (in any way) or failed (one of them, or cancelled). A job that can no longer run is cancelled.';

-- Rows are only added and taken, so that the end of a job waits for no other: no key, and no index.
create table trax.need_event (
    job_id bigint not null,
    waits boolean not null default false
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
alter table trax.need_event replica identity full;

comment on table trax.need_event is 'Jobs that have ended although others may need their end, and jobs that have begun to wait for others. The next cycle takes them, and wakes the jobs whose wait is over.';
comment on column trax.need_event.job_id is 'The job.';
comment on column trax.need_event.waits is 'True: it has begun to wait, and what it needs may have ended before.';

create table trax.graph (
    graph_id bigint not null,
    queued_at timestamptz not null,
    is_batch boolean not null,
    unique_key text collate "C",
    constraint graph_pkey primary key (graph_id)
);
create unique index graph_unique_key on trax.graph (unique_key) where unique_key is not null;

comment on table trax.graph is 'Jobs that were queued together and need each other, and batches. A row stays until none of its jobs is in the history.';
comment on column trax.graph.graph_id is 'Its number: that of its first job, or of the job that runs after all of a batch.';
comment on column trax.graph.queued_at is 'When it was queued, or the batch was opened.';
comment on column trax.graph.is_batch is 'True: a batch, to which jobs are added until it is sealed.';
comment on column trax.graph.unique_key is 'While one of its jobs waits or runs, no second graph with this key is queued.';

create table trax.graph_job (
    job_id bigint not null,
    graph_id bigint not null,
    replaced_by bigint,
    condition text collate "C",
    name text collate "C",
    needs text[] collate "C",
    constraint graph_job_pkey primary key (job_id, graph_id),
    constraint graph_job_condition_known check (condition in ('completed', 'ended', 'failed'))
);
create index graph_job_graph on trax.graph_job (graph_id, job_id);

comment on table trax.graph_job is 'The jobs of each graph, and those that were added to each batch.';
comment on column trax.graph_job.job_id is 'The job.';
comment on column trax.graph_job.graph_id is 'The graph or batch.';
comment on column trax.graph_job.replaced_by is 'The job that was queued in its place when its dead letter was requeued.';
comment on column trax.graph_job.condition is 'How the jobs must end that it needs: completed, ended or failed; null if it needs none.';
comment on column trax.graph_job.name is 'Its name in the graph; null in a batch.';
comment on column trax.graph_job.needs is 'The names of the jobs that it needs.';

select pg_catalog.pg_extension_config_dump('trax.step', '');
select pg_catalog.pg_extension_config_dump('trax.step_step_id_seq', '');
select pg_catalog.pg_extension_config_dump('trax.signal', '');
select pg_catalog.pg_extension_config_dump('trax.need', '');
select pg_catalog.pg_extension_config_dump('trax.need_event', '');
select pg_catalog.pg_extension_config_dump('trax.graph', '');
select pg_catalog.pg_extension_config_dump('trax.graph_job', '');
