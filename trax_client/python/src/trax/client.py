"""Enqueues jobs and reads their results over a connection of the caller.

Nothing here begins, commits or rolls back: a job exists once the caller's transaction commits.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.string import TextLoader

from . import argument, results, sql, telemetry, typed
from . import graph as graph_rows
from .clock import Seconds
from .context import BaseContext
from .errors import (
    WRITE_UTF8,
    InvalidArgumentError,
    ServerError,
    UsageError,
    WrongTypeError,
    WrongValueError,
    kind_of,
    translated,
)
from .graph import Graph, Member, Need
from .options import (
    EMPTY,
    JobChange,
    JobOptions,
    SqlOptions,
    change_parameters,
    enqueue_parameters,
    input_text,
    input_texts,
    sql_parameters,
)
from .results import Job, JobResult, RecordedStep, Step
from .steps import undo_text

if sys.version_info >= (3, 11):
    from typing import Unpack
else:  # a dependency of psycopg
    from typing_extensions import Unpack


@argument.listed
class Client:
    """Calls over a psycopg connection, within its transaction."""

    def __init__(self, connection: psycopg.Connection[Any], *, decimals: bool = False) -> None:
        """Use a connection; with `decimals`, JSON numbers with a fraction become Decimals."""
        self._decimals = argument.flag("decimals", decimals)
        self._connection = argument.connection(connection, psycopg.Connection)

    def enqueue(
        self, task: str, input: Any = EMPTY, *unnamed: NoReturn, **options: Unpack[JobOptions]
    ) -> int:
        """Queue one job and return its id; without an input it gets `{}`, None is null."""
        parameters = enqueue_parameters(task, unnamed, options, input=input_text(input))
        with telemetry.sending(task, "enqueue") as trace:
            return int(self._all(sql.ENQUEUE, _traced(parameters, trace))[0][0])

    def enqueue_many(
        self, task: str, inputs: Iterable[Any], *unnamed: NoReturn, **options: Unpack[JobOptions]
    ) -> list[int]:
        """Queue one job for each input and return their ids in the order of the inputs."""
        texts = input_texts(inputs)
        parameters = enqueue_parameters(task, unnamed, options, inputs=texts)
        with telemetry.sending(task, "enqueue_many", len(texts)) as trace:
            rows = self._all(sql.ENQUEUE_MANY, _traced(parameters, trace))
        return [row[0] for row in rows]

    def enqueue_sql(self, command: str, *unnamed: NoReturn, **options: Unpack[SqlOptions]) -> int:
        """Queue a statement that the server runs, as this role or `run_as`; return the job's id."""
        parameters = sql_parameters(command, unnamed, options)
        return int(self._all(sql.ENQUEUE_SQL, parameters)[0][0])

    def enqueue_graph(self, graph: Graph) -> dict[str, int]:
        """Queue the jobs of a graph, all or none, and return their ids by name."""
        rows = self._all(sql.ENQUEUE_GRAPH, _graph(graph))
        return dict(rows)

    def open_batch(
        self, task: str, input: Any = EMPTY, *unnamed: NoReturn, **options: Unpack[JobOptions]
    ) -> int:
        """Queue the job that runs after all jobs of a batch, and return its id.

        `enqueue(..., batch=id)` adds a job, and `seal_batch(id)` says that all have been added.
        """
        parameters = enqueue_parameters(task, unnamed, options, input=input_text(input))
        with telemetry.sending(task, "open_batch") as trace:
            return int(self._all(sql.OPEN_BATCH, _traced(parameters, trace))[0][0])

    def seal_batch(self, batch: int) -> int:
        """Let the job of a batch run once all its jobs have ended; return their number."""
        return int(self._all(sql.SEAL_BATCH, _of_job(batch, "batch"))[0][0])

    def read_needs(self, job_id: int) -> list[Need]:
        """Return the jobs that a job of a graph needed, or all of its batch."""
        rows = self._all(sql.READ_NEEDS, _of_job(job_id))
        return [
            graph_rows.need(row, results.loads(row[3], decimals=self._decimals)) for row in rows
        ]

    def read_graph(self, job_id: int) -> list[Member]:
        """Return all jobs of the graph or batch that a job belongs to."""
        rows = self._all(sql.READ_GRAPH, _of_job(job_id))
        return [graph_rows.member(row) for row in rows]

    def await_job(self, job_id: int, timeout: Seconds) -> JobResult:
        """Wait until a job has ended; needs a connection in autocommit.

        Return its state with the output, if it has completed, or the error. When the timeout, a
        number of seconds or a timedelta, is over, that is the state 'queued' or 'in_progress'.
        """
        _check_autocommit(self._connection.autocommit, "await_job")
        parameters = {**_of_job(job_id), "timeout": argument.duration("timeout", timeout)}
        return results.result(self._all(sql.AWAIT_JOB, parameters)[0], decimals=self._decimals)

    def await_jobs(self, ids: Iterable[int], timeout: Seconds) -> dict[int, JobResult]:
        """Wait until one of the jobs has ended; needs a connection in autocommit.

        Return the results of all that have ended, at most 1000 in a call, by their ids; none when
        the timeout is over. A job that does not exist has the state 'unknown'.
        """
        _check_autocommit(self._connection.autocommit, "await_jobs")
        parameters = {"job_ids": _ids(ids), "timeout": argument.duration("timeout", timeout)}
        job_ids = self._all(sql.AWAIT_JOBS, parameters)[0][0]
        rows = self._all(sql.JOB_RESULTS, {"job_ids": job_ids})
        return results.ended(job_ids, rows, decimals=self._decimals)

    def job(self, job_id: int) -> Job | None:
        """Return a job in any state, or None if it does not exist."""
        return results.job(self._all(sql.JOB, _of_job(job_id)), decimals=self._decimals)

    def cancel(self, job_id: int, *, tree: bool = True) -> str:
        """Cancel a job; return 'cancelled', 'requested', 'finished' or 'unknown'.

        With `tree`, also the living jobs that it and its children have spawned.
        """
        statement = sql.CANCEL if argument.flag("tree", tree) else sql.CANCEL_ALONE
        return str(self._all(statement, _of_job(job_id))[0][0])

    def change_job(self, job_id: int, **change: Unpack[JobChange]) -> str:
        """Change a job while it waits; values that are not given stay.

        Return 'changed', or why nothing changed: 'suspended' (it has no time to change),
        'in_progress', 'finished' or 'unknown'.
        """
        parameters = {**_of_job(job_id), **change_parameters(change)}
        return str(self._all(sql.CHANGE_JOB, parameters)[0][0])

    def send_signal(
        self, job_id: int, name: str, payload: Any = None, signal_id: str | None = None
    ) -> str:
        """Send a signal to a job; return 'sent', 'duplicate', 'ended' or 'unknown'.

        A second signal with the same `signal_id` to the job is a duplicate.
        """
        parameters = _signal(job_id, name, payload, signal_id)
        return str(self._all(sql.SEND_SIGNAL, parameters)[0][0])

    def read_steps(self, job_id: int) -> list[Step]:
        """Return the steps of a job, also of one that has ended, in the order of recording."""
        rows = self._all(sql.READ_STEPS, _of_job(job_id))
        return [results.step(row, decimals=self._decimals) for row in rows]

    def fork(self, job_id: int, from_step: str | None = None, input: Any = None) -> int:
        """Queue a new job like one that has ended, and return its id.

        The steps before `from_step`, by default all, are already recorded. The input is that of
        the ended job if none is given.
        """
        return int(self._all(sql.FORK, _fork(job_id, from_step, input))[0][0])

    def record_step(
        self,
        context: BaseContext,
        name: str,
        output: Any = None,
        *,
        undo: Mapping[str, Any] | None = None,
    ) -> RecordedStep | None:
        """Record a step of a handler's job in this transaction, with the handler's writes.

        The first record wins: if `recorded` is False, take the kept output and write nothing. None
        means that the lease is lost: roll back.
        """
        parameters = _record(context, name, output, undo)
        rows = self._all(sql.RECORD_STEP_IN_TRANSACTION, parameters)
        return results.recorded(rows, decimals=self._decimals)

    def complete(self, context: BaseContext, output: Any = None) -> bool:
        """Record the completion of a handler's job in this transaction, with the handler's writes.

        The handler commits and returns `RECORDED`. False means that the lease is lost: roll back.
        """
        parameters = _completion(context, output)
        if note := context.note():
            parameters.update(note)
            # In a savepoint: a refusal of the note must not end the transaction, which the first
            # statement begins, as the savepoint would be committed without one.
            with contextlib.suppress(ServerError, psycopg.Error):
                self._all(sql.NOTHING, {})
                with self._connection.transaction():
                    rows = self._all(sql.COMPLETE_IN_TRANSACTION_WITH_NOTE, parameters)
                return context.completed(bool(rows[0][0]))
        rows = self._all(sql.COMPLETE_IN_TRANSACTION, parameters)
        return context.completed(bool(rows[0][0]))

    def _all(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        with (
            _translating(statement),
            psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor,
        ):
            _read_texts(cursor)
            return cursor.execute(statement, parameters).fetchall()


@argument.listed
class AsyncClient:
    """Calls over an async psycopg connection, within its transaction."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], *, decimals: bool = False) -> None:
        """Use a connection; with `decimals`, JSON numbers with a fraction become Decimals."""
        self._decimals = argument.flag("decimals", decimals)
        self._connection = argument.connection(connection, psycopg.AsyncConnection)

    async def enqueue(
        self, task: str, input: Any = EMPTY, *unnamed: NoReturn, **options: Unpack[JobOptions]
    ) -> int:
        """Queue one job and return its id; without an input it gets `{}`, None is null."""
        parameters = enqueue_parameters(task, unnamed, options, input=input_text(input))
        with telemetry.sending(task, "enqueue") as trace:
            return int((await self._all(sql.ENQUEUE, _traced(parameters, trace)))[0][0])

    async def enqueue_many(
        self, task: str, inputs: Iterable[Any], *unnamed: NoReturn, **options: Unpack[JobOptions]
    ) -> list[int]:
        """Queue one job for each input and return their ids in the order of the inputs."""
        texts = input_texts(inputs)
        parameters = enqueue_parameters(task, unnamed, options, inputs=texts)
        with telemetry.sending(task, "enqueue_many", len(texts)) as trace:
            rows = await self._all(sql.ENQUEUE_MANY, _traced(parameters, trace))
        return [row[0] for row in rows]

    async def enqueue_sql(
        self, command: str, *unnamed: NoReturn, **options: Unpack[SqlOptions]
    ) -> int:
        """Queue a statement that the server runs, as this role or `run_as`; return the job's id."""
        parameters = sql_parameters(command, unnamed, options)
        return int((await self._all(sql.ENQUEUE_SQL, parameters))[0][0])

    async def enqueue_graph(self, graph: Graph) -> dict[str, int]:
        """Queue the jobs of a graph, all or none, and return their ids by name."""
        rows = await self._all(sql.ENQUEUE_GRAPH, _graph(graph))
        return dict(rows)

    async def open_batch(
        self, task: str, input: Any = EMPTY, *unnamed: NoReturn, **options: Unpack[JobOptions]
    ) -> int:
        """Queue the job that runs after all jobs of a batch, and return its id.

        `enqueue(..., batch=id)` adds a job, and `seal_batch(id)` says that all have been added.
        """
        parameters = enqueue_parameters(task, unnamed, options, input=input_text(input))
        with telemetry.sending(task, "open_batch") as trace:
            return int((await self._all(sql.OPEN_BATCH, _traced(parameters, trace)))[0][0])

    async def seal_batch(self, batch: int) -> int:
        """Let the job of a batch run once all its jobs have ended; return their number."""
        return int((await self._all(sql.SEAL_BATCH, _of_job(batch, "batch")))[0][0])

    async def read_needs(self, job_id: int) -> list[Need]:
        """Return the jobs that a job of a graph needed, or all of its batch."""
        rows = await self._all(sql.READ_NEEDS, _of_job(job_id))
        return [
            graph_rows.need(row, results.loads(row[3], decimals=self._decimals)) for row in rows
        ]

    async def read_graph(self, job_id: int) -> list[Member]:
        """Return all jobs of the graph or batch that a job belongs to."""
        rows = await self._all(sql.READ_GRAPH, _of_job(job_id))
        return [graph_rows.member(row) for row in rows]

    async def await_job(self, job_id: int, timeout: Seconds) -> JobResult:
        """Wait until a job has ended; needs a connection in autocommit.

        Return its state with the output, if it has completed, or the error. When the timeout, a
        number of seconds or a timedelta, is over, that is the state 'queued' or 'in_progress'.
        """
        _check_autocommit(self._connection.autocommit, "await_job")
        parameters = {**_of_job(job_id), "timeout": argument.duration("timeout", timeout)}
        return results.result(
            (await self._all(sql.AWAIT_JOB, parameters))[0], decimals=self._decimals
        )

    async def await_jobs(self, ids: Iterable[int], timeout: Seconds) -> dict[int, JobResult]:
        """Wait until one of the jobs has ended; needs a connection in autocommit.

        Return the results of all that have ended, at most 1000 in a call, by their ids; none when
        the timeout is over. A job that does not exist has the state 'unknown'.
        """
        _check_autocommit(self._connection.autocommit, "await_jobs")
        parameters = {"job_ids": _ids(ids), "timeout": argument.duration("timeout", timeout)}
        job_ids = (await self._all(sql.AWAIT_JOBS, parameters))[0][0]
        rows = await self._all(sql.JOB_RESULTS, {"job_ids": job_ids})
        return results.ended(job_ids, rows, decimals=self._decimals)

    async def job(self, job_id: int) -> Job | None:
        """Return a job in any state, or None if it does not exist."""
        return results.job(await self._all(sql.JOB, _of_job(job_id)), decimals=self._decimals)

    async def cancel(self, job_id: int, *, tree: bool = True) -> str:
        """Cancel a job; return 'cancelled', 'requested', 'finished' or 'unknown'.

        With `tree`, also the living jobs that it and its children have spawned.
        """
        statement = sql.CANCEL if argument.flag("tree", tree) else sql.CANCEL_ALONE
        return str((await self._all(statement, _of_job(job_id)))[0][0])

    async def change_job(self, job_id: int, **change: Unpack[JobChange]) -> str:
        """Change a job while it waits; values that are not given stay.

        Return 'changed', or why nothing changed: 'suspended' (it has no time to change),
        'in_progress', 'finished' or 'unknown'.
        """
        parameters = {**_of_job(job_id), **change_parameters(change)}
        return str((await self._all(sql.CHANGE_JOB, parameters))[0][0])

    async def send_signal(
        self, job_id: int, name: str, payload: Any = None, signal_id: str | None = None
    ) -> str:
        """Send a signal to a job; return 'sent', 'duplicate', 'ended' or 'unknown'.

        A second signal with the same `signal_id` to the job is a duplicate.
        """
        parameters = _signal(job_id, name, payload, signal_id)
        return str((await self._all(sql.SEND_SIGNAL, parameters))[0][0])

    async def read_steps(self, job_id: int) -> list[Step]:
        """Return the steps of a job, also of one that has ended, in the order of recording."""
        rows = await self._all(sql.READ_STEPS, _of_job(job_id))
        return [results.step(row, decimals=self._decimals) for row in rows]

    async def fork(self, job_id: int, from_step: str | None = None, input: Any = None) -> int:
        """Queue a new job like one that has ended, and return its id.

        The steps before `from_step`, by default all, are already recorded. The input is that of
        the ended job if none is given.
        """
        return int((await self._all(sql.FORK, _fork(job_id, from_step, input)))[0][0])

    async def record_step(
        self,
        context: BaseContext,
        name: str,
        output: Any = None,
        *,
        undo: Mapping[str, Any] | None = None,
    ) -> RecordedStep | None:
        """Record a step of a handler's job in this transaction, with the handler's writes.

        The first record wins: if `recorded` is False, take the kept output and write nothing. None
        means that the lease is lost: roll back.
        """
        parameters = _record(context, name, output, undo)
        rows = await self._all(sql.RECORD_STEP_IN_TRANSACTION, parameters)
        return results.recorded(rows, decimals=self._decimals)

    async def complete(self, context: BaseContext, output: Any = None) -> bool:
        """Record the completion of a handler's job in this transaction, with the handler's writes.

        The handler commits and returns `RECORDED`. False means that the lease is lost: roll back.
        """
        parameters = _completion(context, output)
        if note := context.note():
            parameters.update(note)
            # In a savepoint: a refusal of the note must not end the transaction, which the first
            # statement begins, as the savepoint would be committed without one.
            with contextlib.suppress(ServerError, psycopg.Error):
                await self._all(sql.NOTHING, {})
                async with self._connection.transaction():
                    rows = await self._all(sql.COMPLETE_IN_TRANSACTION_WITH_NOTE, parameters)
                return context.completed(bool(rows[0][0]))
        rows = await self._all(sql.COMPLETE_IN_TRANSACTION, parameters)
        return context.completed(bool(rows[0][0]))

    async def _all(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        with _translating(statement):
            async with psycopg.AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
                _read_texts(cursor)
                return await (await cursor.execute(statement, parameters)).fetchall()


class _Texts(TextLoader):
    """Reads texts as UTF-8 where the encoding of the session is none, SQL_ASCII."""

    def load(self, data: Any) -> str:
        text = super().load(data)
        return text if isinstance(text, str) else text.decode("utf-8", "replace")


def _read_texts(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> None:
    for kind in ("text", "jsonb"):
        cursor.adapters.register_loader(kind, _Texts)


@contextlib.contextmanager
def _translating(statement: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise translated(error, statement) from error
    except UnicodeError as error:
        raise InvalidArgumentError(str(error), hint=WRITE_UTF8) from error


def _check_autocommit(autocommit: bool, call: str) -> None:
    if not autocommit:
        raise UsageError(
            f"{call} waits outside of transactions: connect with autocommit=True for it"
        )


def _traced(parameters: dict[str, Any], trace: dict[str, str] | None) -> dict[str, Any]:
    return {**parameters, "trace": parameters["trace"] or typed.dumps(trace)}


def _graph(graph: Graph) -> dict[str, Any]:
    if not isinstance(graph, Graph):
        raise WrongTypeError(f"the graph is {kind_of(graph)}; write trax.Graph()")
    return {"document": graph.document(), "unique_key": graph.unique_key}


def _of_job(job_id: int, name: str = "job_id") -> dict[str, Any]:
    return {"job_id": argument.integer(name, job_id, 17)}


def _ids(ids: Iterable[int]) -> list[int]:
    given = argument.items("ids", ids, "[17, 18]")
    if not given:
        raise WrongValueError("ids is empty; write those of one or more jobs, as in ids=[17, 18]")
    return [argument.integer(f"ids[{at}]", one, 17) for at, one in enumerate(given)]


def _completion(context: BaseContext, output: Any) -> dict[str, Any]:
    _check_context(context, "complete(ctx, output)")
    return {
        "job_id": context.job_id,
        "token": context.token,
        "output": typed.dumps(output, "output"),
    }


def _check_context(context: object, example: str) -> None:
    if not isinstance(context, BaseContext):
        raise WrongTypeError(
            f"context is {kind_of(context)}; write {example} with the trax.Context of the handler"
        )


def _signal(job_id: int, name: str, payload: Any, signal_id: str | None) -> dict[str, Any]:
    return {
        **_of_job(job_id),
        "name": argument.named("name", name, "paid"),
        "payload": typed.dumps(payload, "payload"),
        "signal_id": None if signal_id is None else argument.key("signal_id", signal_id, "mail-7"),
    }


def _fork(job_id: int, from_step: str | None, input: Any) -> dict[str, Any]:
    from_step = None if from_step is None else argument.key("from_step", from_step, "charge")
    return {**_of_job(job_id), "from_step": from_step, "input": typed.dumps(input, "input")}


def _record(
    context: BaseContext, name: str, output: Any, undo: Mapping[str, Any] | None
) -> dict[str, Any]:
    _check_context(context, 'record_step(ctx, "charge", output)')
    step = argument.named("name", name, "charge")
    context.reach(step)
    return {**_completion(context, output), "step": step, "undo": undo_text(undo)}
