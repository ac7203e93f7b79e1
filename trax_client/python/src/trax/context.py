"""The context of an attempt, as a handler sees it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar, overload

from . import typed
from .argument import duration, listed
from .attempt import Attempt, check
from .calls import Call, Calls, Rows
from .clock import Seconds
from .errors import UsageError
from .options import EMPTY, JobOptions
from .outcome import Reason
from .steps import Child, Run, Steps, Work, unreached

if sys.version_info >= (3, 11):
    from typing import Unpack
else:  # a dependency of psycopg
    from typing_extensions import Unpack

Value = TypeVar("Value")


class BaseContext:
    """The common part of `Context` and `AsyncContext`."""

    def __init__(self, attempt: Attempt, reported: Callable[[], None], calls: Calls) -> None:
        self._attempt = attempt
        self._reported = reported
        self._calls = calls
        self._steps = Steps(attempt, calls.lock_timeout)

    @property
    def job_id(self) -> int:
        """Return the job's id."""
        return self._attempt.job_id

    @property
    def token(self) -> str:
        """Return the lease's fencing token, which every outcome of this attempt carries."""
        return self._attempt.token

    @property
    def attempt(self) -> int:
        """Return the number of the attempt; 1 is the first."""
        return self._attempt.attempt

    @property
    def max_attempts(self) -> int:
        """Return the maximum number of attempts."""
        return self._attempt.max_attempts

    @property
    def task(self) -> str:
        """Return the name of the task."""
        return self._attempt.task

    @property
    def queued_at(self) -> datetime:
        """Return when the job was first queued, by the server's clock."""
        return self._attempt.queued_at

    @property
    def scheduled_for(self) -> datetime | None:
        """Return the time for which the manifest scheduled the job."""
        return self._attempt.scheduled_for

    @property
    def manifest(self) -> str | None:
        """Return the manifest that the job came from."""
        return self._attempt.manifest

    @property
    def group_name(self) -> str | None:
        """Return the job's group."""
        return self._attempt.group_name

    @property
    def timeout(self) -> timedelta | None:
        """Return the time limit of the attempt; None without one, or if it overflows."""
        try:
            return (
                None if self._attempt.timeout is None else timedelta(seconds=self._attempt.timeout)
            )
        except OverflowError:
            return None

    @property
    def trace(self) -> dict[str, Any] | None:
        """Return the trace data stored with the job: `traceparent` and `tracestate`."""
        return self._attempt.trace

    @property
    def reason(self) -> Reason | None:
        """Return the reason why the attempt should stop, or None."""
        return self._attempt.reason

    @property
    def is_stopped(self) -> bool:
        """Return whether the attempt should stop: cancelled, timeout, lease lost, or shutdown."""
        return self._attempt.reason is not None or self._attempt.is_over

    def check(self) -> None:
        """Raise `Stopped` if the attempt should stop; call it often in long-running threads."""
        check(self._attempt)

    def wait(self, delay: Seconds) -> None:
        """Sleep in a thread; raise `Stopped` as soon as the attempt should stop.

        The delay is a number of seconds or a timedelta.
        """
        self._attempt.stopped.wait(duration("delay", delay).total_seconds())
        self.check()

    def progress(self, value: Any) -> None:
        """Report the job's progress: a number, a text or a small document (at most 8 KiB).

        `trax.job` shows it while the job runs. The call is cheap: the worker sends the latest
        report of each job at most twice a second.
        """
        self._attempt.progress = typed.dumps(value, "progress")
        self._reported()

    def on_stop(self, call: Callable[[], object]) -> None:
        """Call a function as soon as the attempt should stop, from another thread."""
        self._attempt.on_stop = call
        if self.is_stopped:
            call()

    def refuse_waits(self) -> None:
        """Refuse the waits that would suspend the job."""
        self._steps.may_suspend = False

    def reach(self, step: str) -> None:
        """Note a step that the handler records in a transaction of its own."""
        self._attempt.reached.add(step)

    def note(self) -> dict[str, Any]:
        """Return the argument of a note of recorded steps that are not reached; empty for none."""
        return {"reached": list(self._attempt.reached)} if unreached(self._attempt) else {}

    def completed(self, held: bool) -> bool:
        """Note that the handler completes the job in a transaction of its own; return `held`."""
        self._attempt.is_completed |= held
        return held


