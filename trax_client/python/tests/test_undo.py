"""The names and the undo of steps, and steps that are done but cannot be recorded."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from conftest import Fleet, ended, eventually
from test_steps import start

import trax
from trax import sql
from trax.connection import Link


def undo_of(client: trax.Client, db: psycopg.Connection[Any], task: str) -> list[Any]:
    """Return the inputs of the undo jobs, and cancel them."""
    text = "select job_id, input from trax.work_queue where task = %s order by job_id"
    rows = db.execute(text, [task]).fetchall()
    return [(client.cancel(job_id), given)[1] for job_id, given in rows]


@pytest.mark.parametrize(
    ("name", "undo", "said"),
    [
        ("charge ", None, 'name is "charge "; write a name that neither is empty nor begins or'),
        ("", None, 'name is ""; write a name that neither is empty'),
        ("x" * 256, None, 'name is "xxxxxxxxxxxxxxxxxxxx..." of 256 bytes; write at most 255'),
        ("\xe9" * 128, None, "of 256 bytes; write at most 255"),
        ("a\0b", None, "name is 'a\\x00b'; remove the NUL"),
        ("charge", " card.refund", 'undo task is " card.refund"; write a name that neither'),
        ("charge", "", 'undo task is ""; write a name that neither is empty'),
        ("charge", "x" * 256, "of 256 bytes; write at most 255"),
        ("charge", "a\0b", "undo task is 'a\\x00b'; remove the NUL"),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_a_wrong_name_is_refused_before_the_function_runs(
    fleet: Fleet, client: trax.Client, name: str, undo: str | None, said: str
) -> None:
    ran: list[int] = []

    async def handler(job: Any, ctx: Any) -> Any:
        await ctx.step(name, lambda: ran.append(1), undo=undo if undo is None else {"task": undo})

    job_id = client.enqueue(fleet.task, max_retries=0)
    start(fleet, handler)
    assert said in str(ended(client, job_id).error)
    assert not ran


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"], ids=["nul", "surrogate"])
def test_an_undo_that_cannot_be_stored_is_refused_before_the_function_runs(
    fleet: Fleet, client: trax.Client, text: str
) -> None:
    ran: list[int] = []

    async def handler(job: Any, ctx: Any) -> Any:
        undo = {"task": "card.refund", "input": {"card": [text]}}
        await ctx.step("charge", lambda: ran.append(1), undo=undo)

    job_id = client.enqueue(fleet.task, max_retries=0)
    start(fleet, handler)
    assert "undo.input.card[0] has " in str(ended(client, job_id).error)
    assert not ran
    assert trax.steps.undo_text({"task": "a", "input": "\\u0000 \N{GRINNING FACE}"})


def test_a_numbered_name_is_refused_before_the_function_runs(
    fleet: Fleet, client: trax.Client
) -> None:
    ran: list[int] = []

    async def handler(job: Any, ctx: Any) -> Any:
        for n in (1, 2):
            await ctx.step("x" * 254, lambda n=n: ran.append(n))

    job_id = client.enqueue(fleet.task, max_retries=0)
    start(fleet, handler)
    assert "the numbered name is" in str(ended(client, job_id).error)
    assert ran == [1]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"a": object()}, 'step "work" cannot be recorded: its result.a is an object, not JSON'),
        ("x" * 2_000_000, 'the result of step "work" was refused: the output is too large'),
        ("a\0b", 'step "work" cannot be recorded: its result has the character NUL'),
    ],
    ids=["object", "large", "nul"],
)
def test_a_step_that_is_done_but_cannot_be_recorded_is_undone(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any], result: Any, said: str
) -> None:
    undo = f"{fleet.task}.undo"
    ran: list[int] = []

    async def handler(job: Any, ctx: Any) -> Any:
        def work() -> Any:
            ran.append(1)
            return result

        try:
            await ctx.step("work", work, undo={"task": undo, "input": {"n": 7}})
        except trax.Permanent:
            # Its handler goes on, but the job has failed.
            return await ctx.step("more", lambda: ran.append(2))

    job_id = client.enqueue(fleet.task, max_retries=5)
    start(fleet, handler)
    failed = ended(client, job_id)
    assert failed.state == "failed"
    assert failed.error is not None
    assert said in failed.error
    assert 'step "work" is recorded without a result, and its undo job queued: ' in failed.error
    fleet.stop()
    assert ran == [1]
    steps = [(one.step, one.output, one.undo) for one in client.read_steps(job_id)]
    assert steps == [("work", None, {"task": undo, "input": {"n": 7}})]
    assert undo_of(client, db, undo) == [{"n": 7}]


def test_a_refused_undo_is_named_in_the_error(fleet: Fleet, client: trax.Client) -> None:
    undo = {"task": "card.refund", "input": "x" * 2_000_000}

    async def handler(job: Any, ctx: Any) -> Any:
        await ctx.step("work", lambda: 7, undo=undo)

    job_id = client.enqueue(fleet.task, max_retries=5)
    start(fleet, handler)
    failed = ended(client, job_id)
    assert failed.state == "failed"
    assert "its undo was refused, too: the undo is too large" in str(failed.error)


def test_a_lost_answer_to_the_failure_leaves_one_undo_job(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any], monkeypatch: Any
) -> None:
    undo, call = f"{fleet.task}.undo", Link.call
    losses = [1]

    def answers_once_in_vain(self: Link, statement: str, *rest: Any) -> list[tuple[Any, ...]]:
        rows = call(self, statement, *rest)
        if statement == sql.RECORD_STEP_AND_FAIL and losses:
            losses.pop()
            raise psycopg.OperationalError("the answer is lost")
        return rows

    async def handler(job: Any, ctx: Any) -> Any:
        await ctx.step("work", object, undo={"task": undo})

    monkeypatch.setattr(Link, "call", answers_once_in_vain)
    job_id = client.enqueue(fleet.task, max_retries=5)
    start(fleet, handler)
    assert ended(client, job_id).state == "failed"
    eventually(lambda: not losses)
    fleet.stop()
    assert undo_of(client, db, undo) == [{}]
