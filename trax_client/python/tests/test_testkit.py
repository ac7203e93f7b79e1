"""The test kit: jobs run inline, skipped time, and the jobs that wait."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import PATIENCE, eventually
from psycopg.conninfo import make_conninfo
from test_steps import Awaitables

import trax
from trax import testkit
from trax.testkit import KitError, Ran

README = Path(__file__).parents[1] / "README.md"
YEAR = timedelta(days=365)


@pytest.fixture(scope="module")
def shop(url: str) -> Iterator[str]:
    """Return the address of a database of its own, as time passes for all jobs of a database."""
    name = f"kit_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create database {name}")
        address = make_conninfo(url, dbname=name)
        with psycopg.connect(address) as other:
            other.execute("create extension trax")
        yield address
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def db(shop: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(shop, autocommit=True) as connection:
        yield connection
        connection.execute("select trax.release(job_id, token) from trax.lease")
        connection.execute("select trax.cancel(job_id) from trax.work_queue")
        assert connection.execute("select * from trax.check()").fetchall() == []


class Kit:
    """A worker of a kind, and what it runs."""

    def __init__(self, kind: str, db: psycopg.Connection[Any]) -> None:
        self.kind = kind
        self.db: Any = db
        self.worker: Any = self._made()

    def _made(self) -> Any:
        # Not the address of the worker is used, but that of the connection.
        address = "host=/nowhere dbname=nowhere"
        return trax.Worker(address) if self.kind == "sync" else trax.AsyncWorker(address)

    def task(self, name: str) -> Callable[[Callable[[Any, Any], Any]], None]:
        def add(handler: Callable[[Any, Any], Any]) -> None:
            async def on_a_loop(job: Any, ctx: trax.AsyncContext) -> Any:
                return await handler(job, ctx)

            def in_a_thread(job: Any, ctx: trax.Context) -> Any:
                try:
                    handler(job, Awaitables(ctx)).send(None)
                except StopIteration as end:
                    return end.value
                raise AssertionError("nothing else is awaited")

            self.worker.task(name)(on_a_loop if self.kind == "async" else in_a_thread)

        return add

    def run_one(self, *arguments: Any) -> Ran:
        return self._result(testkit.run_one(self.worker, self.db, *arguments))

    def run_through(self, job_id: Any) -> Ran:
        return self._result(testkit.run_through(self.worker, self.db, job_id))

    def _result(self, result: Any) -> Ran:
        ran: Ran = asyncio.run(result) if inspect.iscoroutine(result) else result
        return ran


@pytest.fixture(params=["sync", "async"])
def kit(request: pytest.FixtureRequest, db: psycopg.Connection[Any]) -> Kit:
    return Kit(request.param, db)


async def ship(item: Any, ctx: Any) -> Any:
    """End in the way that the item names."""
    if item == "stone":
        raise ValueError("too heavy")
    if item == "bomb":
        raise trax.Permanent("no")
    if item == "cake":
        raise trax.Snooze(60)
    if item == "order":
        raise trax.Cancel("no more")
    if item == "visa":
        await ctx.signal("granted")
    if item == "lie":
        return trax.RECORDED
    return {"sent": item}


def test_one_job_runs_and_its_outcome_is_reported(kit: Kit, client: trax.Client) -> None:
    cases: list[tuple[str, str, Any, str | None]] = [
        ("tea", "completed", {"sent": "tea"}, None),
        ("stone", "retrying", None, "ValueError: too heavy"),
        ("bomb", "dead", None, "no"),
        ("cake", "released", None, None),
        ("order", "cancelled", None, "no more"),
        ("visa", "suspended", None, None),
        ("lie", "retrying", None, "the handler returned trax.RECORDED, but has not completed"),
    ]
    kit.task("ship")(ship)
    kit.task("unused")(ship)
    ids = client.enqueue_many("ship", [item for item, *_ in cases], max_retries=1)
    other = client.enqueue("other", 1)
    for job_id, (item, ended, output, error) in zip(ids, cases, strict=True):
        ran = kit.run_one(*(["ship"] if item == "tea" else []))
        assert (ran.job_id, ran.attempt, ran.ended, ran.output) == (job_id, 1, ended, output)
        assert ran.error == error or str(error) in str(ran.error)
    with pytest.raises(KitError) as refused:
        kit.run_one("ship")
    said = str(refused.value)
    assert said.startswith('no job of task "ship" is ready\nwaiting jobs:\n')
    waiting = f"  job {ids[1]}: ship 'stone', group default, priority 0, due in "
    assert re.search(rf"^{waiting}\d+\.\d s, for attempt 2$", said, re.MULTILINE)
    assert f"  job {ids[5]}: ship 'visa', group default, priority 0, waiting for a signal" in said
    assert f"  job {other}: other 1, group default, priority 0, ready" in said
    with pytest.raises(KitError, match=r'^no job of task "ship", "unused" is ready'):
        kit.run_one()


def test_a_handler_runs_where_the_test_does(kit: Kit, client: trax.Client) -> None:
    seen: list[Any] = []

    async def handler(job: Any, ctx: Any) -> None:
        loop = asyncio.get_running_loop() if kit.kind == "async" else None
        seen.append((threading.get_ident(), loop))

    kit.task("where")(handler)
    client.enqueue("where")
    kit.run_one()
    assert seen[0][0] == threading.get_ident()


def test_input_is_converted_and_a_misfit_fails_the_attempt(kit: Kit, client: trax.Client) -> None:
    def plain(job: dict[str, int]) -> int:
        return job["n"]

    async def on_a_loop(job: dict[str, int]) -> int:
        return job["n"]

    kit.worker.task("typed")(plain if kit.kind == "sync" else on_a_loop)
    client.enqueue_many("typed", [{"n": 7}, {"n": "x"}])
    assert kit.run_one().output == 7
    misfit = kit.run_one()
    assert misfit.ended == "retrying"
    assert "the input does not fit this handler" in str(misfit.error)


def test_a_handler_of_many_jobs_gets_one(kit: Kit, client: trax.Client) -> None:
    def doubled(jobs: list[trax.GatheredJob[int]]) -> list[int]:
        return [2 * job.input for job in jobs]

    async def doubled_later(jobs: list[trax.AsyncGatheredJob[int]]) -> list[int]:
        return [2 * job.input for job in jobs]

    many = kit.worker.task_many("many", max_jobs=5, max_wait=0)
    many(doubled if kit.kind == "sync" else doubled_later)
    client.enqueue_many("many", [1, 2])
    assert [kit.run_one().output, kit.run_one().output] == [2, 4]


def test_a_handler_that_completes_its_job_has_its_output(
    kit: Kit, client: trax.Client, shop: str
) -> None:
    async def handler(job: Any, ctx: Any) -> Any:
        context = ctx if kit.kind == "async" else ctx._context
        with psycopg.connect(shop) as connection:
            assert trax.Client(connection).complete(context, 7)
        return trax.RECORDED

    kit.task("own")(handler)
    client.enqueue("own")
    assert kit.run_one().output == 7


def test_a_lost_lease_is_named(kit: Kit, client: trax.Client, shop: str) -> None:
    async def handler(job: Any, ctx: Any) -> Any:
        if job == "released":
            with psycopg.connect(shop) as connection:
                sql = "select trax.release(%s, %s)"
                connection.execute(sql, [ctx.job_id, ctx.token])
        else:
            testkit.pass_time(shop, 7200)
        if job == "step":
            await ctx.step("a", lambda: 1)

    kit.task("lost")(handler)
    for job in ("released", "expired", "step"):
        job_id = client.enqueue("lost", job)
        assert kit.run_one("lost").ended == "lost", job
        client.cancel(job_id)


def test_sleeps_retries_and_children_of_years_take_no_time(kit: Kit, client: trax.Client) -> None:
    attempts: list[int] = []

    async def parent(job: Any, ctx: Any) -> Any:
        attempts.append(ctx.attempt)
        await ctx.sleep("year", YEAR)
        await ctx.spawn("fast", "leaf", 1)
        await ctx.spawn("slow", "branch", 1)
        first = await ctx.children("first", mode="any")
        everything = await ctx.children()
        return [[one.output for one in first if one.state == "completed"], len(everything)]

    async def branch(n: Any, ctx: Any) -> Any:
        await ctx.sleep("month", 30 * 86_400)
        if ctx.attempt == 1:
            raise ValueError("again")
        await ctx.spawn("leaf", "leaf", n)
        return [one.output for one in await ctx.children()]

    async def leaf(n: Any, ctx: Any) -> Any:
        return n

    for name, handler in (("parent", parent), ("branch", branch), ("leaf", leaf)):
        kit.task(name)(handler)
    begun = time.monotonic()
    job_id = client.enqueue("parent", max_retries=0)
    assert kit.run_through(job_id) == Ran(job_id, 1, "completed", [[1], 2])
    assert time.monotonic() - begun < PATIENCE
    assert attempts == [1, 1, 1, 1]
    with pytest.raises(KitError, match=f"^job {job_id} has ended before, or does not exist$"):
        kit.run_through(job_id)


def test_a_wait_ends_by_a_signal_or_when_its_time_has_passed(kit: Kit, client: trax.Client) -> None:
    async def handler(job: Any, ctx: Any) -> Any:
        seen = [await ctx.signal("go", timeout=86_400)]
        try:
            seen.append(await ctx.signal("go", timeout=86_400))
        except trax.TimedOutError as error:
            seen.append(str(error))
        return seen

    kit.task("waits")(handler)
    job_id = client.enqueue("waits")
    assert kit.run_through(job_id) == Ran(job_id, 1, "suspended")
    send = (
        f'job {job_id} waits for the signal "go"; send it with client.send_signal({job_id}, "go")'
    )
    with pytest.raises(KitError, match=f"^{re.escape(send)}$"):
        kit.run_through(job_id)
    client.send_signal(job_id, "go", 7)
    assert kit.run_through(job_id).ended == "suspended"
    testkit.pass_time(kit.db, 43_200)
    with pytest.raises(KitError, match="waits for the signal"):
        kit.run_through(job_id)
    testkit.pass_time(kit.db, timedelta(hours=12))
    assert kit.run_through(job_id).output == [7, 'no signal "go" was sent in time']


def test_a_failure_is_retried_until_the_job_is_dead(kit: Kit, client: trax.Client) -> None:
    kit.task("ship")(ship)
    job_id = client.enqueue("ship", "stone", max_retries=3)
    assert kit.run_through(job_id) == Ran(job_id, 4, "dead", None, "ValueError: too heavy")


def test_a_job_that_no_test_can_run_is_named(kit: Kit, client: trax.Client) -> None:
    async def parent(task: Any, ctx: Any) -> Any:
        await ctx.spawn("child", task)
        await ctx.children()

    async def listens(job: Any, ctx: Any) -> Any:
        await ctx.signal("go")

    kit.task("parent")(parent)
    kit.task("listens")(listens)
    elsewhere = client.enqueue("parent", "elsewhere")
    with pytest.raises(
        trax.UsageError, match=r'no handler for task "elsewhere"; decorate one with'
    ):
        kit.run_through(elsewhere)
    listening = client.enqueue("parent", "listens")
    with pytest.raises(KitError, match=r'waits for the signal "go"; send it with client\.send_si'):
        kit.run_through(listening)
    client.enqueue_many("held", [1, 2], concurrency_key="k")
    kit.db.execute("select trax.claim_next(tasks => '{held}')")
    second = client.enqueue("listens", concurrency_key="k")
    for said in ('no job of task "listens" is ready', f"job {second} cannot run"):
        with pytest.raises(KitError, match=rf"^{said}\nwaiting jobs:\n(.*\n)*.*its key$"):
            kit.run_through(second)
    with pytest.raises(KitError, match=r"^job 77000 has ended before, or does not exist$"):
        kit.run_through(77_000)


def test_a_retry_a_lease_and_a_later_job_come_when_time_passes(
    kit: Kit, client: trax.Client
) -> None:
    kit.task("ship")(ship)
    client.enqueue("ship", "stone", max_retries=1)
    assert kit.run_one().ended == "retrying"
    [retry] = testkit.enqueued(kit.db, "ship")
    assert retry.attempts == 1
    assert 200 < retry.due_in < 400
    testkit.pass_time(kit.db, 100)
    with pytest.raises(KitError):
        kit.run_one()
    testkit.pass_time(kit.db, 300)
    assert (kit.run_one().attempt, testkit.enqueued(kit.db, "ship")) == (2, [])

    client.enqueue("ship", "tea", run_at=datetime.now(timezone.utc) + timedelta(hours=1))
    testkit.pass_time(kit.db, 3601)
    claimed = kit.db.execute("select job_id from trax.claim_next(tasks => '{ship}')").fetchall()
    testkit.pass_time(kit.db, 31)
    sql = "select failure_kind from trax.run where job_id = %s"
    assert kit.db.execute(sql, claimed[0]).fetchall() == [("lease_expired",)]


def test_the_waiting_jobs_are_listed(db: psycopg.Connection[Any], client: trax.Client) -> None:
    assert testkit.enqueued(db, "tea") == []
    at = datetime(2900, 1, 1, tzinfo=timezone.utc)
    first = client.enqueue(
        "tea", {"cups": 2}, group_name="post", priority=7, unique_key="u", concurrency_key="k"
    )
    second = client.enqueue("tea", 1.5, run_at=at, max_retries=3, concurrency_key="k")
    one, two = testkit.enqueued(db, "tea")
    assert (one.job_id, one.input, one.group_name, one.priority) == (first, {"cups": 2}, "post", 7)
    assert (one.unique_key, one.concurrency_key, one.waits_for) == ("u", "k", None)
    assert (one.attempts, one.max_retries, one.manifest) == (0, None, None)
    assert one.due_in < 0
    assert (two.job_id, two.input, two.run_at, two.max_retries) == (second, 1.5, at, 3)
    assert two.waits_for == "time"
    assert [job.task for job in testkit.enqueued(db)] == ["tea", "tea"]


def test_an_address_and_an_async_connection_name_the_database_too(
    shop: str, db: psycopg.Connection[Any], client: trax.Client
) -> None:
    async def everything() -> None:
        worker = trax.AsyncWorker("")

        @worker.task("several")
        async def several(n: int) -> int:
            return n

        async with await psycopg.AsyncConnection.connect(shop, autocommit=True) as connection:
            ids = [await trax.AsyncClient(connection).enqueue("several", n) for n in range(2)]
            assert [job.input for job in testkit.enqueued(connection, "several")] == [0, 1]
            testkit.pass_time(connection, 1)
            assert await testkit.run_through(worker, connection, ids[0]) == Ran(
                ids[0], 1, "completed", 0
            )
            assert (await testkit.run_one(worker, shop)).output == 1

    asyncio.run(everything())


def test_a_cycle_that_another_session_keeps_open_is_waited_for(
    db: psycopg.Connection[Any], shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held(connection: psycopg.Connection[Any]) -> bool:
        connection.rollback()
        return bool(connection.execute("select step from trax.tick()").fetchall())

    with psycopg.connect(shop) as other:
        eventually(lambda: held(other))
        monkeypatch.setattr(testkit, "PATIENCE", 0.2)
        with pytest.raises(KitError, match="no cycle could run: another session keeps one open"):
            testkit.pass_time(db, 1)
        monkeypatch.setattr(testkit, "PATIENCE", PATIENCE)
        end = threading.Timer(0.2, other.rollback)
        end.start()
        testkit.pass_time(db, 1)
        end.join()


def test_an_outcome_that_a_lock_keeps_from_being_recorded_is_named(
    kit: Kit, client: trax.Client, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(shop) as other:

        async def handler(job: Any, ctx: Any) -> None:
            other.execute("select from trax.lease where job_id = %s for update", [ctx.job_id])

        kit.task("locked")(handler)
        job_id = client.enqueue("locked")
        monkeypatch.setattr(testkit, "LEASE", 5.0)
        with pytest.raises(KitError, match=f"the outcome of job {job_id} could not be recorded"):
            kit.run_one()


def test_a_message_has_twenty_jobs_at_most(kit: Kit, client: trax.Client) -> None:
    kit.task("none")(ship)
    with pytest.raises(KitError, match=r"is ready\nno job is waiting$"):
        kit.run_one()
    client.enqueue_many("many", range(22))
    with pytest.raises(KitError, match=r"ready\n  and 2 more$"):
        kit.run_one()


def test_an_interrupt_of_the_test_goes_through(client: trax.Client, shop: str) -> None:
    worker, later = trax.Worker(""), trax.AsyncWorker("")

    @worker.task("stopped")
    def stopped() -> None:
        raise KeyboardInterrupt

    @later.task("stopped")
    async def stopped_later() -> None:
        await asyncio.sleep(PATIENCE)

    async def timed() -> None:
        await asyncio.wait_for(testkit.run_one(later, shop), 0.1)

    client.enqueue_many("stopped", [1, 2])
    with pytest.raises(KeyboardInterrupt):
        testkit.run_one(worker, shop)
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(timed())


def test_wrong_use_is_refused_with_what_to_type(
    shop: str, db: psycopg.Connection[Any], task: str
) -> None:
    worker = trax.Worker("")
    worker.task("b")(lambda: None)
    cases: list[tuple[Callable[[], Any], str]] = [
        (
            lambda: testkit.run_one(trax.Worker(""), db),
            r'has no handler; decorate one with @worker\.task\("name"\)',
        ),
        (
            lambda: testkit.run_one(worker, db, "a"),
            r'task "a"; decorate one with @worker\.task\("a',
        ),
        (lambda: testkit.run_one("worker", db), r"worker is a text; write a trax\.Worker"),  # type: ignore[call-overload]
        (lambda: testkit.run_through(worker, db, "7"), "job_id is a text; write job_id=7"),  # type: ignore[call-overload]
        (lambda: testkit.run_one(worker, db, ["b"]), "task is a list; write"),  # type: ignore[call-overload]
        (lambda: testkit.enqueued(db, 7), "task is an int; write"),  # type: ignore[arg-type]
        (lambda: testkit.enqueued(7), "db is an int; write a connection of psycopg"),  # type: ignore[arg-type]
        (lambda: testkit.enqueued("host"), "the address of the database is invalid"),
        (lambda: testkit.pass_time(db, -1), "time is -1; write a finite duration"),
        (lambda: testkit.pass_time(db, "1 day"), "time is a text; write time=90, a number"),  # type: ignore[arg-type]
    ]
    for call, said in cases:
        with pytest.raises(trax.UsageError, match=said):
            call()
    with psycopg.connect(shop) as connection:
        connection.execute("select 1")
        with pytest.raises(trax.UsageError, match=r"is in a transaction, .* autocommit=True"):
            testkit.enqueued(connection)
    with pytest.raises(trax.UsageError, match="db is closed"):
        testkit.enqueued(connection)
    role = task.replace(".", "_")
    db.execute(f"create role {role} login")
    try:
        with pytest.raises(trax.UsageError, match="connect as the owner of the extension"):
            testkit.pass_time(make_conninfo(shop, user=role), 1)
    finally:
        db.execute(f"drop role {role}")


def test_the_example_of_the_readme_passes(shop: str, tmp_path: Path) -> None:
    *_, code = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "test_sign_up.py").write_text(code)
    environment = {**os.environ, "DATABASE_URL": shop, "PYTHONPATH": str(README.parent / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sign_up.py"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert "1 passed" in ran.stdout, ran.stdout
