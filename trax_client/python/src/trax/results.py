"""Results: jobs, their outcomes and their steps, from the rows of the server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from . import typed
from .clock import time_of


@dataclass(frozen=True)
class Job:
    """A job as `trax.job` shows it, without its input."""

    job_id: int
    state: str
    attempt: int
    task: str
    manifest: str | None
    group_name: str
    priority: int
    run_at: datetime | None
    scheduled_for: datetime | None
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    error: str | None
    output: Any
    progress: Any


@dataclass(frozen=True)
class JobResult:
    """The result of a job: completed, failed or cancelled; or its state at the timeout."""

    state: str
    output: Any
    error: str | None


_UNKNOWN = JobResult("unknown", None, None)


@dataclass(frozen=True)
class Step:
    """A step of a job; `recorded_at` is None for the wait in which the job is suspended."""

    step: str
    kind: str
    output: Any
    attempt: int
    recorded_at: datetime | None
    timed_out: bool
    wait: Any
    undo: Any


@dataclass(frozen=True)
class RecordedStep:
    """The answer to `record_step`: whether this call recorded it, and the output that is kept."""

    recorded: bool
    output: Any


def recorded(rows: Sequence[tuple[Any, ...]], *, decimals: bool) -> RecordedStep | None:
    """Return the answer to `record_step`."""
    if not rows:
        return None
    recorded, output = rows[0]
    return RecordedStep(recorded, loads(output, decimals=decimals))


def step(row: tuple[Any, ...], *, decimals: bool) -> Step:
    """Return a row of `trax.read_steps`."""
    step, kind, output, attempt, recorded_at, timed_out, wait, undo = row
    return Step(
        step=step,
        kind=kind,
        output=loads(output, decimals=decimals),
        attempt=attempt,
        recorded_at=time_of(recorded_at),
        timed_out=timed_out,
        wait=loads(wait, decimals=decimals),
        undo=loads(undo, decimals=decimals),
    )


def loads(text: str | None, *, decimals: bool) -> Any:
    """Return the value of a JSON text."""
    return None if text is None else typed.loads(text, decimals=decimals)


def result(row: tuple[Any, ...], *, decimals: bool) -> JobResult:
    """Return the outcome of a job."""
    state, output, error = row
    return JobResult(state, loads(output, decimals=decimals), error)


def ended(
    job_ids: Iterable[int], rows: Iterable[tuple[Any, ...]], *, decimals: bool
) -> dict[int, JobResult]:
    """Return the outcomes of these jobs by their ids; a job without a row does not exist."""
    outcomes = {row[0]: result(row[1:], decimals=decimals) for row in rows}
    return {job_id: outcomes.get(job_id, _UNKNOWN) for job_id in job_ids}


def job(rows: Sequence[tuple[Any, ...]], *, decimals: bool) -> Job | None:
    """Return the row of `trax.get_jobs`, or None if there is none."""
    if not rows:
        return None
    values = dict(zip((field.name for field in fields(Job)), rows[0], strict=True))
    for name in ("run_at", "scheduled_for", "queued_at", "started_at", "finished_at"):
        values[name] = time_of(values[name])
    for name in ("output", "progress"):
        values[name] = loads(values[name], decimals=decimals)
    return Job(**values)
