"""A clock that advances while the machine is suspended, and spans of time."""

from __future__ import annotations

import time
from datetime import timedelta

Seconds = float | timedelta
"""A span of time: seconds, or a timedelta."""

_BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Return monotonic seconds, which include suspend where the system supports it."""
    return time.clock_gettime(_BOOTTIME)


def span(value: Seconds) -> timedelta:
    """Return a span of time in the form that the driver sends."""
    return value if isinstance(value, timedelta) else timedelta(seconds=value)


def seconds(value: Seconds) -> float:
    """Return a span of time in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)
