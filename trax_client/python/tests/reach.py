"""Queues jobs at DATABASE_URL and runs them with both kinds of worker."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import psycopg

import trax

URL = os.environ["DATABASE_URL"]


def queue(task: str) -> None:
    with psycopg.connect(URL, autocommit=True, prepare_threshold=None) as connection:
        trax.Client(connection).enqueue_many(task, [{"n": n} for n in range(20)])


queue("python.sync")
worker = trax.Worker(URL, lease=6.0)


@worker.task("python.sync")
def in_a_thread(job: Any, ctx: trax.Context) -> Any:
    ctx.progress(0.5)
    ctx.sleep("nap", 0)
    return ctx.step("number", lambda: job["n"])


worker.run(until_empty=True)

queue("python.async")
others = trax.AsyncWorker(URL, lease=6.0)


@others.task("python.async")
async def on_a_loop(job: Any, ctx: trax.AsyncContext) -> Any:
    await asyncio.sleep(0.01)
    ctx.progress(0.5)
    await ctx.sleep("nap", 0)
    return await ctx.step("number", lambda: asyncio.sleep(0.01, job["n"]))


asyncio.run(others.run(until_empty=True))
