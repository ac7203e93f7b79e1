"""Heartbeats, on their own thread and connection, for both kinds of worker.

A thread is used instead of a task of the event loop, so that a handler that blocks the loop, or
every thread of the pool, does not lose its lease. Three times per lease one call extends all
leases, and another reports that the worker is alive. The thread also listens for cancels, checks
the jobs named there, reports begun jobs (a claim marks none as begun, as its answer may be lost)
and sends progress.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Sequence
from typing import Any

import psycopg

from . import sql
from .attempt import Attempt, HeldAttempts
from .clock import now, span
from .connection import Backoff, Bell, Link, Watchdog
from .errors import Blame, blame, brief
from .outcome import Reason
from .version import __version__

log = logging.getLogger("trax")

# The maximum number of leases that one call extends.
BATCH = 1000
BEGIN_PERIOD = 0.1
PROGRESS_PERIOD = 0.5
SHORTEST_LIMIT = 0.5
LEAVE_LIMIT = 0.5
# The number of periods without reports after a server refused one.
REFUSED_PERIODS = 3
# The period of the check for expired leases.
CHECK_PERIOD = 1.0


def extend(
    link: Link, held: HeldAttempts, attempts: Sequence[Attempt], lease: float, limit: float
) -> None:
    """Extend at most `BATCH` leases in one call."""
    sent = now()
    parameters = {
        "job_ids": [one.job_id for one in attempts],
        "tokens": [one.token for one in attempts],
        "lease": span(lease),
    }
    held.answered(attempts, link.call(sql.HEARTBEAT, parameters, limit), sent, lease)


class Heartbeat(threading.Thread):
    """Runs from `start` to `end`."""

    def __init__(
        self,
        parameters: dict[str, Any],
        held: HeldAttempts,
        watchdog: Watchdog,
        *,
        name: str,
        lease: float,
        info: dict[str, Any],
    ) -> None:
        super().__init__(name="trax-heartbeat", daemon=True)
        self.bell = Bell()
        self._parameters = parameters
        self._held = held
        self._watchdog = watchdog
        self._worker_name = name
        self._lease = lease
        self._period = max(1.0, lease / 3)
        self._limit = min(max(SHORTEST_LIMIT, lease / 6), lease / 3)
        self._info = json.dumps(
            {"host": socket.gethostname(), "pid": os.getpid(), "version": __version__, **info}
        )
        self._is_known = False
        self._may_be_known = False
        self._refused_until: float | None = None
        self._link: Link | None = None
        self._state = "running"
        self._is_over = False
        self._begun = self._has_progress = False
        self._may_report_begun = self._may_send_progress = 0.0
        self._next_beat = 0.0
        self._backoff = Backoff(lease / 3)
        self._is_failing = False
        self.heard_at = now()

    def begun(self) -> None:
        """Record that handlers have begun; reported soon, if they still run then."""
        if not self._begun:
            self._begun = True
            self.bell.ring()

    def progressed(self) -> None:
        """Record that a handler has reported its progress."""
        if not self._has_progress:
            self._has_progress = True
            self.bell.ring()

    def stopping(self) -> None:
        """Report from now on that the worker is stopping."""
        self._state = "stopping"
        self._next_beat = 0.0
        self.bell.ring()

    def end(self) -> None:
        """End the thread and wait for its end."""
        self._is_over = True
        self.bell.ring()
        self.join(2 * self._limit + LEAVE_LIMIT)

    def run(self) -> None:
        """Send heartbeats until the end."""
        while not self._is_over:
            try:
                self.bell.wait(self._link, self._wake_at() - now())
                self._held.expire(now())
                if not self._is_over:
                    self._turn()
            except psycopg.Error as error:
                self._failed(error)
        self._leave()
        self.bell.close()

    def _wake_at(self) -> float:
        wake = self._next_beat
        if self._held.all():
            wake = min(wake, now() + CHECK_PERIOD, self._held.next_timeout())
        if self._is_failing:
            return wake
        if self._begun:
            wake = min(wake, self._may_report_begun)
        if self._has_progress:
            wake = min(wake, self._may_send_progress)
        return wake

    def _turn(self) -> None:
        moment = now()
        if moment >= self._next_beat:
            sent = self._beat()
            self._next_beat = sent + self._lease / 3
            return
        if self._is_failing:
            return
        if self._begun and moment >= self._may_report_begun:
            self._begun = False
            self._extend(self._held.unreported())
            self._may_report_begun = now() + BEGIN_PERIOD
        if self._has_progress and moment >= self._may_send_progress:
            self._has_progress = False
            self._send_progress()
            self._may_send_progress = now() + PROGRESS_PERIOD

    def _beat(self) -> float:
        sent = now()
        self._extend(self._held.all())
        self._report_worker()
        self.heard_at = now()
        self._backoff.reset()
        if self._is_failing:
            self._is_failing = False
            log.info("heartbeats reach the database again")
        return sent

    def _extend(self, attempts: Sequence[Attempt]) -> None:
        for at in range(0, len(attempts), BATCH):
            batch = attempts[at : at + BATCH]
            extend(self._linked(), self._held, batch, self._lease, self._limit)
            self.heard_at = now()

    def _send_progress(self) -> None:
        for attempt in self._held.all():
            progress, attempt.progress = attempt.progress, None
            if progress is None:
                continue
            parameters = {"job_id": attempt.job_id, "token": attempt.token, "progress": progress}
            try:
                rows = self._linked().call(sql.REPORT_PROGRESS, parameters, self._limit)
            except psycopg.Error as error:
                if blame(error) is Blame.CALL:
                    log.warning("job %d: its progress was refused: %s", attempt.job_id, error)
                    continue
                attempt.progress = attempt.progress or progress
                self._has_progress = True
                raise
            if not rows[0][0]:
                self._held.stop(attempt, Reason.LEASE_LOST)

    def _report_worker(self) -> None:
        if self._refused_until is not None and now() < self._refused_until:
            return
        try:
            link = self._linked()
            info = None if self._is_known else self._info
            self._may_be_known = True
            rows = link.call(sql.REPORT_WORKER, self._registration(info), self._limit)
        except psycopg.Error as error:
            if blame(error) is not Blame.CALL:
                raise
            # An older server, or a role without the right: the worker works without reports.
            self._refused_until = now() + REFUSED_PERIODS * self._period
            return
        self._refused_until = None
        # A report that was not recorded is repeated in full by the next heartbeat.
        self._is_known = self._is_known or rows[0][0]

    def _registration(self, info: str | None) -> dict[str, Any]:
        period = span(self._period)
        return {"name": self._worker_name, "period": period, "state": self._state, "info": info}

    def _leave(self) -> None:
        if self._link is not None:
            self._state = "stopped"
            try:
                if self._may_be_known and self._refused_until is None:
                    self._link.call(sql.REPORT_WORKER, self._registration(None), LEAVE_LIMIT)
            except psycopg.Error as error:
                # The server soon counts the worker as gone.
                log.debug("the end of the worker could not be reported: %s", error)
            self._link.close()

    def _linked(self) -> Link:
        if self._link is None:
            self._is_known = False
            self._refused_until = None
            link = Link(self._parameters, self._watchdog, self._heard)
            self._link = link
            link.listen("trax_cancel", self._limit)
            # Notifications sent before LISTEN were missed.
            if self._held.hear_cancels(""):
                self._begun = True
        return self._link

    def _heard(self, channel: str, payload: str) -> None:
        if channel == "trax_cancel" and self._held.hear_cancels(payload):
            self._begun = True

    def _failed(self, error: psycopg.Error) -> None:
        if self._link is not None and blame(error) is not Blame.MOMENT:
            self._link.close()
            self._link = None
        pause = self._backoff.next()
        self._next_beat = now() + pause
        self._begun = True
        holds_any = bool(self._held.all())
        # Without a lease the heartbeat is not needed, and the worker's loop reports the error.
        level = logging.WARNING if holds_any and not self._is_failing else logging.DEBUG
        log.log(level, "the heartbeat failed, again in %.1f s: %s", pause, brief(error))
        self._is_failing = True
