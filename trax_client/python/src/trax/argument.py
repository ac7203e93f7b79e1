"""The arguments of calls, refused in words before anything is sent.

Each function takes the name of an argument and its value. An error says what was given and what to
write instead; it is a `UsageError`, and a `TypeError` or a `ValueError`.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from .clock import span
from .errors import WrongTypeError, WrongValueError

_LONGEST = timedelta(days=3650)
"""The server refuses longer durations."""
_KINDS = {str: "a text", type(None): "None", bool: "True or False", bytes: "bytes"}


def unlisted(given: Iterable[str], known: Collection[str]) -> None:
    """Refuse the first option that is not known, with the nearest name or with all names."""
    for name in given:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, 1)
        rest = f'did you mean "{near[0]}"?' if near else f"the options are {', '.join(known)}"
        raise WrongTypeError(f'there is no option "{name}"; {rest}')


def items(name: str, value: Iterable[Any], example: str) -> list[Any]:
    """Return the items of a list or another iterable.

    Python also iterates over texts, mappings and pydantic models, which are never meant as lists.
    """
    is_single = isinstance(value, str | bytes | bytearray | Mapping) or hasattr(value, "model_dump")
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
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise _wrong(name, value, "90, a number of seconds, or a timedelta")
    try:
        length = span(value)
    except (ValueError, OverflowError):  # NaN, infinite, or longer than a timedelta
        length = timedelta(-1)
    if not timedelta(0) <= length <= _LONGEST:
        raise WrongValueError(
            f"{name} is {value}; write a finite duration from 0 s to {_LONGEST.days} days"
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


def integer(name: str, value: object, example: int) -> int:
    """Return an integer; True and 5.0 are none."""
    if isinstance(value, bool):
        raise _wrong(name, value, str(example))
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise _wrong(name, value, str(example)) from None


def text(name: str, value: object, example: str) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise _wrong(name, value, f'"{example}"')
    if "\0" in value:
        said = "has a NUL (\\0), which PostgreSQL cannot store; leave it out"
        raise WrongValueError(f"{name} {said}")
    return value


def task(value: object) -> str:
    """Return the name of a task as the server takes it."""
    name = text("task", value, "mail.send")
    if not name or name != name.strip():
        raise WrongValueError(
            f'task is "{name}"; write a name that neither is empty nor begins or ends with a space'
        )
    return name


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


def _wrong(name: str, value: object, example: str, whole: str = "") -> WrongTypeError:
    kind = type(value).__name__
    article = "an" if kind[0] in "aeiouAEIOU" else "a"
    said = _KINDS.get(type(value), f"{article} {kind}")
    return WrongTypeError(f"{name} is {said}; write {whole or name}={example}")
