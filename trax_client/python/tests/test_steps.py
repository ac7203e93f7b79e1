from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from conftest import PATIENCE, Fleet, ended, eventually, in_state, wait

import trax

Handler = Callable[[Any, Any], Awaitable[Any]]


class Awaitables:
    """The context of a thread, with the methods of the context of an event loop."""

    def __init__(self, context: trax.Context) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._context, name)
        if name not in ("step", "sleep", "signal", "spawn", "children"):
            return value

        async def call(*args: Any, **kwargs: Any) -> Any:
            return value(*args, **kwargs)

        return call


def start(fleet: Fleet, handler: Handler, **settings: Any) -> None:
    """Start a worker with an async handler, which the sync kind runs in its thread."""

    async def on_a_loop(job: Any, ctx: trax.AsyncContext) -> Any:
        return await handler(job, ctx)

    def in_a_thread(job: Any, ctx: trax.Context) -> Any:
        steps: Any = handler(job, Awaitables(ctx))
        try:
            steps.send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("nothing else is awaited")

    fleet.start(on_a_loop if fleet.kind == "async" else in_a_thread, **settings)


def suspended(client: trax.Client, job_id: int, step: str) -> None:
    """Wait until the job is suspended in this step."""

    def probe() -> bool:
        open_steps = [one.step for one in client.read_steps(job_id) if one.recorded_at is None]
        job = client.job(job_id)
        return bool(job and job.state == "queued" and open_steps == [step])

    eventually(probe)


@dataclasses.dataclass
class Charge:
    cents: int


def test_a_step_runs_once_and_later_attempts_get_its_result(
    fleet: Fleet, client: trax.Client
) -> None:
    ran: list[str] = []

    async def handler(job: Any, ctx: Any) -> Any:
        def work(name: str, result: Any) -> Any:
            ran.append(name)
            return result

        first = await ctx.step("charge", lambda: work("1", Charge(7)), returns=Charge)
        second = await ctx.step("charge", lambda: work("2", (1, None)))
        nothing = await ctx.step("nothing", lambda: work("3", None))
        if ctx.attempt == 1:
            raise ValueError("once")
        return [first, second, nothing, await ctx.step("last", lambda: work("4", "end"))]

    job_id = client.enqueue(fleet.task, max_retries=1, retry_delay=0)
    start(fleet, handler)
    assert ended(client, job_id).output == [{"cents": 7}, [1, None], None, "end"]
    assert ran == ["1", "2", "3", "4"]
    steps = client.read_steps(job_id)
    assert [(one.step, one.kind, one.output, one.attempt) for one in steps] == [
        ("charge", "step", {"cents": 7}, 1),
        ("charge#2", "step", [1, None], 1),
        ("nothing", "step", None, 1),
        ("last", "step", "end", 2),
    ]


def test_a_step_that_failed_and_is_tried_again_keeps_its_name(
    fleet: Fleet, client: trax.Client
) -> None:
    tries: list[str] = []

    def charge() -> str:
        tries.append("charge")
        if len(tries) == 1:
            raise ConnectionError("the card is busy")
        return "charged"

    async def handler(job: Any, ctx: Any) -> Any:
        try:
            await ctx.step("charge", charge)
        except ConnectionError:
            await ctx.step("charge", charge)
        if ctx.attempt == 1:
            raise ValueError("once")

    job_id = client.enqueue(fleet.task, max_retries=1, retry_delay=0)
    start(fleet, handler)
    assert ended(client, job_id).state == "completed"
    assert len(tries) == 2
    assert [(one.step, one.attempt) for one in client.read_steps(job_id)] == [("charge", 1)]


def test_an_async_function_is_a_step_too(url: str, client: trax.Client, task: str) -> None:
    fleet = Fleet("async", url, task)

    async def handler(job: Any, ctx: trax.AsyncContext) -> Any:
        async def work() -> int:
            await wait_a_moment()
            return 7

        return await ctx.step("work", work, returns=int)

    async def wait_a_moment() -> None:
        await wait(None, 0.01)  # type: ignore[arg-type]

    job_id = client.enqueue(task)
    fleet.start(handler)
    assert ended(client, job_id).output == 7
    fleet.stop()


