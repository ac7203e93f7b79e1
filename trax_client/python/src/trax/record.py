"""The lines of the log about an attempt, and the cutting of long ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from .attempt import Attempt
from .outcome import End

log = logging.getLogger("trax")

# The maximum number of characters of an error, and of its traceback, in the log.
LOGGED_AT_MOST = 10_000
# The maximum number of tasks named in a line.
TASKS_SHOWN = 10


def failed(attempt: Attempt, end: End) -> None:
    """Log that an attempt has failed, with the traceback of its exception."""
    line = _cut((attempt.failure or end.verdict.error).partition("\n")[0])
    job = (attempt.job_id, attempt.task, attempt.attempt, attempt.max_attempts, line)
    if attempt.failure is None and end.verdict.delay is not None:
        log.info("job %d (%s) asks in attempt %d of %d to be retried: %s", *job)
    elif len(end.trace) > LOGGED_AT_MOST:
        text = "job %d (%s) failed in attempt %d of %d: %s\n%s"
        log.warning(text, *job, _cut(end.trace))
    else:
        _warn("job %d (%s) failed in attempt %d of %d: %s", *job, error=end.error)


def went_on(attempt: Attempt, end: End) -> None:
    """Log that a handler did not end when its job was suspended."""
    text = "job %d (%s) is suspended, but its handler went on: let trax.Suspended pass"
    _warn(text, attempt.job_id, attempt.task, error=end.error)


def missed(attempt: Attempt, steps: str) -> None:
    """Log which recorded steps an attempt has completed without, if there are any."""
    if steps:
        text = "job %d (%s) completed without %s: was its code changed meanwhile?"
        log.warning(text, attempt.job_id, attempt.task, steps)


def _warn(text: str, *values: object, error: BaseException | None) -> None:
    try:
        log.warning(text, *values, exc_info=error)
    except Exception:  # noqa: BLE001 - less of the stack is left than when it was printed before
        log.warning(text, *values)


def _cut(text: str) -> str:
    """Return the beginning of a text, and how long it is if that is not all."""
    if len(text) <= LOGGED_AT_MOST:
        return text
    return f"{text[:LOGGED_AT_MOST]}... (the first {LOGGED_AT_MOST} of {len(text)} characters)"


def few(tasks: Sequence[str]) -> str:
    """Return the first of some names on a line, without characters that steer a terminal."""
    shown = ", ".join(tasks[:TASKS_SHOWN])
    line = "".join(one if one.isprintable() else "\N{MIDDLE DOT}" for one in shown)
    more = len(tasks) - TASKS_SHOWN
    return f"{line} and {more} more" if more > 0 else line
