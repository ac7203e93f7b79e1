"""The note of a run whose handler completed without steps that earlier attempts recorded."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from conftest import Fleet, ended
from psycopg.conninfo import make_conninfo
from test_steps import start

import trax
from trax.exchange import Claim, Exchange
from trax.outcome import End, Kind, Verdict

Note = Callable[[int], Any]


@pytest.fixture
def note(db: psycopg.Connection[Any]) -> Note:
    def note(job_id: int) -> Any:
        sql = "select detail from trax.run where job_id = %s and state = 'completed'"
        [(detail,)] = db.execute(sql, [job_id])
        return detail

    return note


def recording(names: list[str], then: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a handler whose first attempt records steps, and whose second is other code."""

    async def handler(job: Any, ctx: Any) -> Any:
        if ctx.attempt == 2:
            return await then(job, ctx)
        for name in names:
            await ctx.step(name, lambda: 1)
        raise ValueError("once")

    return handler


async def done(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def completing(job: Any, ctx: Any) -> Any:
    """Complete the job in a transaction with a write, by the client of the handler's kind."""
    for name in job["reaches"]:
        await ctx.step(name, lambda: 2)
    if isinstance(ctx, trax.AsyncContext):
        connection = await psycopg.AsyncConnection.connect(job["url"])
        try:
            await written(job, connection, trax.AsyncClient(connection), ctx)
            await connection.commit()
        finally:
            # Also if a heartbeat finds the lease gone, and cancels the handler in its commit.
            await connection.close()
    else:
        with psycopg.connect(job["url"]) as connected:
            await written(job, connected, trax.Client(connected), ctx._context)
    return trax.RECORDED


async def written(job: Any, connection: Any, client: Any, context: Any) -> None:
    insert = f"insert into {job['table']} values (1)"
    if job["writes"] == "before":
        await done(connection.execute(insert))
    assert await done(client.complete(context, "done"))
    if job["writes"] == "rolled back":
        await done(connection.rollback())
        assert await done(client.complete(context, "again"))
    if job["writes"] == "after":
        await done(connection.execute(insert))


def test_a_run_names_the_recorded_steps_that_newer_code_does_not_reach(
    fleet: Fleet, client: trax.Client, note: Note
) -> None:
    async def then(job: list[str], ctx: Any) -> Any:
        for name in job:
            await ctx.step(name, lambda: 2)

    cases = [
        (["a", "b", "Z"], None),
        (["b"], ["Z", "a"]),
        (["new"], ["Z", "a", "b"]),
        ([], ["Z", "a", "b"]),
    ]
    jobs = [client.enqueue(fleet.task, job, max_retries=1, retry_delay=0) for job, _ in cases]
    start(fleet, recording(["b", "a", "Z"], then))
    for job_id, (_, names) in zip(jobs, cases, strict=True):
        assert ended(client, job_id).state == "completed"
        assert note(job_id) == (names and {"unreached_steps": names})


def test_a_run_without_steps_has_no_note(fleet: Fleet, client: trax.Client, note: Note) -> None:
    async def handler(job: Any, ctx: Any) -> Any:
        return job

    job_id = client.enqueue(fleet.task, 7)
    start(fleet, handler)
    assert ended(client, job_id).output == 7
    assert note(job_id) is None


def test_a_note_has_a_hundred_names_at_most(fleet: Fleet, client: trax.Client, note: Note) -> None:
    async def then(job: Any, ctx: Any) -> Any:
        return "done"

    names = [f"step {n:03}" for n in range(120)]
    job_id = client.enqueue(fleet.task, max_retries=1, retry_delay=0)
    start(fleet, recording(names[::-1], then))
    assert ended(client, job_id).output == "done"
    assert note(job_id) == {"unreached_steps": names[:100]}


@pytest.mark.parametrize("writes", ["before", "after", "rolled back"])
def test_a_completion_in_a_transaction_of_the_handler_has_the_note(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any], note: Note, writes: str
) -> None:
    table = fleet.task.replace(".", "_")
    db.execute(f"create table {table} (n int)")
    common = {"url": fleet.url, "table": table, "writes": writes}
    cases = [(["a", "b"], None), (["b"], ["a"]), ([], ["a", "b"])]
    jobs = [
        client.enqueue(fleet.task, {**common, "reaches": reaches}, max_retries=1, retry_delay=0)
        for reaches, _ in cases
    ]
    start(fleet, recording(["b", "a"], completing))
    for job_id, (_, names) in zip(jobs, cases, strict=True):
        said = "again" if writes == "rolled back" else "done"
        assert ended(client, job_id) == trax.JobResult("completed", said, None)
        assert note(job_id) == (names and {"unreached_steps": names})
    [(rows,)] = db.execute(f"select count(*) from {table}")
    assert rows == (0 if writes == "rolled back" else 3)
    db.execute(f"drop table {table}")


