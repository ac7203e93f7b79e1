"""Two workers of tests/conformance: the argument is `sync` or `async`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import secrets
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


def say(what: str, ctx: Any, how: str = "") -> None:
    text = f"{what} {ctx.job_id} {ctx.attempt} {time.time_ns() // 1_000_000} {how}"
    os.write(LOG, text.strip().encode() + b"\n")


@contextlib.contextmanager
def logged(ctx: Any, *, begins: bool = True) -> Iterator[None]:
    if begins:
        say("begin", ctx)
    how = "done"
    try:
        yield
    except trax.Suspended:
        how = ""
        raise
    except (asyncio.CancelledError, trax.Stopped):
        how = "stopped"
        raise
    finally:
        if how:
            say("end", ctx, how)


def echo(job: Any, ctx: trax.Context) -> Any:
    with logged(ctx):
        return job


def wait(job: dict[str, int], ctx: trax.Context) -> dict[str, int]:
    with logged(ctx):
        ctx.wait(job["ms"] / 1000)
        return job


async def wait_async(job: dict[str, int], ctx: trax.AsyncContext) -> dict[str, int]:
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


async def steps(job: list[dict[str, Any]], ctx: Any) -> list[Any]:
    """Do what the input lists; `ctx` is that of an event loop, or looks like it."""
    with logged(ctx, begins=False):
        return [await act(one, ctx) for one in job]


async def act(one: dict[str, Any], ctx: Any) -> Any:
    limit = {"timeout": one["ms"] / 1000} if "ms" in one else {}
    match one["do"]:
        case "step" if ctx.attempt <= one.get("until_attempt", ctx.attempt):

            def work() -> str:
                say("step", ctx, one["name"])
                time.sleep(one.get("ms", 0) / 1000)
                return secrets.token_hex(8)

            return await ctx.step(one["name"], work, undo=one.get("undo"))
        case "fail" if ctx.attempt <= one["until_attempt"]:
            raise RuntimeError("not yet")
        case "sleep":
            return await ctx.sleep(one["name"], one["ms"] / 1000)
        case "signal":
            try:
                return await ctx.signal(one["name"], **limit)
            except TimeoutError:
                return "timed out"
            except Exception as error:  # noqa: BLE001 - a suspension must not end here
                return f"caught {error!r}"
        case "spawn":
            return await ctx.spawn(one["name"], one["task"], one["input"])
        case "children":
            return [dataclasses.asdict(child) for child in await ctx.children(**limit)]
    return None


class Awaitables:
    """The context of a thread, with the methods of the context of an event loop."""

    def __init__(self, ctx: trax.Context) -> None:
        self._ctx = ctx

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._ctx, name)
        if name not in ("step", "sleep", "signal", "spawn", "children"):
            return value

        async def call(*args: Any, **kwargs: Any) -> Any:
            return value(*args, **kwargs)

        return call


def steps_in_thread(job: list[dict[str, Any]], ctx: trax.Context) -> Any:
    try:
        steps(job, Awaitables(ctx)).send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("nothing else is awaited")


async def steps_on_loop(job: list[dict[str, Any]], ctx: trax.AsyncContext) -> Any:
    return await steps(job, ctx)


def many(jobs: Any) -> list[Any]:
    results: list[Any] = []
    for job in jobs:
        with logged(job.ctx):
            is_failing = job.input["do"] == "fail"
            results.append(RuntimeError("as the input says") if is_failing else len(jobs))
    return results


async def many_on_loop(jobs: Any) -> list[Any]:
    return many(jobs)


def key(job: dict[str, str]) -> str:
    return job["key"]


# Only a full call begins: no scenario lasts that long.
MANY: dict[str, Any] = {"max_jobs": 3, "max_wait": 600, "by": key}


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
        "versions": [env["CONFORMANCE_VERSION"]] if env["CONFORMANCE_VERSION"] else None,
    }


def run_sync() -> None:
    worker = trax.Worker(**settings())
    for name, function in SHORT.items():
        worker.task(f"conformance.{name}")(function)
    worker.task("conformance.wait")(wait)
    worker.task("conformance.steps")(steps_in_thread)
    if settings()["concurrency"] >= MANY["max_jobs"]:
        worker.task_many("conformance.many", **MANY)(many)
    worker.run()


def run_async() -> None:
    worker = trax.AsyncWorker(**settings())
    for name, function in SHORT.items():
        worker.task(f"conformance.{name}")(as_async(function))
    worker.task("conformance.wait")(wait_async)
    worker.task("conformance.steps")(steps_on_loop)
    if settings()["concurrency"] >= MANY["max_jobs"]:
        worker.task_many("conformance.many", **MANY)(many_on_loop)
    asyncio.run(worker.run())


def as_async(function: Any) -> Any:
    async def run(job: Any, ctx: trax.AsyncContext) -> Any:
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
