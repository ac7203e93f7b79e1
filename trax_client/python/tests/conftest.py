"""A server with the extension and a scheduler, named by DATABASE_URL; every test has its own task."""

from __future__ import annotations

import asyncio
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
    """Ask until there is something true."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if seen := probe():
            return seen
        time.sleep(0.01)
    raise AssertionError(f"did not happen; last seen: {probe()!r}")


class Fleet:
    """Workers in threads, of one of the two kinds."""

    def __init__(self, kind: str, url: str, task: str) -> None:
        self.kind = kind
        self.task = task
        self._url = url
        self._running: list[tuple[trax.Worker | trax.AsyncWorker, threading.Thread]] = []

    def start(
        self, function: Callable[..., Any], **settings: Any
    ) -> trax.Worker | trax.AsyncWorker:
        """Start a worker whose handler of the task is this function."""
        settings = {"lease": 6.0, "grace": 0.0, **settings}
        worker: trax.Worker | trax.AsyncWorker
        if self.kind == "sync":
            worker = trax.Worker(self._url, **settings)
            worker.task(self.task)(function)
            thread = threading.Thread(target=worker.run)
        else:
            worker = trax.AsyncWorker(self._url, **settings)
            worker.task(self.task)(as_async(function))
            thread = threading.Thread(target=lambda: asyncio.run(worker.run()))  # type: ignore[arg-type]
        thread.start()
        self._running.append((worker, thread))
        return worker

    def stop(self) -> None:
        """Stop all, and wait for their end."""
        for worker, _ in self._running:
            worker.stop()
        for _, thread in self._running:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def as_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same handler for an event loop; where it waits for a stop it awaits it."""
    if asyncio.iscoroutinefunction(function):
        return function

    async def run(job: Any, ctx: trax.Context) -> Any:
        return function(job, AsyncTestContext(ctx))

    return run


class AsyncTestContext:
    """A context; nothing of it waits."""

    def __init__(self, context: trax.Context) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
