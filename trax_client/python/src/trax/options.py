"""The options of a job, as the arguments of `trax.enqueue`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypedDict

from . import argument, typed
from .clock import Seconds
from .errors import WrongTypeError, WrongValueError


class _SharedOptions(TypedDict, total=False):
    run_at: datetime | None
    group_name: str | None
    priority: int | None
    max_retries: int | None
    timeout: Seconds | None
    unique_key: str | None
    concurrency_key: str | None
    retry_delay: Seconds | None
    unique_for: Seconds | None
    on_duplicate: Literal["keep", "replace", "postpone"] | None


class JobOptions(_SharedOptions, total=False):
    """The options of a job, as the arguments of `trax.enqueue`; each is optional.

    A time has a time zone. A duration (`timeout`, `retry_delay`, `unique_for`) is a number of
    seconds or a timedelta.
    """

    trace: Mapping[str, Any] | None
    version: str | None
    batch: int | None
    rate: str | None
    rate_key: str | None
    cost: int | None


class SqlOptions(_SharedOptions, total=False):
    """The options of a SQL job, as the arguments of `trax.enqueue_sql`; each is optional."""

    run_as: str | None


_LARGEST = (1 << 31) - 1
"""The largest integer of PostgreSQL."""
EMPTY: Final[dict[str, Any]] = {}
"""The input of a job for which the caller gave none."""


def input_text(value: Any, name: str = "input") -> str:
    """Return an input as JSON; None is null."""
    return typed.dumps(value, name) or "null"


def input_texts(values: Iterable[Any]) -> list[str]:
    """Return the inputs of several jobs as JSON."""
    given = argument.items("inputs", values, '[{"to": "ada"}]')
    return [input_text(one, f"inputs[{at}]") for at, one in enumerate(given)]


def _key(name: str, value: object) -> str:
    return argument.key(name, value, "mail")


def _named(name: str, value: object) -> str:
    return argument.named(name, value, "mail")


def _integer(low: int, high: int) -> Callable[[str, object], int]:
    return lambda name, value: argument.integer(name, value, 5, low, high)


def _on_duplicate(name: str, value: object) -> str:
    return argument.one_of(name, value, ("keep", "replace", "postpone"))


def _batch(name: str, value: object) -> int:
    return argument.integer(name, value, 17)


def _trace(name: str, value: object) -> str | None:
    given = argument.mapping(name, value, '{"traceparent": "00-..."}')
    return typed.dumps(dict(given) or None, name)


def _role(name: str, value: object) -> str:
    return argument.key(name, value, "ada")


_CHECKS: dict[str, Callable[[str, object], object]] = {
    "run_as": _role,
    "run_at": argument.moment,
    "group_name": _named,
    "priority": _integer(0, 31),
    "max_retries": _integer(0, _LARGEST - 1),
    "timeout": argument.period,
    "unique_key": _key,
    "concurrency_key": _key,
    "trace": _trace,
    "retry_delay": argument.duration,
    "unique_for": argument.period,
    "version": _named,
    "batch": _batch,
    "rate": _key,
    "rate_key": _key,
    "cost": _integer(1, _LARGEST),
    "on_duplicate": _on_duplicate,
}
_OF_JOBS = [name for name in _CHECKS if name in JobOptions.__annotations__]
_OF_SQL_JOBS = [name for name in _CHECKS if name in SqlOptions.__annotations__]


class JobChange(TypedDict, total=False):
    """The values of a waiting job that can be changed; those that are not given stay."""

    input: Any
    run_at: datetime | None
    priority: int | None
    group_name: str | None
    max_retries: int | None
    timeout: Seconds | None


def change_parameters(change: JobChange) -> dict[str, Any]:
    """Return the parameters of a call that changes a waiting job, with its values checked."""
    names = ("run_at", "priority", "group_name", "max_retries", "timeout")
    argument.unlisted(change, ("input", *names))
    parameters: dict[str, Any] = {
        "input": input_text(change["input"]) if "input" in change else None
    }
    for name in names:
        value = change.get(name)
        parameters[name] = None if value is None else _CHECKS[name](name, value)
    return parameters


def enqueue_parameters(
    task: str, unnamed: Sequence[object], options: JobOptions, **inputs: Any
) -> dict[str, Any]:
    """Return the parameters of a call that queues jobs, with its options checked."""
    argument.by_name(unnamed)
    return {"task": argument.task(task), **inputs, **checked_options(options)}


def sql_parameters(command: str, unnamed: Sequence[object], options: SqlOptions) -> dict[str, Any]:
    """Return the parameters of a call that queues a SQL job, with its options checked."""
    argument.by_name(unnamed)
    return {"command": argument.command(command), **checked_sql_options(options)}


def checked_options(options: JobOptions, *others: str) -> dict[str, Any]:
    """Return all options by name, checked; None for those that are not given.

    An error about an unknown option names the others of the call too.
    """
    return _checked(options, _OF_JOBS, others)


def checked_sql_options(options: SqlOptions, *others: str) -> dict[str, Any]:
    """Return all options of a SQL job, as `checked_options` does."""
    for name in options:
        if name in ("task", "input", *_OF_JOBS) and name not in _OF_SQL_JOBS:
            raise WrongTypeError(f'a SQL job has no option "{name}"; leave it out')
    return _checked(options, _OF_SQL_JOBS, others)


def _checked(
    options: Mapping[str, Any], known: Sequence[str], others: Sequence[str]
) -> dict[str, Any]:
    argument.unlisted(options, (*others, *known))
    checked: dict[str, Any] = {}
    for name in known:
        value = options.get(name)
        checked[name] = None if value is None else _CHECKS[name](name, value)
    for name in ("unique_for", "on_duplicate"):
        if checked[name] is not None and checked["unique_key"] is None:
            raise WrongValueError(f'{name} needs a key; write unique_key="report 7" too')
    return checked
