"""The start of a worker: logins that are refused, and what it logs."""

from __future__ import annotations

import logging
import os
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from conftest import Fleet, ended, eventually

import trax
from trax import engine
from trax.connection import Link
from trax.errors import login_refusal


def worker_at(url: str, **changes: Any) -> trax.Worker:
    worker = trax.Worker(psycopg.conninfo.make_conninfo(url, **changes))

    @worker.task("nobody.enqueues.this")
    def handler(job: Any) -> None: ...

    return worker


@pytest.mark.parametrize("until_empty", [True, False])
def test_a_refused_login_ends_the_run_with_what_to_correct(url: str, until_empty: bool) -> None:
    for changes, code, hint in [
        ({"dbname": "no_such_database"}, "3D000", "Correct the name of the database"),
        ({"user": "no_such_role"}, "28000", "Correct user and password"),
        ({"sslmode": "require"}, None, "Write sslmode=prefer, or set ssl = on"),
    ]:
        with pytest.raises(trax.ServerError) as refused:
            worker_at(url, **changes).run(until_empty=until_empty)
        assert refused.value.sqlstate == code
        assert hint in str(refused.value)


@pytest.mark.parametrize("change", [{"port": "abc"}, {"sslmode": "bogus"}], ids=["port", "ssl"])
def test_a_wrong_option_of_the_address_ends_the_run(url: str, change: dict[str, str]) -> None:
    with pytest.raises(trax.UsageError, match="the address of the database is invalid: "):
        worker_at(url, **change).run(until_empty=True)


@pytest.mark.parametrize(
    "options",
    ["-c nonsense=1", "-c foo", "foo", "-c work_mem=1", "-c port=3", "-c statement_timeout=abc"],
)
@pytest.mark.parametrize("until_empty", [True, False])
def test_wrong_options_of_the_session_end_the_run(
    url: str, monkeypatch: Any, options: str, until_empty: bool
) -> None:
    monkeypatch.setenv("PGOPTIONS", options)
    with pytest.raises(trax.UsageError, match="correct the option, in the address or in PGOPTIONS"):
        worker_at(url).run(until_empty=until_empty)


def test_a_database_that_lets_nobody_in_ends_the_run() -> None:
    for message, code, hint in [
        ('FATAL:  permission denied for database "a"', "42501", "grant connect on database"),
        ('FATAL:  database "a" is not currently accepting connections', "55000", "alter database"),
    ]:
        refused = login_refusal(psycopg.OperationalError(message), "localhost")
        assert isinstance(refused, trax.ServerError)
        assert refused.sqlstate == code
        assert hint in str(refused)


def test_a_long_lease_is_kept(client: trax.Client, url: str, task: str) -> None:
    job_id = client.enqueue(task)
    worker = trax.Worker(url, lease=timedelta(days=90))
    worker.task(task)(lambda job: time.sleep(0.5))
    worker.run(until_empty=True)
    assert ended(client, job_id).state == "completed"


def test_a_wrong_password_is_a_refusal_unless_another_host_may_take_it() -> None:
    error = psycopg.OperationalError('FATAL:  password authentication failed for user "ada"')
    refused = login_refusal(error, "localhost")
    assert isinstance(refused, trax.ServerError)
    assert refused.sqlstate == "28P01"
    assert login_refusal(error, "a,b") is None
    for passing in ("FATAL:  the database system is starting up", "Connection refused"):
        assert login_refusal(psycopg.OperationalError(passing), "localhost") is None


def test_a_login_that_is_refused_later_is_tried_again(
    fleet: Fleet, client: trax.Client, db: psycopg.Connection[Any], monkeypatch: Any
) -> None:
    def handler(job: Any) -> str:
        return "done"

    fleet.start(handler)
    assert ended(client, client.enqueue(fleet.task)).output == "done"
    refusals, begin = [1, 2], Link.__init__

    def refused(self: Link, *args: Any) -> None:
        if refusals:
            refusals.pop()
            raise psycopg.OperationalError('FATAL:  role "x" does not exist')
        begin(self, *args)

    monkeypatch.setattr(Link, "__init__", refused)
    db.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s",
        [fleet.sessions],
    )
    assert ended(client, client.enqueue(fleet.task)).output == "done"
    assert not refusals


def test_a_lasting_failure_is_logged_again_after_growing_pauses(
    caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    caplog.set_level(logging.DEBUG, "trax")
    state: Any = SimpleNamespace(_complaint="", _complain_at=0.0, _complain_pause=0.0)
    for second in range(1, 301):
        monkeypatch.setattr(engine, "now", lambda second=second: float(second))
        error = psycopg.OperationalError(f"connection refused {second}")
        engine.Engine._complain(state, "again in %.1f s: %s", 0.5, error)
    assert len(caplog.records) == 300
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    said = [int(one.rpartition(" ")[2]) for one in warnings]
    assert said == [1, 6, 16, 36, 76, 136, 196, 256]


@pytest.mark.parametrize(
    ("address", "host", "adds"),
    [("host=127.0.0.1 port=1", None, False), (None, "127.0.0.1", False), (None, None, True)],
)
def test_an_unreachable_server_is_complained_about(
    fleet: Any, caplog: Any, monkeypatch: Any, address: str | None, host: str | None, adds: bool
) -> None:
    monkeypatch.setattr(engine, "COMPLAIN_PAUSE", 0.05)
    for name in ("DATABASE_URL", "PGHOST", "PGHOSTADDR", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PGPORT", "1")
    if host:
        monkeypatch.setenv("PGHOST", host)
    fleet.url = address
    caplog.set_level(logging.WARNING, "trax")
    fleet.start(lambda _: None)
    eventually(lambda: caplog.text.count("the database cannot be reached, again in") >= 3)
    assert ("; DATABASE_URL is not set" in caplog.text) is adds


def test_a_start_is_one_line(
    fleet: Fleet, db: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trax")
    worker = fleet.start(lambda _: None, concurrency=3)
    said = (
        f'worker "{worker.name}" runs 3 jobs at once in database "{db.info.dbname}", of the tasks '
        f"{fleet.task}"
    )
    eventually(lambda: said in caplog.text)
    fleet.stop()
    assert caplog.text.count(said) == 1


def test_a_task_without_a_handler_is_named_at_the_start(
    fleet: Fleet, client: trax.Client, caplog: pytest.LogCaptureFixture
) -> None:
    group = f"group {os.getpid()} {fleet.kind}"
    others = [f"{fleet.task}.{n:02}\x1b" for n in range(12)]
    jobs = [client.enqueue(task, group_name=group) for task in [*others, fleet.task]]
    fleet.start(lambda _: None, groups=[group])
    shown = ", ".join(one.replace("\x1b", "\N{MIDDLE DOT}") for one in others[:10])
    said = f"jobs are waiting for which this worker has no handler: {shown} and 2 more"
    try:
        eventually(lambda: said in caplog.text)
    finally:
        for job_id in jobs:
            client.cancel(job_id)
