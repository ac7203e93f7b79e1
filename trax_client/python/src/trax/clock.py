"""A clock that advances while the machine is suspended, and spans of time."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

Seconds = float | timedelta
"""A duration: a number of seconds (int or float), or a timedelta; finite and not negative."""

_BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Return monotonic seconds, which include suspend where the system supports it."""
    return time.clock_gettime(_BOOTTIME)


def span(value: Seconds) -> timedelta:
    """Return a span of time in the form that the driver sends."""
    return value if isinstance(value, timedelta) else timedelta(seconds=value)


def time_of(epoch: str | None) -> datetime | None:
    """Return a time from the seconds that the server sends."""
    return None if epoch is None else datetime.fromtimestamp(float(epoch), timezone.utc)


def millis(seconds: float) -> str:
    """Return a time limit in the form of a setting of the server."""
    return str(max(1, int(seconds * 1000)))
