"""The context of an attempt, as a handler sees it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from . import typed
from .argument import duration
from .attempt import Attempt
from .clock import Seconds
from .outcome import Reason, Stopped


class Context:
    """An attempt of a job, passed to handlers that have a parameter of this type."""

    def __init__(self, attempt: Attempt, reported: Callable[[], None]) -> None:
        self._attempt = attempt
        self._reported = reported

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
        return self._attempt.reason is not None

    def check(self) -> None:
        """Raise `Stopped` if the attempt should stop; call it often in long-running threads."""
        if self._attempt.reason is not None:
            raise Stopped(self._attempt.reason)

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
        self._attempt.progress = typed.dumps(value)
        self._reported()
