from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from conftest import Fleet, ended, eventually, in_state, wait

import trax


@dataclasses.dataclass
class Count:
    count: int


def test_a_job_completes_with_the_output_of_its_handler(fleet: Fleet, client: trax.Client) -> None:
    seen: list[Any] = []

    def handler(job: Count, ctx: trax.Context) -> Count:
        seen.append((ctx.job_id, ctx.attempt, ctx.max_attempts, ctx.task, ctx.group_name))
        seen.append((ctx.queued_at, ctx.trace, ctx.timeout))
        return Count(job.count + 1)

    job_id = client.enqueue(fleet.task, Count(7), max_retries=2, timeout=60, trace={"a": "b"})
    fleet.start(handler)
    assert ended(client, job_id) == trax.JobResult("completed", {"count": 8}, None)
    job = client.job(job_id)
    assert job is not None
    assert seen[0] == (job_id, 1, 3, fleet.task, "default")
    assert abs((seen[1][0] - job.queued_at).total_seconds()) < 0.001
    assert seen[1][1] == {"a": "b"}
    assert seen[1][2].total_seconds() == 60


@pytest.mark.parametrize(
    ("raised", "state", "attempt", "error"),
    [
        (ValueError("oops"), "queued", 1, "ValueError: oops"),
        (trax.RetryIn(600, "later"), "queued", 1, "later"),
        (trax.Snooze(600), "queued", 0, None),
        (trax.Permanent("never"), "failed", 1, "never"),
        (trax.Cancel("gone"), "cancelled", 1, "gone"),
        (ValueError("a \0"), "queued", 1, "ValueError: a \ufffd"),
        (SystemExit(3), "queued", 1, "SystemExit: 3"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_a_handler_raises_is_what_becomes_of_its_job(
    fleet: Fleet,
    client: trax.Client,
    raised: BaseException,
    state: str,
    attempt: int,
    error: str | None,
) -> None:
    def handler(job: Any) -> None:
        raise raised

    job_id = client.enqueue(fleet.task, max_retries=1, retry_delay=600)
    fleet.start(handler)

    def later() -> bool:
        job = client.job(job_id)
        return bool(job and job.run_at and job.run_at.timestamp() - time.time() > 500)

    if state == "queued":
        eventually(later)
    job = in_state(client, job_id, state, attempt)
    assert (error or "") in (job.error or "")


def test_a_refused_outcome_says_what_to_write_in_python(
    fleet: Fleet, client: trax.Client, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(job: Any) -> None:
        raise trax.RetryIn(300, close_rate=True)

    job_id = client.enqueue(fleet.task, max_retries=0)
    fleet.start(handler)
    assert ended(client, job_id).state == "failed"
    assert 'enqueue(task, rate="..."); or leave out close_rate' in caplog.text
    assert "=>" not in caplog.text


def test_a_long_error_is_cut_in_the_log(
    fleet: Fleet, client: trax.Client, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(job: Any) -> None:
        raise ValueError("x" * 3_000_000)

    job_id = client.enqueue(fleet.task, max_retries=0)
    fleet.start(handler)
    assert "ValueError: xxx" in str(ended(client, job_id).error)
    assert "(the first 10000 of 3000012 characters)" in caplog.text
    assert "in handler" in caplog.text
    assert len(caplog.text) < 25_000


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (object(), "the output is an object, not JSON; write a text"),
        (float("nan"), "the output is nan, not JSON; write a finite number"),
        ("x" * 2_000_000, "the outcome was refused: the output is too large"),
        (
            {"a": "\0"},
            "the output.a has the character NUL, which PostgreSQL cannot store: leave it",
        ),
    ],
    ids=["object", "nan", "large", "nul"],
)
def test_an_output_that_cannot_be_stored_fails_its_own_job(
    fleet: Fleet, client: trax.Client, output: Any, said: str
) -> None:
    def handler(job: bool) -> Any:
        return output if job else "fine"

    jobs = client.enqueue_many(fleet.task, [False, True, False], max_retries=0)
    fleet.start(handler)
    states = [ended(client, job) for job in jobs]
    assert [one.state for one in states] == ["completed", "failed", "completed"]
    assert said in str(states[1].error)


def test_an_input_that_does_not_fit_fails_its_own_job(fleet: Fleet, client: trax.Client) -> None:
    def handler(job: Count) -> int:
        return job.count

    inputs = [{"count": 1}, {"count": "x"}, [], {"count": 2}]
    jobs = client.enqueue_many(fleet.task, inputs, max_retries=0)
    fleet.start(handler)
    results = [ended(client, job) for job in jobs]
    assert [one.output for one in results] == [1, None, None, 2]
    assert "input.count is a string, not an integer" in str(results[1].error)


def test_never_more_handlers_run_than_asked_for(fleet: Fleet, client: trax.Client) -> None:
    lock, running, most = threading.Lock(), 0, 0

    def handler(job: int, ctx: trax.Context) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.005)
        with lock:
            running -= 1

    jobs = client.enqueue_many(fleet.task, range(60))
    fleet.start(handler, concurrency=3)
    assert {ended(client, job).state for job in jobs} == {"completed"}
    assert 1 <= most <= 3


def test_a_cancel_reaches_the_handler_at_once(fleet: Fleet, client: trax.Client) -> None:
    contexts: list[trax.Context] = []

    def handler(job: Any, ctx: trax.Context) -> Any:
        contexts.append(ctx)
        return wait(ctx, 600)

    job_id = client.enqueue(fleet.task)
    fleet.start(handler, lease=300)
    in_state(client, job_id, "in_progress", 1)
    eventually(lambda: contexts)
    begun = time.monotonic()
    assert client.cancel(job_id) == "requested"
    assert ended(client, job_id).state == "cancelled"
    assert time.monotonic() - begun < 30, "it did not wait for the next heartbeat"
    assert contexts[0].reason is trax.Reason.CANCELLED
    assert contexts[0].is_stopped


def test_a_timeout_stops_the_handler(fleet: Fleet, client: trax.Client) -> None:
    job_id = client.enqueue(fleet.task, timeout=0.3, max_retries=0)
    fleet.start(waiting)
    assert ended(client, job_id).state == "failed"


def waiting(job: Any, ctx: trax.Context) -> Any:
    return wait(ctx, 600)


def test_a_lost_lease_stops_the_handler(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any]
) -> None:
    contexts: list[trax.Context] = []

    def handler(job: Any, ctx: trax.Context) -> Any:
        contexts.append(ctx)
        return wait(ctx, 600 if len(contexts) == 1 else 0)

    job_id = client.enqueue(fleet.task)
    fleet.start(handler, lease=3)
    eventually(lambda: contexts)
    released = db.execute(
        "select trax.release(job_id, token) from trax.lease where job_id = %s", [job_id]
    )
    assert released.fetchone() == (True,)
    assert ended(client, job_id).state == "completed"
    eventually(lambda: contexts[0].reason is trax.Reason.LEASE_LOST)
    assert len(contexts) == 2


def test_a_handler_that_blocks_everything_keeps_its_lease(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any]
) -> None:
    def handler(job: Any) -> str:
        time.sleep(4)
        return "done"

    job_id = client.enqueue(fleet.task)
    fleet.start(handler, lease=1.5, concurrency=1)
    assert ended(client, job_id).output == "done"
    runs = db.execute("select count(*) from trax.run where job_id = %s", [job_id]).fetchone()
    assert runs == (1,)


