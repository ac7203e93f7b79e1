"""The exchange, which reports outcomes and claims jobs over one link.

An outcome stays in the outbox until the server has answered it. Completions are sent together, with
the claim in the same call; other outcomes, and those sent *again*, one by one. An outcome is sent
again if the link broke, or if the server had no time, lock or room for it. If it had already been
recorded, the answer is "lost" and nothing changes. An outcome that the server refuses for its
content becomes a permanent failure, and so does one that alone breaks the link five times, or that
is too large to be answered in time.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import psycopg

from . import record, sql
from .attempt import Attempt
from .clock import millis, now, span, time_of
from .connection import Link
from .errors import Blame, blame, is_of_the_values, translated
from .outcome import NOT_RETURNED, End, Kind, Verdict, instead
from .steps import unreached

log = logging.getLogger("trax")

# The maximum number of jobs in a claim, and of completions in a call.
BATCH = 1000
BATCH_BYTES = 4 << 20
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
# Once the server had no time for this many outcomes, the others wait for the next exchange.
FAILURES_AT_MOST = 2
BREAKS_AT_MOST = 5
# By the second time the lease has ended, or heartbeats were answered meanwhile, so the size is the
# cause.
UNANSWERED_AT_MOST = 2
LARGE = 64 << 10
# The maximum number of outcomes reported for an attempt, each replacing the previous one.
PLACES = 5

_STATEMENTS = {
    Kind.COMPLETE: sql.COMPLETE,
    Kind.FAIL: sql.FAIL,
    Kind.RELEASE: sql.RELEASE,
    Kind.ACKNOWLEDGE_CANCEL: sql.ACKNOWLEDGE_CANCEL,
    Kind.TIMED_OUT: sql.TIMED_OUT,
    Kind.CANCEL_OWN: sql.CANCEL_OWN,
    # Answers "lost" if the handler has completed the job, as it says.
    Kind.RECORDED: sql.FAIL,
}


@dataclass(eq=False)
class Outcome:
    """An ended attempt that the server does not know of yet."""

    attempt: Attempt
    verdict: Verdict
    # Whether the completion names the recorded steps that the handler has not reached.
    has_note: bool = False
    again: bool = False
    pause: float = 0.0
    not_before: float = 0.0
    breaks: int = 0
    unanswered: int = 0
    answered: bool = False


@dataclass(frozen=True)
class Claim:
    """The parameters common to all claims of this worker."""

    worker: str
    tasks: Sequence[str]
    groups: Sequence[str] | None
    versions: Sequence[str] | None
    lease: float

    def parameters(self, wanted: int) -> dict[str, Any]:
        """Return the arguments of a claim of up to `wanted` jobs."""
        lease = span(self.lease)
        return {
            "worker": self.worker,
            "max_jobs": wanted,
            "tasks": list(self.tasks),
            "groups": None if self.groups is None else list(self.groups),
            "versions": None if self.versions is None else list(self.versions),
            "lease": lease,
        }


class Exchange:
    """Holds the outbox and sends it."""

    def __init__(self, claim: Claim) -> None:
        self.outbox: list[Outcome] = []
        self._claim = claim
        # An answer after more than half a lease is of little use.
        self.limit = min(max(2.0, claim.lease / 2), 30.0)

    def is_due(self, moment: float) -> bool:
        """Return whether an outcome may be sent now."""
        return any(outcome.not_before <= moment for outcome in self.outbox)

    def next_due(self) -> float | None:
        """Return when the first outcome may be sent; None if the outbox is empty."""
        return min((outcome.not_before for outcome in self.outbox), default=None)

    def ended(self, attempt: Attempt, end: End) -> None:
        """Accept the end of a handler, whose outcome is reported unless its attempt is over."""
        if attempt.failure is not None:
            record.failed(attempt, end)
        elif attempt.is_suspended:
            if not end.is_unwound:
                record.went_on(attempt, end)
        else:
            self.report(attempt, end)

    def report(self, attempt: Attempt, end: End) -> None:
        """Put the outcome of an attempt into the outbox, unless the server knows it."""
        if attempt.is_over:
            return
        kind = end.verdict.kind
        if kind in (Kind.FAIL, Kind.TIMED_OUT):
            record.failed(attempt, end)
        missed = unreached(attempt) if kind in (Kind.COMPLETE, Kind.RECORDED) else ""
        record.missed(attempt, missed)
        has_note = bool(missed) and kind is Kind.COMPLETE
        self.outbox.append(Outcome(attempt, end.verdict, has_note))

    def hurry(self) -> None:
        """End all pauses, as the worker stops."""
        for outcome in self.outbox:
            outcome.not_before = 0.0

    def run(self, link: Link, wanted: int) -> tuple[list[Attempt], list[Outcome]]:
        """Send due outcomes, claim up to `wanted` jobs; return these and the answered outcomes.

        Raise psycopg.Error if the link is broken or the claim failed. Outcomes answered before
        that are returned by the next run.
        """
        moment = now()
        due = [o for o in self.outbox if not o.answered and o.not_before <= moment]
        plain = [o for o in due if not (o.again or o.has_note)]
        together = [o for o in plain if o.verdict.kind is Kind.COMPLETE]
        chosen = set(map(id, together))
        self._send_each(link, [one for one in due if id(one) not in chosen])
        claimed: list[Attempt] | None = None
        while together:
            batch = _first_batch(together)
            together = together[len(batch) :]
            try:
                if wanted and not together:
                    claimed = self._complete_and_claim(link, batch, wanted)
                else:
                    self._complete(link, batch)
            except psycopg.Error as error:
                for outcome in batch:
                    outcome.again = True
                if blame(error) is Blame.CONNECTION:
                    if len(batch) == 1:
                        self._broke(link, batch[0], error)
                    raise
                # Sent one by one, to find the outcome that fails.
                self._send_each(link, batch)
        if wanted and claimed is None:
            claimed = self._claim_alone(link, wanted)
        answered = [one for one in self.outbox if one.answered]
        self.outbox = [one for one in self.outbox if not one.answered]
        return claimed or [], answered

    def _complete_and_claim(self, link: Link, batch: list[Outcome], wanted: int) -> list[Attempt]:
        sent = now()
        parameters = {**self._completions(batch), **self._claim.parameters(wanted)}
        rows = link.call(sql.COMPLETE_AND_CLAIM, parameters, self.limit)
        self._answer(batch, {row[0] for row in rows if row[0] is not None})
        return [_attempt(row[1:], sent, self._claim.lease) for row in rows if row[0] is None]

    def _complete(self, link: Link, batch: list[Outcome]) -> None:
        rows = link.call(sql.COMPLETE_MANY, self._completions(batch), self.limit)
        self._answer(batch, {row[0] for row in rows})

    def _claim_alone(self, link: Link, wanted: int) -> list[Attempt]:
        sent = now()
        parameters = {**self._claim.parameters(wanted), "lock_timeout": millis(self.limit / 5)}
        rows = link.call(sql.CLAIM, parameters, self.limit)
        return [_attempt(row, sent, self._claim.lease) for row in rows]

    def _completions(self, batch: list[Outcome]) -> dict[str, Any]:
        return {
            "lock_timeout": millis(self.limit / 5),
            "job_ids": [one.attempt.job_id for one in batch],
            "tokens": [one.attempt.token for one in batch],
            "outputs": [one.verdict.output for one in batch],
        }

    def _answer(self, batch: list[Outcome], recorded: set[int]) -> None:
        for outcome in batch:
            self._answered(outcome, held=outcome.attempt.job_id in recorded)

    def _answered(self, outcome: Outcome, *, held: bool) -> None:
        outcome.answered = True
        job = outcome.attempt
        if not held and outcome.verdict.kind is Kind.COMPLETE:
            said = NOT_RETURNED if job.is_completed else "its lease was lost, and not recorded"
            log.warning("job %d (%s): %s", job.job_id, job.task, said)
        if held and outcome.verdict.kind is Kind.RECORDED:
            log.warning("job %d (%s): %s", job.job_id, job.task, outcome.verdict.error)

    def _send_each(self, link: Link, outcomes: Sequence[Outcome]) -> None:
        failures = 0
        for outcome in outcomes:
            if failures >= FAILURES_AT_MOST:
                # Its turn comes before that of the failed ones, whose pauses grow.
                outcome.again = True
                outcome.not_before = now() + SHORTEST_PAUSE
                continue
            try:
                self._send(link, outcome, hasty=failures > 0)
            except psycopg.Error as error:
                # Logged as a warning once: it may be refused for long, for example until the
                # extension is updated.
                level = logging.DEBUG if outcome.pause else logging.WARNING
                outcome.again = True
                if blame(error) is Blame.CONNECTION:
                    self._broke(link, outcome, error)
                    self._postpone(outcome)
                    raise
                outcome.breaks = outcome.unanswered = 0
                failures += 1
                self._postpone(outcome)
                job = outcome.attempt
                text = "job %d: its outcome waits %.1f s: %s"
                log.log(level, text, job.job_id, outcome.pause, error)

    def _send(self, link: Link, outcome: Outcome, *, hasty: bool) -> None:
        verdict, job_id = outcome.verdict, outcome.attempt.job_id
        for _ in range(PLACES):
            try:
                rows = self._call(link, outcome, verdict, hasty=hasty)
            except (psycopg.Error, UnicodeError) as error:
                if outcome.has_note and not _is_of_connection(error):
                    outcome.has_note = False
                    log.warning("job %d: its note is left out: %s", job_id, error)
                    continue
                if not is_of_the_values(error):
                    raise
                refusal = translated(error) if isinstance(error, psycopg.Error) else error
                log.warning("job %d: its outcome was refused: %s", job_id, refusal)
                verdict = instead(verdict, refusal, again=verdict is not outcome.verdict)
            else:
                self._answered(outcome, held=rows[0][0] not in (False, "lost"))
                return
        log.error("job %d: its failure was refused, too: its lease runs out", job_id)
        self._answered(outcome, held=True)

    def _call(
        self, link: Link, outcome: Outcome, verdict: Verdict, *, hasty: bool
    ) -> list[tuple[Any, ...]]:
        slow = not (outcome.again or hasty)
        lock = self.limit / 5 if slow else max(SHORTEST_PAUSE, outcome.pause / 5)
        parameters = {
            "lock_timeout": millis(min(lock, self.limit / 5)),
            "job_id": outcome.attempt.job_id,
            "token": outcome.attempt.token,
            "output": verdict.output,
            "error": verdict.error,
            "detail": verdict.detail,
            "delay": verdict.delay,
            "permanent": verdict.permanent,
            "close_rate": verdict.close_rate,
        }
        if outcome.has_note:
            parameters["reached"] = list(outcome.attempt.reached)
            return link.call(sql.COMPLETE_WITH_NOTE, parameters, self.limit)
        return link.call(_STATEMENTS[verdict.kind], parameters, self.limit)

    def _postpone(self, outcome: Outcome) -> None:
        outcome.again = True
        outcome.pause = min(max(SHORTEST_PAUSE, 2 * outcome.pause), LONGEST_PAUSE)
        outcome.not_before = now() + outcome.pause

    def _broke(self, link: Link, outcome: Outcome, error: psycopg.Error) -> None:
        """Record that the link broke during this outcome, perhaps because of it."""
        if outcome.has_note and (link.was_cut or outcome.breaks):
            # Perhaps because of the note, for which no completion is given up.
            outcome.has_note, outcome.breaks = False, 0
            return
        size = outcome.verdict.size
        if link.was_cut and size > LARGE:
            outcome.unanswered += 1
            if outcome.unanswered == UNANSWERED_AT_MOST:
                self._give_up(outcome, f"had no answer {UNANSWERED_AT_MOST} times: {error}")
        elif error.sqlstate is None and not link.was_cut:
            outcome.breaks += 1
            if outcome.breaks == BREAKS_AT_MOST:
                self._give_up(outcome, f"ended the connection {BREAKS_AT_MOST} times: {error}")

    def _give_up(self, outcome: Outcome, what: str) -> None:
        why = f"the {outcome.verdict.size} bytes of the outcome {what}"
        log.warning("job %d: %s", outcome.attempt.job_id, why)
        given = outcome.verdict
        if given.kind is Kind.FAIL:
            error = f"{given.error[:1000]}; {why}"
            outcome.verdict = Verdict(
                Kind.FAIL,
                error=error,
                delay=given.delay,
                permanent=given.permanent,
                close_rate=given.close_rate,
            )
        else:
            outcome.verdict = instead(given, why)


def _is_of_connection(error: Exception) -> bool:
    return isinstance(error, psycopg.Error) and blame(error) is Blame.CONNECTION


def _first_batch(outcomes: Sequence[Outcome]) -> list[Outcome]:
    batch: list[Outcome] = []
    size = 0
    for outcome in outcomes[:BATCH]:
        size += outcome.verdict.size
        if batch and size > BATCH_BYTES:
            break
        batch.append(outcome)
    return batch


def _trace(text: str | None) -> dict[str, Any] | None:
    try:
        trace = json.loads(text or "null")
    except (ValueError, RecursionError):  # a number with more digits than Python reads
        return None
    return trace if isinstance(trace, dict) else None


def _attempt(row: Sequence[Any], sent: float, lease: float) -> Attempt:
    return Attempt(
        job_id=row[0],
        token=row[1],
        attempt=row[2],
        max_attempts=row[3],
        task=row[4],
        input=row[5],
        manifest=row[6],
        group_name=row[7],
        scheduled_for=time_of(row[8]),
        queued_at=datetime.fromtimestamp(float(row[9]), timezone.utc),
        timeout=None if row[10] is None else float(row[10]),
        trace=_trace(row[11]),
        valid_until=sent + lease,
        steps=row[12],
    )
