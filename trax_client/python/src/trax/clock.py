"""Time: a clock that runs while the machine sleeps, and spans of time."""

from __future__ import annotations

import time
from datetime import timedelta

Seconds = float | timedelta
"""A span of time: seconds, or a timedelta."""

_BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Return seconds that never go back; where the system can, the machine's sleep counts."""
    return time.clock_gettime(_BOOTTIME)


def span(value: Seconds) -> timedelta:
    """Return a span of time as the driver sends it."""
    return value if isinstance(value, timedelta) else timedelta(seconds=value)


def seconds(value: Seconds) -> float:
    """Return a span of time in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)
