"""Test support: jobs that run in the test itself, skipped time, and the jobs that wait.

For databases of tests: the role is the owner of the extension or a superuser. `db` is a connection
of psycopg or the address of the database. Everything here runs in sessions of its own, so what the
test has queued must be committed.

`run_one` and `run_through` run the handlers of a worker in the thread of the caller, those of an
AsyncWorker on its event loop, without the worker's address and with nothing beside: no heartbeat
extends the lease, which lasts an hour, and neither a timeout nor a cancel arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import sleep
from typing import Any, Literal, NamedTuple, overload

import psycopg
from psycopg.conninfo import make_conninfo

from . import argument, results
from .attempt import Attempt, HeldAttempts
from .calls import Calls
from .clock import Seconds, now, time_of
from .connection import Link, Watchdog, bounded, checked_address
from .errors import NotPermittedError, TraxError, UsageError, WrongTypeError, kind_of, translated
from .exchange import Exchange
from .outcome import End, Kind
from .runner import LoopRunner, perform
from .worker import AsyncWorker, Worker

Database = str | psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
Ended = Literal["completed", "retrying", "dead", "cancelled", "released", "suspended", "lost"]

LEASE = 3600.0
# The longest time of a statement, and of the tries to run a cycle, with the pause between them.
PATIENCE, PAUSE = 30.0, 0.005
# The number of attempts, skipped times and cycles after which a job counts as endless.
MOST = 10_000
# The maximum number of waiting jobs in a message.
SHOWN = 20

# Moves all times of jobs, attempts and tokens into the past. The server's clock is not touched.
PASS = """with waiting as (
        update trax.work_queue
        set run_at = run_at - $1, expires_at = expires_at - $1, wait_until = wait_until - $1
    ), suspended as (
        update trax.step
        set wait = wait || jsonb_build_object('until', (wait ->> 'until')::timestamptz - $1)
        where recorded_at is null and wait ->> 'until' is not null
    ), running as (
        update trax.lease
        set
            started_at = started_at - $1, run_at = run_at - $1, expires_at = expires_at - $1,
            lease_expires_at = lease_expires_at - $1, timeout_at = timeout_at - $1, reap_at = reap_at - $1
    )
    update trax.concurrency_token set acquired_at = acquired_at - $1, extended_at = extended_at - $1, expires_at = expires_at - $1"""  # noqa: E501, S105

WAITING = """select job_id, task, input, group_name, priority,
    extract(epoch from run_at)::text,
    extract(epoch from run_at - pg_catalog.clock_timestamp())::float8,
    waits_for, attempts, max_retries, manifest, unique_key, concurrency_key, trace
from trax.work_queue
where task = coalesce(%(task)s::text, task)
order by job_id"""

# A job, its children, and theirs; with the signal that each waits for.
TREE = """with recursive tree as (
    select job_id from trax.work_queue where job_id = %(job_id)s::bigint
    union all
    select q.job_id from tree t join trax.work_queue q on q.parent_job_id = t.job_id
)
select
    q.job_id, q.task, q.waits_for,
    greatest(extract(epoch from q.run_at - pg_catalog.clock_timestamp()), 0)::float8,
    (
        select s.wait ->> 'name' from trax.step s
        where s.job_id = q.job_id and s.recorded_at is null and s.kind = 'signal' limit 1
    )
from tree t join trax.work_queue q on q.job_id = t.job_id
order by q.job_id"""

RUN = """select case when state <> 'failed' then state when final then 'dead' else 'retrying' end,
    output::text, error
