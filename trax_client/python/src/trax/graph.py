"""Graphs: jobs that are queued together, of which some need others."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NoReturn

from . import argument, typed
from .clock import time_of
from .errors import WrongTypeError, WrongValueError
from .options import EMPTY, JobOptions, SqlOptions, checked_options, checked_sql_options, input_text

if sys.version_info >= (3, 11):
    from typing import Unpack
else:  # a dependency of psycopg
    from typing_extensions import Unpack

When = Literal["completed", "ended", "failed"]
"""How the jobs must end that another needs."""
_WHENS = ("completed", "ended", "failed")
_OF_GRAPH = ("needs", "when")
"""The options of a job in a graph beside its own."""


@dataclass(frozen=True)
class Node:
    """A job that was added to a graph."""

    name: str


@dataclass(frozen=True)
class Need:
    """A job that another one of its graph needed; `name` is None in a batch."""

    name: str | None
    job_id: int
    state: str | None
    output: Any
    error: str | None


@dataclass(frozen=True)
class Member:
    """A job of a graph; `condition` says how the jobs must end that it needs."""

    name: str | None
    job_id: int
    task: str | None
    state: str | None
    needs: list[str]
    condition: str | None
    waits_for: str | None
    attempt: int | None
    started_at: datetime | None
    finished_at: datetime | None
    error: str | None


@argument.listed
class Graph:
    """Jobs that `Client.enqueue_graph` queues together, all or none.

    A job needs only jobs that were added before it, so no name is missing and no graph a circle::

        night = trax.Graph(unique_key="night")
        load = night.add("load", "etl.load", {"table": "orders"})
        night.add_sql("sum", "call rollup()", needs=[load])
        client.enqueue_graph(night)
    """

    def __init__(
        self, *, unique_key: str | None = None, on_failure: Literal["cancel", "wait"] = "cancel"
    ) -> None:
        """Begin a graph.

        While a job of a graph with this unique key waits or runs, that graph is returned. With
        `on_failure="wait"`, jobs wait while the dead letter of one that they need does.
        """
        self.unique_key = (
            None if unique_key is None else argument.key("unique_key", unique_key, "night")
        )
        self._on_failure = argument.one_of("on_failure", on_failure, ("cancel", "wait"))
        self._jobs: list[str] = []

    def add(
        self,
        name: str,
        task: str,
        input: Any = EMPTY,
        *unnamed: NoReturn,
        needs: Iterable[Node] = (),
        when: When | None = None,
        **options: Unpack[JobOptions],
    ) -> Node:
        """Add a job of workers, which runs after the jobs that it needs."""
        argument.by_name(unnamed)
        members = {
            "task": typed.dumps(argument.task(task)),
            "input": input_text(input),
        }
        return self._add(name, members, needs, when, checked_options(options, *_OF_GRAPH))

    def add_sql(
        self,
        name: str,
        command: str,
        *unnamed: NoReturn,
        needs: Iterable[Node] = (),
        when: When | None = None,
        **options: Unpack[SqlOptions],
    ) -> Node:
        """Add a statement that the server runs."""
        argument.by_name(unnamed)
        members = {"sql": typed.dumps(argument.command(command))}
        return self._add(name, members, needs, when, checked_sql_options(options, *_OF_GRAPH))

    def _add(
        self,
        name: str,
        members: dict[str, str | None],
        needs: Iterable[Node],
        when: str | None,
        options: Mapping[str, Any],
    ) -> Node:
        node = Node(argument.named("name", name, "load"))
        members["name"] = typed.dumps(node.name)
        names = [_name_of(need) for need in argument.items("needs", needs, "[load]")]
        if names:
            members["needs"] = typed.dumps(names)
        if when is not None and not names:
            raise WrongValueError("when says how other jobs must end; write needs=[load] too")
        if when is not None:
            members["when"] = typed.dumps(argument.one_of("when", when, _WHENS))
        for option, value in options.items():
            if value is not None:
                members[option] = value if option == "trace" else typed.dumps(_written(value))
        pairs = (f'"{member}": {text}' for member, text in members.items())
        self._jobs.append("{" + ", ".join(pairs) + "}")
        return node

    def document(self) -> str:
        """Return the document of `trax.enqueue_graph`."""
        if not self._jobs:
            raise WrongValueError('the graph has no jobs; write graph.add("load", "etl.load")')
        jobs = ", ".join(self._jobs)
        return f'{{"jobs": [{jobs}], "on_failure": "{self._on_failure}"}}'


def _name_of(node: object) -> str:
    if not isinstance(node, Node):
        raise WrongTypeError(f"needs has {node!r}; write what graph.add returned: needs=[load]")
    return node.name


def need(row: Sequence[Any], output: Any) -> Need:
    """Return a row of `trax.read_needs`."""
    name, job_id, state, _, error = row
    return Need(name, job_id, state, output, error)


def member(row: Sequence[Any]) -> Member:
    """Return a row of `trax.read_graph`."""
    name, job_id, task, state, needs, condition, waits_for, attempt, started, finished, error = row
    return Member(
        name=name,
        job_id=job_id,
        task=task,
        state=state,
        needs=needs or [],
        condition=condition,
        waits_for=waits_for,
        attempt=attempt,
        started_at=time_of(started),
        finished_at=time_of(finished),
        error=error,
    )


def _written(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return f"{value // timedelta(microseconds=1)} us"
    return value
