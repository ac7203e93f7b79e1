"""The stop of a worker: on signals, at the program's request, or with an empty queue."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .connection import Bell


class Phase:
    """The progress of a stop, which never goes back; a signal handler may advance it."""

    RUNNING, DRAINING, RELEASING = 0, 1, 2

    def __init__(self) -> None:
        self.value = self.RUNNING
        self.bell = Bell()

    def advance(self, to: int | None = None) -> None:
        """Advance to the next phase, or to the given one."""
        wanted = self.value + 1 if to is None else to
        self.value = min(max(self.value, wanted), self.RELEASING)
        self.bell.ring()


@contextmanager
def signals(phase: Phase, *, obeyed: bool) -> Iterator[None]:
    """Let SIGTERM and SIGINT advance the phase; possible only in the main thread.

    Uses Python's own signal handlers, not those of an event loop, which a job's handler may block.
    """
    if not obeyed or threading.current_thread() is not threading.main_thread():
        yield
        return

    def advance(_number: int, _frame: FrameType | None) -> None:
        phase.advance()

    before = {number: signal.signal(number, advance) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
