"""The statements of the contract, with named arguments.

JSON is sent as text, and times and spans as the text of their seconds. Rows therefore do not depend
on connection settings or loaders of the caller, and a value that Python cannot represent affects no
other row. A lock timeout is set in the statement itself, for its transaction alone, before the
function begins.
"""

_LOCK = """case when pg_catalog.set_config('lock_timeout', %(lock_timeout)s, true) is not null
    then {} end"""

_SHARED_OPTIONS = """
    run_at => %(run_at)s::timestamptz, group_name => %(group_name)s::text,
    priority => %(priority)s::int, max_retries => %(max_retries)s::int,
    timeout => %(timeout)s::interval,
    unique_key => %(unique_key)s::text, concurrency_key => %(concurrency_key)s::text,
    retry_delay => %(retry_delay)s::interval, unique_for => %(unique_for)s::interval,
    on_duplicate => %(on_duplicate)s::text"""
_OPTIONS = f"""{_SHARED_OPTIONS},
    trace => %(trace)s::jsonb, version => %(version)s::text, batch => %(batch)s::bigint,
    rate => %(rate)s::text, rate_key => %(rate_key)s::text, cost => %(cost)s::int"""

_CLAIMED = """job_id, token::text, attempt, max_attempts, task, input::text, manifest, group_name,
    extract(epoch from scheduled_for)::text, extract(epoch from queued_at)::text,
    extract(epoch from timeout)::text, trace::text, coalesce(steps, 0)"""

# With places, no job counts as begun before a heartbeat reports it, so a lost answer uses up no
# attempt. All jobs that are claimed begin at once.
_CLAIM = """max_jobs => %(max_jobs)s::int,
    tasks => %(tasks)s::text[], groups => %(groups)s::text[],
    versions => %(versions)s::text[],
    lease => %(lease)s::interval, places => %(max_jobs)s::int"""

_COMPLETIONS = f"""job_ids => {_LOCK.format("%(job_ids)s::bigint[]")},
    tokens => %(tokens)s::text[]::uuid[], outputs => %(outputs)s::text[]::jsonb[]"""

_LEASE = f"job_id => {_LOCK.format('%(job_id)s::bigint')}, token => %(token)s::uuid"

# The recorded steps that an attempt has not reached, as the detail of its completion.
_UNREACHED = """detail => (
    select pg_catalog.jsonb_build_object(
        'unreached_steps', pg_catalog.jsonb_agg(step order by step))
    from (
        select step collate "C"
        from trax.read_steps(job_id => %(job_id)s::bigint)
        where recorded_at is not null
        and step <> all (%(reached)s::text[])
        order by step collate "C"
        limit 100
    ) unreached
    having pg_catalog.count(*) > 0)"""

ENQUEUE = f"select trax.enqueue(task => %(task)s::text, input => %(input)s::jsonb, {_OPTIONS})"
ENQUEUE_MANY = f"""select * from trax.enqueue_many(task => %(task)s::text,
    inputs => %(inputs)s::text[]::jsonb[], {_OPTIONS})"""
ENQUEUE_SQL = f"""select trax.enqueue_sql(command => %(command)s::text,
    run_as => %(run_as)s::text, {_SHARED_OPTIONS})"""
OPEN_BATCH = f"""select trax.open_batch(task => %(task)s::text, input => %(input)s::jsonb,
    {_OPTIONS})"""
SEAL_BATCH = "select trax.seal_batch(batch => %(job_id)s::bigint)"
ENQUEUE_GRAPH = """select name, job_id
from trax.enqueue_graph(document => %(document)s::jsonb, unique_key => %(unique_key)s::text)"""
READ_NEEDS = """select name, job_id, state, output::text, error
from trax.read_needs(id => %(job_id)s::bigint)"""
READ_GRAPH = """select name, job_id, task, state, needs, condition, waits_for, attempt,
    extract(epoch from started_at)::text, extract(epoch from finished_at)::text, error
from trax.read_graph(id => %(job_id)s::bigint)"""
AWAIT_JOB = "call trax.await_job(%(job_id)s::bigint, %(timeout)s::interval, null, null, null)"
AWAIT_JOBS = "call trax.await_jobs(%(job_ids)s::bigint[], %(timeout)s::interval, null)"
JOB_RESULTS = """select job_id, state, output::text, error
from trax.get_jobs(%(job_ids)s::bigint[])"""
JOB = """select job_id, state, attempt, task, manifest, group_name, priority,
    extract(epoch from run_at)::text, extract(epoch from scheduled_for)::text,
    extract(epoch from queued_at)::text, extract(epoch from started_at)::text,
    extract(epoch from finished_at)::text, worker, error, output::text, progress::text
from trax.get_jobs(array[%(job_id)s::bigint])"""
CANCEL = "select trax.cancel(%(job_id)s::bigint)"
CANCEL_ALONE = "select trax.cancel(job_id => %(job_id)s::bigint, tree => false)"
CHANGE_JOB = """select trax.change_job(job_id => %(job_id)s::bigint, input => %(input)s::jsonb,
    run_at => %(run_at)s::timestamptz, priority => %(priority)s::int,
    group_name => %(group_name)s::text, max_retries => %(max_retries)s::int,
    timeout => %(timeout)s::interval)"""
