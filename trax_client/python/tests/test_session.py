"""Settings of a session that change what is read: its encoding and the digits of its numbers."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import psycopg
import pytest
from conftest import Fleet, ended, eventually

import trax

TEXT = "漢 é"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PGCLIENTENCODING", "LATIN1"),
        ("PGCLIENTENCODING", "SQL_ASCII"),
        ("PGOPTIONS", "-c client_encoding=LATIN1"),
        ("PGOPTIONS", "-c extra_float_digits=-15"),
        ("", "client_encoding=LATIN1"),
    ],
    ids=lambda value: str(value).rpartition("=")[2],
)
def test_a_worker_reads_and_writes_every_job_in_any_session(
    fleet: Fleet, client: trax.Client, monkeypatch: Any, name: str, value: str
) -> None:
    seen: list[datetime] = []

    def handler(job: str, ctx: trax.Context) -> str:
        seen.append(ctx.queued_at)
        return job

    if name:
        monkeypatch.setenv(name, value)
    else:
        fleet.url = f"{fleet.url}?{value}"
    job_id = client.enqueue(fleet.task, TEXT)
    fleet.start(handler)
    assert ended(client, job_id).output == TEXT
    job = client.job(job_id)
    assert job is not None
    assert seen == [job.queued_at]


def test_the_encoding_of_a_database_is_not_that_of_a_worker(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any]
) -> None:
    db.execute(f'alter database "{db.info.dbname}" set client_encoding = "LATIN1"')
    try:
        job_id = client.enqueue(fleet.task, TEXT)
        fleet.start(lambda job: job)
        assert ended(client, job_id).output == TEXT
    finally:
        db.execute(f'alter database "{db.info.dbname}" reset client_encoding')


@pytest.fixture(params=["sync", "async"])
def calls(request: pytest.FixtureRequest) -> Any:
    """Return a function that makes a call of a client over a connection with these parameters."""

    def make(url: str, encoding: str, name: str, *args: Any, **options: Any) -> Any:
        settings: dict[str, Any] = {
            "client_encoding": encoding,
            "options": "-c extra_float_digits=-15",
        }

        async def on_a_loop() -> Any:
            async with await psycopg.AsyncConnection.connect(
                url, autocommit=True, **settings
            ) as connection:
                return await getattr(trax.AsyncClient(connection), name)(*args, **options)

        if request.param == "async":
            return asyncio.run(on_a_loop())
        with psycopg.connect(url, autocommit=True, **settings) as connection:
            return getattr(trax.Client(connection), name)(*args, **options)

    return make


@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII"])
def test_a_client_reads_texts_and_times_in_the_session_of_the_caller(
    calls: Any, client: trax.Client, url: str, task: str, encoding: str
) -> None:
    job_id = calls(url, encoding, "enqueue", task, TEXT, max_retries=0)
    fleet = Fleet("sync", url, task)
    fleet.start(lambda job: {"text": job, "part": 1.25})
    try:
        assert ended(client, job_id).state == "completed"
    finally:
        fleet.stop()
    assert calls(url, encoding, "job", job_id) == client.job(job_id)
    result = calls(url, encoding, "await_job", job_id, 1)
    assert result == trax.JobResult("completed", {"text": TEXT, "part": 1.25}, None)
    eventually(lambda: calls(url, encoding, "read_steps", job_id) == [])


def test_a_text_that_the_encoding_of_the_caller_lacks_says_what_to_write(
    calls: Any, client: trax.Client, url: str, task: str
) -> None:
    hint = r'Write client_encoding="UTF8" in psycopg\.connect\(\)'
    job_id = client.enqueue(f"{task} {TEXT}")
    with pytest.raises(trax.InvalidArgumentError, match=hint):
        calls(url, "LATIN1", "job", job_id)
    with pytest.raises(trax.InvalidArgumentError, match=hint):
        calls(url, "LATIN1", "enqueue", f"{task} {TEXT}")
    client.cancel(job_id)
