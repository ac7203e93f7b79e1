"""Values and exceptions whose own code raises: each fails its own job, and nothing else."""

from __future__ import annotations

import asyncio
import builtins
import dataclasses
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psycopg
import pydantic
import pytest
from conftest import PATIENCE, Fleet, ended, in_state
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import TracerProvider
from test_steps import start
from test_undo import undo_of

import trax
from trax import telemetry
from trax.outcome import judged
from trax.record import failed


@dataclasses.dataclass
class Unset:
    rows: int = dataclasses.field(init=False)


class Unread(dict[str, int]):
    def items(self) -> Any:
        raise KeyError("no items")


class Model(pydantic.BaseModel):
    def model_dump(self, **_: Any) -> Any:
        raise KeyError("no dump")


class Exiting:
    def model_dump(self, **_: Any) -> Any:
        sys.exit(4)


class Attributes(dict[str, Any]):
    """A dict of a common kind, which raises a KeyError for each attribute that it lacks."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class NoName:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise KeyError("no class")


class Bare(trax.RetryIn):
    def __init__(self) -> None:
        Exception.__init__(self, "bare")


class Untold(trax.Permanent):
    def __str__(self) -> str:
        raise ValueError("no text")


class BarePermanent(trax.Permanent):
    def __init__(self) -> None:
        Exception.__init__(self, "bare")


class BareSnooze(trax.Snooze):
    def __init__(self) -> None:
        Exception.__init__(self, "bare")


class Texts(Exception):
    exceptions = ("text",)


class Raising(Exception):
    @property
    def exceptions(self) -> Any:
        raise KeyError("no exceptions")

    @property
    def __notes__(self) -> Any:
        sys.exit(4)


class Unwritten:
    def __repr__(self) -> str:
        raise ValueError("no text")


def late() -> BaseException:
    error = trax.RetryIn(3, "x")
    error.delay = "soon"  # type: ignore[assignment]
    return error


def nested(*inner: Exception) -> BaseException:
    # Python 3.10 has no groups.
    group: Any = getattr(builtins, "ExceptionGroup", None)
    if group is None:
        return inner[0] if len(inner) == 1 else type("ExceptionGroup", (Exception,), {})()
    error = group("a", inner)
    for _ in range(3000):
        error = group("a", [error])
    return error  # type: ignore[no-any-return]


OUTPUTS: list[tuple[Callable[[], object], str]] = [
    (Unset, "the output is an Unset that cannot be read: AttributeError: 'Unset' object has no"),
    (lambda: {"a": [Unset()]}, "the output.a[0] is an Unset that cannot be read: AttributeError"),
    (lambda: Unread(a=1), "the output is an Unread that cannot be read: KeyError: 'no items'"),
    (lambda: [Model()], "the output[0] is a Model that cannot be read: KeyError: 'no dump'"),
    (lambda: Attributes(a=object()), "the output.a is an object, not JSON"),
    (Exiting, "the output cannot be kept: SystemExit: 4"),
    (lambda: [NoName()], "the output is a list that cannot be read"),
]
ERRORS: list[tuple[Callable[[], BaseException], str, bool]] = [
    (Bare, "Bare: AttributeError: 'Bare' object has no attribute 'delay'", False),
    (BarePermanent, "bare", True),
    (BareSnooze, "BareSnooze: AttributeError: 'BareSnooze' object has no", False),
    (Texts, "Texts", False),
    (Raising, "Raising", False),
    (lambda: nested(OSError("a"), OSError("b")), "ExceptionGroup", False),
    (lambda: nested(trax.Permanent("the leaf")), "the leaf", True),
    (Untold, "Untold", True),
    (lambda: trax.Permanent("x", detail=Unwritten()), "x", True),
    (late, "RetryIn: delay is a text; write delay=90, a number of seconds", False),
]


@pytest.mark.parametrize("kind", ["output", "error"])
def test_what_cannot_be_read_fails_its_job_alone(
    fleet: Fleet, client: trax.Client, kind: str
) -> None:
    begun, go = threading.Event(), threading.Event()
    table: list[Any] = OUTPUTS if kind == "output" else ERRORS

    def at(job: Any) -> Any:
        if job is None:
            begun.set()
            go.wait(PATIENCE)
            return "fine"
        value = table[job][0]()
        if kind == "error":
            raise value
        return value

    other = client.enqueue(fleet.task, None)
    fleet.start(at, concurrency=20)
    begun.wait(PATIENCE)
    ids = client.enqueue_many(fleet.task, range(len(table)), max_retries=1, retry_delay=600)
    if fleet.kind == "async":
        # The first job blocks the loop.
        go.set()
    for job_id, (_, said, *rest) in zip(ids, table, strict=True):
        is_final = rest != [False]
        job = in_state(client, job_id, "failed" if is_final else "queued", 1)
        assert said in str(job.error)
    go.set()
    assert ended(client, other).output == "fine"
    assert ended(client, client.enqueue(fleet.task, None)).output == "fine"


@pytest.mark.parametrize("error", [one[0] for one in ERRORS])
def test_a_span_does_not_change_what_a_handler_raises(error: Any, monkeypatch: Any) -> None:
    tracer = TracerProvider().get_tracer("trax")
    monkeypatch.setattr(otel, "get_tracer", lambda _: tracer)
    context = SimpleNamespace(task="a", job_id=1, trace=None)
    given = error()

    def handler() -> None:
        raise given

    async def on_a_loop() -> None:
        raise given

    async def raised() -> BaseException | None:
        try:
            await telemetry.around_async(on_a_loop)(context, {})
        except BaseException as error:  # noqa: BLE001 - each of the table
            return error
        return None

    with pytest.raises(BaseException) as in_a_thread:  # noqa: PT011 - each of the table
        telemetry.around(handler)(context, {})
    assert in_a_thread.value is given
    assert asyncio.run(raised()) is given


@pytest.mark.parametrize("error", [one[0] for one in ERRORS])
def test_an_exception_that_cannot_be_printed_is_logged_by_its_class(
    error: Any, caplog: pytest.LogCaptureFixture
) -> None:
    end = judged(None, error(), None)
    attempt: Any = type("Attempt", (), {"failure": None, "task": "a"})
    attempt.job_id = attempt.attempt = attempt.max_attempts = 1
    failed(attempt, end)
    assert end.verdict.error.partition("\n")[0] in caplog.text


class Longer(list[Any]):
    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize(
    ("results", "errors"),
    [
        (
            [Attributes(a=1), NoName(), Raising(), 7],
            [None, "the output is a NoName", "Raising", None],
        ),
        (Longer([1, 2, 3, 4, 5]), ["5 results for 4 jobs"] * 4),
    ],
    ids=["results", "length"],
)
def test_every_job_of_a_call_ends_whatever_the_results_are(
    fleet: Fleet, client: trax.Client, results: list[Any], errors: list[str | None]
) -> None:
    ids = client.enqueue_many(fleet.task, range(4), max_retries=0)
    fleet.start(lambda jobs: results, many={"max_jobs": 4, "max_wait": PATIENCE})
    for job_id, said in zip(ids, errors, strict=True):
        result = ended(client, job_id)
        assert result.state == ("failed" if said else "completed")
        assert (said or "") in str(result.error)


@dataclasses.dataclass
class Exits:
    code: int

    def __post_init__(self) -> None:
        if self.code:
            sys.exit(self.code)


def test_an_input_whose_type_exits_fails_its_job_alone(fleet: Fleet, client: trax.Client) -> None:
    def handler(job: Exits) -> int:
        return job.code

    ids = client.enqueue_many(fleet.task, [{"code": 4}, {"code": 0}], max_retries=0)
    fleet.start(handler)
    assert str(ended(client, ids[0]).error) == "SystemExit: 4"
    assert ended(client, ids[1]).output == 0


def test_trace_data_that_python_does_not_read_is_left_out(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any]
) -> None:
    sql = "select trax.enqueue(%s, trace => jsonb_build_object('a', repeat('9', 5000)::numeric))"
    row = db.execute(sql, [fleet.task]).fetchone()
    assert row is not None
    seen: list[Any] = []

    def handler(job: Any, ctx: trax.Context) -> None:
        seen.append(ctx.trace)

    fleet.start(handler)
    assert ended(client, row[0]).state == "completed"
    assert seen == [None]


@pytest.mark.parametrize("result", [Unset, Exiting, NoName, lambda: Unread(a=1)], ids=range(4))
def test_a_step_whose_result_cannot_be_read_is_undone(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any], result: Any
) -> None:
    undo = f"{fleet.task}.undo"

    async def handler(job: Any, ctx: Any) -> Any:
        await ctx.step("work", result, undo={"task": undo})

    job_id = client.enqueue(fleet.task, max_retries=5)
    start(fleet, handler)
    failure = ended(client, job_id)
    assert failure.state == "failed"
    assert 'step "work" cannot be recorded: ' in str(failure.error)
    fleet.stop()
    assert undo_of(client, db, undo) == [{}]


@pytest.mark.parametrize("call", ["progress", "spawn"])
def test_what_a_handler_passes_on_and_cannot_be_read_fails_its_job(
    fleet: Fleet, client: trax.Client, call: str
) -> None:
    async def handler(job: Any, ctx: Any) -> Any:
        if call == "progress":
            ctx.progress(Unset())
        else:
            await ctx.spawn("child", "a", Unset())

    job_id = client.enqueue(fleet.task, max_retries=0)
    start(fleet, handler)
    assert "is an Unset that cannot be read: AttributeError" in str(ended(client, job_id).error)
