"""The hints of the server in Python."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import trax
from trax.hint import in_python

REWRITTEN = [
    ("Specify a new value: priority => 10", "Specify a new value: priority=10"),
    ("rate => 'mail api', cost => 2", 'rate="mail api", cost=2'),
    ("with: task => ..., close_rate => true", "with: task=..., close_rate=True"),
    ("sql => 'select ''a''', x => null", "sql=\"select 'a'\", x=None"),
    ("depends_on => array['a', '...'].", 'depends_on=["a", "..."].'),
    ("every => interval '5 min'.", "every=timedelta(minutes=5)."),
    ("unique_for => '1 hour', retry_in => '30 s'", "unique_for=timedelta(hours=1), retry_in=timed"),
    ("run_at => now(), x", "run_at=datetime.now(timezone.utc), x"),
    ("at => now() + interval '3 days'", "at=datetime.now(timezone.utc) + timedelta(days=3)"),
    ('undo => \'{"task": "a", "input": [7]}\'', 'undo={"task": "a", "input": [7]}'),
    ("trax.enqueue(task, input, unique_key => ...)", "enqueue(task, input, unique_key=...)"),
    ("end it: select trax.cancel(7); or", "end it: cancel(7); or"),
    ("select trax.fork(7, from_step => 's')", 'fork(7, from_step="s")'),
    ("select trax.enqueue(task, run_at => now())", "enqueue(task, run_at=datetime.now("),
    ("select trax.enqueue_sql('...'); or give it a name", 'enqueue_sql("..."); or give it a name'),
    ("select trax.spawn(job_id, token, step, a, batch => 3)", "ctx.spawn(step, a, batch=3)"),
    ("call trax.await_job(7, '1 min', null, null, null)", "await_job(7, timedelta(minutes=1))"),
    ("call trax.await_jobs(array[7, 8], '1 min', null)", "await_jobs([7, 8], timedelta(minutes=1"),
]
KEPT = [
    "every => interval '1 mon 2 days'",
    "run_at => now() + interval '1 mon'",
    "Specify 'keep'.",
    'run_as => "Ada"',
    "select trax.requeue_dead_letter(id, fresh => true)",
    "select trax.schedule(name, group_name => ...)",
    "select step, kind from trax.read_steps(7)",
    "select trax.enqueue(task, input) from ...",
    "the id that trax.enqueue returned",
    "alter system set trax.databases = '...'; select pg_reload_conf();",
]


@pytest.mark.parametrize(("sql", "python"), [*REWRITTEN, *((one, one) for one in KEPT)])
def test_a_hint_is_written_in_python_if_it_is_understood(sql: str, python: str) -> None:
    assert in_python(sql).startswith(python)
    assert (in_python(sql) == sql) is (sql in KEPT)


def test_a_refused_call_says_what_to_write(db: psycopg.Connection[Any], task: str) -> None:
    client = trax.Client(db)
    job_id = client.enqueue(task)
    calls: list[tuple[Any, str]] = [
        (lambda: client.enqueue_many(task, [1, 2], unique_key="a"), "enqueue(task, input, unique_"),
        (lambda: client.enqueue(task, rate_key="a"), 'rate="mail api", rate_key="customer 7"'),
        (lambda: client.change_job(job_id), "priority=10"),
        (lambda: client.enqueue("sql"), 'enqueue_sql("...")'),
        (lambda: trax.Graph().add("a", "b", when="failed"), "write needs=[load] too"),
        (lambda: client.enqueue_graph(trax.Graph()), 'write graph.add("load", "etl.load")'),
    ]
    for call, said in calls:
        with pytest.raises(trax.TraxError) as refused:
            call()
        assert said in str(refused.value)
        assert "=>" not in str(refused.value)
    client.cancel(job_id)
