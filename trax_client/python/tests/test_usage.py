from __future__ import annotations

import os
import re
from typing import Any

import psycopg
import pytest
from conftest import Fleet, ended, eventually

import trax
from trax import engine, sql
from trax.connection import Link
from trax.level import advice


def test_wrong_handlers_are_refused_where_they_are_written() -> None:
    worker, other = trax.Worker(""), trax.AsyncWorker("")

    def plain(job: Any) -> None: ...

    async def coroutine(job: Any) -> None: ...

    def two(a: int, b: int) -> None: ...

    def star(*jobs: Any) -> None: ...

    def wrong(job: set[int]) -> None: ...

    worker.task("a")(plain)
    for task, function, said in [
        ("a", plain, 'task "a" has two handlers'),
        ("b", coroutine, "use trax.AsyncWorker"),
        ("b", two, "more parameters than an input and a context"),
        ("b", star, "takes *jobs"),
        ("b", wrong, 'parameter "job"'),
    ]:
        assert callable(function)
        with pytest.raises(trax.UsageError, match=said.replace("*", r"\*")):
            worker.task(task)(function)
    with pytest.raises(trax.UsageError, match=r"use trax\.Worker"):
        other.task("a")(plain)
    with pytest.raises(trax.UsageError, match="takes the name of a task"):
        worker.task(plain)  # type: ignore[arg-type]


def test_a_handler_is_refused_while_the_worker_runs(fleet: Fleet, client: trax.Client) -> None:
    worker: Any = fleet.start(lambda _: "done")
    assert ended(client, client.enqueue(fleet.task)).output == "done"
    for add in (worker.task("late"), worker.task_many("late", max_jobs=1)):
        with pytest.raises(trax.UsageError, match='already; give task "late" its handler before'):
            add(print_job)


def test_a_stop_before_the_run_ends_it_at_once() -> None:
    worker = worker_at("host=127.0.0.1 port=1")
    worker.stop()
    worker.run()


def test_a_decorated_function_stays_as_it_is() -> None:
    @trax.Worker("").task("a")
    def add(job: int) -> int:
        return job + 1

    assert add(1) == 2


def test_wrong_settings_and_addresses_are_refused() -> None:
    with pytest.raises(trax.UsageError, match="no handler"):
        trax.Worker("").run()
    with pytest.raises(trax.UsageError, match="1 or more"):
        trax.Worker("", concurrency=0)
    with pytest.raises(trax.UsageError, match="1 s or more"):
        trax.Worker("", lease=0.1)
    with pytest.raises(trax.UsageError, match=r'leave out "\+psycopg"'):
        trax.Worker("postgresql+psycopg://user@host/database")
    for url in ("user@host/database?connect_timout=3", "host/database?connect_timout=3"):
        with pytest.raises(trax.UsageError, match='invalid URI query parameter: "connect_timout"'):
            trax.Worker(f"postgresql://{url}")
    for port in ("abc", "0", "70000"):
        with pytest.raises(trax.UsageError, match="port is no number from 1 to 65535; write postg"):
            trax.Worker(f"postgresql://user@host:{port}/database")
    for secret in ("se/cret", "se/a?cret=1", "%cret"):
        with pytest.raises(trax.UsageError) as refused:
            trax.Worker(f"postgresql://user:{secret}@host/database")
        assert "cret" not in str(refused.value)
        assert refused.value.__cause__ is None


def test_without_an_address_it_is_that_of_the_environment(monkeypatch: Any) -> None:
    monkeypatch.setenv("DATABASE_URL", "nonsense")
    with pytest.raises(trax.UsageError):
        trax.Worker()


def worker_at(url: str) -> trax.Worker:
    worker = trax.Worker(url)
    worker.task("nobody.enqueues.this")(print_job)
    return worker


def print_job(job: Any) -> None: ...


