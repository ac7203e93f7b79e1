"""Workers: decorate handlers, then run."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar

from . import argument
from .clock import Seconds
from .connection import checked_address
from .engine import Engine, Settings
from .errors import UsageError, WrongTypeError, WrongValueError
from .exchange import Claim
from .handler import Handler
from .many import Many, ManyHandler
from .runner import LoopRunner, ThreadRunner
from .shutdown import Phase, signals

Function = TypeVar("Function", bound=Callable[..., Any])
Results = list[Any] | tuple[Any, ...] | None
ManyFunction = TypeVar("ManyFunction", bound=Callable[[list[Any]], Results | Awaitable[Results]])


@argument.listed
class _Worker:
    """The common part of both kinds of worker."""

    _is_async: bool

    def __init__(
        self,
        address: str | None = None,
        *,
        name: str | None = None,
        concurrency: int = 10,
        groups: Iterable[str] | None = None,
        versions: Iterable[str] | None = None,
        lease: Seconds = 30.0,
        grace: Seconds = 30.0,
        poll_interval: Seconds = 0.2,
        obey_signals: bool = True,
    ) -> None:
        """Create a worker, which connects when it runs.

        A duration is a number of seconds or a timedelta.

        Args:
            address: the address of the database as in libpq: a URL or `host=... dbname=...`, with
                one or several hosts. None means `DATABASE_URL`, or libpq's variables.
            name: the name shown in leases and runs; by default host, process id and a random part.
            concurrency: how many handlers may run at once.
            groups: limits claims to these groups, as in `["mail"]`; None means all groups.
            versions: limits claims to jobs of these versions, as in `["v2"]`, and jobs without a
                version; None means all jobs.
            lease: how long a lease lasts without a heartbeat; three are sent per lease.
            grace: how long handlers may continue after the first SIGTERM or SIGINT.
            poll_interval: how often to poll an empty queue; grows to one second, or to five while
                notifications arrive.
            obey_signals: False leaves SIGTERM and SIGINT to the program.

        """
        self._concurrency = argument.integer("concurrency", concurrency, 10)
        if self._concurrency < 1:
            raise WrongValueError("concurrency is how many handlers run at once: 1 or more")
        self._lease = argument.duration("lease", lease).total_seconds()
        if self._lease < 1:
            raise WrongValueError(
                "lease is how long a lease lasts without a heartbeat: 1 s or more"
            )
        self._address = checked_address(address)
        given = None if name is None else argument.key("name", name, "mail-1")
        self.name = given or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._groups = None if groups is None else argument.texts("groups", groups, '["mail"]')
        if self._groups == []:
            raise WrongValueError("groups has no item; leave it out to claim from all groups")
        self._versions = (
            None if versions is None else argument.texts("versions", versions, '["v2"]')
        )
        if self._versions == []:
            raise WrongValueError("versions has no item; leave it out to claim jobs of any version")
        self._grace = argument.duration("grace", grace).total_seconds()
        interval = argument.period("poll_interval", poll_interval).total_seconds()
        self._poll_interval = max(0.001, interval)
        self._obey_signals = argument.flag("obey_signals", obey_signals)
        self._handlers: dict[str, Handler] = {}
        self._phase: Phase | None = None
        self._must_stop = False

    def task(self, name: str, **options: NoReturn) -> Callable[[Function], Function]:
        """Run the decorated function for every job of this task.

        Its parameters are the input, with or without a type, and optionally a `trax.Context`. Its
        return value is the output of the job. The function itself is not changed.
        """
        _checked(name, '@worker.task("mail.send")')
        _refuse(options, name, ["name"])

        def add(function: Function) -> Function:
            self._check_addition(name)
            self._handlers[name] = Handler(name, function, is_async=self._is_async)
            return function

        return add

    def task_many(
        self,
        name: str,
        *,
        max_jobs: int,
        max_wait: Seconds = 0.1,
        by: Callable[[Any], Hashable] | None = None,
        **options: NoReturn,
    ) -> Callable[[ManyFunction], ManyFunction]:
        """Run the decorated function for many jobs of this task at once.

        Its parameter is a list of `trax.GatheredJob`, of `trax.AsyncGatheredJob` if it is async.
        Its return value is a list with the result of each job, or None: no job has an output. A
        result that is an exception fails its job alone, an exception that is raised fails all jobs
        of the call; but a stop of one job that ends the call releases the others. Each job has a
        lease, a timeout, an attempt and an outcome of its own, and counts as one of the handlers
        that run at once. No job of a call can be suspended.

        Args:
            name: the name of the task.
            max_jobs: how many jobs a call has at most; it begins as soon as these are there.
            max_wait: how long the first job of a call waits for others at most.
            by: returns a key from an input; the jobs of a call have the same key.
            **options: refused, those of a job with where to give them.

        """
        _checked(name, '@worker.task_many("search.index", max_jobs=100)')
        _refuse(options, name, ["max_jobs", "max_wait", "by"])
        many = Many(max_jobs, max_wait, by)
        if many.max_jobs > self._concurrency:
            raise WrongValueError(
                f'the handler of "{name}" takes {many.max_jobs} jobs at once, and the worker runs '
                f"{self._concurrency}: set concurrency to {many.max_jobs} or max_jobs to at most "
                f"{self._concurrency}"
            )

        def add(function: ManyFunction) -> ManyFunction:
            self._check_addition(name)
            self._handlers[name] = ManyHandler(name, function, many, is_async=self._is_async)
            return function

        return add

    def _check_addition(self, name: str) -> None:
        if self._phase is not None:
            raise UsageError(
                f'the worker runs already; give task "{name}" its handler before run()'
            )
        if name in self._handlers:
            raise UsageError(f'task "{name}" has two handlers in one worker; remove one')

    def _check_handlers(self) -> None:
        if not self._handlers:
            raise UsageError('the worker has no handler; decorate one with @worker.task("name")')

    def stop(self) -> None:
        """Stop claiming and let handlers end within the grace period.

        Called again, releases all jobs. Called before `run()`, that ends at once. May be called
        from every thread and from signal handlers.
        """
        self._must_stop = True
        if self._phase is not None:
            self._phase.advance()

    def claims(self, task: str | None, lease: float) -> tuple[Claim, Mapping[str, Handler]]:
        """Return the claim of jobs of a task, or of all, and the handlers; for `trax.testkit`."""
        self._check_handlers()
        if task is not None and argument.task(task) not in self._handlers:
            raise UsageError(
                f'the worker has no handler for task "{task}"; decorate one with '
                f'@worker.task("{task}")'
            )
        tasks = sorted(self._handlers) if task is None else [task]
        return Claim(self.name, tasks, self._groups, self._versions, lease), self._handlers

    def _begin(self, *, until_empty: bool) -> tuple[Settings, Phase]:
        argument.flag("until_empty", until_empty)
        self._check_handlers()
        if self._phase is not None:
            raise UsageError("the worker runs already")
        self._phase = Phase()
        if self._must_stop:
            self._phase.advance()
        settings = Settings(
            address=self._address,
            name=self.name,
            concurrency=self._concurrency,
            groups=self._groups,
            versions=self._versions,
            lease=self._lease,
            grace=self._grace,
            poll_interval=self._poll_interval,
            until_empty=until_empty,
        )
        return settings, self._phase

    def _end(self) -> None:
        if self._phase is not None:
            phase, self._phase = self._phase, None
            self._must_stop = False
            phase.bell.close()


def _checked(name: object, example: str) -> None:
    if not isinstance(name, str):
        raise WrongTypeError(f"the decorator takes the name of a task: {example}")
    if argument.task(name) == "sql":
        raise WrongValueError(
            'task "sql" is that of SQL jobs, which the server runs: queue them with '
            'client.enqueue_sql("...")'
        )


def _refuse(options: Mapping[str, object], task: str, known: list[str]) -> None:
    """Refuse the options of a handler, those of its jobs with where to give them."""
    for option in ("max_retries", "retry_delay", "timeout"):
        if option in options:
            value = options[option] if option == "max_retries" else "'90 s'"
            raise WrongTypeError(
                f'a handler has no option "{option}"; give it to enqueue, or type '
                f"select trax.configure_task('{task}', {option} => {value})"
            )
    argument.unlisted(options, known)


@argument.listed
class Worker(_Worker):
    """Claims jobs and runs their handlers in threads, until stopped.

    In a handler that should stop, `check()` and `wait()` of its context raise `Stopped`.
    """

    _is_async = False

    def run(self, *, until_empty: bool = False) -> None:
        """Run until SIGTERM, SIGINT, `stop()`, or with `until_empty` an empty queue.

        Waits for a server that cannot be reached, also at startup. Raises an error of this
        package if the server refuses the login or the first claim: a wrong password or database,
        a missing extension or right.
        """
        settings, phase = self._begin(until_empty=until_empty)
        runner = ThreadRunner(self._concurrency)
        try:
            engine = Engine(settings, self._handlers, runner, phase)
            runner.on_ended = engine.ended
            with signals(phase, obeyed=self._obey_signals):
                engine.run()
        finally:
            runner.end()
            self._end()


@argument.listed
class AsyncWorker(_Worker):
    """Claims jobs and runs their async handlers as tasks of the event loop, until stopped.

    A handler that should stop is cancelled like any asyncio task. The rest of the worker runs in
    its own threads: it never blocks the loop, and a handler that blocks the loop keeps its lease.
    """

    _is_async = True

    async def run(self, *, until_empty: bool = False) -> None:
        """Run as `Worker.run` does; cancelling the awaiting task has the effect of `stop()`."""
        settings, phase = self._begin(until_empty=until_empty)
        loop = asyncio.get_running_loop()
        runner = LoopRunner(loop)
        # A dedicated executor, as the program may exhaust the loop's.
        thread = ThreadPoolExecutor(1, thread_name_prefix="trax-worker")
        try:
            engine = Engine(settings, self._handlers, runner, phase)
            runner.on_ended = engine.ended
            with signals(phase, obeyed=self._obey_signals):
                working = loop.run_in_executor(thread, engine.run)
                try:
                    await asyncio.shield(working)
                except asyncio.CancelledError:
                    phase.advance()
                    await working
                    raise
        finally:
            thread.shutdown(wait=False)
            self._end()
