"""The steps of an attempt: what its job remembers, and what it waits for.

Each function is a generator that yields a `Call` to the server or a `Run` of a function of the
handler, and receives its result; the context runs it in a thread or on an event loop. The steps
recorded by earlier attempts are read once, and only if the claim says that there are any.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from . import argument, sql, telemetry, typed
from .attempt import Attempt, Kept, check
from .calls import Call, Rows
from .clock import Seconds, span
from .errors import ServerError, TimedOutError, UsageError, WrongValueError, is_of_the_values
from .options import JobOptions, enqueue_parameters, input_text
from .outcome import Permanent, described, sendable


@dataclass(frozen=True)
class Run:
    """A function of the handler to run, which may be async."""

    function: Callable[[], Any]


Work = Generator[Call | Run, Any, Any]


@dataclass(frozen=True)
class Child:
    """A job that the job has spawned; `output` and `error` once it has ended."""

    step: str
    job_id: int
    state: str
    output: Any
    error: str | None


class Steps:
    """The steps of one attempt."""

    def __init__(self, attempt: Attempt, lock_timeout: str) -> None:
        self._attempt = attempt
        self._lock_timeout = lock_timeout
        # Whether the job may be suspended: not while its handler has other jobs too.
        self.may_suspend = True

    def step(
        self, name: str, function: Callable[[], Any], undo: Mapping[str, Any] | None, returns: Any
    ) -> Work:
        """Run a function and record its result, or return the recorded one."""
        if not callable(function):
            raise UsageError(f'step "{name}" has no function: write step("{name}", lambda: ...)')
        undoing = undo_text(undo)
        decode = _decoder(returns, f'step "{name}"')
        step = self._named(name)
        kept = yield from self._kept(step, "step")
        if kept is not None:
            return decode(kept.output)
        try:
            value = yield Run(function)
        except BaseException:
            # The work is not done: the next use gets the name.
            self._attempt.reached.discard(step)
            raise
        # Permanent, as another attempt would run the function again.
        try:
            output = typed.dumps(value, "its result")
        except BaseException as error:
            said = f'step "{step}" cannot be recorded: {described(error)}'
            yield from self._fail(said, step, undoing)
            raise Permanent(said) from error
        parameters = {"output": output, "undo": undoing}
        try:
            rows = yield self._call(sql.RECORD_STEP, step, parameters)
        except ServerError as error:
            if not _is_of_the_values(error):
                raise
            said = f'the result of step "{step}" was refused: {error}'
            yield from self._fail(said, step, undoing)
            raise Permanent(said) from error
        return decode(rows[0][1])

    def _fail(self, error: str, step: str, undo: str | None) -> Work:
        """Fail the job and queue the undo of a step that is done but cannot be recorded.

        The step is recorded without its result, in the same transaction.
        """
        if undo is None:
            return
        failure = f'step "{step}" is recorded without a result, and its undo job queued: {error}'
        parameters = {"undo": undo, "error": sendable(failure)}
        call = self._call(sql.RECORD_STEP_AND_FAIL, step, parameters)
        try:
            yield dataclasses.replace(call, failure=failure)
        except ServerError as refusal:
            if not _is_of_the_values(refusal):
                raise
            raise Permanent(f"{error}; its undo was refused, too: {refusal}") from refusal
        raise Permanent(failure)

    def sleep(self, name: str, until: Seconds | datetime) -> Work:
        """Suspend the job until a time."""
        self._check_wait("sleep")
        if isinstance(until, datetime):
            parameters = _until(None, until)
        else:
            parameters = _until(argument.duration("until", until), None)
        step = self._named(name)
        kept = yield from self._kept(step, "sleep")
        if kept is None:
            yield self._call(sql.SLEEP, step, parameters, may_suspend=True)

    def signal(
        self,
        name: str,
        timeout: Seconds | None,
        until: datetime | None,
        step: str | None,
        returns: Any,
    ) -> Work:
        """Suspend the job until a signal is sent to it, and return its payload."""
        self._check_wait("signal")
        parameters = {"name": argument.named("name", name, "paid"), **_until(timeout, until)}
        decode = _decoder(returns, f'signal "{name}"')
        named = self._named(name if step is None else step)
        kept = yield from self._kept(named, "signal")
        if kept is None:
            rows = yield self._call(sql.AWAIT_SIGNAL, named, parameters, may_suspend=True)
            kept = Kept("signal", rows[0][1], rows[0][0] == "timed_out")
        if kept.timed_out:
            raise TimedOutError(f'no signal "{name}" was sent in time')
        return decode(kept.output)

    def spawn(
        self, name: str, task: str, input: Any, unnamed: Sequence[object], options: JobOptions
    ) -> Work:
        """Queue a child and return its id."""
        parameters = enqueue_parameters(task, unnamed, options, input=input_text(input))
        step = self._named(name)
        kept = yield from self._kept(step, "child")
        if kept is not None:
            return int(kept.output or "")
        with telemetry.sending(task, "spawn") as trace:
            parameters["trace"] = parameters["trace"] or typed.dumps(trace)
            rows = yield self._call(sql.SPAWN, step, parameters)
        return int(rows[0][0])

    def children(
        self, name: str, mode: str, timeout: Seconds | None, until: datetime | None
    ) -> Work:
        """Suspend the job until its children have ended, and return them."""
        self._check_wait("children")
        if mode not in ("all", "any"):
            raise WrongValueError(f'mode is {mode!r}; write "all" or "any"')
        parameters = {"mode": mode, **_until(timeout, until)}
        step = self._named(name)
        kept = yield from self._kept(step, "jobs")
        if kept is None:
            rows = yield self._call(sql.AWAIT_CHILDREN, step, parameters, may_suspend=True)
            kept = Kept("jobs", rows[0][1], rows[0][0] == "timed_out")
        children = [_child(one) for one in json.loads(kept.output or "[]")]
        if kept.timed_out:
            raise TimedOutError("not all awaited children ended in time", children)
        return children

    def _check_wait(self, method: str) -> None:
        if not self.may_suspend:
            raise UsageError(
                f"ctx.{method}() cannot suspend a job of a call of many; give "
                f'"{self._attempt.task}" a handler with task() instead'
            )

    def _named(self, name: str) -> str:
        """Return the name of the step; a name that is used again gets a number."""
        check(self._attempt)
        argument.named("name", name, "charge")
        step, reached = name, self._attempt.reached
        number = 1
        while step in reached:
            number += 1
            step = f"{name}#{number}"
        argument.named("the numbered name", step, "charge")
        reached.add(step)
        return step

    def _kept(self, step: str, kind: str) -> Generator[Call | Run, Rows, Kept | None]:
        if self._attempt.kept is None and self._attempt.steps > 0:
            parameters = {"job_id": self._attempt.job_id}
            rows = yield Call(sql.READ_RECORDED_STEPS, parameters, is_fenced=False)
            # Read only once also if several tasks of a handler ask at the same time.
            if self._attempt.kept is None:
                self._attempt.kept = {row[0]: Kept(*row[1:]) for row in rows}
        kept = (self._attempt.kept or {}).get(step)
        if kept is not None and kept.kind != kind:
            raise UsageError(
                f'step "{step}" of job {self._attempt.job_id} was recorded as {kept.kind}, not as '
                f"{kind}: give each step of a job a name of its own"
            )
        return kept

    def _call(
        self, statement: str, step: str, parameters: Mapping[str, Any], *, may_suspend: bool = False
    ) -> Call:
        lease = {
            "lock_timeout": self._lock_timeout,
            "job_id": self._attempt.job_id,
            "token": self._attempt.token,
            "step": step,
        }
        return Call(statement, {**lease, **parameters}, may_suspend=may_suspend)


def unreached(attempt: Attempt) -> str:
    """Describe the recorded steps that a handler completed without; empty if there are none."""
    if attempt.kept is None:
        # No step was read: the handler has reached only those of its own transactions.
        missed = attempt.steps > len(attempt.reached)
        return f"its {attempt.steps} recorded steps" if missed else ""
    names = [f'"{name}"' for name in attempt.kept if name not in attempt.reached]
    return f"its recorded steps {', '.join(names[:5])}" if names else ""


def undo_text(undo: Mapping[str, Any] | None) -> str | None:
    """Return the job that undoes a step as JSON, checked before the step is run."""
    if undo is None:
        return None
    example = '{"task": "card.refund", "input": {"order": 7}}'
    given = argument.mapping("undo", undo, example)
    argument.unlisted(given, ("task", "input"))
    if "task" not in given:
        raise WrongValueError(f"undo has no task; write undo={example}")
    argument.named("undo task", given["task"], "card.refund")
    return typed.dumps(dict(given), "undo")


def _is_of_the_values(error: ServerError) -> bool:
    cause = error.__cause__
    return isinstance(cause, psycopg.Error) and is_of_the_values(cause)


def _until(timeout: Seconds | None, until: datetime | None) -> dict[str, Any]:
    if timeout is not None and until is not None:
        raise WrongValueError("timeout and until are both given; write timeout=90 or until=...")
    return {
        "timeout": None if timeout is None else span(argument.duration("timeout", timeout)),
        "until": None if until is None else argument.moment("until", until),
    }


def _decoder(returns: Any, path: str) -> Callable[[str | None], Any]:
    decode = typed.decoder(Any if returns is None else returns)
    decimals = typed.names_decimal(returns)

    def read(text: str | None) -> Any:
        return decode(None if text is None else typed.loads(text, decimals=decimals), path)

    return read


def _child(given: Mapping[str, Any]) -> Child:
    return Child(
        given["step"], given["job_id"], given["state"], given.get("output"), given.get("error")
    )