@pytest.mark.parametrize("is_own", [False, True], ids=["reported", "in a transaction"])
def test_a_completion_whose_note_is_refused_is_recorded_without_it(
    url: str,
    task: str,
    client: trax.Client,
    db: psycopg.Connection[Any],
    note: Note,
    caplog: pytest.LogCaptureFixture,
    is_own: bool,
) -> None:
    small = make_conninfo(url, options="-c trax.max_input_bytes=1kB")
    table = task.replace(".", "_")
    db.execute(f"create table {table} (n int)")

    async def then(job: Any, ctx: Any) -> Any:
        return await completing(job, ctx) if is_own else "done"

    job = {"url": small, "table": table, "writes": "before", "reaches": []}
    job_id = client.enqueue(task, job, max_retries=1, retry_delay=0)
    for kind in ("sync", "async"):
        fleet = Fleet(kind, small, task)
        try:
            start(fleet, recording([f"{n:099}" for n in range(20)], then))
            assert ended(client, job_id) == trax.JobResult("completed", "done", None)
        finally:
            fleet.stop()
        assert note(job_id) is None
        assert (f"job {job_id}: its note is left out: the detail" in caplog.text) is not is_own
        job_id = client.enqueue(task, job, max_retries=1, retry_delay=0)
    client.cancel(job_id)
    [(rows,)] = db.execute(f"select count(*) from {table}")
    assert rows == (2 if is_own else 0)
    db.execute(f"drop table {table}")


def test_a_completion_is_recorded_without_a_note_if_its_steps_cannot_be_read(
    url: str, task: str, client: trax.Client, db: psycopg.Connection[Any], note: Note
) -> None:
    role = task.replace(".", "_")
    db.execute(f"create role {role} login")
    db.execute(f"select trax.grant_access('{role}', 'worker')")
    revoked = f"revoke execute on function trax.read_steps(bigint) from {role}"

    async def then(job: Any, ctx: Any) -> Any:
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(revoked)
        return await completing(job, ctx) if job["is_own"] else "done"

    fleet = Fleet("sync", make_conninfo(url, user=role), task)
    try:
        jobs = [
            client.enqueue(
                task,
                {"url": fleet.url, "is_own": is_own, "table": "", "writes": "", "reaches": []},
                max_retries=1,
                retry_delay=0,
            )
            for is_own in (False, True)
        ]
        start(fleet, recording(["a"], then), concurrency=1)
        for job_id in jobs:
            assert ended(client, job_id) == trax.JobResult("completed", "done", None)
            assert note(job_id) is None
    finally:
        fleet.stop()
        db.execute(f"select trax.revoke_access('{role}')")
        db.execute(f"drop role {role}")


@pytest.mark.parametrize("was_cut", [False, True])
def test_a_note_that_breaks_the_connection_is_left_out(was_cut: bool) -> None:
    class Breaking:
        def __init__(self) -> None:
            self.was_cut = was_cut
            self.sent: list[str] = []

        def call(self, statement: str, *_: Any) -> Any:
            self.sent.append("noted" if "unreached" in statement else "plain")
            if self.sent[-1] == "noted":
                raise psycopg.OperationalError("the connection is lost")
            return [(True,)]

    attempt = SimpleNamespace(
        job_id=1, token="", task="a", failure=None, is_over=False, is_suspended=False
    )
    attempt.steps, attempt.kept, attempt.reached = 1, None, set()
    exchange = Exchange(Claim("w", ["a"], None, None, 30.0))
    exchange.ended(attempt, End(Verdict(Kind.COMPLETE)))  # type: ignore[arg-type]
    link = Breaking()
    while exchange.outbox:
        exchange.hurry()
        with contextlib.suppress(psycopg.OperationalError):
            _, answered = exchange.run(link, 0)  # type: ignore[arg-type]
    assert link.sent == (["noted"] if was_cut else ["noted", "noted"]) + ["plain"]
    assert [one.verdict for one in answered] == [Verdict(Kind.COMPLETE)]
