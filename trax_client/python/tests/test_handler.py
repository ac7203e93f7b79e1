"""What may be a handler, and how a handler ends its attempt."""

from __future__ import annotations

import asyncio
import builtins
import functools
import json
import logging
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timezone
from typing import Any

import psycopg
import pytest
from conftest import Fleet, ended, eventually, in_state

import trax
from trax.attempt import Attempt, HeldAttempts
from trax.clock import now
from trax.outcome import Kind, Reason, judged


class Greeter:
    def __init__(self, word: str) -> None:
        self.word = word

    def __call__(self, job: dict[str, str], ctx: trax.Context) -> str:
        return f"{self.word} {job['name']} {ctx.attempt}"

    async def later(self, job: dict[str, str], ctx: trax.AsyncContext) -> str:
        return self(job, ctx)  # type: ignore[arg-type]


class AsyncGreeter(Greeter):
    async def __call__(  # type: ignore[override]
        self, job: dict[str, str], ctx: trax.AsyncContext
    ) -> str:
        return await self.later(job, ctx)

    async def later(self, job: dict[str, str], ctx: trax.AsyncContext) -> str:
        return f"{self.word} {job['name']} {ctx.attempt}"


def greet(word: str, job: dict[str, str], ctx: trax.Context, *, end: str) -> str:
    return f"{word} {job['name']} {ctx.attempt}{end}"


async def greet_later(word: str, job: dict[str, str], ctx: trax.AsyncContext, *, end: str) -> str:
    return f"{word} {job['name']} {ctx.attempt}{end}"


def test_a_generator_or_a_class_is_no_handler() -> None:
    def generator(job: Any) -> Iterator[int]:
        yield 1

    async def async_generator(job: Any) -> AsyncIterator[int]:
        yield 1

    for worker in (trax.Worker(""), trax.AsyncWorker("")):
        for yields in (generator, async_generator, functools.partial(generator)):
            with pytest.raises(trax.UsageError, match='"a" yields: return the output instead'):
                worker.task("a")(yields)
        with pytest.raises(trax.UsageError, match='"a" is a class: decorate a function'):
            worker.task("a")(Greeter)
        with pytest.raises(trax.UsageError, match='"a" is a text: decorate a function'):
            worker.task("a")("b")  # type: ignore[type-var]


def test_partials_methods_and_callable_objects_are_handlers(
    fleet: Fleet, client: trax.Client
) -> None:
    handlers: list[Any] = (
        [functools.partial(greet, "hello", end=""), Greeter("hello"), Greeter("hello").__call__]
        if fleet.kind == "sync"
        else [
            functools.partial(greet_later, "hello", end=""),
            AsyncGreeter("hello"),
            AsyncGreeter("hello").later,
        ]
    )
    worker: Any = trax.Worker if fleet.kind == "sync" else trax.AsyncWorker
    for handler in handlers:
        job_id = client.enqueue(fleet.task, {"name": "ada"}, max_retries=0)
        one = worker(fleet.url)
        one.task(fleet.task)(handler)
        done = one.run(until_empty=True)
        if done is not None:
            asyncio.run(done)
        assert ended(client, job_id).output == "hello ada 1"


def test_the_wrong_kind_of_callable_object_is_refused() -> None:
    with pytest.raises(trax.UsageError, match=r'"a" is async: write def, or use trax\.AsyncWorker'):
        trax.Worker("").task("a")(AsyncGreeter("hello"))
    with pytest.raises(trax.UsageError, match=r"is not async: write async def, or use trax\.Work"):
        trax.AsyncWorker("").task("a")(functools.partial(greet, "hello", end=""))


def test_the_context_of_the_other_kind_is_refused() -> None:
    def plain(job: Any, ctx: trax.AsyncContext) -> None: ...

    async def coroutine(job: Any, ctx: trax.Context) -> None: ...

    cases: list[tuple[Any, Any, str]] = [
        (trax.Worker(""), plain, 'is not async: annotate the context as "trax.Context"'),
        (trax.AsyncWorker(""), coroutine, 'is async: annotate the context as "trax.AsyncContext"'),
    ]
    for worker, function, said in cases:
        with pytest.raises(trax.UsageError, match=f'^the handler of "a" {said}$'):
            worker.task("a")(function)