def test_a_suspended_job_occupies_no_place(fleet: Fleet, client: trax.Client) -> None:
    async def handler(job: Any, ctx: Any) -> Any:
        if job == "short":
            return job
        try:
            await ctx.sleep("nap", datetime.now(timezone.utc) + timedelta(hours=1))
            payload = await ctx.signal("go", returns=dict[str, int])
        except Exception:  # noqa: BLE001 - it does not catch a suspension
            return "swallowed"
        return payload

    job_id = client.enqueue(fleet.task)
    start(fleet, handler, concurrency=1)
    suspended(client, job_id, "nap")
    assert ended(client, client.enqueue(fleet.task, "short")).output == "short"
    # A forked job has the sleep behind it, as if the time had come.
    assert client.cancel(job_id) == "cancelled"
    second = client.fork(job_id, input={"forked": True})
    suspended(client, second, "nap")
    assert client.cancel(second) == "cancelled"


def test_waits_end_by_time_signal_and_timeout(fleet: Fleet, client: trax.Client) -> None:
    attempts: list[int] = []

    async def handler(job: Any, ctx: Any) -> Any:
        attempts.append(ctx.attempt)
        early = await ctx.signal("go")
        await ctx.sleep("nap", 0.3)
        seen = [early, await ctx.signal("go")]
        try:
            await ctx.signal("never", timeout=timedelta(seconds=0.3), step="patience")
        except trax.TimedOutError as error:
            seen.append(str(error))
        return [*seen, await ctx.signal("end", returns=dict[str, int])]

    job_id = client.enqueue(fleet.task, max_retries=0)
    assert client.send_signal(job_id, "go", {"n": 1}) == "sent"
    assert client.send_signal(job_id, "go", {"n": 2}, "the second") == "sent"
    assert client.send_signal(job_id, "go", {"n": 3}, "the second") == "duplicate"
    start(fleet, handler)
    suspended(client, job_id, "end")
    client.send_signal(job_id, "end", {"n": 4})
    output = ended(client, job_id).output
    assert output == [{"n": 1}, {"n": 2}, 'no signal "never" was sent in time', {"n": 4}]
    assert attempts == [1, 1, 1, 1], "no attempt is spent"
    assert [one.step for one in client.read_steps(job_id)] == [
        "go",
        "nap",
        "go#2",
        "patience",
        "end",
    ]
    assert client.send_signal(job_id, "go") == "ended"


def test_children_are_spawned_once_and_awaited(fleet: Fleet, client: trax.Client) -> None:
    async def handler(job: Any, ctx: Any) -> Any:
        if job is not None and "child" in job:
            if job["child"] == 2:
                raise trax.Permanent("no luck")
            return job["child"]
        ids = [
            await ctx.spawn("part", fleet.task, {"child": n}, priority=n, max_retries=0)
            for n in (1, 2)
        ]
        if ctx.attempt == 1:
            raise ValueError("once")
        children: list[trax.Child] = await ctx.children()
        assert [one.job_id for one in children] == ids
        return [(one.step, one.state, one.output, one.error) for one in children]

    job_id = client.enqueue(fleet.task, {}, max_retries=1, retry_delay=0)
    start(fleet, handler)
    assert ended(client, job_id).output == [
        ["part", "completed", 1, None],
        ["part#2", "failed", None, "no luck"],
    ]


def test_a_wait_for_children_times_out_with_those_that_there_are(
    fleet: Fleet, client: trax.Client
) -> None:
    async def handler(job: Any, ctx: Any) -> Any:
        await ctx.spawn("never", "test.nobody")
        try:
            return await ctx.children(timeout=0.2)
        except trax.TimedOutError as error:
            return [child.state for child in error.children]

    job_id = client.enqueue(fleet.task)
    start(fleet, handler)
    assert ended(client, job_id).output == ["queued"]