@listed
class Context(BaseContext):
    """An attempt of a job, passed to handlers that have a parameter of this type."""

    @overload
    def step(
        self,
        name: str,
        function: Callable[[], Any],
        *,
        returns: type[Value],
        undo: Mapping[str, Any] | None = None,
    ) -> Value: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[[], Any],
        *,
        returns: Any = None,
        undo: Mapping[str, Any] | None = None,
    ) -> Any: ...
    def step(
        self,
        name: str,
        function: Callable[[], Any],
        *,
        returns: Any = None,
        undo: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a function once, and return its result as it is recorded, now and in later attempts.

        The result is JSON, converted to the type `returns` as inputs are. `undo` (`{"task": ...,
        "input": ...}`) is the job that is queued to undo the step if the job fails for good or is
        cancelled. A name that is used again in an attempt becomes `name#2`.
        """
        return self._do(self._steps.step(name, function, undo, returns))

    def sleep(self, name: str, until: Seconds | datetime) -> None:
        """Suspend the job for a number of seconds or a timedelta, or until a time.

        Raise `Suspended`: the attempt ends without being spent, and the next one gets past here.
        """
        self._do(self._steps.sleep(name, until))

    def signal(
        self,
        name: str,
        *,
        timeout: Seconds | None = None,
        until: datetime | None = None,
        step: str | None = None,
        returns: Any = None,
    ) -> Any:
        """Return the payload of the next signal of a name; suspend the job until one is sent.

        Raise `TimedOutError` when the time is up. The step has the name of the signal, or `step`.
        """
        return self._do(self._steps.signal(name, timeout, until, step, returns))

    def spawn(
        self,
        name: str,
        task: str,
        input: Any = EMPTY,
        *unnamed: NoReturn,
        **options: Unpack[JobOptions],
    ) -> int:
        """Queue a job as a child of this one, once, and return its id; options as in `enqueue`."""
        return int(self._do(self._steps.spawn(name, task, input, unnamed, options)))

    def children(
        self,
        name: str = "children",
        *,
        mode: str = "all",
        timeout: Seconds | None = None,
        until: datetime | None = None,
    ) -> list[Child]:
        """Suspend the job until all its children, or any of them (`mode`), have ended.

        Raise `TimedOutError`, which has the `children`, when the time is up.
        """
        children: list[Child] = self._do(self._steps.children(name, mode, timeout, until))
        return children

    def _do(self, work: Work) -> Any:
        try:
            request = next(work)
            while True:
                try:
                    result = self._perform(request)
                except BaseException as error:  # noqa: BLE001 - the generator raises it again
                    request = work.throw(error)
                else:
                    request = work.send(result)
        except StopIteration as end:
            return end.value

    def _perform(self, request: Call | Run) -> Any:
        if isinstance(request, Call):
            return self._calls.start(self._attempt, request).result()
        result = request.function()
        if issubclass(type(result), Awaitable):
            if issubclass(type(result), Coroutine):
                result.close()
            raise UsageError("the function of a step is async: use trax.AsyncWorker")
        return result


@listed
class AsyncContext(BaseContext):
    """An attempt of a job, passed to async handlers that have a parameter of this type."""

    def wait(self, delay: Seconds) -> Any:
        """Sleep; raise `Stopped` as soon as the attempt should stop.

        On the event loop write `await ctx.wait(...)`, which holds up no other handler; a thread
        calls it as that of a `Context`. The delay is a number of seconds or a timedelta.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return super().wait(delay)
        return self._wait(duration("delay", delay).total_seconds())

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.check()

    @overload
    async def step(
        self,
        name: str,
        function: Callable[[], Any],
        *,
        returns: type[Value],
        undo: Mapping[str, Any] | None = None,
    ) -> Value: ...
    @overload
    async def step(
        self,
        name: str,
        function: Callable[[], Any],
        *,
        returns: Any = None,
        undo: Mapping[str, Any] | None = None,
    ) -> Any: ...
    async def step(
        self,
        name: str,
        function: Callable[[], Any],
        *,
        returns: Any = None,
        undo: Mapping[str, Any] | None = None,
    ) -> Any:
        """Do as `Context.step` does; the function may be async."""
        return await self._do(self._steps.step(name, function, undo, returns))

    async def sleep(self, name: str, until: Seconds | datetime) -> None:
        """Do as `Context.sleep` does."""
        await self._do(self._steps.sleep(name, until))

    async def signal(
        self,
        name: str,
        *,
        timeout: Seconds | None = None,
        until: datetime | None = None,
        step: str | None = None,
        returns: Any = None,
    ) -> Any:
        """Do as `Context.signal` does."""
        return await self._do(self._steps.signal(name, timeout, until, step, returns))

    async def spawn(
        self,
        name: str,
        task: str,
        input: Any = EMPTY,
        *unnamed: NoReturn,
        **options: Unpack[JobOptions],
    ) -> int:
        """Do as `Context.spawn` does."""
        return int(await self._do(self._steps.spawn(name, task, input, unnamed, options)))

    async def children(
        self,
        name: str = "children",
        *,
        mode: str = "all",
        timeout: Seconds | None = None,
        until: datetime | None = None,
    ) -> list[Child]:
        """Do as `Context.children` does."""
        children: list[Child] = await self._do(self._steps.children(name, mode, timeout, until))
        return children

    async def _do(self, work: Work) -> Any:
        try:
            request = next(work)
            while True:
                try:
                    result = await self._perform(request)
                except BaseException as error:  # noqa: BLE001 - the generator raises it again
                    request = work.throw(error)
                else:
                    request = work.send(result)
        except StopIteration as end:
            return end.value

    async def _perform(self, request: Call | Run) -> Any:
        if isinstance(request, Call):
            return await self._answer(request)
        result = request.function()
        return await result if issubclass(type(result), Awaitable) else result

    async def _answer(self, call: Call) -> Rows:
        answer = asyncio.wrap_future(self._calls.start(self._attempt, call))
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            # A step that has been done is recorded before the worker acknowledges the cancel.
            await asyncio.wait([answer])
            if not answer.cancelled():
                answer.exception()
            raise
