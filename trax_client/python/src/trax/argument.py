"""The arguments of calls, refused in words before anything is sent.

Each function takes the name of an argument and its value. An error says what was given and what to
write instead; it is a `UsageError`, and a `TypeError` or a `ValueError`.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import psycopg

from .clock import span
from .errors import WrongTypeError, WrongValueError, kind_of

Class = TypeVar("Class", bound=type)
Connection = TypeVar("Connection", psycopg.Connection[Any], psycopg.AsyncConnection[Any])

_LONGEST = timedelta(days=3650)
"""The server refuses longer durations."""
_LONGEST_NAME = 255
"""The server refuses names of more bytes."""
_LARGEST = (1 << 63) - 1
"""The largest bigint of PostgreSQL."""


_LATER = "write run_at=datetime.now(timezone.utc) + timedelta(seconds=90)"
_ELSEWHERE = {
    **dict.fromkeys(("delay", "countdown", "eta", "startafter"), _LATER),
    "expires": "type select trax.limit_queue_time(job_id, '1 hour')",
}
"""The remedies for options that jobs have in other libraries."""


def unlisted(given: Iterable[str], known: Collection[str]) -> None:
    """Refuse the first option that is not known, with the nearest name or with all names."""
    for name in given:
        if name not in known:
            raise WrongTypeError(f'there is no option "{name}"; {_instead(name, known)}')


def listed(kind: Class) -> Class:
    """Let the methods of a class refuse unknown options; those with `**options` do so themselves.

    Python's own error does not say what to write.
    """
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and (not name.startswith("_") or name == "__init__"):
            setattr(kind, name, _listed(method))
    return kind


def _listed(method: Callable[..., Any]) -> Callable[..., Any]:
    parameters = list(inspect.signature(method).parameters.values())
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return method
    known = [one.name for one in parameters[1:]]

    @functools.wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        unlisted(options, known)
        return method(*args, **options)

    if not inspect.iscoroutinefunction(method):
        return call

    @functools.wraps(method)
    async def called(*args: Any, **options: Any) -> Any:
        return await call(*args, **options)

    return called


def _instead(name: str, known: Collection[str]) -> str:
    elsewhere = _ELSEWHERE.get(name.replace("_", "").lower())
    if elsewhere and "run_at" in known:
        return elsewhere
    near = difflib.get_close_matches(name, known, 1)
    return f'did you mean "{near[0]}"?' if near else f"the options are {', '.join(known)}"


def by_name(unnamed: Sequence[object]) -> None:
    """Refuse options that are given without their names."""
    if unnamed:
        given = unnamed[0]
        options = given if isinstance(given, Mapping) and given else {"priority": 5}
        written = ", ".join(f"{name}={value!r}" for name, value in options.items())
        raise WrongTypeError(f"options are given by name; write {written}")


def items(name: str, value: Iterable[Any], example: str) -> list[Any]:
    """Return the items of a list or another iterable.

    Python also iterates over texts, mappings and pydantic models, which are never meant as lists.
    """
    is_model = hasattr(type(value), "model_dump")
    is_single = is_model or isinstance(value, str | bytes | bytearray | Mapping)
    if is_single or not isinstance(value, Iterable):
        raise _wrong(name, value, example)
    return list(value)


def texts(name: str, value: Iterable[str], example: str) -> list[str]:
    """Return the items of a list of texts."""
    given = items(name, value, example)
    for at, item in enumerate(given):
        if not isinstance(item, str):
            raise _wrong(f"{name}[{at}]", item, example, name)
    return given


def duration(name: str, value: object) -> timedelta:
    """Return a duration, given as a number of seconds or a timedelta; zero is one."""
    return _length(name, value, timedelta(0), "from 0 s to")


def period(name: str, value: object) -> timedelta:
    """Return a duration that is longer than zero."""
    return _length(name, value, timedelta(microseconds=1), "of more than 0 s, at most")


def _length(name: str, value: object, shortest: timedelta, bounds: str) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise _wrong(name, value, "90, a number of seconds, or a timedelta")
    try:
        length = span(value)
    except (ValueError, OverflowError):  # NaN, infinite, or longer than a timedelta
        length = timedelta(-1)
    if not shortest <= length <= _LONGEST:
        raise WrongValueError(
            f"{name} is {value}; write a finite duration {bounds} {_LONGEST.days} days"
        )
    return length


def moment(name: str, value: object) -> datetime:
    """Return a time that has a time zone."""
    example = "datetime(2030, 1, 31, 9, tzinfo=timezone.utc)"
    if not isinstance(value, datetime):
        raise _wrong(name, value, example)
    if value.utcoffset() is None:
        raise WrongValueError(f"{name} has no time zone; write {name}={example}")
    return value


def integer(
    name: str, value: object, example: int, low: int = -_LARGEST - 1, high: int = _LARGEST
) -> int:
    """Return an integer of a range, by default a bigint; True and 5.0 are none."""
    if isinstance(value, bool):
        raise _wrong(name, value, str(example))
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise _wrong(name, value, str(example)) from None
    if not low <= number <= high:
        raise WrongValueError(f"{name} is {number}; write a number from {low} to {high}")
    return number


def text(name: str, value: object, example: str) -> str:
    """Return a text that PostgreSQL can store."""
    if not isinstance(value, str):
        raise _wrong(name, value, f'"{example}"')
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise WrongValueError(
            f"{name} is {value!a}, which has half of a surrogate pair at {error.start}; remove it"
        ) from None
    if "\0" in value:
        raise WrongValueError(f"{name} is {value!a}; remove the NUL, which PostgreSQL cannot store")
    return value


def key(argument: str, value: object, example: str) -> str:
    """Return a key or the name of something, which may have spaces around it."""
    name = text(argument, value, example)
    if not name:
        raise WrongValueError(f'{argument} is empty; write a text, as in {argument}="{example}"')
    if (size := len(name.encode())) > _LONGEST_NAME:
        raise WrongValueError(
            f'{argument} is "{name[:20]}..." of {size} bytes; write at most {_LONGEST_NAME}'
        )
    return name


def named(argument: str, value: object, example: str) -> str:
    """Return a name that the server takes without spaces around it."""
    name = text(argument, value, example)
    if not name or name != name.strip():
        raise WrongValueError(
            f'{argument} is "{name}"; write a name that neither is empty nor begins or ends with a '
            f'space, as in "{name.strip() or example}"'
        )
    return key(argument, name, example)


def task(value: object) -> str:
    """Return the name of a task as the server takes it."""
    return named("task", value, "mail.send")


def command(value: object) -> str:
    """Return the statement of a SQL job."""
    return text("command", value, "call rollup()")


def one_of(name: str, value: object, known: Collection[str]) -> str:
    """Return one of several texts."""
    if not isinstance(value, str) or value not in known:
        raise WrongValueError(f"{name} is {value!r}; write one of: {', '.join(known)}")
    return value


def flag(name: str, value: object) -> bool:
    """Return True or False; a text such as "no" counts as neither."""
    if not isinstance(value, bool):
        raise _wrong(name, value, "True or False")
    return value


def mapping(name: str, value: object, example: str) -> Mapping[str, Any]:
    """Return a mapping."""
    if not isinstance(value, Mapping):
        raise _wrong(name, value, example)
    return value


def connection(value: Connection | None, wanted: type[Connection]) -> Connection:
    """Return a connection of psycopg, sync or async."""
    if isinstance(value, wanted):
        return value
    said = f"a {type(value).__name__} is no psycopg.{wanted.__name__}"
    module = type(value).__module__
    if value is None:
        raise WrongTypeError(
            "the connection is None: take Django's connection.connection inside "
            "transaction.atomic(), or after connection.ensure_connection()"
        )
    if isinstance(value, psycopg.Connection | psycopg.AsyncConnection):
        other = "Client" if isinstance(value, psycopg.Connection) else "AsyncClient"
        raise WrongTypeError(f"{said}: use trax.{other} for it")
    is_async = wanted is psycopg.AsyncConnection
    if isinstance(value, str):
        opened = "await psycopg.AsyncConnection.connect" if is_async else "psycopg.connect"
        raise WrongTypeError(f'{said}: write {opened}("postgresql://...")')
    if module.startswith("psycopg_pool"):
        opened = "async with" if is_async else "with"
        raise WrongTypeError(f"{said}: write {opened} pool.connection() as connection")
    if module.startswith("psycopg2"):
        raise WrongTypeError(f'{said}: psycopg 3 is needed; type pip install "psycopg[binary]"')
    if module.startswith("sqlalchemy.ext.asyncio"):
        raise WrongTypeError(f"{said}: take (await conn.get_raw_connection()).driver_connection")
    raise WrongTypeError(
        f"{said}: of SQLAlchemy's connection take .connection.driver_connection, of Django's "
        ".connection"
    )


def _wrong(name: str, value: object, example: str, whole: str = "") -> WrongTypeError:
    return WrongTypeError(f"{name} is {kind_of(value)}; write {whole or name}={example}")
