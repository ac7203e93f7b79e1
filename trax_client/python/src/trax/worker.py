"""Workers: decorate handlers, then run."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from .clock import Seconds, seconds
from .connection import checked_address
from .engine import Engine, Settings
from .errors import UsageError
from .handler import Handler
from .runner import LoopRunner, ThreadRunner
from .shutdown import Phase, signals

Function = TypeVar("Function", bound=Callable[..., Any])


class _Worker:
    """What both kinds of worker have."""

    _is_async: bool

    def __init__(
        self,
        address: str | None = None,
        *,
        name: str | None = None,
        concurrency: int = 10,
        groups: Sequence[str] | None = None,
        lease: Seconds = 30.0,
        grace: Seconds = 30.0,
        poll_interval: Seconds = 0.2,
        obey_signals: bool = True,
    ) -> None:
        """Make a worker; it connects when it runs.

        Args:
            address: of the database, as libpq takes it: a URL or `host=... dbname=...`, with
                several hosts too. None is `DATABASE_URL`, or `PGHOST` and its like.
            name: in leases and runs; by default host, process and a random part.
            concurrency: how many handlers run at once.
            groups: claim only from these groups.
            lease: how long a lease lasts without a heartbeat; they come three times in it.
            grace: how long handlers may go on after the first SIGTERM or SIGINT.
            poll_interval: how often to look at an empty queue, where no notifications arrive; it
                grows to a second, and to five where they do.
            obey_signals: False leaves SIGTERM and SIGINT to the program.

        """
        if concurrency < 1:
            raise UsageError("concurrency is how many handlers run at once: 1 or more")
        if seconds(lease) < 1:
            raise UsageError("lease is how long a lease lasts without a heartbeat: 1 s or more")
        self._address = checked_address(address)
        self.name = name or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        self._concurrency = concurrency
        self._groups = list(groups) if groups is not None else None
        self._lease = seconds(lease)
        self._grace = max(0.0, seconds(grace))
        self._poll_interval = max(0.001, seconds(poll_interval))
        self._obey_signals = obey_signals
        self._handlers: dict[str, Handler] = {}
        self._phase: Phase | None = None

    def task(self, name: str) -> Callable[[Function], Function]:
        """Run the decorated function for every job of this task.

        Its parameters are the input, with a type or without, and optionally a `trax.Context`. What
        it returns is the output of the job. The function itself stays as it is.
        """
        if not isinstance(name, str):
            raise UsageError('the decorator takes the name of a task: @worker.task("mail.send")')

        def add(function: Function) -> Function:
            if name in self._handlers:
                raise UsageError(f'task "{name}" has two handlers in one worker; remove one')
            self._handlers[name] = Handler(name, function, is_async=self._is_async)
            return function

        return add

    def stop(self) -> None:
        """Claim nothing more and let handlers end within the grace; called again: give all back.

        May be called from every thread, and from signal handlers.
        """
        if self._phase is not None:
            self._phase.advance()

    def _begin(self, *, until_empty: bool) -> tuple[Settings, Phase]:
        if not self._handlers:
            raise UsageError('the worker has no handler; decorate one with @worker.task("name")')
        if self._phase is not None:
            raise UsageError("the worker runs already")
        self._phase = Phase()
        settings = Settings(
            address=self._address,
            name=self.name,
            concurrency=self._concurrency,
            groups=self._groups,
            lease=self._lease,
            grace=self._grace,
            poll_interval=self._poll_interval,
            until_empty=until_empty,
        )
        return settings, self._phase

    def _end(self) -> None:
        if self._phase is not None:
            phase, self._phase = self._phase, None
            phase.bell.close()


class Worker(_Worker):
    """Claims jobs and runs their handlers in threads, until it is stopped.

    A handler that should stop sees it in its context: `check()` and `wait()` raise `Stopped`.
    """

    _is_async = False

    def run(self, *, until_empty: bool = False) -> None:
        """Run until SIGTERM, SIGINT, `stop()`, or, if asked for, an empty queue.

        Waits for a server that cannot be reached, also at the start. Raises an error of this
        package when the server refuses the first claim: no extension, no right.
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


class AsyncWorker(_Worker):
    """Claims jobs and runs their async handlers as tasks of the event loop, until it is stopped.

    A handler that should stop is cancelled as any asyncio task. Everything else works in threads of
    its own: the loop is never blocked, and a handler that blocks it loses no lease.
    """

    _is_async = True

    async def run(self, *, until_empty: bool = False) -> None:
        """Run as `Worker.run` does; cancelling the task that awaits this is as `stop()`."""
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
