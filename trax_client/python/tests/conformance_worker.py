"""Two workers of tests/conformance: the argument is `sync` or `async`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import trax

LOG = os.open(os.environ["CONFORMANCE_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@dataclass
class Error:
    error: str


@dataclass
class Delay:
    seconds: float


@dataclass
class Size:
    bytes: int


@dataclass
class Count:
    count: int


def say(what: str, ctx: trax.Context, how: str = "") -> None:
    text = f"{what} {ctx.job_id} {ctx.attempt} {time.time_ns() // 1_000_000} {how}"
    os.write(LOG, text.strip().encode() + b"\n")


@contextlib.contextmanager
def logged(ctx: trax.Context) -> Iterator[None]:
    say("begin", ctx)
    how = "done"
    try:
        yield
    except (asyncio.CancelledError, trax.Stopped):
        how = "stopped"
        raise
    finally:
        say("end", ctx, how)


def echo(job: Any, ctx: trax.Context) -> Any:
    with logged(ctx):
        return job


def wait(job: dict[str, int], ctx: trax.Context) -> dict[str, int]:
    with logged(ctx):
        ctx.wait(job["ms"] / 1000)
        return job


async def wait_async(job: dict[str, int], ctx: trax.Context) -> dict[str, int]:
    with logged(ctx):
        await asyncio.sleep(job["ms"] / 1000)
        return job


def fail(job: Error, ctx: trax.Context) -> None:
    with logged(ctx):
        raise RuntimeError(job.error)


def fail_permanently(job: Error, ctx: trax.Context) -> None:
    with logged(ctx):
        raise trax.Permanent(job.error)


def retry_in(job: Delay, ctx: trax.Context) -> None:
    with logged(ctx):
        raise trax.RetryIn(job.seconds, "not yet")


def snooze(job: Delay, ctx: trax.Context) -> None:
    with logged(ctx):
        raise trax.Snooze(job.seconds)


def large(job: Size, ctx: trax.Context) -> str:
    with logged(ctx):
        return "x" * job.bytes


def typed(job: Count, ctx: trax.Context) -> Count:
    with logged(ctx):
        return Count(job.count + 1)


SHORT = {
    "echo": echo,
    "fail": fail,
    "fail_permanently": fail_permanently,
    "retry_in": retry_in,
    "snooze": snooze,
    "large": large,
    "typed": typed,
}


def settings() -> dict[str, Any]:
    env = os.environ
    return {
        "name": env["CONFORMANCE_NAME"],
        "concurrency": int(env["CONFORMANCE_CONCURRENCY"]),
        "lease": float(env["CONFORMANCE_LEASE"]),
        "grace": float(env["CONFORMANCE_GRACE"]),
    }


def run_sync() -> None:
    worker = trax.Worker(**settings())
    for name, function in SHORT.items():
        worker.task(f"conformance.{name}")(function)
    worker.task("conformance.wait")(wait)
    worker.run()


def run_async() -> None:
    worker = trax.AsyncWorker(**settings())
    for name, function in SHORT.items():
        worker.task(f"conformance.{name}")(as_async(function))
    worker.task("conformance.wait")(wait_async)
    asyncio.run(worker.run())


def as_async(function: Any) -> Any:
    async def run(job: Any, ctx: trax.Context) -> Any:
        return function(job, ctx)

    run.__annotations__["job"] = function.__annotations__["job"]
    # The annotations of the sync function are strings with names of this module.
    return run


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    if sys.argv[1:] == ["sync"]:
        run_sync()
    else:
        run_async()
