"""The time of the next claim: with outcomes, at a notification, or at the next poll."""

from __future__ import annotations

import random

MOST_SECONDS = 1.0
MOST_SECONDS_WHEN_NOTIFIED = 5.0
# After a claim that returned fewer jobs than wanted: an outcome may be sent with the next claim.
PARTIAL_DELAY = 0.01
# If one job wakes many workers, those that claimed in vain delay their next claim a little.
EMPTY_CLAIM_DELAY = 0.001
EMPTY_CLAIM_DOUBLINGS = 6


class Polling:
    """Polls an empty queue less and less often, least of all if notifications arrive."""

    def __init__(self, interval: float, moment: float) -> None:
        self._interval = interval
        self._wait = interval
        self._is_notified = False
        self._was_woken = False
        self._in_vain = 0
        self.next_claim = moment

    def connected(self, moment: float) -> None:
        """Record a new connection; notifications of the old one prove nothing about it."""
        self._is_notified = False
        self._wait = self._interval
        self.next_claim = moment

    def notified(self, moment: float) -> None:
        """Record that work may exist."""
        self._is_notified = self._was_woken = True
        doublings = min(self._in_vain, EMPTY_CLAIM_DOUBLINGS)
        delay = EMPTY_CLAIM_DELAY * 2**doublings * random.random() if doublings else 0.0  # noqa: S311
        self.next_claim = min(self.next_claim, moment + delay)

    def claimed(self, wanted: int, got: int, moment: float, *, alone: bool) -> None:
        """Record a claim; `alone` means that it was sent without outcomes."""
        if got:
            if alone and not self._was_woken and self._wait > self._interval:
                # Only a poll found this work: a notification is late, or none arrive.
                self._is_notified = False
            self._wait = self._interval
            self._in_vain = 0
            self.next_claim = moment + (0.0 if got == wanted else PARTIAL_DELAY)
        else:
            self._in_vain += self._was_woken
            most = MOST_SECONDS_WHEN_NOTIFIED if self._is_notified else MOST_SECONDS
            # Spreads the polls of workers that were started together.
            self.next_claim = moment + self._wait * random.uniform(0.9, 1.1)  # noqa: S311
            self._wait = min(self._wait * 2, max(most, self._interval))
        self._was_woken = False
