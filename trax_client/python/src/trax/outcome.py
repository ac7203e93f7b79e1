"""The result of a handler, and the verdict that the worker reports for it.

Input: the value that a handler returned or the exception that it raised, and the reason for which
it was asked to stop. Output: a `Verdict` to report to the server. A stop that the job did not cause
never uses up an attempt.

Values and exceptions run code of the program when they are read. So `judged` reads all that the
worker needs of them, in the thread of the handler, and what they raise fails their own job.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Final, TypeVar

from . import typed
from .argument import duration, listed
from .clock import Seconds
from .errors import UsageError, kind_of

Value = TypeVar("Value")

# The exceptions of a group that its text names.
NAMED_AT_MOST = 5


class Reason(str, Enum):
    """The reason why an attempt should stop."""

    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    LEASE_LOST = "lease lost"
    SHUTDOWN = "shutdown"


class Stopped(BaseException):
    """Raised by `Context.check()` and `Context.wait()` when the attempt should stop.

    Derived from BaseException, so that `except Exception` in a handler does not catch it.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Suspended(BaseException):
    """Raised by a wait of the context when the job is suspended: the attempt has ended.

    The worker reports no outcome, and the next attempt gets past the wait. Derived from
    BaseException, so that `except Exception` in a handler does not catch it; let it pass.
    """


class Snooze(Exception):
    """Raise it to postpone the job by this delay, without using up an attempt.

    The delay is a number of seconds or a timedelta.
    """

    def __init__(self, delay: Seconds) -> None:
        super().__init__(f"snoozed for {duration('delay', delay)}")
        self.delay = delay


class Cancel(Exception):
    """Raise it to end the job as cancelled; no retry and no dead letter follows."""

    def __init__(self, reason: str = "cancelled by its handler") -> None:
        super().__init__(reason)


@listed
class RetryIn(Exception):
    """Raise it to fail and be retried after this delay instead of the job's own.

    The delay is a number of seconds or a timedelta. With `close_rate`, nothing of the job's rate
    and key starts before, as an API asks for with `Retry-After`.
    """

    # For a subclass that sets less.
    detail: Any = None
    close_rate: bool = False

    def __init__(
        self, delay: Seconds, message: str = "", *, detail: Any = None, close_rate: bool = False
    ) -> None:
        length = duration("delay", delay)
        super().__init__(message or f"to be retried in {length}")
        self.delay = delay
        self.detail = detail
        self.close_rate = close_rate


@listed
class Permanent(Exception):
    """Raise it to fail permanently: no attempt follows."""

    detail: Any = None

    def __init__(self, message: str = "failed for good", *, detail: Any = None) -> None:
        super().__init__(message)
        self.detail = detail


class _Recorded(Enum):
    RECORDED = "recorded"


RECORDED: Final = _Recorded.RECORDED
"""Returned by a handler that has called `Client.complete` in its own transaction."""


NOT_RECORDED = (
    "the handler returned trax.RECORDED, but has not completed the job: call complete of a "
    "trax.Client, and commit"
)
NOT_RETURNED = "the handler has completed the job itself: return trax.RECORDED"


class Kind(Enum):
    """The kind of report for a lease."""

    COMPLETE = "complete"
    FAIL = "fail"
    RELEASE = "release"
    ACKNOWLEDGE_CANCEL = "acknowledge_cancel"
    TIMED_OUT = "timed_out"
    CANCEL_OWN = "cancel_own"
    RECORDED = "recorded"


@dataclass(frozen=True)
class Verdict:
    """The result to report for a lease, with JSON and text ready to send."""

    kind: Kind
    output: str | None = None
    error: str = ""
    detail: str | None = None
    delay: timedelta | None = None
    permanent: bool = False
    close_rate: bool = False

    @property
    def size(self) -> int:
        """Return the approximate number of bytes that it sends."""
        return len(self.output or "") + len(self.error) + len(self.detail or "")


