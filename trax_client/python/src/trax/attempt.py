"""The attempts that this process holds, from the claim to the acknowledged outcome.

Shared by the worker's loop and the heartbeat thread. A lease that was not extended for its length,
measured from before the call, counts as lost: another worker may hold the job by then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .clock import now
from .outcome import Permanent, Reason, Stopped, Suspended

Key = tuple[int, str]
"""A job id and the token of its lease."""

# The server counts a timeout from the report of the begin, which comes a moment after the begin.
REPORT_DELAY = 0.25


@dataclass(frozen=True)
class Kept:
    """A step that is recorded, with its output as JSON."""

    kind: str
    output: str | None
    timed_out: bool


@dataclass(eq=False)
class Attempt:
    """A claimed job, its lease, and whether its handler should stop."""

    job_id: int
    token: str
    attempt: int
    max_attempts: int
    task: str
    input: str
    manifest: str | None
    group_name: str | None
    scheduled_for: datetime | None
    queued_at: datetime
    timeout: float | None
    trace: dict[str, Any] | None
    valid_until: float
    # How many steps the job has recorded before this attempt; their contents, once they were read;
    # and the names that the handler has used.
    steps: int = 0
    kept: dict[str, Kept] | None = None
    reached: set[str] = field(default_factory=set)
    # Whether the server is asked to end the attempt, and whether it has suspended the job.
    is_waiting: bool = False
    is_suspended: bool = False
    # Whether its handler has completed the job, in a transaction that may still roll back.
    is_completed: bool = False
    # Why the attempt has failed for good, once the server has recorded that in the middle of it.
    failure: str | None = None
    # When to ask a handler that has begun to stop.
    times_out_at: float | None = None
    # When a handler began, until the server knows of it.
    begun_at: float | None = None
    # When a notification named the job for cancellation, until a heartbeat has checked.
    asked_at: float | None = None
    # The handler's latest progress report as JSON, if not yet sent.
    progress: str | None = None
    reason: Reason | None = None
    stopped: threading.Event = field(default_factory=threading.Event)
    # Called too once there is a reason.
    on_stop: Callable[[], object] | None = None

    @property
    def key(self) -> Key:
        """Return the job id and the token."""
        return (self.job_id, self.token)

    @property
    def is_over(self) -> bool:
        """Return whether the server has ended the attempt at a call of its handler."""
        return self.is_suspended or self.failure is not None

    def begin(self) -> None:
        """Record that a handler begins; the timeout counts from here."""
        self.begun_at = now()
        if self.timeout is not None:
            self.times_out_at = self.begun_at + self.timeout + REPORT_DELAY


def check(attempt: Attempt) -> None:
    """Raise `Suspended`, `Permanent` or `Stopped` if the attempt is over or should stop."""
    if attempt.failure is not None:
        raise Permanent(attempt.failure)
    if attempt.is_suspended:
        raise Suspended
    if attempt.reason is not None:
        raise Stopped(attempt.reason)


class HeldAttempts:
    """All attempts held; every method may be called from every thread."""

    def __init__(self, on_stop: Callable[[Attempt], None]) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[Key, Attempt] = {}
        self._on_stop = on_stop

    def insert(self, attempts: Iterable[Attempt]) -> None:
        """Add claimed attempts."""
        with self._lock:
            self._by_key.update((attempt.key, attempt) for attempt in attempts)

    def remove(self, key: Key) -> None:
        """Remove an attempt once the server has answered its outcome."""
        with self._lock:
            self._by_key.pop(key, None)

    def all(self) -> list[Attempt]:
        """Return all attempts."""
        with self._lock:
            return list(self._by_key.values())

    def stop(self, attempt: Attempt, reason: Reason) -> None:
        """Ask the handler to stop; the first of several reasons is kept."""
        with self._lock:
            if attempt.reason is not None or attempt.is_over:
                return
            if reason is Reason.LEASE_LOST and attempt.is_completed:
                # Such a lease ends with the handler's transaction.
                return
            attempt.reason = reason
        attempt.stopped.set()
        if attempt.on_stop is not None:
            attempt.on_stop()
        self._on_stop(attempt)

    def next_timeout(self) -> float:
        """Return when the next timeout ends, of attempts that were not yet asked to stop."""
        times = (one.times_out_at for one in self.all() if one.reason is None)
        return min((at for at in times if at is not None), default=float("inf"))

    def expire(self, moment: float) -> None:
        """Stop every attempt whose lease was not extended in time, or whose timeout is over."""
        for attempt in self.all():
            if attempt.valid_until <= moment:
                self.stop(attempt, Reason.LEASE_LOST)
                self.remove(attempt.key)
            elif attempt.times_out_at is not None and attempt.times_out_at <= moment:
                self.stop(attempt, Reason.TIMEOUT)

    def hear_cancels(self, payload: str) -> bool:
        """Record that jobs may be asked to stop, as in `trax_cancel`: "7,8"; empty means all."""
        named = set(payload.split(",")) if payload else None
        heard = [one for one in self.all() if named is None or str(one.job_id) in named]
        for attempt in heard:
            attempt.asked_at = now()
        return bool(heard)

    def unreported(self) -> list[Attempt]:
        """Return attempts whose begin the server does not know, or that may be asked to stop."""
        return [one for one in self.all() if one.begun_at or one.asked_at]

    def answered(
        self, asked: Sequence[Attempt], rows: Iterable[tuple[Any, ...]], sent: float, lease: float
    ) -> None:
        """Record the answers to a heartbeat sent at `sent`, in the order of `asked`."""
        for attempt, (_job_id, held, cancel_requested) in zip(asked, rows, strict=True):
            if not held and attempt.is_waiting:
                # The answer to its own call says whether it is suspended.
                continue
            if not held:
                self.stop(attempt, Reason.LEASE_LOST)
                self.remove(attempt.key)
                continue
            attempt.valid_until = sent + lease
            if attempt.begun_at is not None and attempt.begun_at < sent:
                attempt.begun_at = None
            if attempt.asked_at is not None and attempt.asked_at < sent:
                attempt.asked_at = None
            if cancel_requested:
                end = attempt.times_out_at
                late = end is not None and now() + REPORT_DELAY >= end
                self.stop(attempt, Reason.TIMEOUT if late else Reason.CANCELLED)