@pytest.mark.parametrize(
    ("raised", "state", "error"),
    [
        (trax.Permanent, "failed", "failed for good"),
        (trax.Cancel, "cancelled", "cancelled by its handler"),
    ],
)
def test_a_verdict_needs_no_message(
    fleet: Fleet, client: trax.Client, raised: Any, state: str, error: str
) -> None:
    def handler(job: Any) -> None:
        raise raised

    job_id = client.enqueue(fleet.task, max_retries=1)
    fleet.start(handler)
    result = ended(client, job_id)
    assert (result.state, result.error) == (state, error)


def test_a_retry_that_was_asked_for_is_no_warning(
    fleet: Fleet, client: trax.Client, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(job: Any, ctx: trax.Context) -> None:
        if ctx.attempt == 1:
            raise trax.RetryIn(0, "not yet")

    caplog.set_level(logging.INFO, "trax")
    job_id = client.enqueue(fleet.task, max_retries=1)
    fleet.start(handler)
    assert ended(client, job_id).state == "completed"
    [line] = [one for one in caplog.records if f"job {job_id} " in one.getMessage()]
    assert line.levelno == logging.INFO
    assert line.exc_info is None
    assert "asks in attempt 1 of 2 to be retried: not yet" in line.getMessage()


def test_recorded_without_a_completion_fails_the_attempt(
    fleet: Fleet,
    client: trax.Client,
    db: psycopg.Connection[Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def handler(job: bool, ctx: trax.Context) -> Any:
        if job:
            with psycopg.connect(fleet.url) as connection:
                assert trax.Client(connection).complete(ctx, "done")
        return trax.RECORDED

    said = "the handler returned trax.RECORDED, but has not completed the job: call complete"
    jobs = client.enqueue_many(fleet.task, [True, False], max_retries=0)
    fleet.start(handler, lease=60)
    assert ended(client, jobs[0]) == trax.JobResult("completed", "done", None)
    result = ended(client, jobs[1])
    assert result.state == "failed"
    assert said in str(result.error)
    eventually(lambda: f"job {jobs[1]} ({fleet.task}): {said}" in caplog.text)
    fleet.stop()
    assert f"job {jobs[0]} " not in caplog.text


def test_a_completion_without_recorded_is_named(
    fleet: Fleet, client: trax.Client, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(ends: str, ctx: trax.Context) -> Any:
        with psycopg.connect(fleet.url) as connection:
            assert trax.Client(connection).complete(ctx, "itself")
            if ends == "rollback":
                connection.rollback()
        return ends

    async def handler_on_loop(ends: str, ctx: trax.AsyncContext) -> Any:
        async with await psycopg.AsyncConnection.connect(fleet.url) as connection:
            assert await trax.AsyncClient(connection).complete(ctx, "itself")
            if ends == "rollback":
                await connection.rollback()
        return ends

    jobs = client.enqueue_many(fleet.task, ["commit", "rollback"], max_retries=0)
    fleet.start(handler if fleet.kind == "sync" else handler_on_loop, lease=60)
    outputs = [ended(client, job_id).output for job_id in jobs]
    assert outputs == ["itself", "rollback"]
    said = "the handler has completed the job itself: return trax.RECORDED"
    eventually(lambda: f"job {jobs[0]} ({fleet.task}): {said}" in caplog.text)
    fleet.stop()
    assert "lease was lost" not in caplog.text
    assert f"job {jobs[1]} " not in caplog.text


@pytest.mark.parametrize("completes", [True, False])
def test_the_handler_of_a_completed_job_is_not_told_that_its_lease_is_lost(completes: bool) -> None:
    told: list[Attempt] = []
    held = HeldAttempts(told.append)
    queued_at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    attempt = Attempt(1, "", 1, 1, "t", "{}", None, None, None, queued_at, None, None, now() + 30)
    attempt.is_completed = completes
    held.insert([attempt])
    held.answered([attempt], [(1, False, False)], now(), 30)
    assert (attempt.reason, told) == (None, []) if completes else (Reason.LEASE_LOST, [attempt])


def test_a_wait_on_the_event_loop_does_not_block_it(
    url: str, client: trax.Client, task: str
) -> None:
    async def handler(job: Any, ctx: trax.AsyncContext) -> float:
        begun = now()
        await asyncio.gather(*(ctx.wait(0.5) for _ in range(20)))
        return now() - begun

    fleet = Fleet("async", url, task)
    fleet.start(handler)
    assert ended(client, client.enqueue(task, max_retries=0)).output < 5
    fleet.stop()


def test_a_handler_that_outlives_the_stop_is_named(
    fleet: Fleet, client: trax.Client, caplog: pytest.LogCaptureFixture
) -> None:
    begun, end = threading.Event(), threading.Event()

    def handler(job: Any) -> None:
        begun.set()
        end.wait(60)  # also in an event loop, which it blocks

    job_id = client.enqueue(fleet.task)
    worker = fleet.start(handler)
    try:
        assert begun.wait(60)
        worker.stop()
        said = f"job {job_id} ({fleet.task}) is given up: its handler does not stop"
        eventually(lambda: said in caplog.text)
        in_state(client, job_id, "queued", 0)
    finally:
        end.set()
        client.cancel(job_id)
    blocks = "one that blocks the event loop keeps the program from ending"
    assert (blocks in caplog.text) is (fleet.kind == "async")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="task groups are of Python 3.11")
def test_a_suspension_in_a_task_group_is_no_warning(
    url: str, client: trax.Client, task: str, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = Fleet("async", url, task)

    async def handler(job: Any, ctx: trax.AsyncContext) -> Any:
        group: Any = asyncio.TaskGroup()  # type: ignore[attr-defined,unused-ignore]
        async with group:
            nap = group.create_task(ctx.sleep("nap", 0.2))
            result = group.create_task(ctx.step("work", lambda: 7))
        return [nap.result(), result.result()]

    job_id = client.enqueue(task, max_retries=0)
    fleet.start(handler)
    assert ended(client, job_id).output == [None, 7]
    fleet.stop()
    assert "its handler went on" not in caplog.text


GROUPS: list[tuple[list[Exception], Kind, str]] = [
    ([trax.Permanent("never")], Kind.FAIL, "never"),
    ([ValueError("a"), trax.Permanent("b")], Kind.FAIL, "ValueError: a; Permanent: b"),
    ([ValueError("a"), trax.Cancel("b")], Kind.FAIL, "ValueError: a; Cancel: b"),
    ([trax.RetryIn(90, "a"), ValueError("b")], Kind.FAIL, "RetryIn: a; ValueError: b"),
    ([trax.Snooze(90), ValueError("b")], Kind.FAIL, "Snooze: snoozed for 0:01:30; ValueError: b"),
]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups are of Python 3.11")
@pytest.mark.parametrize(("inner", "kind", "said"), GROUPS)
def test_the_verdict_of_a_group_is_decided_by_one_and_names_all(
    inner: list[Exception], kind: Kind, said: str
) -> None:
    group: Any = builtins.ExceptionGroup  # type: ignore[attr-defined,unused-ignore]
    verdict = judged(None, group("parts", inner), None).verdict
    assert (verdict.kind, verdict.error.rpartition("(2 sub-exceptions): ")[2]) == (kind, said)
    assert verdict.permanent is any(isinstance(one, trax.Permanent) for one in inner)
    assert (verdict.delay is not None) is isinstance(inner[0], trax.RetryIn)
    if kind is Kind.FAIL and len(inner) > 1:
        assert "ExceptionGroup: parts" in json.loads(str(verdict.detail))["traceback"]


@pytest.mark.parametrize("kind", [trax.Permanent, lambda text: trax.RetryIn(90, text)])
def test_the_cause_of_a_verdict_is_its_detail(kind: Any) -> None:
    def raised(detail: Any) -> BaseException:
        error = kind("p")
        error.detail = detail
        error.__cause__ = ValueError("the cause")
        return error  # type: ignore[no-any-return]

    without, given = (judged(None, raised(detail), None).verdict for detail in (None, [7]))
    assert (without.error, given.error, given.detail) == ("p", "p", "[7]")
    assert "ValueError: the cause" in str(without.detail)
    assert judged(None, kind("p"), None).verdict.detail is None
