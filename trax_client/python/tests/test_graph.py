from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import eventually

import trax


def complete(db: psycopg.Connection[Any], task: str, output: str = "null") -> None:
    db.execute(
        "select trax.complete(job_id, token, %s::jsonb)"
        " from trax.claim_next(worker => 'w', tasks => array[%s])",
        [output, task],
    )


def test_a_graph_runs_in_the_order_of_its_needs(
    client: trax.Client, db: psycopg.Connection[Any], task: str
) -> None:
    graph = trax.Graph(unique_key=task)
    load = graph.add("load", task, {"n": 1}, timeout=timedelta(minutes=1), trace={"t": "x"})
    graph.add("sum", task + ".sum", needs=[load])
    graph.add("alarm", task + ".alarm", needs=[load], when="failed")
    ids = client.enqueue_graph(graph)
    assert list(ids) == ["load", "sum", "alarm"]
    assert client.enqueue_graph(graph) == ids, "the unique key is alive"
    row = db.execute(
        "select input, timeout, trace from trax.work_queue where job_id = %s", [ids["load"]]
    ).fetchone()
    assert row == ({"n": 1}, timedelta(minutes=1), {"t": "x"})
    complete(db, task, '{"rows": 7}')
    eventually(lambda: client.read_graph(ids["sum"])[1].waits_for is None)
    assert client.read_needs(ids["sum"]) == [
        trax.Need("load", ids["load"], "completed", {"rows": 7}, None)
    ]
    states = [(job.name, job.state, job.needs) for job in client.read_graph(ids["load"])]
    assert states == [
        ("load", "completed", []),
        ("sum", "queued", ["load"]),
        ("alarm", "cancelled", ["load"]),
    ]


def test_a_batch_waits_for_its_jobs(
    client: trax.Client, db: psycopg.Connection[Any], task: str
) -> None:
    batch = client.open_batch(task + ".report")
    job = client.enqueue(task, batch=batch)
    assert client.seal_batch(batch) == 1
    complete(db, task)
    eventually(lambda: client.read_graph(batch)[0].waits_for is None)
    assert [need.job_id for need in client.read_needs(batch)] == [job]
    with pytest.raises(trax.WrongStateError, match="is sealed"):
        client.enqueue(task, batch=batch)


def test_the_async_client_does_the_same(url: str, task: str) -> None:
    async def everything() -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            client = trax.AsyncClient(connection)
            graph = trax.Graph(on_failure="wait")
            graph.add_sql("one", "select 1")
            ids = await client.enqueue_graph(graph)
            assert (await client.read_graph(ids["one"]))[0].task == "sql"
            batch = await client.open_batch(task)
            assert await client.seal_batch(batch) == 0
            assert await client.read_needs(batch) == []

    asyncio.run(everything())


def test_the_examples_of_the_readme_queue_their_jobs(url: str) -> None:
    readme = Path(__file__).parents[1] / "README.md"
    _, *codes, _ = re.findall(
        r"^```python\n(.*?)^```", readme.read_text(), re.MULTILINE | re.DOTALL
    )
    environment = {"DATABASE_URL": url, "PYTHONPATH": str(readme.parent / "src")}
    jobs = [("load", []), ("count", ["load"]), ("alarm", ["load"])]
    for code, said in zip(codes, [f"{jobs}\n2 changed\n", "completed\ncompleted\n"], strict=True):
        command = [sys.executable, "-c", code]
        assert subprocess.check_output(command, env=environment, text=True) == said


def test_wrong_use_is_refused(client: trax.Client, task: str) -> None:
    graph = trax.Graph()
    node = graph.add("a", task)
    with pytest.raises(trax.UsageError, match=r"write what graph\.add returned"):
        graph.add("b", task, needs=["a"])  # type: ignore[list-item]
    with pytest.raises(trax.UsageError, match='no option "neds"; did you mean "needs"'):
        graph.add("b", task, neds=[node])  # type: ignore[call-arg]
    with pytest.raises(trax.UsageError, match="the options are needs, when, run_as, run_at, "):
        graph.add_sql("b", "select 1", colour="red")  # type: ignore[call-arg]
    with pytest.raises(trax.UsageError, match="write one of: completed, ended, failed"):
        graph.add("b", task, needs=[node], when="never")  # type: ignore[arg-type]
    with pytest.raises(trax.UsageError, match=r"write trax\.Graph"):
        client.enqueue_graph({"jobs": []})  # type: ignore[arg-type]
    graph.add("a", task)
    with pytest.raises(trax.InvalidArgumentError, match="appears twice"):
        client.enqueue_graph(graph)