class Refused(Exception):
    """Raised for an input that its handler cannot take."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.error)
        self.verdict = verdict


@dataclass(frozen=True)
class End:
    """The end of a handler: its verdict, and the exception for the log, if it can be printed."""

    verdict: Verdict
    error: BaseException | None = None
    trace: str = ""
    # Whether the exception is of those that end a handler whose job is suspended.
    is_unwound: bool = False


def judged(value: object, error: BaseException | None, reason: Reason | None) -> End:
    """Return the end of a handler that returned the value or raised the error; never raise."""
    try:
        verdict = complete(value) if error is None else on_error(error, reason)
    except BaseException as mistake:  # noqa: BLE001 - whatever it is, it is the job's
        verdict = _unreadable(error, mistake)
    if error is None:
        return End(verdict)
    is_unwound = _first(
        lambda: isinstance(decisive(error), Suspended | asyncio.CancelledError), lambda: False
    )
    if verdict.kind not in (Kind.FAIL, Kind.TIMED_OUT) or type(error) is Refused:
        return End(verdict, is_unwound=is_unwound)
    trace = _first(lambda: "".join(traceback.format_exception(error)), lambda: "")
    return End(verdict, error if trace else None, trace, is_unwound)


def complete(output: object) -> Verdict:
    """Return the verdict on an output."""
    if output is RECORDED:
        return Verdict(Kind.RECORDED, error=NOT_RECORDED)
    try:
        return Verdict(Kind.COMPLETE, output=typed.dumps(output, "the output"))
    except UsageError as error:
        return fail(str(error), permanent=True)


def fail(error: str, *, permanent: bool = False, detail: str | None = None) -> Verdict:
    """Return the verdict on a failure."""
    return Verdict(Kind.FAIL, error=sendable(error), permanent=permanent, detail=detail)


def instead(refused: Verdict, why: object, *, again: bool = False) -> Verdict:
    """Return the replacement for an outcome that the server would refuse each time.

    A completion becomes a permanent failure, so that finished work does not run again. A failure
    loses its detail, and at the second refusal its delay; whether to retry stays as the handler
    requested.
    """
    if refused.kind is not Kind.FAIL:
        return fail(f"the outcome was refused: {why}", permanent=True)
    if refused.detail is None or again:
        return fail(refused.error, permanent=refused.permanent, detail=refused.detail)
    left_out = f"left out, {len(refused.detail)} bytes: {why}"
    return Verdict(
        Kind.FAIL,
        error=refused.error,
        detail=typed.dumps({"detail": sendable(left_out)}),
        delay=refused.delay,
        permanent=refused.permanent,
        close_rate=refused.close_rate,
    )


def on_error(error: BaseException, reason: Reason | None) -> Verdict:
    """Return the verdict on an exception that a handler raised."""
    if isinstance(error, Refused):
        return error.verdict
    raised, error = error, decisive(error)
    if isinstance(error, Cancel):
        return Verdict(Kind.CANCEL_OWN, error=_said(error, raised))
    if reason is not None:
        return on_stop(reason)
    if isinstance(error, Snooze):
        return Verdict(Kind.RELEASE, delay=duration("delay", error.delay))
    if isinstance(error, asyncio.CancelledError):
        return fail("the handler was cancelled by its own program")
    if isinstance(error, RetryIn):
        return Verdict(
            Kind.FAIL,
            error=_said(error, raised),
            detail=_detail(error, raised),
            delay=duration("delay", error.delay),
            close_rate=bool(error.close_rate),
        )
    if isinstance(error, Permanent):
        return fail(_said(error, raised), permanent=True, detail=_detail(error, raised))
    return fail(_with_class(error), detail=_trace(error))


def _unreadable(error: BaseException | None, mistake: BaseException) -> Verdict:
    """Return the verdict on an output or exception that raised a mistake when it was read."""
    if error is None:
        return fail(f"the output cannot be kept: {described(mistake)}", permanent=True)
    is_permanent = issubclass(type(error), Permanent)
    return fail(f"{_class_of(error)}: {described(mistake)}", permanent=is_permanent)


def decisive(error: BaseException) -> BaseException:
    """Return the exception of a group that decides about the attempt, or the group.

    A TaskGroup raises a group even if a single task of it has failed.
    """
    inner = _leaves(error)
    for kind in (Suspended, Permanent, RetryIn):
        for one in inner:
            if isinstance(one, kind):
                return one
    return inner[0] if len(inner) == 1 else error


def _leaves(error: BaseException) -> list[BaseException]:
    """Return the exceptions of a group and of the groups in it, each once, in their order."""
    leaves: list[BaseException] = []
    seen: set[int] = set()
    left = [error]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        inner = _members(one)
        left.extend(reversed(inner))
        if not inner:
            leaves.append(one)
    return leaves


def _members(error: BaseException) -> tuple[BaseException, ...]:
    # Python 3.10 has no class for groups. A program that raises a group has imported the package
    # that has this class.
    module = builtins if sys.version_info >= (3, 11) else sys.modules.get("exceptiongroup")
    group = getattr(module, "BaseExceptionGroup", None)
    if group is None or not issubclass(type(error), group):
        return ()
    members: tuple[BaseException, ...] = group.exceptions.__get__(error)
    return members


def on_stop(reason: Reason) -> Verdict:
    """Return the verdict on a handler that gave up because it was asked to stop."""
    if reason is Reason.CANCELLED:
        return Verdict(Kind.ACKNOWLEDGE_CANCEL)
    if reason is Reason.TIMEOUT:
        return Verdict(Kind.TIMED_OUT, error="it ran longer than its timeout")
    # After a loss of contact the lease may only seem lost, so it is released.
    return Verdict(Kind.RELEASE)


def sendable(text: str) -> str:
    """Return a text that PostgreSQL can store."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _first(*ways: Callable[[], Value]) -> Value:
    """Return the result of the first way that raises nothing, whatever it is; the last has to."""
    for way in ways[:-1]:
        with contextlib.suppress(BaseException):
            return way()
    return ways[-1]()


