"""Runs handlers in threads, or on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from .attempt import Attempt
from .outcome import End, judged

Call = tuple[Attempt, Callable[[], Any]]
Ended = Callable[[Attempt, End], None]


def perform(attempt: Attempt, call: Callable[[], Any]) -> End:
    """Run a handler in this thread, and return its end."""
    value, error = None, None
    try:
        value = call()
    except BaseException as raised:  # noqa: BLE001 - whatever it is, it is the job's
        error = raised
    try:
        return judged(value, error, attempt.reason)
    finally:
        error = None  # Its traceback has this frame.


class ThreadRunner:
    """A pool of as many threads as handlers have run at once.

    Daemon threads, so that a handler that ignores a stop does not keep the program alive.
    """

    consequence = ""

    def __init__(self, threads: int) -> None:
        self.on_ended: Ended
        self._most = threads
        self._threads: list[threading.Thread] = []
        self._queue: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._busy = 0

    def start(self, calls: Sequence[Call]) -> None:
        """Pass the calls to threads."""
        with self._lock:
            self._busy += len(calls)
            wanted = min(self._busy, self._most)
        while len(self._threads) < wanted:
            name = f"trax-handler-{len(self._threads)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        for call in calls:
            self._queue.put(call)

    def stop(self, attempt: Attempt) -> None:
        """Do nothing: the context has the signal, and a thread cannot be interrupted."""

    def end(self) -> None:
        """End the threads once they are idle."""
        for _ in self._threads:
            self._queue.put(None)

    def _serve(self) -> None:
        while (item := self._queue.get()) is not None:
            attempt, call = item
            end = perform(attempt, call)
            with self._lock:
                self._busy -= 1
            self.on_ended(attempt, end)


class LoopRunner:
    """Runs handlers as tasks of an event loop; the engine's threads never wait for it."""

    consequence = "; one that blocks the event loop keeps the program from ending"

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.on_ended: Ended
        self._loop = loop
        self._tasks: dict[Attempt, asyncio.Task[Any]] = {}

    def start(self, calls: Sequence[Call]) -> None:
        """Create a task for each call."""
        self._loop.call_soon_threadsafe(self._create, calls)

    def stop(self, attempt: Attempt) -> None:
        """Cancel the task of the attempt, or keep it from beginning."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._cancel, attempt)

    def _create(self, calls: Sequence[Call]) -> None:
        for attempt, call in calls:
            if attempt.reason is not None:
                self._end(attempt, None, asyncio.CancelledError())
                continue
            task = self._loop.create_task(_contained(call), name=f"trax job {attempt.job_id}")
            self._tasks[attempt] = task
            task.add_done_callback(functools.partial(self._done, attempt))

    def _cancel(self, attempt: Attempt) -> None:
        task = self._tasks.get(attempt)
        if task is not None:
            task.cancel()

    def _done(self, attempt: Attempt, task: asyncio.Task[Any]) -> None:
        del self._tasks[attempt]
        if task.cancelled():
            self._end(attempt, None, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            exits = type(error) is _ExitError
            self._end(attempt, None, error.__cause__ if exits else error)
        else:
            self._end(attempt, task.result(), None)

    def _end(self, attempt: Attempt, value: Any, error: BaseException | None) -> None:
        self.on_ended(attempt, judged(value, error, attempt.reason))


class _ExitError(Exception):
    """Carries an exit of a handler past the event loop: it only fails its attempt."""


async def _contained(call: Callable[[], Any]) -> Any:
    try:
        return await call()
    except (SystemExit, KeyboardInterrupt) as error:
        raise _ExitError from error