from trax.run
where job_id = %(job_id)s::bigint and attempt = %(attempt)s::int
and failure_kind is distinct from 'lease_expired'"""


class KitError(TraxError):
    """No job could be run; the text says why, and lists the waiting jobs."""


@dataclass(frozen=True)
class Enqueued:
    """A waiting job."""

    job_id: int
    task: str
    input: Any
    group_name: str
    priority: int
    run_at: datetime
    # The seconds until `run_at`; 0 or less if it has passed.
    due_in: float
    # None if the job is ready.
    waits_for: str | None
    # How many attempts have ended.
    attempts: int
    max_retries: int | None
    manifest: str | None
    unique_key: str | None
    concurrency_key: str | None
    trace: Any

    def __str__(self) -> str:
        waits = {
            None: "ready",
            "time": f"due in {self.due_in:.1f} s",
            "signal": "waiting for a signal",
            "jobs": "waiting for other jobs",
        }.get(self.waits_for, f"waiting for its {self.waits_for}")
        attempt = f", for attempt {self.attempts + 1}" if self.attempts else ""
        return (
            f"job {self.job_id}: {self.task} {self.input!r}, group {self.group_name}, "
            f"priority {self.priority}, {waits}{attempt}"
        )


@dataclass(frozen=True)
class Ran:
    """An attempt that has run, and the state of its job after it.

    `ended` is "completed", "retrying", "dead" (failed for good), "cancelled", "released" (snoozed),
    "suspended" (it sleeps, or waits for a signal or its children), or "lost" (the lease).
    """

    job_id: int
    attempt: int
    ended: Ended
    output: Any = None
    error: str | None = None


class _Living(NamedTuple):
    job_id: int
    task: str
    waits_for: str | None
    due_in: float
    signal: str | None


def pass_time(db: Database, time: Seconds) -> None:
    """Let time pass for waiting and running jobs, and run a cycle.

    Delayed jobs and retries become ready; leases, timeouts, sleeps and the time limits of waits
    end. Schedules do not move. The time is a number of seconds or a timedelta.
    """
    length = argument.duration("time", time)
    with _session(db) as session:
        session.pass_time(length)


def enqueued(db: Database, task: str | None = None) -> list[Enqueued]:
    """Return the waiting jobs, ready or not, of a task or of all; the oldest first."""
    wanted = None if task is None else argument.task(task)
    with _session(db) as session:
        return session.enqueued(wanted)


@overload
def run_one(worker: Worker, db: Database, task: str | None = None) -> Ran: ...
@overload
def run_one(
    worker: AsyncWorker, db: Database, task: str | None = None
) -> Coroutine[Any, Any, Ran]: ...
def run_one(worker: Worker | AsyncWorker, db: Database, task: str | None = None) -> Any:
    """Claim one job, of a task or of all that the worker has, run it, and report its outcome.

    Await the call for an AsyncWorker. Raise `KitError` if no job is ready. A failure of the handler
    is no error here but a part of the result.
    """

    async def run() -> Ran:
        with _session(db) as session:
            return await session.run_one(worker, task)

    return _finished(worker, run())


@overload
def run_through(worker: Worker, db: Database, job_id: int) -> Ran: ...
@overload
def run_through(worker: AsyncWorker, db: Database, job_id: int) -> Coroutine[Any, Any, Ran]: ...
def run_through(worker: Worker | AsyncWorker, db: Database, job_id: int) -> Any:
    """Run a job until it ends or waits for a signal, and return its last attempt.

    Time is skipped while it sleeps or waits for a retry. While it waits for its children they run
    in the same way, so the worker needs a handler for each of their tasks; older jobs of these
    tasks run before. When it waits for a signal, send it (`Client.send_signal`), or let time pass
    (`pass_time`), and call this again. Await the call for an AsyncWorker.

    Raise `KitError` if the job has ended before or does not exist, or nothing here makes it ready.
    """

    async def run() -> Ran:
        with _session(db) as session:
            return await session.run_through(worker, argument.integer("job_id", job_id, 7))

    return _finished(worker, run())


def _finished(worker: Worker | AsyncWorker, running: Coroutine[Any, Any, Ran]) -> Any:
    """Return the result for a Worker, whose handlers run in this thread: nothing is awaited."""
    if isinstance(worker, AsyncWorker):
        return running
    try:
        running.send(None)
    except StopIteration as end:
        return end.value


class _Session:
    def __init__(self, parameters: dict[str, Any]) -> None:
        held, watchdog = HeldAttempts(lambda _attempt: None), Watchdog()
        self.link = Link(parameters, watchdog, lambda _channel, _payload: None)
        self.calls = Calls(parameters, held, watchdog, limit=PATIENCE, ask=lambda: None)

    def close(self) -> None:
        self.calls.end()
        self.link.close()

    def call(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self.link.call(statement, parameters, PATIENCE)

    def pass_time(self, length: timedelta) -> None:
        self.call(PASS.replace("$1", "%(length)s"), length=length)
        self.cycle()

    def cycle(self) -> None:
        """Run a cycle, after the one that a scheduler may be running."""
        deadline = now() + PATIENCE
        while not self.call("select step from trax.tick()"):
            if now() > deadline:
                raise KitError(
                    "no cycle could run: another session keeps one open; end its transaction"
                )
            sleep(PAUSE)

    def enqueued(self, task: str | None = None) -> list[Enqueued]:
        rows = self.call(WAITING, task=task)
        return [Enqueued(*(*row[:5], time_of(row[5]), *row[6:])) for row in rows]

    def stuck(self, what: str) -> KitError:
        jobs = self.enqueued()
        lines = [what, "waiting jobs:" if jobs else "no job is waiting"]
        lines += [f"  {job}" for job in jobs[:SHOWN]]
        if len(jobs) > SHOWN:
            lines.append(f"  and {len(jobs) - SHOWN} more")
        return KitError("\n".join(lines))

    async def run_one(self, worker: Worker | AsyncWorker, task: str | None) -> Ran:
        if not isinstance(worker, Worker | AsyncWorker):
            raise WrongTypeError(f"worker is {kind_of(worker)}; write a trax.Worker with handlers")
        claim, handlers = worker.claims(task, LEASE)
        exchange = Exchange(claim)
        claimed, _ = exchange.run(self.link, 1)
        if not claimed:
            tasks = ", ".join(f'"{name}"' for name in claim.tasks)
            raise self.stuck(f"no job of task {tasks} is ready")
        [attempt] = claimed
        handler = handlers[attempt.task]
        context = handler.context_type(attempt, lambda: None, self.calls)
        run = _on_the_loop if isinstance(worker, AsyncWorker) else _in_this_thread
        end = await run(attempt, functools.partial(handler.run, attempt, context))
        exchange.ended(attempt, end)
        exchange.run(self.link, 0)
        if exchange.outbox:
            raise KitError(
                f"the outcome of job {attempt.job_id} could not be recorded; does another "
                "transaction lock its rows? end it"
            )
        return self.ran(attempt, end)

    def ran(self, attempt: Attempt, end: End) -> Ran:
        job = (attempt.job_id, attempt.attempt)
        for ended, output, error in self.call(RUN, job_id=job[0], attempt=job[1]):
            return Ran(*job, ended, results.loads(output, decimals=False), error)
        if attempt.is_suspended:
            return Ran(*job, "suspended")
        is_released = end.verdict.kind is Kind.RELEASE and attempt.reason is None
        return Ran(*job, "released" if is_released else "lost")

    async def run_through(self, worker: Worker | AsyncWorker, job_id: int) -> Ran:
        last: Ran | None = None
        may_cycle = True
        for _ in range(MOST):
            living = self.next_job(job_id)
            if living is None:
                if last is None:
                    raise KitError(f"job {job_id} has ended before, or does not exist")
                return last
            if living.waits_for is None:
                ran = await self.run_one(worker, living.task)
                if ran.job_id == job_id:
                    last = ran
                else:
                    # A cycle wakes the job that waits for the first of its children.
                    self.cycle()
            elif living.waits_for == "time":
                # A job is due at the very time.
                self.pass_time(timedelta(seconds=living.due_in, milliseconds=1))
            elif living.waits_for == "signal" and last is not None and living.job_id == job_id:
                return last
            elif living.waits_for == "signal":
                send = f'client.send_signal({living.job_id}, "{living.signal}")'
                said = f'job {living.job_id} waits for the signal "{living.signal}"'
                raise KitError(f"{said}; send it with {send}")
            elif living.waits_for == "jobs" and may_cycle:
                # The end of a job is only noticed in a cycle.
                self.cycle()
                may_cycle = False
                continue
            else:
                raise self.stuck(f"job {job_id} cannot run")
            may_cycle = True
        raise KitError(f"job {job_id} has not ended in {MOST} attempts")

    def next_job(self, job_id: int) -> _Living | None:
        """Return the job for which something is to be done, or None if the job does not wait."""
        tree = [_Living(*row) for row in self.call(TREE, job_id=job_id)]
        job = next((one for one in tree if one.job_id == job_id), None)
        if job is None or job.waits_for != "jobs":
            return job
        # Of its descendants, those that can run come first, and those that wait for others last.
        order = [None, "time", "signal", "key", "manifest", "jobs"]
        others = [one for one in tree if one is not job]
        return min(others, key=lambda one: order.index(one.waits_for), default=job)


@contextlib.contextmanager
def _session(db: Database) -> Iterator[_Session]:
    try:
        with contextlib.closing(_Session(bounded(_address(db), "testkit", LEASE))) as session:
            yield session
    except psycopg.Error as error:
        refusal = translated(error)
        if isinstance(refusal, NotPermittedError):
            said = f"{refusal.message}: connect as the owner of the extension, or a superuser"
            raise UsageError(said) from error
        raise refusal from error


def _address(db: Database) -> str:
    if isinstance(db, str):
        return checked_address(db)
    if not isinstance(db, psycopg.Connection | psycopg.AsyncConnection):
        raise WrongTypeError(
            f"db is {kind_of(db)}; write a connection of psycopg, or the address of the database"
        )
    if db.closed:
        raise UsageError("db is closed; write an open connection")
    if db.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
        raise UsageError(
            "db is in a transaction, whose jobs no other session sees: commit it, or connect with "
            "autocommit=True"
        )
    return make_conninfo(**db.info.get_parameters(), password=db.info.password or None)


async def _in_this_thread(attempt: Attempt, call: Callable[[], Any]) -> End:
    end = perform(attempt, call)
    if isinstance(end.error, KeyboardInterrupt):
        raise end.error
    return end


async def _on_the_loop(attempt: Attempt, call: Callable[[], Any]) -> End:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[End] = loop.create_future()
    runner = LoopRunner(loop)
    runner.on_ended = lambda _attempt, end: ended.set_result(end)
    runner.start([(attempt, call)])
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        runner.stop(attempt)
        raise
