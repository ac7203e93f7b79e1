"""The loop of a worker, the same for threads and for asyncio.

The engine claims as many jobs as places are free, has the *runner* run their handlers, and reports
the outcomes (`exchange`). The loop runs in a thread that runs no handler; a second thread sends
heartbeats (`heartbeat`). An attempt is in `running` until its handler has ended or is abandoned,
then in the outbox until the server has answered. Its lease is extended all that time.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg

from . import record, sql
from .attempt import Attempt, HeldAttempts
from .calls import Calls
from .clock import now
from .connection import Backoff, Link, Watchdog, bounded, unset
from .errors import (
    Blame,
    NotPermittedError,
    VersionError,
    blame,
    brief,
    login_refusal,
    not_installed,
    translated,
)
from .exchange import BATCH, Claim, Exchange
from .handler import Handler
from .heartbeat import Heartbeat, extend
from .outcome import End, Kind, Reason, Verdict, on_stop
from .polling import Polling
from .shutdown import Phase
from .version import __version__

log = logging.getLogger("trax")

# Newer versions are accepted, as functions are only added to the contract.
OLDEST_EXTENSION = (0, 1)
# The errors of a server whose SQL is older: an unknown column or function, or the library's own
# refusal.
OF_OLDER_SQL = ("42703", "42883", "55000")
# The time between asking handlers to stop and releasing their jobs anyway.
STOP_PATIENCE = 1.0
# The time after that until an unreachable server is given up on.
REPORT_PATIENCE = 10.0
CHECK_PERIOD = 1.0
# The pauses before a failure that lasts is logged again.
COMPLAIN_PAUSE, LONGEST_COMPLAIN_PAUSE = 5.0, 60.0


class Runner(Protocol):
    """Runs handlers, and calls `Engine.ended` for each."""

    # Of a handler that does not stop, behind a line about it.
    consequence: str

    def start(self, calls: Sequence[tuple[Attempt, Callable[[], Any]]]) -> None:
        """Start handlers without waiting."""

    def stop(self, attempt: Attempt) -> None:
        """Ask a handler to stop, in addition to the signal in its context."""


@dataclass(frozen=True)
class Settings:
    """The configuration of a worker; times are in seconds."""

    address: str
    name: str
    concurrency: int
    groups: Sequence[str] | None
    versions: Sequence[str] | None
    lease: float
    grace: float
    poll_interval: float
    until_empty: bool = False


class Engine:
    """A run of a worker."""

    def __init__(
        self, settings: Settings, handlers: Mapping[str, Handler], runner: Runner, phase: Phase
    ) -> None:
        self._settings = settings
        self._handlers = handlers
        self._runner = runner
        self._phase = phase
        self._seen_phase = Phase.RUNNING
        self._held = HeldAttempts(runner.stop)
        self._watchdog = Watchdog()
        self._parameters = bounded(settings.address, settings.name, settings.lease)
        tasks = sorted(handlers)
        groups, versions = settings.groups, settings.versions
        self._exchange = Exchange(Claim(settings.name, tasks, groups, versions, settings.lease))
        info = {"tasks": tasks[:100], "groups": groups, "versions": versions, "client": "python"}
        self._heartbeat = Heartbeat(
            self._parameters,
            self._held,
            self._watchdog,
            name=settings.name,
            lease=settings.lease,
            info={**info, "concurrency": settings.concurrency},
        )
        self._calls = Calls(
            self._parameters,
            self._held,
            self._watchdog,
            limit=self._exchange.limit,
            ask=self._heartbeat.begun,
        )
        self._running: set[Attempt] = set()
        self._ended: deque[tuple[Attempt, End]] = deque()
        self._link: Link | None = None
        self._is_checked = self._has_claimed = self._is_announced = False
        # The last failure logged, until the database is reached again; when to log it again, and
        # the pause after that.
        self._complaint = ""
        self._complain_at = self._complain_pause = 0.0
        # Whether no heartbeat has been answered for half a lease, and when to extend the leases
        # here instead.
        self._is_unheard = False
        self._extend_at = 0.0
        # Refused although the extension's version matches: the refusal may date from just before
        # the update.
        self._was_refused = False
        self._extension = __version__
        self._polling = Polling(settings.poll_interval, now())
        self._backoff = Backoff(1.0)
        self._paused_until = self._no_claim_until = 0.0
        # During a stop: when handlers are asked to stop and abandoned, and the server is given up
        # on.
        self._ask_at = self._abandon_at = self._give_up_at = float("inf")

    def ended(self, attempt: Attempt, end: End) -> None:
        """Accept the end of a handler; called by the runner, from any thread."""
        self._ended.append((attempt, end))
        self._phase.bell.ring()

    def run(self) -> None:
        """Run until a stop.

        Raise an error of this package if the server refuses the first claim: a missing extension
        or right.
        """
        self._watchdog.start()
        self._heartbeat.start()
        try:
            while True:
                self._obey_phase()
                self._take_ended()
                moment = now()
                self._feel_pulse(moment)
                if moment >= self._paused_until and self._has_business(moment):
                    self._run_exchange()
                    self._take_ended()
                if self._is_over():
                    return
                self._wait()
        finally:
            self._heartbeat.end()
            self._calls.end()
            self._watchdog.end()
            if self._link is not None:
                self._link.close()

    def _wait(self) -> None:
        if not self._heartbeat.is_alive():
            raise RuntimeError("the heartbeat thread has ended, see the error that it printed")
        try:
            self._phase.bell.wait(self._link, self._wake_at() - now())
        except psycopg.Error as error:
            self._lost_link(error)
        self._held.expire(now())

    def _wake_at(self) -> float:
        moment = now()
        moments = [moment + CHECK_PERIOD, self._held.next_timeout()]
        if self._wanted() > 0:
            moments.append(max(self._polling.next_claim, self._no_claim_until, self._paused_until))
        due = self._exchange.next_due()
        if due is not None:
            moments.append(max(due, self._paused_until))
        if self._link is not None and self._held.all():
            limit = self._settings.lease / 2
            look = self._extend_at if self._is_unheard else self._heartbeat.heard_at + limit
            moments.append(max(look, self._paused_until))
        stops = (self._ask_at, self._abandon_at, self._give_up_at)
        moments += [stop for stop in stops if stop > moment]
        return min(moments)

    def _wanted(self) -> int:
        if self._seen_phase != Phase.RUNNING or self._is_unheard:
            return 0
        waiting = sum(one.again for one in self._exchange.outbox)
        if waiting > max(BATCH, 2 * self._settings.concurrency):
            return 0
        return min(BATCH, self._settings.concurrency - len(self._running))

    def _has_business(self, moment: float) -> bool:
        is_due = self._exchange.is_due(moment) or self._is_time_to_claim(moment)
        return is_due or self._must_extend(moment)

    def _is_time_to_claim(self, moment: float) -> bool:
        due = max(self._polling.next_claim, self._no_claim_until)
        return self._wanted() > 0 and moment >= due

    def _run_exchange(self) -> None:
        has_outcomes = self._exchange.is_due(now())
        may_claim = now() >= self._no_claim_until
        wanted = max(0, self._wanted()) if may_claim else 0
        try:
            if self._link is None:
                self._link = Link(self._parameters, self._watchdog, self._heard)
                self._link.listen("trax_work", self._exchange.limit)
                self._polling.connected(now())
                # The heartbeat lost its connection as well, and gets time to reconnect.
                self._heartbeat.heard_at = now()
            if not self._is_checked:
                self._check_version(self._link)
            if not self._is_announced:
                self._announce(self._link)
            if self._must_extend(now()):
                self._extend(self._link)
            claimed, answered = self._exchange.run(self._link, wanted)
        except psycopg.Error as error:
            self._failed(error)
            return
        self._backoff.reset()
        if self._complaint:
            self._complaint = ""
            log.info("the worker reaches the database again")
        for outcome in answered:
            self._held.remove(outcome.attempt.key)
        if wanted:
            self._has_claimed = True
            self._polling.claimed(wanted, len(claimed), now(), alone=not has_outcomes)
            is_idle = not (claimed or self._running or self._exchange.outbox or self._ended)
            if self._settings.until_empty and is_idle:
                self._phase.advance()
        self._start(claimed)

    def _feel_pulse(self, moment: float) -> None:
        """Stop claiming while no heartbeat is answered, as claimed jobs could not be kept."""
        limit = self._settings.lease / 2
        is_unheard = self._link is not None and moment >= self._heartbeat.heard_at + limit
        if is_unheard and not self._is_unheard:
            log.warning("nothing is claimed: no heartbeat was answered for %.1f s", limit)
        elif self._is_unheard and not is_unheard and self._link is not None:
            log.info("heartbeats are answered again, and jobs claimed")
        self._is_unheard = is_unheard

    def _must_extend(self, moment: float) -> bool:
        return self._is_unheard and moment >= self._extend_at and bool(self._held.all())

    def _extend(self, link: Link) -> None:
        """Extend held leases over this connection, which also reports begun jobs."""
        self._extend_at = now() + self._settings.lease / 3
        held = self._held.all()
        for at in range(0, len(held), BATCH):
            batch = held[at : at + BATCH]
            extend(link, self._held, batch, self._settings.lease, self._exchange.limit)

    def _check_version(self, link: Link) -> None:
        self._database, extension = link.call(sql.VERSION, {}, self._exchange.limit)[0]
        if extension is None:
            raise not_installed(self._database)
        found = tuple(int(part) for part in extension.split(".")[:2] if part.isdigit())
        if found < OLDEST_EXTENSION:
            oldest = ".".join(map(str, OLDEST_EXTENSION))
            raise VersionError(
                f"the extension trax is {extension}, and trax-worker {__version__} needs {oldest} "
                "or newer; type: alter extension trax update;"
            )
        self._extension = extension
        self._is_checked = True

    def _announce(self, link: Link) -> None:
        """Log what runs here, and warn of tasks with waiting jobs that have no handler here."""
        self._is_announced = True
        tasks, name = sorted(self._handlers), self._settings.name
        text = 'worker "%s" runs %d jobs at once in database "%s", of the tasks %s'
        log.info(text, name, self._settings.concurrency, self._database, record.few(tasks))
        try:
            groups = None if self._settings.groups is None else list(self._settings.groups)
            rows = link.call(sql.WAITING_TASKS, {"groups": groups}, self._exchange.limit)
        except psycopg.Error as error:
            if blame(error) is Blame.CALL:
                return  # Only advice; a real problem also makes the claim fail.
            self._is_announced = False
            raise
        if others := [task for (task,) in rows if task not in self._handlers]:
            text = "jobs are waiting for which this worker has no handler: %s"
            log.warning(text, record.few(others))

    def _start(self, claimed: Sequence[Attempt]) -> None:
        self._held.insert(claimed)
        calls: list[tuple[Attempt, Callable[[], Any]]] = []
        for attempt in claimed:
            if self._phase.value != Phase.RUNNING:
                self._exchange.report(attempt, End(Verdict(Kind.RELEASE)))
                continue
            attempt.begin()
            self._running.add(attempt)
            calls.append((attempt, functools.partial(self._handle, attempt)))
        if calls:
            self._runner.start(calls)
            self._heartbeat.begun()

    def _handle(self, attempt: Attempt) -> Any:
        """Run the handler of an attempt; called by the runner."""
        handler = self._handlers[attempt.task]
        context = handler.context_type(attempt, self._heartbeat.progressed, self._calls)
        return handler.run(attempt, context)

    def _take_ended(self) -> None:
        while self._ended:
            attempt, end = self._ended.popleft()
            if attempt not in self._running:
                continue  # abandoned
            self._running.remove(attempt)
            self._exchange.ended(attempt, end)

    def _heard(self, channel: str, _payload: str) -> None:
        if channel == "trax_work":
            self._polling.notified(now())

    def _failed(self, error: psycopg.Error) -> None:
        if self._link is None and not self._has_claimed:
            refused = login_refusal(error, self._parameters.get("host"))
            if refused is not None:
                raise refused from error
        at_fault = blame(error)
        text = "a claim failed, again in %.1f s: %s"
        is_refused = at_fault is Blame.CALL and self._link is not None
        if is_refused and not self._has_claimed:
            refusal = translated(error)
            is_ours = self._extension == __version__
            may_be_stale = error.sqlstate in OF_OLDER_SQL and not self._was_refused
            if isinstance(refusal, NotPermittedError) or (is_ours and not may_be_stale):
                raise refusal from error
            # An update may bring the functions that this version calls. A session that looked one
            # up before may notice a moment after the new version is visible.
            self._was_refused = is_ours
            self._is_checked = False
            if not is_ours:
                text = (
                    f"trax-worker {__version__} waits: the extension trax is {self._extension}; "
                    "if that is older, type: alter extension trax update; again in %.1f s: %s"
                )
        if at_fault is Blame.CONNECTION or self._link is None:
            self._lost_link(error)
            return
        pause = self._backoff.next()
        self._no_claim_until = now() + pause
        self._complain(text, pause, error)

    def _lost_link(self, error: psycopg.Error) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        pause = self._backoff.next()
        self._paused_until = now() + pause
        self._polling.next_claim = 0.0
        text = "the database cannot be reached, again in %.1f s: %s"
        self._complain(text + unset(self._settings.address), pause, error)

    def _complain(self, text: str, pause: float, error: psycopg.Error) -> None:
        # Logged again after growing pauses, however long it lasts.
        if self._complaint != text:
            self._complaint, self._complain_at, self._complain_pause = text, 0.0, COMPLAIN_PAUSE
        level = logging.DEBUG
        if now() >= self._complain_at:
            level = logging.WARNING
            self._complain_at = now() + self._complain_pause
            self._complain_pause = min(2 * self._complain_pause, LONGEST_COMPLAIN_PAUSE)
        log.log(level, text, pause, brief(error))

    def _obey_phase(self) -> None:
        phase, moment = self._phase.value, now()
        if phase != self._seen_phase:
            self._seen_phase = phase
            grace = self._settings.grace if phase == Phase.DRAINING else 0.0
            self._ask_at = moment + grace
            self._abandon_at = self._ask_at + STOP_PATIENCE
            self._give_up_at = self._abandon_at + REPORT_PATIENCE
            self._paused_until = 0.0
            self._exchange.hurry()
            self._heartbeat.stopping()
            if self._running:
                jobs = len(self._running)
                log.info("stopping: %d jobs may go on for %.0f s", jobs, grace)
        if moment >= self._ask_at:
            for attempt in list(self._running):
                self._held.stop(attempt, Reason.SHUTDOWN)
        if moment >= self._abandon_at:
            for attempt in self._running:
                text = "job %d (%s) is given up: its handler does not stop%s"
                log.warning(text, attempt.job_id, attempt.task, self._runner.consequence)
                self._exchange.report(attempt, End(on_stop(attempt.reason or Reason.SHUTDOWN)))
            self._running.clear()

    def _is_over(self) -> bool:
        if self._seen_phase == Phase.RUNNING:
            return False
        if not self._running:
            self._give_up_at = min(self._give_up_at, now() + REPORT_PATIENCE)
        is_done = not (self._running or self._ended or self._exchange.outbox)
        if not is_done and now() >= self._give_up_at:
            log.warning("%d outcomes could not be told", len(self._exchange.outbox))
            return True
        return is_done
