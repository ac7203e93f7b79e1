"""The hints of the server, which are SQL, in Python."""

from __future__ import annotations

import json
import re

from .level import CALLS, OF_CONTEXT

_TEXT = r"'(?:[^']|'')*'"
_SPAN = rf"interval {_TEXT}"
_VALUE = rf"now\(\)(?: \+ {_SPAN})?|{_SPAN}|array\[[^\]]*\]|{_TEXT}|\.\.\.|\w+(?:\.\d+)?"
# A call within a statement, as in "select state from trax.read_steps(7)", is none of a client.
_GIVEN = r"\((?P<given>(?:[^()]|\([^()]*\))*)\)"
_CALL = rf"(?<!from )(?:select |call )?trax\.(?P<call>\w+){_GIVEN}(?! from)"
_NAMED = rf"\b(?P<name>\w+) => (?P<value>{_VALUE})"
_ARGUMENT = re.compile(rf"(?:(?P<name>\w+) => )?(?P<value>{_VALUE})")
_PART = re.compile(f"{_CALL}|{_NAMED}")
# The places of a procedure's results.
_RESULTS = re.compile(r"(?:, null)+$")
_LENGTH = re.compile(r"(?:interval )?'(\d+) (s|min|hour|day)s?'")
_UNITS = {"s": "seconds", "min": "minutes", "hour": "hours", "day": "days"}
_CONSTANTS = {
    "true": "True",
    "false": "False",
    "null": "None",
    "now()": "datetime.now(timezone.utc)",
}


def in_python(hint: str) -> str:
    """Return a hint with its arguments, and the calls that a client has, as Python writes them.

    Other SQL stays as it is, for psql.
    """
    return _PART.sub(_part, hint)


def _part(found: re.Match[str]) -> str:
    if not found["call"]:
        return _argument(found)
    if found["call"] not in CALLS | OF_CONTEXT:
        return found[0]
    given = _RESULTS.sub("", found["given"])
    call = found["call"]
    if call in OF_CONTEXT:
        call, given = f"ctx.{call}", given.removeprefix("job_id, token, ")
    return f"{call}({_ARGUMENT.sub(_argument, given)})"


def _argument(found: re.Match[str]) -> str:
    value = _value(found["value"])
    if value is None:
        return found[0]
    return f"{found['name']}={value}" if found["name"] else value


def _value(sql: str) -> str | None:
    """Return a value of SQL in Python, or None if it is not understood."""
    if span := _LENGTH.fullmatch(sql):
        return f"timedelta({_UNITS[span[2]]}={span[1]})"
    if sql.startswith("now() + "):
        later = _value(sql.removeprefix("now() + "))
        return later and f"{_CONSTANTS['now()']} + {later}"
    if sql.startswith("array["):
        return re.sub(_TEXT, lambda text: _quoted(text[0]), sql.removeprefix("array"))
    if sql.startswith("interval"):
        return None
    return _quoted(sql) if sql.startswith("'") else _CONSTANTS.get(sql, sql)


def _quoted(sql: str) -> str:
    """Return a text in Python's quotes, and one of a JSON document as a dict or list."""
    text = sql[1:-1].replace("''", "'")
    return text if text[:1] in ("{", "[") else json.dumps(text, ensure_ascii=False)
