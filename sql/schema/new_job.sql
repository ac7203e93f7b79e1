-- new_job: the table that accepts jobs as rows. After its handler, sql/api/new_job.sql.

create foreign data wrapper trax handler trax.new_job_handler no validator;
comment on foreign data wrapper trax is 'Internal. Makes jobs of rows.';
create server trax foreign data wrapper trax;
comment on server trax is 'Internal. The queue of this database.';

-- The columns are the arguments of trax.enqueue.
create foreign table trax.new_job (
    task text,
    input jsonb,
    run_at timestamptz,
    group_name text,
    priority int,
    max_retries int,
    timeout interval,
    unique_key text,
    concurrency_key text,
    trace jsonb,
    retry_delay interval,
    unique_for interval,
    version text,
    batch bigint,
    rate text,
    rate_key text,
    cost int,
    on_duplicate text
) server trax;
comment on foreign table trax.new_job is
    'Takes new jobs by COPY and INSERT: a row is a job, as trax.enqueue would queue it. Cannot be read.';
comment on column trax.new_job.task is 'The task that runs; required.';
comment on column trax.new_job.input is 'Input for the task; null is {}.';
comment on column trax.new_job.run_at is 'Not claimable before this time; null, or a time that has passed, is now.';
comment on column trax.new_job.group_name is 'The group it belongs to; null is default.';
comment on column trax.new_job.priority is '0 to 31; within a group a higher one is claimed first; null is 0.';
comment on column trax.new_job.max_retries is 'Retries after the first attempt; null takes trax.default_max_retries.';
comment on column trax.new_job.timeout is 'How long one attempt may run; null takes trax.default_timeout.';
comment on column trax.new_job.unique_key is 'A row whose key is alive (its job waits or executes, or its unique_for is not over) queues nothing, unless on_duplicate says otherwise.';
comment on column trax.new_job.concurrency_key is 'Jobs with the same key run one at a time.';
comment on column trax.new_job.trace is 'Trace context of whoever enqueues it.';
comment on column trax.new_job.retry_delay is 'Delay before the first retry; null takes trax.retry_delay.';
comment on column trax.new_job.unique_for is 'How long the unique key stays alive at least, also when the job has ended; null is no longer than the job.';
comment on column trax.new_job.version is 'The version of the program that the job needs; null is any.';
comment on column trax.new_job.batch is 'The batch that the job is added to; null is none.';
comment on column trax.new_job.rate is 'The rate under which it starts; null if none limits it.';
comment on column trax.new_job.rate_key is 'The key of the rate that it uses; null for the rate without a key.';
comment on column trax.new_job.cost is 'How much of the rate it uses; null is 1.';
comment on column trax.new_job.on_duplicate is 'What a row does whose key is that of a waiting job: keep that job, replace its input and options, or postpone it too; null is keep.';
