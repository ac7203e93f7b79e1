"""Handlers that take many jobs in one call."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import PATIENCE, Fleet, ended, eventually, in_state

import trax
from trax import many

README = Path(__file__).parents[1] / "README.md"
# Longer than any test: a call begins only when it is full.
NEVER = 600


@dataclasses.dataclass
class Document:
    index: str
    size: int = 0


def doubled(jobs: Any) -> list[int]:
    return [2 * job.input for job in jobs]


def in_order(calls: list[list[Any]]) -> list[list[Any]]:
    """Return the jobs of each call in their order: those of threads come as the threads do."""
    return [sorted(call) for call in calls]


def test_a_full_call_begins_at_once(fleet: Fleet, client: trax.Client) -> None:
    calls: list[Any] = []

    def handler(jobs: Any) -> list[int]:
        calls.append([(job.input, job.ctx.job_id, job.ctx.attempt) for job in jobs])
        return doubled(jobs)

    ids = client.enqueue_many(fleet.task, [1, 2, 3])
    fleet.start(handler, many={"max_jobs": 3, "max_wait": NEVER})
    assert [ended(client, job_id).output for job_id in ids] == [2, 4, 6]
    assert in_order(calls) == [[(1, ids[0], 1), (2, ids[1], 1), (3, ids[2], 1)]]


@pytest.mark.parametrize("max_wait", [0, 0.5, timedelta(milliseconds=500)])
def test_the_rest_is_called_after_max_wait(
    fleet: Fleet, client: trax.Client, max_wait: Any
) -> None:
    calls: list[int] = []

    def handler(jobs: Any) -> list[int]:
        calls.append(len(jobs))
        return doubled(jobs)

    ids = client.enqueue_many(fleet.task, range(5))
    fleet.start(handler, many={"max_jobs": 3, "max_wait": max_wait})
    assert [ended(client, job_id).output for job_id in ids] == [0, 2, 4, 6, 8]
    assert sum(calls) == 5
    assert max_wait == 0 or sorted(calls) == [2, 3]


def test_jobs_of_a_call_have_the_same_key(fleet: Fleet, client: trax.Client) -> None:
    calls: list[list[Any]] = []

    def handler(jobs: Any) -> None:
        calls.append([job.input for job in jobs])

    inputs = [{"index": one, "at": at} for at in (1, 2, 3) for one in ("a", "b")]
    ids = client.enqueue_many(fleet.task, inputs)
    by = {"by": lambda one: (one["index"], 7)}
    fleet.start(handler, many={"max_jobs": 3, "max_wait": NEVER, **by})
    assert {ended(client, job_id).state for job_id in ids} == {"completed"}
    for call in calls:
        call.sort(key=inputs.index)
    calls.sort(key=lambda call: call[0]["index"])
    assert calls == [inputs[::2], inputs[1::2]]


def test_nothing_completes_all_jobs_without_output(fleet: Fleet, client: trax.Client) -> None:
    ids = client.enqueue_many(fleet.task, [1, 2])
    fleet.start(lambda jobs: None, many={"max_jobs": 2})
    for job_id in ids:
        assert ended(client, job_id) == trax.JobResult("completed", None, None)


def test_a_result_that_is_an_exception_is_the_end_of_its_job_alone(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any], caplog: Any
) -> None:
    results = [
        "fine",
        ValueError("oops"),
        trax.Permanent("never"),
        trax.Cancel("gone"),
        trax.RetryIn(600, "later"),
        trax.Snooze(600),
        {"also": "fine"},
    ]
    ids = client.enqueue_many(fleet.task, range(7), max_retries=1, retry_delay=600)
    fleet.start(lambda jobs: tuple(results), many={"max_jobs": 7, "max_wait": NEVER})
    for at, state, attempt, error in [
        (0, "completed", 1, None),
        (1, "queued", 1, "ValueError: oops"),
        (2, "failed", 1, "never"),
        (3, "cancelled", 1, "gone"),
        (4, "queued", 1, "later"),
        (5, "queued", 0, None),
        (6, "completed", 1, None),
    ]:
        job = in_state(client, ids[at], state, attempt)
        assert job.error == error or (error or "?") in str(job.error)
    assert [ended(client, ids[at]).output for at in (0, 6)] == ["fine", {"also": "fine"}]
    failed = f"job {ids[1]} ({fleet.task}) failed in attempt 1 of 2: ValueError: oops"
    assert failed in caplog.text


def test_an_output_that_cannot_be_stored_fails_its_job_alone(
    fleet: Fleet, client: trax.Client
) -> None:
    ids = client.enqueue_many(fleet.task, [1, 2])
    fleet.start(lambda jobs: [object(), 7], many={"max_jobs": 2, "max_wait": NEVER})
    assert "the output is an object, not JSON" in str(ended(client, ids[0]).error)
    assert ended(client, ids[1]).output == 7


@pytest.mark.parametrize("raised", [ValueError, SystemExit, StopIteration])
def test_an_exception_of_the_function_fails_all_jobs(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any], raised: type[BaseException]
) -> None:
    def handler(jobs: Any) -> None:
        raise raised("oops")

    ids = client.enqueue_many(fleet.task, range(20), max_retries=0)
    fleet.start(handler, many={"max_jobs": 20, "max_wait": NEVER}, concurrency=20)
    for job_id in ids:
        result = ended(client, job_id)
        assert result.state == "failed"
        assert raised.__name__ in str(result.error)
    sql = "select detail ->> 'traceback' from trax.run where job_id = any(%s)"
    for (trace,) in db.execute(sql, [ids]):
        assert trace.count("in handler") == 1
        assert len(re.findall(r"in _unwrapped", trace)) <= 3, "no frames of the other jobs"


def test_a_verdict_that_is_raised_is_that_of_all_jobs(fleet: Fleet, client: trax.Client) -> None:
    def handler(jobs: Any) -> None:
        raise trax.Permanent("never")

    ids = client.enqueue_many(fleet.task, range(3), max_retries=5)
    fleet.start(handler, many={"max_jobs": 3, "max_wait": NEVER})
    for job_id in ids:
        assert ended(client, job_id) == trax.JobResult("failed", None, "never")


@pytest.mark.parametrize(
    ("returned", "jobs", "said"),
    [
        ([1, 2], 3, "returned 2 results for 3 jobs"),
        ([], 1, "returned 0 results for 1 job"),
        ([1], 2, "returned 1 result for 2 jobs"),
        ([None, None, None], 2, "returned 3 results for 2 jobs"),
        ("abc", 3, "returned a text, not a list of 3 results"),
        ({"a": 1}, 1, "returned a dict, not a list of 1 result"),
        (0, 2, "returned an int, not a list of 2 results"),
        (trax.RECORDED, 2, "not a list of 2 results"),
    ],
)
def test_other_results_than_a_list_for_all_jobs_fail_all(
    fleet: Fleet, client: trax.Client, returned: Any, jobs: int, said: str
) -> None:
    ids = client.enqueue_many(fleet.task, range(jobs), max_retries=0)
    fleet.start(lambda _: returned, many={"max_jobs": jobs, "max_wait": NEVER})
    for job_id in ids:
        result = ended(client, job_id)
        assert result.state == "failed"
        assert f'the handler of "{fleet.task}" {said}' in str(result.error) or "not a" in said
        assert said in str(result.error)


def test_what_a_function_does_to_its_list_changes_no_result(
    fleet: Fleet, client: trax.Client
) -> None:
    def handler(jobs: Any) -> list[int]:
        results = doubled(jobs)
        jobs.clear()
        return results

    ids = client.enqueue_many(fleet.task, [1, 2])
    fleet.start(handler, many={"max_jobs": 2, "max_wait": NEVER})
    assert [ended(client, job_id).output for job_id in ids] == [2, 4]


def test_an_input_is_of_the_type_of_the_annotation(url: str, client: trax.Client) -> None:
    seen: list[Any] = []
    worker, others = trax.Worker(url), trax.AsyncWorker(url)
    task = f"test.many.typed.{time.time_ns()}"

    @worker.task_many(task, max_jobs=2, by=lambda document: document.index)
    def index(jobs: list[trax.GatheredJob[Document]]) -> list[int]:
        seen.extend(job.input for job in jobs)
        return [job.input.size for job in jobs]

    @others.task_many(f"{task}.async", max_jobs=2)
    async def price(jobs: Sequence[trax.AsyncGatheredJob[dict[str, Decimal]]]) -> list[Decimal]:
        return [job.input["price"] + job.ctx.attempt for job in jobs]

    inputs = [{"index": "a", "size": 7}, {"size": 7}, {"index": "a", "size": 8}]
    ids = client.enqueue_many(task, inputs, max_retries=0)
    prices = client.enqueue_many(f"{task}.async", [{"price": Decimal("0.10")}] * 2)
    worker.run(until_empty=True)
    asyncio.run(others.run(until_empty=True))
    assert seen == [Document("a", 7), Document("a", 8)]
    results = [ended(client, job_id) for job_id in ids]
    assert [one.output for one in results] == [7, None, 8]
    assert "input.index is missing" in str(results[1].error)
    assert [ended(client, job_id).output for job_id in prices] == [1.1, 1.1]


def test_a_key_that_cannot_be_had_fails_its_job_alone(fleet: Fleet, client: trax.Client) -> None:
    ids = client.enqueue_many(fleet.task, [{"key": "a"}, {}, {"key": ["a"]}], max_retries=0)
    rules = {"max_jobs": 1, "by": lambda one: one["key"]}
    fleet.start(lambda jobs: [job.input for job in jobs], many=rules)
    results = [ended(client, job_id) for job_id in ids]
    assert [one.state for one in results] == ["completed", "failed", "failed"]
    assert "KeyError: 'key'" in str(results[1].error)
    said = f'by of the handler of "{fleet.task}" returned a list; return a text, a number or a tup'
    assert said in str(results[2].error)


def test_calls_of_a_task_run_at_the_same_time(fleet: Fleet, client: trax.Client) -> None:
    begun, both = [], threading.Event()

    def handler(jobs: Any) -> Any:
        begun.append(jobs)
        if len(begun) == 2:
            both.set()
        return waiting(jobs) if fleet.kind == "async" else doubled(jobs * both.wait(PATIENCE))

    async def waiting(jobs: Any) -> list[int]:
        return doubled(jobs * await asyncio.to_thread(both.wait, PATIENCE))

    ids = client.enqueue_many(fleet.task, range(4))
    fleet.start(handler, many={"max_jobs": 2, "max_wait": NEVER})
    assert [ended(client, job_id).output for job_id in ids] == [0, 2, 4, 6]


def test_many_jobs_are_each_in_one_call(fleet: Fleet, client: trax.Client) -> None:
    calls: list[list[int]] = []

    def handler(jobs: Any) -> list[int]:
        calls.append([job.input for job in jobs])
        return doubled(jobs)

    ids = client.enqueue_many(fleet.task, range(300))
    rules = {"max_jobs": 7, "max_wait": 0.02, "by": lambda one: one % 3}
    fleet.start(handler, many=rules, concurrency=50)
    outputs = [ended(client, job_id).output for job_id in ids]
    assert outputs == [2 * one for one in range(300)]
    assert sorted(one for call in calls for one in call) == list(range(300))
    assert max(map(len, calls)) == 7
    assert all(len({one % 3 for one in call}) == 1 for call in calls)


@pytest.mark.parametrize("how", ["cancel", "timeout", "release"])
def test_a_job_that_stops_while_it_is_gathered_is_in_no_call(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any], how: str, monkeypatch: Any
) -> None:
    calls: list[list[int]] = []

    def handler(jobs: Any) -> None:
        calls.append([job.input for job in jobs])

    leave, left = many._Gatherer._leave, threading.Event()

    def leaving(*given: Any) -> None:
        leave(*given)
        left.set()

    monkeypatch.setattr(many._Gatherer, "_leave", leaving)
    options: Any = {"timeout": 0.3, "max_retries": 0} if how == "timeout" else {}
    first = client.enqueue(fleet.task, 1, **options)
    fleet.start(handler, many={"max_jobs": 2, "max_wait": NEVER}, lease=3)
    in_state(client, first, "in_progress", 1)
    if how == "cancel":
        assert client.cancel(first) == "requested"
        assert ended(client, first).state == "cancelled"
    elif how == "timeout":
        result = ended(client, first)
        assert (result.state, result.error) == ("failed", "it ran longer than its timeout")
    else:
        sql = "select trax.fail(job_id, token, 'taken', permanent => true) from trax.lease"
        db.execute(f"{sql} where job_id = %s", [first])
        assert ended(client, first).error == "taken"
        # Until a heartbeat says that its lease is lost, the job waits for a call.
        assert left.wait(PATIENCE)
    ids = [client.enqueue(fleet.task, at) for at in (2, 3)]
    assert {ended(client, job_id).state for job_id in ids} == {"completed"}
    assert in_order(calls) == [[2, 3]]


def test_a_stop_of_the_worker_releases_the_gathered_jobs(
    fleet: Fleet, client: trax.Client, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []
    ids = client.enqueue_many(fleet.task, [1, 2])
    fleet.start(lambda jobs: calls.append(jobs), many={"max_jobs": 3, "max_wait": NEVER})
    for job_id in ids:
        in_state(client, job_id, "in_progress", 1)
    fleet.stop()
    for job_id in ids:
        in_state(client, job_id, "queued", 0)
    assert not calls
    assert "is given up" not in caplog.text
    for job_id in ids:
        client.cancel(job_id)


def test_jobs_that_wait_at_a_stop_are_called_within_the_grace(
    fleet: Fleet, client: trax.Client
) -> None:
    both, gathered = threading.Event(), []

    def by(job: int) -> None:
        gathered.append(job)
        if len(gathered) == 2:
            both.set()

    ids = client.enqueue_many(fleet.task, [1, 2])
    fleet.start(doubled, many={"max_jobs": 3, "max_wait": 1, "by": by}, grace=30)
    assert both.wait(PATIENCE)
    fleet.stop()
    assert [ended(client, job_id).output for job_id in ids] == [2, 4]


def test_a_cancel_in_a_call_is_that_of_its_own_job(
    client: trax.Client, url: str, task: str
) -> None:
    begun, go = threading.Event(), threading.Event()
    contexts: list[Any] = []

    def handler(jobs: Any) -> list[Any]:
        contexts.extend(job.ctx for job in jobs)
        begun.set()
        go.wait(PATIENCE)
        return [trax.Stopped(trax.Reason.CANCELLED), "done"]

    fleet = Fleet("sync", url, task)
    client.enqueue_many(task, [1, 2])
    fleet.start(handler, many={"max_jobs": 2, "max_wait": NEVER})
    assert begun.wait(PATIENCE)
    first, second = contexts
    client.cancel(first.job_id)
    eventually(lambda: first.is_stopped)
    go.set()
    assert ended(client, first.job_id).state == "cancelled"
    assert ended(client, second.job_id).output == "done"
    assert second.reason is None
    fleet.stop()


def test_an_async_call_goes_on_for_the_others(client: trax.Client, url: str, task: str) -> None:
    begun, go = threading.Event(), threading.Event()
    contexts: list[Any] = []

    async def handler(jobs: Any) -> list[Any]:
        contexts.extend(job.ctx for job in jobs)
        begun.set()
        await asyncio.to_thread(go.wait, PATIENCE)
        return ["first", "second"]

    fleet = Fleet("async", url, task)
    ids = client.enqueue_many(task, [1, 2])
    fleet.start(handler, many={"max_jobs": 2, "max_wait": NEVER})
    assert begun.wait(PATIENCE)
    client.cancel(ids[0])
    assert ended(client, ids[0]).state == "cancelled", "before its call has ended"
    assert contexts[0].reason is trax.Reason.CANCELLED
    assert not go.is_set()
    go.set()
    assert ended(client, ids[1]).output == "second"
    fleet.stop()


@pytest.mark.parametrize("is_caught", [False, True])
def test_an_async_call_for_which_no_job_waits_is_cancelled(
    client: trax.Client, url: str, task: str, is_caught: bool
) -> None:
    begun, seen = threading.Event(), []

    async def handler(jobs: Any) -> list[Any]:
        begun.set()
        try:
            await asyncio.sleep(NEVER)
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)
            seen.append([job.ctx.reason for job in jobs])
            if not is_caught:
                raise
        return [7, 8]

    fleet = Fleet("async", url, task)
    ids = client.enqueue_many(task, [1, 2])
    fleet.start(handler, many={"max_jobs": 2, "max_wait": NEVER})
    assert begun.wait(PATIENCE)
    client.cancel(ids[0])
    assert ended(client, ids[0]).state == "cancelled"
    assert not seen
    client.cancel(ids[1])
    # As of a handler of a single job: its end is the end of the job.
    assert ended(client, ids[1]).state == ("completed" if is_caught else "cancelled")
    assert seen == [[trax.Reason.CANCELLED] * 2]
    fleet.stop()


def test_a_stop_of_one_job_that_ends_the_call_costs_no_other_its_attempt(
    fleet: Fleet, client: trax.Client
) -> None:
    calls: list[list[int]] = []
    begun = threading.Event()

    def handler(jobs: Any) -> Any:
        calls.append([job.input for job in jobs])
        begun.set()
        if len(jobs) == 1:
            return None
        if fleet.kind == "sync":
            return jobs[0].ctx.wait(NEVER)
        return stopping(jobs[0].ctx)

    async def stopping(ctx: Any) -> None:
        while True:
            await asyncio.sleep(0.01)
            ctx.check()

    ids = client.enqueue_many(fleet.task, [1, 2], max_retries=0)
    fleet.start(handler, many={"max_jobs": 2, "max_wait": 0.5})
    assert begun.wait(PATIENCE)
    client.cancel(ids[0])
    assert ended(client, ids[0]).state == "cancelled"
    assert ended(client, ids[1]).state == "completed"
    assert in_order(calls) == [[1, 2], [2]]


@pytest.mark.parametrize(
    ("method", "given"), [("sleep", ("nap", 0.3)), ("signal", ("paid",)), ("children", ())]
)
def test_a_job_of_a_call_is_not_suspended(
    fleet: Fleet, client: trax.Client, method: str, given: Any
) -> None:
    def in_a_thread(jobs: Any) -> list[Any]:
        return [getattr(job.ctx, method)(*given) if job.input else "done" for job in jobs]

    async def on_a_loop(jobs: Any) -> list[Any]:
        waits = [getattr(job.ctx, method)(*given) for job in jobs if job.input]
        return ["done", *await asyncio.gather(*waits, return_exceptions=True)]

    ids = client.enqueue_many(fleet.task, [False, True], max_retries=0)
    function = in_a_thread if fleet.kind == "sync" else on_a_loop
    fleet.start(function, many={"max_jobs": 2, "max_wait": NEVER})
    said = (
        f"ctx.{method}() cannot suspend a job of a call of many; "
        f'give "{fleet.task}" a handler with task() instead'
    )
    first, second = (ended(client, job_id) for job_id in ids)
    assert said in str(second.error)
    assert first.output == "done" if fleet.kind == "async" else said in str(first.error)


def test_jobs_of_a_call_have_steps_of_their_own(fleet: Fleet, client: trax.Client) -> None:
    def in_a_thread(jobs: Any) -> list[Any]:
        return [job.ctx.step("store", lambda job=job: job.input + 1) for job in jobs]

    async def on_a_loop(jobs: Any) -> list[Any]:
        steps = [job.ctx.step("store", lambda job=job: job.input + 1) for job in jobs]
        return await asyncio.gather(*steps, return_exceptions=True)

    ids = client.enqueue_many(fleet.task, [1, 2])
    function = in_a_thread if fleet.kind == "sync" else on_a_loop
    fleet.start(function, many={"max_jobs": 2, "max_wait": NEVER})
    assert [ended(client, job_id).output for job_id in ids] == [2, 3]
    for at, job_id in enumerate(ids):
        assert [step.output for step in client.read_steps(job_id)] == [at + 2]


class Stopping:
    """A context of a job, which may be about to stop."""

    def __init__(self, *, is_stopped: bool = False) -> None:
        self.is_stopped = is_stopped

    def on_stop(self, call: Callable[[], Any]) -> None:
        self.stop = call

    def check(self) -> None:
        if self.is_stopped:
            raise trax.Stopped(trax.Reason.CANCELLED)


def rules(max_jobs: int, max_wait: float = NEVER) -> many.Many:
    return many.Many(max_jobs, max_wait, None)


def gathered(gatherer: many._Gatherer) -> list[int]:
    return [job.input for call in gatherer._gathering.values() for job in call.seats]


def test_a_call_in_a_thread_begins_without_a_job_that_is_about_to_stop() -> None:
    calls: list[list[int]] = []
    results: dict[int, Any] = {}

    def function(jobs: Any) -> list[int]:
        calls.append([job.input for job in jobs])
        return doubled(jobs)

    gatherer = many._ThreadGatherer("a", function, rules(2))

    def handle(value: int, ctx: Any) -> threading.Thread:
        def run() -> None:
            try:
                results[value] = gatherer.run(value, ctx)
            except trax.Stopped as stopped:
                results[value] = stopped.reason

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    first = Stopping()
    threads = [handle(1, first)]
    eventually(lambda: gathered(gatherer) == [1])
    first.is_stopped = True
    threads.append(handle(2, Stopping()))
    eventually(lambda: gathered(gatherer) == [2])
    first.stop()
    threads.append(handle(3, Stopping()))
    for thread in threads:
        thread.join(PATIENCE)
    assert calls == [[2, 3]]
    assert results == {1: trax.Reason.CANCELLED, 2: 4, 3: 6}
    assert not gatherer._gathering


def test_an_async_call_begins_without_a_job_that_is_about_to_stop() -> None:
    calls: list[list[int]] = []

    async def function(jobs: Any) -> list[int]:
        calls.append([job.input for job in jobs])
        return doubled(jobs)

    async def handle() -> list[Any]:
        gatherer: Any = many._LoopGatherer("a", function, rules(2))
        contexts = [Stopping(), Stopping(), Stopping()]
        tasks = [asyncio.ensure_future(gatherer.run(at, one)) for at, one in enumerate(contexts)]
        # The second job fills the gathering, the first leaves it, the third fills it again.
        contexts[0].is_stopped = True
        await asyncio.wait(tasks[1:])
        tasks[0].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert not gatherer._gathering
        return results

    results = asyncio.run(handle())
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [2, 4]
    assert calls == [[1, 2]]


def test_the_end_of_the_wait_of_a_job_that_stops_begins_no_call() -> None:
    calls: list[list[int]] = []

    async def function(jobs: Any) -> None:
        calls.append([job.input for job in jobs])

    async def handle() -> None:
        gatherer: Any = many._LoopGatherer("a", function, rules(9))
        contexts = [Stopping(), Stopping()]
        tasks = [asyncio.ensure_future(gatherer.run(at, one)) for at, one in enumerate(contexts)]
        await asyncio.sleep(0)
        [call] = gatherer._gathering.values()
        first, second = call.seats
        contexts[0].is_stopped = True
        gatherer._begin(call, due=first)
        assert gathered(gatherer) == [1]
        gatherer._begin(call, due=second)
        assert not gatherer._gathering
        await tasks[1]
        tasks[0].cancel()

    asyncio.run(handle())
    assert calls == [[1]]


def test_a_job_that_joins_does_not_make_the_first_wait_longer() -> None:
    calls: list[list[int]] = []

    async def function(jobs: Any) -> None:
        calls.append([job.input for job in jobs])

    async def handle() -> None:
        gatherer: Any = many._LoopGatherer("a", function, rules(10_000, 0.1))
        tasks = [asyncio.ensure_future(gatherer.run(at, Stopping())) for at in (0, 1)]
        deadline = time.monotonic() + PATIENCE
        while not calls and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
            tasks.append(asyncio.ensure_future(gatherer.run(len(tasks), Stopping())))
        assert calls
        await asyncio.gather(*tasks)

    asyncio.run(handle())
    assert calls[0][:2] == [0, 1]
    assert sum(map(len, calls)) == 1 + calls[-1][-1]


def test_a_stop_after_the_result_changes_nothing() -> None:
    tasks: list[Any] = []

    async def function(jobs: Any) -> list[int]:
        tasks[0].cancel()
        return doubled(jobs)

    async def handle() -> list[int]:
        gatherer: Any = many._LoopGatherer("a", function, rules(2))
        tasks.extend(asyncio.ensure_future(gatherer.run(at, Stopping())) for at in (1, 2))
        return list(await asyncio.gather(*tasks))

    assert asyncio.run(handle()) == [2, 4]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="task groups are of Python 3.11")
def test_a_stop_in_a_task_group_is_that_of_its_job() -> None:
    async def checked(ctx: Any) -> None:
        ctx.check()

    async def function(jobs: Any) -> None:
        group: Any = asyncio.TaskGroup()  # type: ignore[attr-defined,unused-ignore]
        async with group:
            jobs[0].ctx.is_stopped = True
            for job in jobs:
                group.create_task(checked(job.ctx))

    async def handle() -> list[Any]:
        gatherer: Any = many._LoopGatherer("a", function, rules(2))
        tasks = [gatherer.run(at, Stopping()) for at in (1, 2)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, second = asyncio.run(handle())
    assert isinstance(first.exceptions[0], trax.Stopped)
    assert isinstance(second, trax.Snooze)
    assert second.delay == 0


def kinds() -> list[Any]:
    return [trax.Worker(""), trax.AsyncWorker("")]


@pytest.mark.parametrize("worker", kinds())
def test_wrong_options_are_refused_where_they_are_written(worker: Any) -> None:
    wrong: list[tuple[dict[str, Any], Any, str]] = [
        ({"max_jobs": 0}, ValueError, "max_jobs is how many jobs a call takes at most: 1 or more"),
        ({"max_jobs": -1}, ValueError, "1 or more"),
        ({"max_jobs": "9"}, TypeError, "max_jobs is a text; write max_jobs=100"),
        ({"max_jobs": 2.0}, TypeError, "max_jobs is a float; write max_jobs=100"),
        ({"max_jobs": None}, TypeError, "max_jobs is None; write max_jobs=100"),
        ({"max_wait": -1}, ValueError, "max_wait is -1; write a finite duration"),
        ({"max_wait": float("inf")}, ValueError, "max_wait is inf; write a finite duration"),
        ({"max_wait": "1 s"}, TypeError, "max_wait is a text; write max_wait=90, a number of sec"),
        ({"max_wait": None}, TypeError, "max_wait is None; write max_wait=90"),
        ({"by": "index"}, TypeError, 'by is a text; write by=lambda input: input["customer"]'),
        ({"by": kinds}, None, ""),
        ({"by": None}, None, ""),
        ({"by": functools.partial(asyncio.sleep, 1)}, TypeError, "by is async; write def"),
        ({"maxwait": 1}, TypeError, 'no option "maxwait"; did you mean "max_wait"?'),
        ({"size": 1}, TypeError, 'no option "size"; the options are max_jobs, max_wait, by'),
    ]
    for options, kind, said in wrong:
        call: Callable[[], Any] = functools.partial(
            worker.task_many, "a", **{"max_jobs": 10, **options}
        )
        if kind is None:
            call()
            continue
        with pytest.raises(trax.UsageError, match=re.escape(said)) as refused:
            call()
        assert isinstance(refused.value, kind)
    with pytest.raises(TypeError, match="max_jobs"):
        worker.task_many("a")
    with pytest.raises(trax.UsageError, match=r"name of a task: @worker\.task_many"):
        worker.task_many(kinds, max_jobs=1)
    with pytest.raises(trax.UsageError, match='task is " a"'):
        worker.task_many(" a", max_jobs=1)


@pytest.mark.parametrize("kind", [trax.Worker, trax.AsyncWorker])
def test_more_jobs_than_run_at_once_are_refused(kind: Any) -> None:
    said = (
        'the handler of "index" takes 500 jobs at once, and the worker runs 10: '
        "set concurrency to 500 or max_jobs to at most 10"
    )
    with pytest.raises(trax.UsageError, match=f"^{said}$"):
        kind("").task_many("index", max_jobs=500)
    kind("").task_many("index", max_jobs=10)
    kind("", concurrency=500).task_many("index", max_jobs=500)


def test_wrong_functions_are_refused_where_they_are_written() -> None:
    worker, other = trax.Worker(""), trax.AsyncWorker("")

    def plain(jobs: Any) -> None: ...

    def none() -> None: ...

    def two(jobs: Any, more: Any) -> None: ...

    def star(*jobs: Any) -> None: ...

    def single(jobs: Document) -> None: ...

    def inputs(jobs: list[Document]) -> None: ...

    def unknown(jobs: list[trax.GatheredJob[set[int]]]) -> None: ...

    def of_a_loop(jobs: list[trax.AsyncGatheredJob[Document]]) -> None: ...

    async def coroutine(jobs: Any) -> None: ...

    async def of_a_thread(jobs: list[trax.GatheredJob[Document]]) -> None: ...

    def good(jobs: list[trax.GatheredJob[Document]], limit: int = 7) -> None: ...

    annotate = 'parameter "jobs": annotate it as "list[trax.GatheredJob[...]]"'
    for one, function, said in [
        (worker, none, 'takes no jobs: give it a parameter "jobs"'),
        (worker, two, "has more parameters than its list of jobs"),
        (worker, star, "takes *jobs: name its parameters"),
        (worker, single, annotate),
        (worker, inputs, annotate),
        (worker, of_a_loop, annotate),
        (worker, unknown, 'parameter "jobs": the input type set[int] is not understood'),
        (worker, coroutine, "is async: write def, or use trax.AsyncWorker"),
        (worker, Document, "is a class: decorate a function"),
        (worker, "a", "is a text: decorate a function"),
        (other, of_a_thread, annotate.replace("trax.", "trax.Async")),
        (other, plain, "is not async: write async def, or use trax.Worker"),
    ]:
        decorate: Any = one.task_many("a", max_jobs=2)
        with pytest.raises(trax.UsageError, match='the handler of "a"') as refused:
            decorate(function)
        assert said in str(refused.value)
    assert worker.task_many("a", max_jobs=2)(good) is good
    for again in (worker.task("a"), worker.task_many("a", max_jobs=2)):
        with pytest.raises(trax.UsageError, match='task "a" has two handlers in one worker'):
            again(plain)


def test_the_result_of_a_function_has_a_type() -> None:
    worker = trax.AsyncWorker("")

    @worker.task_many("a", max_jobs=2)  # type: ignore[type-var]
    async def text(jobs: list[trax.AsyncGatheredJob[Document]]) -> str:
        return jobs[0].input.index

    @worker.task_many("b", max_jobs=2)  # type: ignore[type-var]
    async def number(jobs: list[trax.AsyncGatheredJob[Document]]) -> int:
        return len(jobs)


def test_the_example_of_the_readme_runs(
    client: trax.Client, db: psycopg.Connection[Any], url: str, tmp_path: Path
) -> None:
    code, *_ = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    ids = client.enqueue_many("search.index", [{"index": "a", "text": str(n)} for n in range(3)])
    ids += client.enqueue_many("search.index", [{"index": "b", "text": ""}], max_retries=0)
    (tmp_path / "worker.py").write_text(code.replace("run()", "run(until_empty=True)"))
    environment = {"DATABASE_URL": url, "PYTHONPATH": str(README.parent / "src")}
    subprocess.run(
        [sys.executable, "worker.py"], cwd=tmp_path, env=environment, check=True, timeout=PATIENCE
    )
    results = [ended(client, job_id) for job_id in ids]
    assert [one.state for one in results] == ["completed"] * 3 + ["failed"]
