from __future__ import annotations

import asyncio
import re
import threading
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import django
import psycopg
import pytest
import sqlalchemy
from conftest import ended
from django.conf import settings as django_settings
from django.db import connection as django_connection
from django.db import transaction
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import TracerProvider
from psycopg.rows import dict_row
from sqlalchemy.orm import Session

import trax
from trax.errors import Blame, blame


def cancel_on_its_own(url: str, job_id: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        trax.Client(connection).cancel(job_id)


def test_a_job_exists_when_the_transaction_commits(
    url: str, client: trax.Client, task: str
) -> None:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        inside = trax.Client(connection)
        gone = inside.enqueue(task)
        connection.rollback()
        kept = inside.enqueue(task, {"to": "ada"})
    assert client.job(gone) is None
    job = client.job(kept)
    assert job is not None
    assert (job.state, job.task, job.group_name) == ("queued", task, "default")


def test_every_option_arrives(client: trax.Client, db: psycopg.Connection[Any], task: str) -> None:
    db.execute("select trax.configure_rate('api', 5, '1 min')")
    job_id = client.enqueue(
        task,
        [1],
        run_at=datetime(2090, 1, 1, tzinfo=timezone.utc),
        group_name="g",
        priority=7,
        max_retries=2,
        timeout=timedelta(minutes=1),
        unique_key=task,
        concurrency_key="k",
        trace={"traceparent": "x"},
        retry_delay=3,
        unique_for=60,
        version="v1",
        rate="api",
        rate_key="r",
        cost=2,
    )
    assert client.enqueue(task, unique_key=task) == job_id
    row = db.execute(
        "select group_name, priority, max_retries, timeout, concurrency_key, trace, input, version,"
        " rate, rate_key, cost from trax.work_queue where job_id = %s",
        [job_id],
    ).fetchone()
    expected = ("g", 7, 2, timedelta(minutes=1), "k", {"traceparent": "x"}, [1], "v1")
    assert row == (*expected, "api", "r", 2)
    job = client.job(job_id)
    assert job is not None
    assert job.run_at == datetime(2090, 1, 1, tzinfo=timezone.utc)


def test_every_option_of_a_sql_job_arrives(
    client: trax.Client, db: psycopg.Connection[Any], task: str
) -> None:
    at = datetime(2090, 1, 1, tzinfo=timezone.utc)
    role = f"runs_{task[-12:]}"
    db.execute(f"create role {role} login")
    options: trax.SqlOptions = {
        "run_at": at,
        "group_name": "g",
        "priority": 7,
        "max_retries": 2,
        "timeout": timedelta(minutes=1),
        "unique_key": task,
        "concurrency_key": "k",
        "retry_delay": 3,
        "unique_for": 60,
        "run_as": role,
        "on_duplicate": "replace",
    }
    job_id = client.enqueue_sql("select 7", **options)
    assert client.enqueue_sql("select 8", **options) == job_id
    row = db.execute(
        "select task, group_name, priority, max_retries, timeout, unique_key, concurrency_key,"
        " run_at, input ->> 'command', input ->> 'run_as' from trax.work_queue where job_id = %s",
        [job_id],
    ).fetchone()
    wanted = ("sql", "g", 7, 2, timedelta(minutes=1), task, "k", at)
    assert row == (*wanted, "select 8", role)
    client.cancel(job_id)
    db.execute(f"drop role {role}")


def test_a_statement_is_run_by_the_server(client: trax.Client) -> None:
    assert ended(client, client.enqueue_sql("select 7")).output["result"] == [[7]]
    failed = ended(client, client.enqueue_sql("select 1 / 0", max_retries=0))
    assert failed.state == "failed"
    assert "division by zero" in (failed.error or "")


def test_the_first_of_many_jobs_is_awaited(
    url: str, client: trax.Client, db: psycopg.Connection[Any], task: str
) -> None:
    waiting = client.enqueue_many(task, [1, 2, 3])
    first, second, third = waiting
    assert client.await_jobs(waiting, 0.01) == {}
    later = threading.Timer(0.2, cancel_on_its_own, [url, second])
    later.start()
    cancelled = trax.JobResult("cancelled", None, None)
    assert client.await_jobs(waiting, timedelta(minutes=1)) == {second: cancelled}
    later.join()
    db.execute(
        "select trax.complete(job_id, token, '1.5') from trax.claim_next('w', tasks => array[%s])",
        [task],
    )
    completed = trax.JobResult("completed", Decimal("1.5"), None)
    unknown = trax.JobResult("unknown", None, None)
    assert trax.Client(db, decimals=True).await_jobs([*waiting, first, 2**50], 60) == {
        first: completed,
        second: cancelled,
        2**50: unknown,
    }
    client.cancel(third)


def test_a_waiting_job_is_replaced_postponed_and_changed(
    client: trax.Client, db: psycopg.Connection[Any], task: str
) -> None:
    later = datetime(2090, 1, 1, tzinfo=timezone.utc)
    job_id = client.enqueue(task, 1, unique_key=task)
    assert client.enqueue(task, 2, unique_key=task, on_duplicate="replace") == job_id
    assert client.enqueue(task, 3, unique_key=task, run_at=later, on_duplicate="postpone") == job_id
    sql = "select input, run_at, priority from trax.work_queue where job_id = %s"
    assert db.execute(sql, [job_id]).fetchone() == (3, later, 0)
    assert client.change_job(job_id, input=None, priority=5, timeout=9) == "changed"
    assert db.execute(sql, [job_id]).fetchone() == (None, later, 5)
    assert client.change_job(4711, priority=5) == "unknown"
    with pytest.raises(trax.InvalidArgumentError):
        client.change_job(job_id)
    with pytest.raises(TypeError, match="priority"):
        client.change_job(job_id, prioritiy=5)  # type: ignore[call-arg]


def test_many_jobs_have_ids_in_the_order_of_their_inputs(client: trax.Client, task: str) -> None:
    ids = client.enqueue_many(task, ({"n": n} for n in range(20)), priority=1)
    assert ids == sorted(ids)
    assert len(set(ids)) == 20


def test_a_unique_key_of_several_inputs_is_refused(client: trax.Client, task: str) -> None:
    with pytest.raises(trax.InvalidArgumentError, match="unique_key"):
        client.enqueue_many(task, [1, 2], unique_key=task)
    assert client.enqueue_many(task, [1], unique_key=task) == [
        client.enqueue(task, unique_key=task)
    ]


def test_none_is_the_input_null(client: trax.Client, task: str) -> None:
    first, second = client.enqueue(task, None), client.enqueue(task)
    third, _ = client.enqueue_many(task, [None, {}])
    rows = client._connection.execute(
        "select input::text from trax.work_queue where job_id = any (%s) order by job_id",
        [[first, second, third]],
    ).fetchall()
    assert rows == [("null",), ("{}",), ("null",)]


def test_an_error_of_the_server_has_its_class_detail_and_hint(
    client: trax.Client, task: str
) -> None:
    with pytest.raises(trax.InvalidArgumentError) as error:
        client.enqueue(task, rate_key="a")
    assert error.value.sqlstate == "22023"
    assert error.value.detail
    assert error.value.hint
    assert f"HINT: {error.value.hint}" in str(error.value)
    assert isinstance(error.value.__cause__, psycopg.Error)
    with pytest.raises(trax.TooLargeError):
        client.enqueue(task, "x" * 2_000_000)
    with pytest.raises(trax.UnknownNameError):
        client.await_job(2**50, 1)


@pytest.mark.parametrize(
    ("before", "code", "hint"),
    [
        ("set transaction read only", "25006", "begin read write"),
        ("select", "25P02", "connection.rollback()"),
    ],
)
def test_a_transaction_that_takes_no_call_says_what_to_do(
    url: str, task: str, before: str, code: str, hint: str
) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(before)
        if code == "25P02":
            with pytest.raises(psycopg.Error):
                connection.execute("select 1 / 0")
        with pytest.raises(trax.WrongStateError) as refused:
            trax.Client(connection).enqueue(task)
        assert refused.value.sqlstate == code
        assert hint in str(refused.value.hint)
        cause = refused.value.__cause__
        assert isinstance(cause, psycopg.Error)
        assert blame(cause) is (Blame.CONNECTION if code == "25006" else Blame.CALL)


def test_wrong_use_is_refused(url: str, client: trax.Client, task: str) -> None:
    with psycopg.connect(url) as connection:
        inside = trax.Client(connection)
        with pytest.raises(trax.UsageError, match="autocommit=True"):
            inside.await_job(1, 1)
        with pytest.raises(trax.UsageError, match=r"await_jobs waits .* autocommit=True"):
            inside.await_jobs([1], 1)
        with pytest.raises(trax.UsageError, match='no option "colour"'):
            inside.enqueue(task, colour="red")  # type: ignore[call-arg]
        with pytest.raises(trax.UsageError, match="no time zone"):
            inside.enqueue(task, run_at=datetime(2090, 1, 1))  # noqa: DTZ001, RUF100
    with client._connection.transaction(), pytest.raises(trax.WrongStateError) as refused:
        client.await_jobs([1], 1)
    assert "Commit first, then type: await_jobs([7, 8], timed" in str(refused.value)
    with pytest.raises(trax.TooLargeError):
        client.await_jobs(range(65_537), 1)
    with psycopg.connect(url) as closed:
        pass
    with pytest.raises(trax.DisconnectedError):
        trax.Client(closed).enqueue(task)


def test_a_connection_of_another_kind_is_refused_with_the_right_one(url: str) -> None:
    def of(module: str) -> Any:
        return type("AnyConnection", (), {"__module__": module})()

    asynchronous: Any = asyncio.run(psycopg.AsyncConnection.connect(url))
    with psycopg.connect(url) as synchronous:
        for kind, connection, said in [
            (
                trax.Client,
                object(),
                "of SQLAlchemy's connection take .connection.driver_connection",
            ),
            (trax.Client, None, "inside transaction.atomic(), or after connection.ensure_conne"),
            (trax.Client, of("psycopg2.extensions"), 'psycopg 3 is needed; type pip install "psyc'),
            (trax.Client, "postgresql://", 'write psycopg.connect("postgresql://...")'),
            (trax.AsyncClient, "a=b", 'write await psycopg.AsyncConnection.connect("postgre'),
            (trax.Client, of("psycopg_pool.pool"), "write with pool.connection() as connection"),
            (trax.AsyncClient, of("psycopg_pool.pool_async"), "write async with pool.connection("),
            (trax.AsyncClient, of("sqlalchemy.ext.asyncio.engine"), "(await conn.get_raw_conne"),
            (trax.Client, asynchronous, "use trax.AsyncClient for it"),
            (trax.AsyncClient, synchronous, "use trax.Client for it"),
        ]:
            with pytest.raises(trax.UsageError, match=re.escape(said)) as refused:
                kind(connection)
            assert isinstance(refused.value, TypeError)
    asyncio.run(asynchronous.close())


def test_an_argument_is_refused_by_its_own_name(client: trax.Client) -> None:
    calls: list[tuple[Any, str]] = [
        (lambda any: client.seal_batch(any), "batch is a text; write batch=17"),
        (lambda any: client.complete(any), "context is a text; write complete(ctx, output) with"),
        (lambda any: client.record_step(any, "a"), "context is a text; write record_step(ctx, "),
    ]
    for call, said in calls:
        with pytest.raises(TypeError, match=re.escape(said)):
            call("12")


def test_a_waiting_job_is_cancelled(client: trax.Client, task: str) -> None:
    job_id = client.enqueue(task)
    assert client.cancel(job_id) == "cancelled"
    assert ended(client, job_id) == trax.JobResult("cancelled", None, None)
    assert client.cancel(job_id) == "finished"
    assert client.cancel(2**50) == "unknown"


def test_the_async_client_does_the_same(url: str, task: str) -> None:
    async def everything() -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            client = trax.AsyncClient(connection)
            first, *_ = await client.enqueue_many(task, [1, 2])
            job = await client.job(first)
            assert job is not None
            assert job.state == "queued"
            async with connection.transaction(force_rollback=True):
                gone = await client.enqueue(task, {"a": 1})
            assert await client.job(gone) is None
            assert (await client.await_job(first, 0.01)).state == "queued"
            assert await client.cancel(first) == "cancelled"
            sql = await client.enqueue_sql("select 7")
            [(job_id, result)] = (await client.await_jobs([sql], 60)).items()
            assert (job_id, result.output["result"]) == (sql, [[7]])
            with pytest.raises(trax.InvalidArgumentError):
                await client.enqueue(task, rate_key="a")
        async with await psycopg.AsyncConnection.connect(url) as connection:
            with pytest.raises(trax.UsageError, match="await_jobs waits outside"):
                await trax.AsyncClient(connection).await_jobs([sql], 1)

    asyncio.run(everything())


def driver_connection(connection: sqlalchemy.Connection) -> Any:
    return connection.connection.driver_connection


def test_it_takes_part_in_a_transaction_of_sqlalchemy(
    url: str, client: trax.Client, task: str
) -> None:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with pytest.raises(ZeroDivisionError), engine.begin() as connection:  # noqa: PT012
        gone = trax.Client(driver_connection(connection)).enqueue(task)
        raise ZeroDivisionError
    with Session(engine) as session, session.begin():
        kept = trax.Client(driver_connection(session.connection())).enqueue(task)
        assert client.job(kept) is None
    engine.dispose()
    assert client.job(gone) is None
    assert client.job(kept) is not None


def test_it_takes_part_in_a_transaction_of_django(url: str, client: trax.Client, task: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(url)
    where = {"HOST": name["host"], "PORT": name["port"], "USER": name["user"]}
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": name["dbname"], **where}
    django_settings.configure(DATABASES={"default": database}, USE_TZ=True)
    django.setup()
    with transaction.atomic():
        kept = trax.Client(django_connection.connection).enqueue(task, {"to": "ada"})
        with pytest.raises(ZeroDivisionError), transaction.atomic():  # noqa: PT012
            gone = trax.Client(django_connection.connection).enqueue(task)
            raise ZeroDivisionError
        job = trax.Client(django_connection.connection).job(kept)
        assert job is not None
        assert client.job(kept) is None
    django_connection.close()
    assert client.job(gone) is None
    assert client.job(kept) is not None


def test_the_span_of_the_producer_travels_with_the_job(
    client: trax.Client, db: psycopg.Connection[Any], task: str
) -> None:
    otel.set_tracer_provider(TracerProvider())
    with otel.get_tracer("test").start_as_current_span("request") as span:
        job_id = client.enqueue(task)
        wanted = f"00-{span.get_span_context().trace_id:032x}-"
    sql = "select trace ->> 'traceparent' from trax.work_queue where job_id = %s"
    row = db.execute(sql, [job_id]).fetchone()
    assert row is not None
    assert row[0].startswith(wanted)