def _class_of(error: BaseException) -> str:
    return _first(lambda: sendable(type(error).__name__), lambda: "an exception")


def _text(error: BaseException) -> str:
    return _first(lambda: sendable(str(error)), lambda: _class_of(error))


def _said(error: BaseException, raised: BaseException) -> str:
    """Return the text of an exception, or of the group in which it was raised with others."""
    return _text(error) if len(_leaves(raised)) == 1 else _with_class(raised)


def described(error: BaseException) -> str:
    """Return an exception with its class, but a mistake that this package names as its text."""
    return _text(error) if issubclass(type(error), UsageError) else _with_class(error)


def _with_class(error: BaseException) -> str:
    def lines() -> str:
        return sendable("".join(traceback.format_exception_only(type(error), error)).strip())

    text = _first(lines, lambda: _class_of(error))
    if not _members(error):
        return text
    inner = [f"{_class_of(one)}: {_text(one)}" for one in _leaves(error)[:NAMED_AT_MOST]]
    return f"{text}: {'; '.join(inner)}"


def _trace(error: BaseException) -> str | None:
    def detail() -> str | None:
        frames = traceback.format_exception(type(error), error, error.__traceback__, limit=-20)
        return typed.dumps({"traceback": sendable("".join(frames))[-4000:]})

    return _first(detail, lambda: None)


def _detail(error: RetryIn | Permanent, raised: BaseException) -> str | None:
    """Return the detail that the handler gave, or the traceback if another exception is lost."""
    value = error.detail
    hides = not error.__suppress_context__ and error.__context__ is not None
    if value is None and (len(_leaves(raised)) > 1 or error.__cause__ is not None or hides):
        return _trace(raised)
    return _first(
        lambda: typed.dumps(value),
        lambda: typed.dumps(sendable(repr(value))),
        lambda: typed.dumps(f"{kind_of(value)} without a text"),
    )