def test_a_swallowed_suspension_does_no_harm(
    fleet: Fleet, client: trax.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caught: list[str] = []

    async def handler(job: Any, ctx: Any) -> Any:
        try:
            return await ctx.signal("go")
        except BaseException as error:  # noqa: BLE001
            caught.append(type(error).__name__)
        with pytest.raises(trax.Suspended):
            await ctx.step("more", lambda: caught.append("more"))
        return "swallowed"

    job_id = client.enqueue(fleet.task, max_retries=0)
    start(fleet, handler)
    eventually(lambda: "its handler went on: let trax.Suspended pass" in caplog.text)
    suspended(client, job_id, "go")
    client.send_signal(job_id, "go", 7)
    assert ended(client, job_id).output == 7
    assert caught == ["Suspended"]


@pytest.mark.parametrize("call", ["step", "sleep", "spawn"])
def test_a_step_with_a_lost_lease_is_not_recorded(
    fleet: Fleet, client: trax.Client, call: str
) -> None:
    reasons: list[Any] = []

    async def handler(job: Any, ctx: Any) -> Any:
        def work() -> str:
            if not reasons:
                sql = "select trax.release(job_id, token) from trax.lease where job_id = %s"
                with psycopg.connect(fleet.url) as other:
                    other.execute(sql, [ctx.job_id])
            return f"done {len(reasons)}"

        try:
            if call == "step":
                return await ctx.step("work", work)
            done = work()
            if call == "sleep":
                await ctx.sleep("nap", 0)
            else:
                await ctx.spawn("part", "test.nobody")
            return done
        finally:
            reasons.append(ctx.reason)

    job_id = client.enqueue(fleet.task, max_retries=0)
    start(fleet, handler, concurrency=1, lease=30)
    assert ended(client, job_id).output == "done 1"
    assert reasons == [trax.Reason.LEASE_LOST, None]
    assert len(client.read_steps(job_id)) == 1


def test_a_step_done_when_a_cancel_comes_is_recorded_and_undone(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any]
) -> None:
    begun = threading.Event()

    async def handler(job: Any, ctx: Any) -> Any:
        def work() -> str:
            begun.set()
            eventually(lambda: ctx.is_stopped)
            return "charged"

        undo = {"task": f"{fleet.task}.undo", "input": {"order": 7}}
        await ctx.step("charge", work, undo=undo)
        await ctx.step("ship", lambda: "shipped")

    job_id = client.enqueue(fleet.task)
    start(fleet, handler)
    assert begun.wait(PATIENCE)
    assert client.cancel(job_id, tree=False) == "requested"
    assert ended(client, job_id).state == "cancelled"
    steps = client.read_steps(job_id)
    assert [(one.step, one.output) for one in steps] == [("charge", "charged")]
    assert steps[0].undo == {"task": f"{fleet.task}.undo", "input": {"order": 7}}
    sql = "select count(*) from trax.work_queue where task = %s"
    assert db.execute(sql, [f"{fleet.task}.undo"]).fetchone() == (1,)


def test_a_suspended_job_is_cancelled_at_once(fleet: Fleet, client: trax.Client) -> None:
    async def handler(job: Any, ctx: Any) -> Any:
        await ctx.signal("go")

    job_id = client.enqueue(fleet.task)
    start(fleet, handler)
    suspended(client, job_id, "go")
    assert client.cancel(job_id) == "cancelled"
    assert ended(client, job_id).state == "cancelled"


def test_recorded_steps_that_newer_code_does_not_reach_are_logged(
    fleet: Fleet, client: trax.Client, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(job: Any, ctx: Any) -> Any:
        if ctx.attempt == 1:
            await ctx.step("old", lambda: 1)
            raise ValueError("once")
        if job == "all":
            return await ctx.step("new", lambda: 2)
        return 3

    caplog.set_level(logging.WARNING, "trax")
    jobs = client.enqueue_many(fleet.task, ["all", "none"], max_retries=1, retry_delay=0)
    start(fleet, handler)
    assert [ended(client, job_id).output for job_id in jobs] == [2, 3]
    eventually(lambda: caplog.text.count("was its code changed meanwhile?") == 2)
    assert f'job {jobs[0]} ({fleet.task}) completed without its recorded steps "old"' in caplog.text
    assert f"job {jobs[1]} ({fleet.task}) completed without its 1 recorded steps" in caplog.text


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (object(), 'step "work" cannot be recorded: its result is an object, not JSON'),
        ("x" * 2_000_000, 'the result of step "work" was refused: the output is too large'),
    ],
    ids=["object", "large"],
)
def test_a_result_that_cannot_be_recorded_fails_the_job_for_good(
    fleet: Fleet, client: trax.Client, result: Any, said: str
) -> None:
    async def handler(job: Any, ctx: Any) -> Any:
        await ctx.step("work", lambda: result)

    job_id = client.enqueue(fleet.task, max_retries=5)
    start(fleet, handler)
    failed = ended(client, job_id)
    assert failed.state == "failed"
    assert said in str(failed.error)