SEND_SIGNAL = """select trax.send_signal(job_id => %(job_id)s::bigint, name => %(name)s::text,
    payload => %(payload)s::jsonb, signal_id => %(signal_id)s::text)"""
READ_STEPS = """select step, kind, output::text, attempt,
    extract(epoch from recorded_at)::text, timed_out, wait::text, undo::text
from trax.read_steps(job_id => %(job_id)s::bigint)"""
FORK = """select trax.fork(job_id => %(job_id)s::bigint, from_step => %(from_step)s::text,
    input => %(input)s::jsonb)"""

VERSION = """select pg_catalog.current_database()::text, (
    select e.extversion::text from pg_catalog.pg_extension e where e.extname = 'trax')"""
WAITING_TASKS = "select task from trax.waiting_tasks(groups => %(groups)s::text[])"
CLAIM = f"""select {_CLAIMED}
from trax.claim_next(worker => {_LOCK.format("%(worker)s::text")}, {_CLAIM})"""
COMPLETE_AND_CLAIM = f"""select completed_job_id, {_CLAIMED}
from trax.complete_and_claim({_COMPLETIONS}, worker => %(worker)s::text, {_CLAIM})"""
COMPLETE_MANY = f"select * from trax.complete_many({_COMPLETIONS})"
COMPLETE = f"select trax.complete({_LEASE}, output => %(output)s::jsonb)"
COMPLETE_WITH_NOTE = f"select trax.complete({_LEASE}, output => %(output)s::jsonb, {_UNREACHED})"
_IN_TRANSACTION = """job_id => %(job_id)s::bigint, token => %(token)s::uuid,
    output => %(output)s::jsonb"""
NOTHING = "select 1"
COMPLETE_IN_TRANSACTION = f"select trax.complete({_IN_TRANSACTION})"
COMPLETE_IN_TRANSACTION_WITH_NOTE = f"select trax.complete({_IN_TRANSACTION}, {_UNREACHED})"
FAIL = f"""select trax.fail({_LEASE}, error => %(error)s::text, detail => %(detail)s::jsonb,
    retry_in => %(delay)s::interval, permanent => %(permanent)s::boolean,
    close_rate => %(close_rate)s::boolean)"""
RELEASE = f"select trax.release({_LEASE}, delay => %(delay)s::interval)"
ACKNOWLEDGE_CANCEL = f"select trax.acknowledge_cancel({_LEASE})"
TIMED_OUT = f"""select case when trax.acknowledge_cancel({_LEASE}) then 'failed'
    else trax.fail(job_id => %(job_id)s::bigint, token => %(token)s::uuid, error => %(error)s::text)
    end"""
CANCEL_OWN = f"select trax.cancel_own({_LEASE}, reason => %(error)s::text)"

_STEP = f"{_LEASE}, step => %(step)s::text"
_UNTIL = """until => coalesce(%(until)s::timestamptz,
    pg_catalog.now() + %(timeout)s::interval)"""
READ_RECORDED_STEPS = """select step, kind, output::text, timed_out
from trax.read_steps(job_id => %(job_id)s::bigint) where recorded_at is not null"""
RECORD_STEP = f"""select recorded, output::text from trax.record_step({_STEP},
    output => %(output)s::jsonb, undo => %(undo)s::jsonb)"""
# The step has no result, so no attempt may follow: both are one transaction.
RECORD_STEP_AND_FAIL = f"""select trax.fail(job_id => %(job_id)s::bigint,
    token => %(token)s::uuid, error => %(error)s::text, permanent => true)
from trax.record_step({_STEP}, undo => %(undo)s::jsonb)"""
RECORD_STEP_IN_TRANSACTION = """select recorded, output::text from trax.record_step(
    job_id => %(job_id)s::bigint, token => %(token)s::uuid, step => %(step)s::text,
    output => %(output)s::jsonb, undo => %(undo)s::jsonb)"""
SLEEP = f"select trax.sleep({_STEP}, {_UNTIL})"
AWAIT_SIGNAL = f"""select state, payload::text
from trax.await_signal({_STEP}, name => %(name)s::text, {_UNTIL})"""
SPAWN = f"""select trax.spawn({_STEP}, task => %(task)s::text, input => %(input)s::jsonb,
    {_OPTIONS})"""
AWAIT_CHILDREN = f"""select state, children::text
from trax.await_children({_STEP}, mode => %(mode)s::text, {_UNTIL})"""

HEARTBEAT = """select job_id, held, cancel_requested
from trax.heartbeat(job_ids => %(job_ids)s::bigint[], tokens => %(tokens)s::text[]::uuid[],
    lease => %(lease)s::interval)"""
REPORT_PROGRESS = """select trax.report_progress(job_id => %(job_id)s::bigint,
    token => %(token)s::uuid, progress => %(progress)s::jsonb)"""
REPORT_WORKER = """select trax.report_worker(name => %(name)s::text, period => %(period)s::interval,
    state => %(state)s::text, info => %(info)s::jsonb)"""
