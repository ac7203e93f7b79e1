"""A server with the extension and a scheduler, named by DATABASE_URL; a test has its own task."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import psycopg
import pytest

import trax

Value = TypeVar("Value")

PATIENCE = 60.0


@pytest.fixture(scope="session")
def url() -> str:
    return os.environ["DATABASE_URL"]


@pytest.fixture
def db(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def client(db: psycopg.Connection[Any]) -> trax.Client:
    return trax.Client(db)


@pytest.fixture
def task() -> str:
    return f"test.{uuid.uuid4().hex}"


@pytest.fixture(params=["sync", "async"])
def fleet(request: pytest.FixtureRequest, url: str, task: str) -> Iterator[Fleet]:
    fleet = Fleet(request.param, url, task)
    yield fleet
    fleet.stop()


def eventually(probe: Callable[[], Value | None]) -> Value:
    """Poll until the probe returns a true value."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if seen := probe():
            return seen
        time.sleep(0.01)
    raise AssertionError(f"did not happen; last seen: {probe()!r}")


def ended(client: trax.Client, job_id: int) -> trax.JobResult:
    """Return the result of a job."""
    result = client.await_job(job_id, PATIENCE)
    assert result.state not in ("queued", "in_progress"), client.job(job_id)
    return result


def in_state(client: trax.Client, job_id: int, state: str, attempt: int) -> trax.Job:
    """Return the job as soon as it is in this state in this attempt."""

    def probe() -> trax.Job | None:
        job = client.job(job_id)
        return job if job and (job.state, job.attempt) == (state, attempt) else None

    return eventually(probe)


class Fleet:
    """Workers in threads, all of the same kind."""

    def __init__(self, kind: str, url: str, task: str) -> None:
        self.kind = kind
        self.task = task
        self.url = url
        self._running: list[tuple[trax.Worker | trax.AsyncWorker, threading.Thread]] = []

    def start(
        self, function: Callable[..., Any], many: dict[str, Any] | None = None, **settings: Any
    ) -> trax.Worker | trax.AsyncWorker:
        """Start a worker with this function as the handler of the task, or of many jobs of it."""
        settings = {"lease": 6.0, "grace": 0.0, **settings}
        worker: trax.Worker | trax.AsyncWorker
        if self.kind == "sync":
            worker = sync = trax.Worker(self.url, **settings)
            thread = threading.Thread(target=sync.run)
        else:
            worker = others = trax.AsyncWorker(self.url, **settings)
            thread = threading.Thread(target=lambda: asyncio.run(others.run()))
            function = as_async(function)
        (worker.task_many(self.task, **many) if many else worker.task(self.task))(function)
        self._running.append((worker, thread))
        thread.start()
        return worker

    @property
    def sessions(self) -> str:
        """Return the application_name of the last worker's sessions."""
        return f"trax worker {self._running[-1][0].name}"

    def stop(self) -> None:
        """Stop all workers and wait for their end."""
        for worker, _ in self._running:
            worker.stop()
        for _, thread in self._running:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def as_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same handler for an event loop."""
    if inspect.iscoroutinefunction(function):
        return function

    @functools.wraps(function)
    async def run(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    hints = {name: str(hint) for name, hint in function.__annotations__.items()}
    run.__annotations__ = {
        name: hint.replace("trax.Context", "trax.AsyncContext") for name, hint in hints.items()
    }
    return run


def wait(ctx: trax.Context, seconds: float) -> Any:
    """Wait as a handler does: in a thread, or an awaitable on an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ctx.wait(seconds)
    return asyncio.sleep(seconds)