def test_a_step_of_another_kind_is_refused(fleet: Fleet, client: trax.Client) -> None:
    async def handler(job: Any, ctx: Any) -> Any:
        if ctx.attempt == 1:
            await ctx.step("go", lambda: 1)
            raise ValueError("once")
        await ctx.signal("go")

    job_id = client.enqueue(fleet.task, max_retries=1, retry_delay=0)
    start(fleet, handler)
    assert "was recorded as step, not as signal: give each" in str(ended(client, job_id).error)


def test_a_step_is_recorded_in_the_transaction_of_the_handler(
    fleet: Fleet,
    client: trax.Client,
    url: str,
    db: psycopg.Connection[Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = fleet.task.replace(".", "_")
    db.execute(f"create table {table} (n int)")

    async def handler(job: Any, ctx: Any) -> Any:
        context = ctx if isinstance(ctx, trax.AsyncContext) else ctx._context
        with psycopg.connect(url) as connection:
            step = trax.Client(connection).record_step(context, "pay", {"paid": 3})
            assert step is not None
            if step.recorded:
                connection.execute(f"insert into {table} values (3)")
        if ctx.attempt == 1:
            raise ValueError("once")
        return [step.recorded, step.output]

    job_id = client.enqueue(fleet.task, max_retries=1, retry_delay=0)
    start(fleet, handler)
    assert ended(client, job_id).output == [False, {"paid": 3}]
    assert db.execute(f"select count(*) from {table}").fetchone() == (1,)
    db.execute(f"drop table {table}")
    fleet.stop()
    assert f"job {job_id} ({fleet.task}) completed without" not in caplog.text


def test_steps_survive_the_end_of_every_connection(fleet: Fleet, client: trax.Client) -> None:
    ran: list[int] = []

    async def handler(job: Any, ctx: Any) -> Any:
        def work(n: int) -> int:
            ran.append(n)
            sql = (
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = %s and query like '%%record_step%%'"
            )
            with psycopg.connect(fleet.url) as other:
                other.execute(sql, [fleet.sessions])
            return n

        return [await ctx.step("n", lambda n=n: work(n)) for n in range(5)]

    job_id = client.enqueue(fleet.task, max_retries=0)
    start(fleet, handler)
    assert ended(client, job_id).output == [0, 1, 2, 3, 4]
    assert ran == [0, 1, 2, 3, 4]


def test_a_fork_begins_behind_the_steps_before_its_place(fleet: Fleet, client: trax.Client) -> None:
    ran: list[str] = []

    async def handler(job: Any, ctx: Any) -> Any:
        for name in ("a", "b", "c"):
            await ctx.step(name, lambda name=name: ran.append(name))
        return job

    first = client.enqueue(fleet.task, {"n": 1})
    start(fleet, handler)
    assert ended(client, first).state == "completed"
    assert ended(client, client.fork(first, "b")).output == {"n": 1}
    assert ended(client, client.fork(first, input={"n": 2})).output == {"n": 2}
    assert ran == ["a", "b", "c", "b", "c"]


def test_a_cancel_reaches_the_children(fleet: Fleet, client: trax.Client) -> None:
    async def handler(job: Any, ctx: Any) -> Any:
        if job is not None and "child" in job:
            return await ctx.signal("never")
        await ctx.spawn("part", fleet.task, {"child": True})
        return await ctx.children()

    job_id = client.enqueue(fleet.task, {})
    start(fleet, handler)
    suspended(client, job_id, "children")
    [part] = [one.output for one in client.read_steps(job_id) if one.kind == "child"]
    suspended(client, part, "never")
    assert client.cancel(job_id) == "cancelled"
    in_state(client, part, "cancelled", 0)