def test_jobs_survive_the_end_of_every_connection(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any]
) -> None:
    def handler(job: int, ctx: trax.Context) -> Any:
        time.sleep(0.01)
        return job

    jobs = client.enqueue_many(fleet.task, range(200))
    worker = fleet.start(handler, concurrency=4)
    kill = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s"
    for _ in range(5):
        time.sleep(0.2)
        db.execute(kill, [f"trax worker {worker.name}"])
    assert [ended(client, job).output for job in jobs] == list(range(200))
    again = "select count(*) from trax.run where task = %s and state <> 'completed'"
    assert db.execute(again, [fleet.task]).fetchone() == (0,)


def test_a_locked_lease_delays_no_other_outcome(
    fleet: Fleet, client: trax.Client, url: str
) -> None:
    begun, go = threading.Event(), threading.Event()

    def handler(job: bool) -> str:
        if job:
            begun.set()
            go.wait(60)
        return "done"

    locked = client.enqueue(fleet.task, True)
    # This blocks the event loop of one worker.
    fleet.start(handler, concurrency=1, lease=20)
    begun.wait(60)
    with psycopg.connect(url) as other:
        other.execute("select 1 from trax.lease where job_id = %s for update", [locked])
        go.set()
        free = client.enqueue(fleet.task, False)
        assert ended(client, free).output == "done"
        job = client.job(locked)
        assert job is not None
        assert job.state == "in_progress"
    assert ended(client, locked).output == "done"


def test_a_stop_gives_back_what_does_not_end_in_time(fleet: Fleet, client: trax.Client) -> None:
    begun = threading.Event()

    def handler(job: Any, ctx: trax.Context) -> Any:
        begun.set()
        return wait(ctx, 600)

    job_id = client.enqueue(fleet.task)
    fleet.start(handler, grace=0.2)
    begun.wait(60)
    fleet.stop()
    job = client.job(job_id)
    assert job is not None
    assert (job.state, job.attempt) == ("queued", 0)


