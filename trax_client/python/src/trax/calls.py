"""The calls of handlers in the middle of an attempt: steps, waits and children.

They run in a few threads with connections of their own, opened when first needed, so that a call
that waits for a lock delays neither claims nor heartbeats. Each call may be repeated: the server
answers with the recorded result. A call is therefore sent again, until the lease is lost, when the
connection breaks or the server has no time, lock or room for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg

from .attempt import Attempt, HeldAttempts, check
from .clock import millis, now
from .connection import Backoff, Link, Watchdog
from .errors import Blame, blame, translated
from .outcome import Reason, Stopped, Suspended

Rows = list[tuple[Any, ...]]

# The maximum number of connections.
LINKS_AT_MOST = 4


@dataclass(frozen=True)
class Call:
    """A statement; its first column says whether the lease is lost (null, "lost", or no row)."""

    statement: str
    parameters: Mapping[str, Any]
    is_fenced: bool = True
    # Whether it may end the attempt with the answer "suspended".
    may_suspend: bool = False
    # Not empty if it ends the attempt: the error with which the job then has failed for good.
    failure: str = ""

    @property
    def may_end(self) -> bool:
        """Return whether the attempt may be over after it."""
        return self.may_suspend or bool(self.failure)


class Calls:
    """Runs the calls of all handlers of a worker."""

    def __init__(
        self,
        parameters: Mapping[str, Any],
        held: HeldAttempts,
        watchdog: Watchdog,
        *,
        limit: float,
        ask: Callable[[], None],
    ) -> None:
        self._parameters = parameters
        self._held = held
        self._watchdog = watchdog
        self._limit = limit
        self._ask = ask
        self.lock_timeout = millis(limit / 5)
        self._over = threading.Event()
        self._links: set[Link] = set()
        self._idle: deque[Link] = deque()
        self._threads = ThreadPoolExecutor(LINKS_AT_MOST, thread_name_prefix="trax-steps")

    def start(self, attempt: Attempt, call: Call) -> Future[Rows]:
        """Begin a call; its result is the rows, `Stopped`, `Suspended`, or the server's error."""
        return self._threads.submit(self._run, attempt, call)

    def end(self) -> None:
        """End all calls and close the connections."""
        self._over.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        for link in list(self._links):
            link.cut_if_overdue(float("inf"))
        while self._idle:
            self._idle.pop().close()

    def _run(self, attempt: Attempt, call: Call) -> Rows:
        if call.may_end:
            attempt.is_waiting = True
        try:
            return self._answered(attempt, call, *self._repeated(attempt, call))
        finally:
            if call.may_end:
                attempt.is_waiting = attempt.is_over

    def _answered(self, attempt: Attempt, call: Call, rows: Rows, was_unanswered: bool) -> Rows:
        state = rows[0][0] if rows else None
        if call.may_suspend and (state == "suspended" or (state == "lost" and was_unanswered)):
            # If an answer was lost before, the attempt has ended either way.
            attempt.is_suspended = True
            self._held.remove(attempt.key)
            raise Suspended
        if call.is_fenced and state in (None, "lost"):
            if rows and state is None:
                self._ask_why(attempt)
            self._held.stop(attempt, Reason.LEASE_LOST)
            check(attempt)
            # The handler of a completed job is not told otherwise.
            raise Stopped(Reason.LEASE_LOST)
        if call.failure:
            attempt.failure = call.failure
            self._held.remove(attempt.key)
        return rows

    def _repeated(self, attempt: Attempt, call: Call) -> tuple[Rows, bool]:
        backoff = Backoff(1.0)
        was_unanswered = False
        while True:
            if attempt.reason is Reason.LEASE_LOST or self._over.is_set():
                raise Stopped(attempt.reason or Reason.SHUTDOWN)
            link: Link | None = None
            try:
                link = self._link()
                rows = link.call(call.statement, call.parameters, self._limit)
            except psycopg.Error as error:
                at_fault = Blame.CONNECTION if link is None else blame(error)
                if at_fault is Blame.CALL:
                    self._leave(link)
                    raise translated(error, call.statement) from error
                self._leave(link, is_broken=at_fault is Blame.CONNECTION)
                if link is not None and at_fault is Blame.CONNECTION:
                    was_unanswered = True
                self._over.wait(backoff.next())
            except UnicodeError:
                self._leave(link)
                raise
            else:
                self._leave(link)
                return rows, was_unanswered

    def _ask_why(self, attempt: Attempt) -> None:
        # A job that is asked to stop gets no child either; a heartbeat says which it is.
        attempt.asked_at = now()
        self._ask()
        attempt.stopped.wait(self._limit)

    def _link(self) -> Link:
        try:
            return self._idle.pop()
        except IndexError:
            link = Link(self._parameters, self._watchdog, lambda _channel, _payload: None)
            self._links.add(link)
            return link

    def _leave(self, link: Link | None, *, is_broken: bool = False) -> None:
        if link is None:
            return
        if is_broken or self._over.is_set():
            self._links.discard(link)
            link.close()
        else:
            self._idle.append(link)
