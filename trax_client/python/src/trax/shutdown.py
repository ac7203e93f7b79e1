"""When and how a worker stops: signals, the program's own wish, or an empty queue."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .connection import Bell


class Phase:
    """How far the stop has come; it never goes back. A signal handler may advance it."""

    RUNNING, DRAINING, RELEASING = 0, 1, 2

    def __init__(self) -> None:
        self.value = self.RUNNING
        self.bell = Bell()

    def advance(self, to: int | None = None) -> None:
        """Go one phase further, or to the given one."""
        wanted = self.value + 1 if to is None else to
        self.value = min(max(self.value, wanted), self.RELEASING)
        self.bell.ring()


@contextmanager
def signals(phase: Phase, *, obeyed: bool) -> Iterator[None]:
    """Let SIGTERM and SIGINT advance the phase; only the main thread can.

    Python's own signal handlers, not those of an event loop: a handler that blocks the loop does
    not hold them up.
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
