"""Enqueues jobs and reads their results over a connection of the caller.

Nothing here begins, commits or rolls back: a job exists once the caller's transaction commits.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from typing import Any, Final, TypedDict

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.string import TextLoader

from . import argument, sql, telemetry, typed
from .clock import Seconds
from .context import Context
from .errors import UsageError, translated

if sys.version_info >= (3, 11):
    from typing import Unpack
else:  # a dependency of psycopg
    from typing_extensions import Unpack


class JobOptions(TypedDict, total=False):
    """The options of a job, as the arguments of `trax.enqueue`; each is optional.

    A time has a time zone. A duration (`timeout`, `retry_delay`, `unique_for`) is a number of
    seconds or a timedelta.
    """

    run_at: datetime | None
    group_name: str | None
    priority: int | None
    max_retries: int | None
    timeout: Seconds | None
    unique_key: str | None
    concurrency_key: str | None
    trace: Mapping[str, Any] | None
    retry_delay: Seconds | None
    unique_for: Seconds | None


_EMPTY: Final[dict[str, Any]] = {}
"""The input of a job for which the caller gave none."""


@dataclass(frozen=True)
class Job:
    """A job as `trax.job` shows it, without its input."""

    job_id: int
    state: str
    attempt: int
    task: str
    manifest: str | None
    group_name: str
    priority: int
    run_at: datetime | None
    scheduled_for: datetime | None
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    error: str | None
    output: Any
    progress: Any


@dataclass(frozen=True)
class JobResult:
    """The result of a job: completed, failed or cancelled; or its state at the timeout."""

    state: str
    output: Any
    error: str | None


class Client:
    """Calls over a psycopg connection, within its transaction."""

    def __init__(self, connection: psycopg.Connection[Any], *, decimals: bool = False) -> None:
        """Use a connection; with `decimals`, JSON numbers with a fraction become Decimals."""
        self._decimals = argument.flag("decimals", decimals)
        _check(connection, psycopg.Connection)
        self._connection = connection

    def enqueue(self, task: str, input: Any = _EMPTY, **options: Unpack[JobOptions]) -> int:
        """Queue one job and return its id; without an input it gets `{}`, None is null."""
        parameters = _enqueue(task, options, input=_input(input))
        with telemetry.sending(task, "enqueue") as trace:
            return int(self._all(sql.ENQUEUE, _traced(parameters, trace))[0][0])

    def enqueue_many(
        self, task: str, inputs: Iterable[Any], **options: Unpack[JobOptions]
    ) -> list[int]:
        """Queue one job for each input and return their ids in the order of the inputs."""
        texts = _inputs(inputs)
        parameters = _enqueue(task, options, inputs=texts)
        with telemetry.sending(task, "enqueue_many", len(texts)) as trace:
            rows = self._all(sql.ENQUEUE_MANY, _traced(parameters, trace))
        return [row[0] for row in rows]

    def await_job(self, job_id: int, timeout: Seconds) -> JobResult:
        """Wait until a job has ended or the timeout is over; needs a connection in autocommit.

        The timeout is a number of seconds or a timedelta.
        """
        _check_autocommit(self._connection.autocommit)
        parameters = {**_of_job(job_id), "timeout": argument.duration("timeout", timeout)}
        return _result(self._all(sql.AWAIT_JOB, parameters), decimals=self._decimals)

    def job(self, job_id: int) -> Job | None:
        """Return a job in any state, or None if it does not exist."""
        return _job(self._all(sql.JOB, _of_job(job_id)), decimals=self._decimals)

    def cancel(self, job_id: int) -> str:
        """Cancel a job; return 'cancelled', 'requested', 'finished' or 'unknown'."""
        return str(self._all(sql.CANCEL, _of_job(job_id))[0][0])

    def complete(self, context: Context, output: Any = None) -> bool:
        """Record the completion of a handler's job in this transaction, with the handler's writes.

        The handler commits and returns `RECORDED`. False means that the lease is lost: roll back.
        """
        return bool(self._all(sql.COMPLETE_IN_TRANSACTION, _completion(context, output))[0][0])

    def _all(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        with _translating(), psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.adapters.register_loader("jsonb", TextLoader)
            return cursor.execute(statement, parameters).fetchall()


class AsyncClient:
    """Calls over an async psycopg connection, within its transaction."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], *, decimals: bool = False) -> None:
        """Use a connection; with `decimals`, JSON numbers with a fraction become Decimals."""
        self._decimals = argument.flag("decimals", decimals)
        _check(connection, psycopg.AsyncConnection)
        self._connection = connection

    async def enqueue(self, task: str, input: Any = _EMPTY, **options: Unpack[JobOptions]) -> int:
        """Queue one job and return its id; without an input it gets `{}`, None is null."""
        parameters = _enqueue(task, options, input=_input(input))
        with telemetry.sending(task, "enqueue") as trace:
            return int((await self._all(sql.ENQUEUE, _traced(parameters, trace)))[0][0])

    async def enqueue_many(
        self, task: str, inputs: Iterable[Any], **options: Unpack[JobOptions]
    ) -> list[int]:
        """Queue one job for each input and return their ids in the order of the inputs."""
        texts = _inputs(inputs)
        parameters = _enqueue(task, options, inputs=texts)
        with telemetry.sending(task, "enqueue_many", len(texts)) as trace:
            rows = await self._all(sql.ENQUEUE_MANY, _traced(parameters, trace))
        return [row[0] for row in rows]

    async def await_job(self, job_id: int, timeout: Seconds) -> JobResult:
        """Wait until a job has ended or the timeout is over; needs a connection in autocommit.

        The timeout is a number of seconds or a timedelta.
        """
        _check_autocommit(self._connection.autocommit)
        parameters = {**_of_job(job_id), "timeout": argument.duration("timeout", timeout)}
        return _result(await self._all(sql.AWAIT_JOB, parameters), decimals=self._decimals)

    async def job(self, job_id: int) -> Job | None:
        """Return a job in any state, or None if it does not exist."""
        return _job(await self._all(sql.JOB, _of_job(job_id)), decimals=self._decimals)

    async def cancel(self, job_id: int) -> str:
        """Cancel a job; return 'cancelled', 'requested', 'finished' or 'unknown'."""
        return str((await self._all(sql.CANCEL, _of_job(job_id)))[0][0])

    async def complete(self, context: Context, output: Any = None) -> bool:
        """Record the completion of a handler's job in this transaction, with the handler's writes.

        The handler commits and returns `RECORDED`. False means that the lease is lost: roll back.
        """
        rows = await self._all(sql.COMPLETE_IN_TRANSACTION, _completion(context, output))
        return bool(rows[0][0])

    async def _all(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        with _translating():
            async with psycopg.AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
                cursor.adapters.register_loader("jsonb", TextLoader)
                return await (await cursor.execute(statement, parameters)).fetchall()


@contextlib.contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise translated(error) from error


def _check(connection: object, wanted: type) -> None:
    if not isinstance(connection, wanted):
        raise UsageError(
            f"a {type(connection).__name__} is no psycopg.{wanted.__name__}: of SQLAlchemy's "
            "connection take .connection.driver_connection, of Django's .connection"
        )


def _check_autocommit(autocommit: bool) -> None:
    if not autocommit:
        raise UsageError(
            "await_job waits outside of transactions: connect with autocommit=True for it"
        )


def _input(value: Any) -> str:
    return typed.dumps(value) or "null"


def _inputs(values: Iterable[Any]) -> list[str]:
    return [_input(one) for one in argument.items("inputs", values, '[{"to": "ada"}]')]


def _text(name: str, value: object) -> str:
    return argument.text(name, value, "mail")


def _integer(name: str, value: object) -> int:
    return argument.integer(name, value, 5)


def _trace(name: str, value: object) -> str | None:
    return typed.dumps(dict(argument.mapping(name, value, '{"traceparent": "00-..."}')) or None)


_CHECKS: dict[str, Callable[[str, object], object]] = {
    "run_at": argument.moment,
    "group_name": _text,
    "priority": _integer,
    "max_retries": _integer,
    "timeout": argument.duration,
    "unique_key": _text,
    "concurrency_key": _text,
    "trace": _trace,
    "retry_delay": argument.duration,
    "unique_for": argument.duration,
}


def _enqueue(task: str, options: JobOptions, **inputs: Any) -> dict[str, Any]:
    argument.unlisted(options, _CHECKS)
    parameters: dict[str, Any] = {"task": argument.text("task", task, "mail.send"), **inputs}
    for name, check in _CHECKS.items():
        value = options.get(name)
        parameters[name] = None if value is None else check(name, value)
    return parameters


def _traced(parameters: dict[str, Any], trace: dict[str, str] | None) -> dict[str, Any]:
    return {**parameters, "trace": parameters["trace"] or typed.dumps(trace)}


def _of_job(job_id: int) -> dict[str, Any]:
    return {"job_id": argument.integer("job_id", job_id, 17)}


def _completion(context: Context, output: Any) -> dict[str, Any]:
    return {
        "job_id": context.job_id,
        "token": context.token,
        "output": typed.dumps(output),
    }


def _loads(text: str | None, *, decimals: bool) -> Any:
    return None if text is None else typed.loads(text, decimals=decimals)


def _result(rows: Sequence[tuple[Any, ...]], *, decimals: bool) -> JobResult:
    state, output, error = rows[0]
    return JobResult(state, _loads(output, decimals=decimals), error)


def _job(rows: Sequence[tuple[Any, ...]], *, decimals: bool) -> Job | None:
    if not rows:
        return None
    values = dict(zip((field.name for field in fields(Job)), rows[0], strict=True))
    for name in ("run_at", "scheduled_for", "queued_at", "started_at", "finished_at"):
        epoch = values[name]
        values[name] = None if epoch is None else datetime.fromtimestamp(epoch, timezone.utc)
    for name in ("output", "progress"):
        values[name] = _loads(values[name], decimals=decimals)
    return Job(**values)
