"""Enqueues jobs and reads their results over a connection of the caller.

Nothing here begins, commits or rolls back: a job exists once the caller's transaction commits.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from typing import Any, TypedDict

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.string import TextLoader

from . import sql, telemetry, typed
from .clock import Seconds, span
from .context import Context
from .errors import UsageError, translated

if sys.version_info >= (3, 11):
    from typing import Unpack
else:  # a dependency of psycopg
    from typing_extensions import Unpack


class JobOptions(TypedDict, total=False):
    """The options of a job, as the arguments of `trax.enqueue`; each is optional."""

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
        _check(connection, psycopg.Connection)
        self._connection = connection
        self._decimals = decimals

    def enqueue(self, task: str, input: Any = None, **options: Unpack[JobOptions]) -> int:
        """Queue one job and return its id."""
        with telemetry.sending(task, "enqueue") as trace:
            parameters = _enqueue(task, options, trace, input=_input(input))
            return int(self._all(sql.ENQUEUE, parameters)[0][0])

    def enqueue_many(
        self, task: str, inputs: Iterable[Any], **options: Unpack[JobOptions]
    ) -> list[int]:
        """Queue one job for each input and return their ids in the order of the inputs."""
        texts = [_input(one) for one in inputs]
        with telemetry.sending(task, "enqueue_many", len(texts)) as trace:
            rows = self._all(sql.ENQUEUE_MANY, _enqueue(task, options, trace, inputs=texts))
        return [row[0] for row in rows]

    def await_job(self, job_id: int, timeout: Seconds) -> JobResult:
        """Wait until a job has ended or the timeout is over; needs a connection in autocommit."""
        _check_autocommit(self._connection.autocommit)
        parameters = {"job_id": job_id, "timeout": span(timeout)}
        return _result(self._all(sql.AWAIT_JOB, parameters), decimals=self._decimals)

    def job(self, job_id: int) -> Job | None:
        """Return a job in any state, or None if it does not exist."""
        return _job(self._all(sql.JOB, {"job_id": job_id}), decimals=self._decimals)

    def cancel(self, job_id: int) -> str:
        """Cancel a job; return 'cancelled', 'requested', 'finished' or 'unknown'."""
        return str(self._all(sql.CANCEL, {"job_id": job_id})[0][0])

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
        _check(connection, psycopg.AsyncConnection)
        self._connection = connection
        self._decimals = decimals

    async def enqueue(self, task: str, input: Any = None, **options: Unpack[JobOptions]) -> int:
        """Queue one job and return its id."""
        with telemetry.sending(task, "enqueue") as trace:
            parameters = _enqueue(task, options, trace, input=_input(input))
            return int((await self._all(sql.ENQUEUE, parameters))[0][0])

    async def enqueue_many(
        self, task: str, inputs: Iterable[Any], **options: Unpack[JobOptions]
    ) -> list[int]:
        """Queue one job for each input and return their ids in the order of the inputs."""
        texts = [_input(one) for one in inputs]
        with telemetry.sending(task, "enqueue_many", len(texts)) as trace:
            rows = await self._all(sql.ENQUEUE_MANY, _enqueue(task, options, trace, inputs=texts))
        return [row[0] for row in rows]

    async def await_job(self, job_id: int, timeout: Seconds) -> JobResult:
        """Wait until a job has ended or the timeout is over; needs a connection in autocommit."""
        _check_autocommit(self._connection.autocommit)
        parameters = {"job_id": job_id, "timeout": span(timeout)}
        return _result(await self._all(sql.AWAIT_JOB, parameters), decimals=self._decimals)

    async def job(self, job_id: int) -> Job | None:
        """Return a job in any state, or None if it does not exist."""
        return _job(await self._all(sql.JOB, {"job_id": job_id}), decimals=self._decimals)

    async def cancel(self, job_id: int) -> str:
        """Cancel a job; return 'cancelled', 'requested', 'finished' or 'unknown'."""
        return str((await self._all(sql.CANCEL, {"job_id": job_id}))[0][0])

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
    return "{}" if value is None else (typed.dumps(value) or "null")


def _enqueue(
    task: str, options: JobOptions, trace: dict[str, str] | None, **inputs: Any
) -> dict[str, Any]:
    given: dict[str, Any] = dict(options)
    unknown = given.keys() - JobOptions.__annotations__.keys()
    if unknown:
        raise UsageError(f"trax.enqueue has no option {', '.join(sorted(unknown))}")
    run_at = given.get("run_at")
    if run_at is not None and run_at.tzinfo is None:
        raise UsageError("run_at has no time zone: write datetime(..., tzinfo=timezone.utc)")
    for name in ("timeout", "retry_delay", "unique_for"):
        if given.get(name) is not None:
            given[name] = span(given[name])
    given["trace"] = typed.dumps(given.get("trace") or trace)
    return {**dict.fromkeys(JobOptions.__annotations__), **given, "task": task, **inputs}


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
