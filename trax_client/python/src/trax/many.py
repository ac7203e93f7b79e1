"""Handlers that take many jobs in one call.

Each job runs as a handler of its own, which joins the gathering of its key and returns its result
of the call; so its lease, timeout, cancel, attempt and outcome are those of any job. The handler
that fills a gathering begins the call, or the first that has waited for `max_wait`. A job that is
asked to stop before is in no call.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import typing
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as IsDue  # the built-in one since Python 3.11
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from . import argument, telemetry
from .attempt import Attempt
from .context import AsyncContext, BaseContext, Context
from .errors import UsageError, WrongTypeError, WrongValueError, kind_of
from .handler import Handler
from .outcome import Snooze, Stopped, decisive

Input = TypeVar("Input")
# The attribute itself, which a subclass may hide.
_TRACE: Any = BaseException.__dict__["__traceback__"]


@dataclass(frozen=True, eq=False)
class GatheredJob(Generic[Input]):
    """A job of a call: its input and its own context."""

    input: Input
    ctx: Context


@dataclass(frozen=True, eq=False)
class AsyncGatheredJob(Generic[Input]):
    """A job of a call of an async handler: its input and its own context."""

    input: Input
    ctx: AsyncContext


class Many:
    """The rules by which jobs are gathered."""

    def __init__(self, max_jobs: object, max_wait: object, by: object) -> None:
        self.max_jobs = argument.integer("max_jobs", max_jobs, 100)
        if self.max_jobs < 1:
            raise WrongValueError("max_jobs is how many jobs a call takes at most: 1 or more")
        self.max_wait = argument.duration("max_wait", max_wait).total_seconds()
        if by is not None and not callable(by):
            raise WrongTypeError(f'by is {kind_of(by)}; write by=lambda input: input["customer"]')
        if inspect.iscoroutinefunction(by):
            raise WrongTypeError("by is async; write def, not async def")
        self._by = by

    def key(self, task: str, value: object) -> Hashable:
        """Return the key of an input; the jobs of a call have the same one."""
        key = None if self._by is None else self._by(value)
        try:
            hash(key)
        except TypeError:
            said = f'by of the handler of "{task}" returned {kind_of(key)}'
            raise UsageError(f"{said}; return a text, a number or a tuple of these") from None
        return typing.cast(Hashable, key)


class ManyHandler(Handler):
    """A function that runs many jobs of one task in a call."""

    _jobs = ""

    def __init__(
        self, task: str, function: Callable[..., Any], many: Many, *, is_async: bool
    ) -> None:
        super().__init__(task, function, is_async=is_async)
        name = self._jobs
        if not name:
            raise UsageError(f'the handler of "{task}" takes no jobs: give it a parameter "jobs"')

        def call(jobs: list[Any]) -> Any:
            return function(**{name: jobs})

        if is_async:
            self._run = telemetry.around_async(_LoopGatherer(task, call, many).run)
        else:
            self._run = telemetry.around(_ThreadGatherer(task, call, many).run)

    def run(self, attempt: Attempt, context: BaseContext) -> Any:
        """Call the function for a job, which cannot be suspended: the others would wait."""
        context.refuse_waits()
        return super().run(attempt, context)

    def _read_signature(
        self, function: Callable[..., Any], plain: Callable[..., Any], given: Collection[str]
    ) -> None:
        where = f'the handler of "{self.task}"'
        for name, parameter, hint in self._parameters(function, plain, given):
            if not self._jobs:
                self._jobs, self._context = name, "ctx"
                self._take_input("input", self._input_type(name, hint), name)
            elif parameter.default is inspect.Parameter.empty:
                raise UsageError(f"{where} has more parameters than its list of jobs")

    def _input_type(self, name: str, hint: Any) -> Any:
        job = AsyncGatheredJob if self.context_type is AsyncContext else GatheredJob
        inner = None
        if hint is Any:
            inner = Any
        elif (typing.get_origin(hint) or hint) in (list, Sequence):
            inner = (*typing.get_args(hint), Any)[0]
        if inner in (Any, job):
            return Any
        if typing.get_origin(inner) is job:
            return typing.get_args(inner)[0]
        raise UsageError(
            f'the handler of "{self.task}", parameter "{name}": annotate it as '
            f'"list[trax.{job.__name__}[...]]", with the type of the inputs'
        )


@dataclass
class _Call:
    """The jobs of a call that wait for it, with the futures of their results."""

    key: Hashable
    seats: dict[Any, Any] = field(default_factory=dict)
    is_gathering: bool = True
    task: asyncio.Task[None] | None = None


class _Gatherer:
    def __init__(self, task: str, function: Callable[[list[Any]], Any], many: Many) -> None:
        self._task = task
        self._function = function
        self._many = many
        self._gathering: dict[Hashable, _Call] = {}

    def _join(self, key: Hashable, job: Any, seat: Any) -> _Call:
        call = self._gathering.setdefault(key, _Call(key))
        call.seats[job] = seat
        return call

    def _leave(self, call: _Call, job: Any) -> None:
        call.seats.pop(job, None)
        if not call.seats:
            self._close(call)

    def _close(self, call: _Call) -> None:
        if call.is_gathering:
            call.is_gathering = False
            del self._gathering[call.key]

    def _begins(self, call: _Call, due: Any) -> bool:
        """Close a gathering that is full or has a job that is due; return whether it was open."""
        if not call.is_gathering or not (due or self._is_full(call)):
            return False
        for job in [one for one in call.seats if one.ctx.is_stopped]:
            self._leave(call, job)
        begins = due in call.seats or self._is_full(call)
        if begins:
            self._close(call)
        return begins

    def _is_full(self, call: _Call) -> bool:
        return len(call.seats) == self._many.max_jobs

    def _results(self, returned: object, wanted: int) -> list[Any]:
        """Return the results of a call from the value of the function."""
        if returned is None:
            return [None] * wanted
        said = f'the handler of "{self._task}" returned'
        if not isinstance(returned, list | tuple):
            said = f"{said} {kind_of(returned)}"
            raise UsageError(f"{said}, not a list of {_numbered(wanted, 'result')}")
        results = list(returned)
        if len(results) != wanted:
            said = f"{said} {_numbered(len(results), 'result')}"
            raise UsageError(f"{said} for {_numbered(wanted, 'job')}")
        return results


class _ThreadGatherer(_Gatherer):
    def __init__(self, task: str, function: Callable[[list[Any]], Any], many: Many) -> None:
        super().__init__(task, function, many)
        self._lock = threading.Lock()

    def run(self, input: Any, ctx: Context) -> Any:
        """Return the result of a job from the call that it is in."""
        key, job = self._many.key(self._task, input), GatheredJob(input, ctx)
        seat: Future[Any] = Future()
        ctx.on_stop(seat.cancel)
        with self._lock:
            call = self._join(key, job, seat)
        self._begin(call)
        try:
            with contextlib.suppress(IsDue):
                seat.result(self._many.max_wait)
            self._begin(call, due=job)
            outcome = seat.result()
        except CancelledError:
            with self._lock:
                self._leave(call, job)
            ctx.check()
            raise
        return _unwrapped(ctx, outcome)

    def _begin(self, call: _Call, due: GatheredJob[Any] | None = None) -> None:
        with self._lock:
            if not self._begins(call, due):
                return
            # A seat that is marked as running cannot be cancelled any more.
            seats = {
                job: seat for job, seat in call.seats.items() if seat.set_running_or_notify_cancel()
            }
        if not seats:
            return
        try:
            results = self._results(self._function(list(seats)), len(seats))
        except BaseException as error:  # noqa: BLE001 - each job raises it again
            results = [error] * len(seats)
        _settle(seats.values(), results)


class _LoopGatherer(_Gatherer):
    async def run(self, input: Any, ctx: AsyncContext) -> Any:
        """Return the result of a job from the call that it is in."""
        key, job = self._many.key(self._task, input), AsyncGatheredJob(input, ctx)
        seat = asyncio.get_running_loop().create_future()
        call = self._join(key, job, seat)
        try:
            self._begin(call)
            await asyncio.wait([seat], timeout=self._many.max_wait)
            self._begin(call, due=job)
            await asyncio.wait([seat])
        except asyncio.CancelledError:
            self._leave(call, job)
            if call.task is not None and not call.seats:
                # The last handler that waits ends as the function does.
                call.task.cancel()
                await asyncio.wait([call.task])
            if not seat.done():
                raise
        return _unwrapped(ctx, seat.result())

    def _begin(self, call: _Call, due: AsyncGatheredJob[Any] | None = None) -> None:
        if self._begins(call, due):
            call.task = asyncio.create_task(self._perform(dict(call.seats)))

    async def _perform(self, seats: dict[Any, Any]) -> None:
        try:
            results = self._results(await self._function(list(seats)), len(seats))
        except BaseException as error:  # noqa: BLE001 - each job raises it again
            results = [error] * len(seats)
        _settle(seats.values(), results)


def _settle(seats: Iterable[Any], results: Sequence[Any]) -> None:
    """End each seat, whatever its result is: nothing of a result is run here."""
    for seat, result in zip(seats, results, strict=True):
        seat.set_result((result, _TRACE.__get__(result) if _is_raised(result) else None))


def _is_raised(result: object) -> bool:
    return issubclass(type(result), BaseException)


def _unwrapped(ctx: Context | AsyncContext, outcome: tuple[Any, Any]) -> Any:
    """Return the result of a job, or raise it if it is an exception."""
    result, trace = outcome
    if not _is_raised(result):
        return result
    if isinstance(decisive(result), Stopped) and not ctx.is_stopped:
        # The stop of another job has ended the call: this one begins anew, its attempt not spent.
        raise Snooze(0)
    # Several jobs may raise the same exception, each with the traceback of the function alone.
    raise result.with_traceback(trace)


def _numbered(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
