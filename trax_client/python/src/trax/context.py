"""What a handler knows about its attempt."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from . import typed
from .attempt import Attempt
from .clock import Seconds, seconds
from .outcome import Reason, Stopped


class Context:
    """One attempt of a job; a handler that has a parameter of this type gets it."""

    def __init__(self, attempt: Attempt, reported: Callable[[], None]) -> None:
        self._attempt = attempt
        self._reported = reported

    @property
    def job_id(self) -> int:
        """Return the job's id."""
        return self._attempt.job_id

    @property
    def token(self) -> str:
        """Return the lease's token, which every outcome of this attempt carries."""
        return self._attempt.token

    @property
    def attempt(self) -> int:
        """Return the number of the attempt, 1 for the first."""
        return self._attempt.attempt

    @property
    def max_attempts(self) -> int:
        """Return how many attempts the job has; the last one equals it."""
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
        """Return the manifest that the job comes from."""
        return self._attempt.manifest

    @property
    def group_name(self) -> str | None:
        """Return the job's group."""
        return self._attempt.group_name

    @property
    def timeout(self) -> timedelta | None:
        """Return how long the attempt may run; none without a limit, or with one beyond reason."""
        try:
            return (
                None if self._attempt.timeout is None else timedelta(seconds=self._attempt.timeout)
            )
        except OverflowError:
            return None

    @property
    def trace(self) -> dict[str, Any] | None:
        """Return the trace data that was stored with the job: `traceparent` and `tracestate`."""
        return self._attempt.trace

    @property
    def reason(self) -> Reason | None:
        """Return why the attempt should stop; none while it should not."""
        return self._attempt.reason

    @property
    def is_stopped(self) -> bool:
        """Return whether the attempt should stop: cancelled, late, lease lost, or shutdown."""
        return self._attempt.reason is not None

    def check(self) -> None:
        """Raise `Stopped` if the attempt should stop; call it often in long work of a thread."""
        if self._attempt.reason is not None:
            raise Stopped(self._attempt.reason)

    def wait(self, delay: Seconds) -> None:
        """Sleep, in a thread; raise `Stopped` as soon as the attempt should stop."""
        self._attempt.stopped.wait(seconds(delay))
        self.check()

    def progress(self, value: Any) -> None:
        """Report how far the job is: a number, a text or a small document (8 KiB).

        `trax.job` shows it while the job runs. Cheap: the worker sends the latest report of each
        job at most twice a second.
        """
        self._attempt.progress = typed.dumps(value)
        self._reported()