def test_a_handler_that_ignores_a_stop_does_not_keep_its_job(
    client: trax.Client, url: str, task: str
) -> None:
    fleet = Fleet("sync", url, task)
    begun, go = threading.Event(), threading.Event()

    def handler(job: Any) -> None:
        begun.set()
        go.wait(60)

    job_id = client.enqueue(task)
    fleet.start(handler, grace=0)
    begun.wait(60)
    fleet.stop()
    job = client.job(job_id)
    assert job is not None
    assert (job.state, job.attempt) == ("queued", 0)
    go.set()


def test_progress_and_the_worker_are_seen(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any]
) -> None:
    go = threading.Event()

    async def on_a_loop(job: Any, ctx: trax.AsyncContext) -> Any:
        ctx.progress(0.1)
        ctx.progress({"done": 0.5})
        await asyncio.to_thread(go.wait, 60)

    def in_a_thread(job: Any, ctx: trax.Context) -> Any:
        ctx.progress(0.1)
        ctx.progress({"done": 0.5})
        go.wait(60)

    job_id = client.enqueue(fleet.task)
    worker = fleet.start(in_a_thread if fleet.kind == "sync" else on_a_loop)
    eventually(lambda: (j := client.job(job_id)) and j.progress == {"done": 0.5})
    sql = "select info ->> 'client', info -> 'tasks', stopping from trax.worker where name = %s"
    expected = ("python", [fleet.task], False)
    eventually(lambda: db.execute(sql, [worker.name]).fetchone() == expected)
    go.set()
    ended(client, job_id)
    fleet.stop()
    assert db.execute(sql, [worker.name]).fetchone() is None


def test_what_a_worker_is_is_reported_until_it_is_taken(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any], url: str
) -> None:
    client.enqueue(f"{fleet.task} of another")
    answered = """select count(*) from pg_stat_activity
        where query like '%%report_worker%%' and state = 'idle' and application_name like %s"""
    with psycopg.connect(url) as holder:
        holder.execute(
            "select trax.claim_next(worker => %s, tasks => %s)",
            [fleet.task, [f"{fleet.task} of another"]],
        )
        fleet.start(lambda job: None, name=fleet.task, lease=3.0)
        eventually(lambda: db.execute(answered, [f"%{fleet.task}%"]).fetchone() == (1,))
    sql = "select info -> 'tasks' from trax.worker where name = %s"
    eventually(lambda: db.execute(sql, [fleet.task]).fetchone() == ([fleet.task],))


def test_a_handler_completes_its_job_with_its_own_writes(
    client: trax.Client, db: psycopg.Connection[Any], url: str, task: str
) -> None:
    db.execute(f'create table "{task}" (job_id bigint)')

    def handler(job: Any, ctx: trax.Context) -> Any:
        with psycopg.connect(url) as connection:
            connection.execute(f'insert into "{task}" values (%s)', [ctx.job_id])
            assert trax.Client(connection).complete(ctx, {"written": True})
        return trax.RECORDED

    fleet = Fleet("sync", url, task)
    job_id = client.enqueue(task)
    fleet.start(handler)
    assert ended(client, job_id).output == {"written": True}
    fleet.stop()
    assert db.execute(f'select job_id from "{task}"').fetchall() == [(job_id,)]


def test_a_worker_waits_for_a_server_that_is_not_there(task: str) -> None:
    fleet = Fleet("sync", "postgresql://nobody@127.0.0.1:1/nothing", task)
    worker = fleet.start(lambda job: None)
    time.sleep(0.5)
    worker.stop()
    fleet.stop()


def test_a_run_until_empty_ends_by_itself(client: trax.Client, url: str, task: str) -> None:
    jobs = client.enqueue_many(task, range(300))
    worker = trax.Worker(url, concurrency=50)
    worker.task(task)(lambda job: job)
    worker.run(until_empty=True)
    assert [ended(client, job).output for job in jobs] == list(range(300))


def test_a_decimal_goes_through_with_every_digit(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any]
) -> None:
    def handler(job: dict[str, Decimal]) -> dict[str, Decimal]:
        return job

    price = Decimal("12345678901234567890.10")
    job_id = client.enqueue(fleet.task, {"price": price})
    fleet.start(handler)
    ended(client, job_id)
    stored = db.execute("select output::text from trax.run where job_id = %s", [job_id])
    assert stored.fetchone() == ('{"price": 12345678901234567890.10}',)
    exact = trax.Client(db, decimals=True)
    job = exact.job(job_id)
    assert job is not None
    assert job.output == exact.await_job(job_id, 1).output == {"price": price}