def test_a_database_without_the_extension_says_what_to_type(url: str) -> None:
    plain = psycopg.conninfo.make_conninfo(url, dbname="postgres")
    with pytest.raises(trax.NotInstalledError) as missing:
        worker_at(plain).run(until_empty=True)
    assert "create extension trax;" in str(missing.value)
    with psycopg.connect(plain) as connection, pytest.raises(trax.NotInstalledError) as missing:
        trax.Client(connection).enqueue("a")
    assert "create extension trax;" in str(missing.value)


def test_an_older_extension_is_refused_with_what_to_type(url: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(engine, "OLDEST_EXTENSION", (0, 99))
    with pytest.raises(trax.VersionError) as older:
        worker_at(url).run(until_empty=True)
    assert "needs 0.99 or newer; type: alter extension trax update" in str(older.value)


def test_a_worker_with_older_sql_waits_for_the_update_and_goes_on(
    db: psycopg.Connection[Any], url: str, task: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"older_{os.getpid()}"
    db.execute(f"create database {name}")
    older = psycopg.conninfo.make_conninfo(url, dbname=name)
    fleet = Fleet("sync", older, task)
    try:
        with psycopg.connect(older, autocommit=True) as connection:
            connection.execute("create extension trax version '0.1.0'")
            client = trax.Client(connection)
            with pytest.raises(trax.ServerError) as refused:
                client.enqueue(task)
            assert "Type: alter extension trax update" in str(refused.value)
            fleet.start(lambda _: "done")
            words = "0.1.0; if that is older, type: alter extension trax update"
            eventually(lambda: words in caplog.text)
            connection.execute("alter extension trax update")
            assert ended(client, client.enqueue(task)).output == "done"
    finally:
        fleet.stop()
        db.execute(f"drop database {name} with (force)")


def test_a_refusal_from_just_before_an_update_is_not_the_end(
    url: str, client: trax.Client, task: str, fleet: Fleet, monkeypatch: Any
) -> None:
    call, refusals = Link.call, ["function trax.claim_next does not exist"]

    def refused_once(self: Link, statement: str, *rest: Any) -> list[tuple[Any, ...]]:
        if statement == sql.CLAIM and refusals:
            raise psycopg.errors.UndefinedFunction(refusals.pop())
        return call(self, statement, *rest)

    monkeypatch.setattr(Link, "call", refused_once)
    fleet.start(lambda _: "done")
    assert ended(client, client.enqueue(task)).output == "done"
    assert not refusals
    fleet.stop()
    refusals += ["no such function"] * 2
    with pytest.raises(trax.ServerError, match="no such function"):
        worker_at(url).run(until_empty=True)


def test_a_newer_extension_does(url: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(engine, "OLDEST_EXTENSION", (-1, 0))
    worker_at(url).run(until_empty=True)


def test_a_role_without_the_right_is_refused(url: str, db: psycopg.Connection[Any]) -> None:
    role = f"nobody_{os.getpid()}"
    db.execute(f"create role {role} login")
    said = "type: select trax.grant_access('ROLE', '{}'); this replaces another level"
    without = psycopg.conninfo.make_conninfo(url, user=role)
    with pytest.raises(trax.NotPermittedError) as refused:
        worker_at(without).run(until_empty=True)
    assert said.format("worker") in str(refused.value)
    with psycopg.connect(without, autocommit=True) as connection:
        client = trax.Client(connection)
        calls: list[tuple[str, Any]] = [("reader", client.job), ("producer", client.cancel)]
        for level, call in calls:
            with pytest.raises(trax.NotPermittedError) as refused:
                call(1)
            assert said.format(level) in str(refused.value)


def test_the_advice_names_a_level_that_may_call_the_function(db: psycopg.Connection[Any]) -> None:
    statements = {one for one in vars(sql).values() if isinstance(one, str) and "(" in one}
    for statement in statements:
        if function := re.search(r"trax\.(\w+)\(", statement):
            [_, level, _] = re.split(r"'ROLE', '(\w+)'", advice(statement))
            row = db.execute("select %s = any(trax.functions_of(%s))", [function[1], level])
            assert row.fetchone() == (True,), (statement, level)
