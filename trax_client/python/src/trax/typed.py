"""Converts JSON to the types in a handler's annotations, and back.

Supported are plain JSON types, `Decimal`, `Any`, `X | None`, `Literal`, enums, lists, dicts with
text keys, dataclasses and TypedDicts of these, and pydantic models. A number with a fraction or an
exponent becomes a float, which may lose digits, or a `Decimal` if the annotation is one.
"""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Union
from uuid import UUID

from .errors import UsageError, WrongTypeError, WrongValueError, kind_of

# An escape in JSON, or a whole surrogate pair; its group is what PostgreSQL cannot store.
_ESCAPE = re.compile(r"\\(?:ud[89ab]..\\ud[c-f]..|(u0000|ud[89a-f]..)|.)")
# A key that was perhaps no text.
_WRITTEN_KEY = re.compile(r'"(?:null|true|false|[-+.e\d]+)":')
# The depth to which the part that is nested too deeply is looked for.
_DEEPEST = 5
_KEYS = (str, int, float, type(None))

Decoder = Callable[[Any, str], Any]
"""Returns a value of the type; the text is its path in the input."""


class MisfitError(ValueError):
    """An input that does not fit the annotation; the text has the path."""


class _UnstorableError(ValueError):
    """A value that JSON can write and PostgreSQL cannot store; the text says what it has."""


def decoder(annotation: Any) -> Decoder:
    """Return a decoder from JSON to this type, or raise UsageError if it is not supported."""
    simple = _SIMPLE.get(annotation) if isinstance(annotation, type | None) else None
    if annotation is Any or annotation is object:
        return _anything
    if simple is not None:
        return simple
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return decoder(arguments[0])
    if origin in (Union, types.UnionType):
        return _union([decoder(argument) for argument in arguments])
    if origin is typing.Literal:
        return _literal(arguments)
    if annotation is list or origin in (list, Sequence):
        return _list(decoder(arguments[0]) if arguments else _anything)
    if annotation is dict or origin in (dict, Mapping):
        return _dict(arguments)
    if isinstance(annotation, type):
        return _class(annotation)
    raise _unknown(annotation)


def dumps(value: object, name: str = "value") -> str | None:
    """Return an output or input as JSON; None stays None, which the server stores as null.

    Raise a UsageError that names the part which has no form in JSON, from `name` on.
    """
    if value is None:
        return None
    try:
        text = _dumps(value)
    except Exception as error:
        raise _refusal(value, name, error) from error
    # The encoder writes only its own numbers: a text with the mark is replaced by the number in it.
    return _MARKED.sub(r"\1", text) if _MARK in text else text


def _dumps(value: object) -> str:
    text = json.dumps(value, allow_nan=False, default=_encode, separators=(",", ":"))
    if "\\u0000" in text or "\\ud" in text:
        _check_characters(text)
    if _WRITTEN_KEY.search(text):
        json.loads(text, object_pairs_hook=_check_keys)
    return text


def _check_characters(text: str) -> None:
    for escape in _ESCAPE.finditer(text):
        if escape[1]:
            what = "the character NUL" if escape[1] == "u0000" else "half of a surrogate pair"
            raise _UnstorableError(f"{what}, which PostgreSQL cannot store: leave it out")


def _check_keys(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _UnstorableError(f'two keys that JSON writes as "{key}": leave one out')
        seen.add(key)


def _refusal(value: object, name: str, error: Exception) -> UsageError:
    """Return the error about a value that has no form in JSON, whatever its parts raise."""
    try:
        return _misplaced(value, name, error)
    except Exception:  # noqa: BLE001 - the value runs code of the program
        return WrongValueError(f"{name} is {kind_of(value)} that cannot be read")


def _misplaced(value: object, path: str, error: Exception) -> UsageError:
    """Return the error about the first part of a value that has no form in JSON."""
    around: list[object] = []
    inner: tuple[str, object, Exception] | None = (path, value, error)
    while inner is not None:
        path, value, error = inner
        if any(value is one for one in around):
            return WrongValueError(f"{path} is a part of itself; leave it out")
        if isinstance(error, RecursionError) and len(around) == _DEEPEST:
            return WrongValueError(f"{path} is nested too deeply; write it flatter")
        around.append(value)
        inner = _first_wrong(value, path)
    if isinstance(error, _UnstorableError):
        return WrongValueError(f"{path} has {error}")
    if isinstance(value, dict) and (wrong := [k for k in value if not isinstance(k, _KEYS)]):
        return WrongTypeError(f"{path} has the key {wrong[0]!r}; the keys of JSON are texts")
    if isinstance(value, float | Decimal):
        return WrongValueError(f"{path} is {value}, not JSON; write a finite number or None")
    is_of_encoder = isinstance(error, TypeError | ValueError | RecursionError)
    if not is_of_encoder or isinstance(value, dict) or hasattr(type(value), "model_dump"):
        said = f"{type(error).__name__}: {error}"
        return WrongValueError(f"{path} is {kind_of(value)} that cannot be read: {said}")
    return WrongTypeError(f"{path} is {kind_of(value)}, not JSON; write a text, a list or a dict")


def _first_wrong(value: object, path: str) -> tuple[str, object, Exception] | None:
    try:
        parts = _parts(value)
    except Exception:  # noqa: BLE001 - the value runs code of the program
        return None
    for place, part in parts:
        try:
            _dumps(part)
        except Exception as error:  # noqa: BLE001 - the value runs code of the program
            return f"{path}{place}", part, error
    return None


def _parts(value: object) -> list[tuple[str, object]]:
    """Return the parts of a value that the encoder would write, with their places in it."""
    if isinstance(value, list | tuple):
        return [(f"[{at}]", one) for at, one in enumerate(value)]
    if isinstance(value, dict):
        keys = [(f".{key!a}", key) for key in value if isinstance(key, str)]
        return [*keys, *((f".{key}", one) for key, one in value.items())]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return [(f".{name}", getattr(value, name)) for name in names if hasattr(value, name)]
    if isinstance(value, Enum):
        return [(".value", value.value)]
    return []


def loads(text: str, *, decimals: bool) -> Any:
    """Parse JSON; a number with a fraction or an exponent becomes a Decimal, or a float."""
    return json.loads(text, parse_float=Decimal) if decimals else json.loads(text)


def names_decimal(annotation: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Return whether a type is Decimal or contains one."""
    if annotation is Decimal:
        return True
    if any(annotation is one for one in seen):
        return False
    seen = seen | {annotation} if isinstance(annotation, type) else seen
    inner = [one for one in typing.get_args(annotation) if not isinstance(one, str)]
    if isinstance(annotation, type) and hasattr(annotation, "__annotations__"):
        inner += typing.get_type_hints(annotation).values()
    return any(names_decimal(one, seen) for one in inner)


# Random, so that no text of a program contains it.
_MARK = f"trax-number-{secrets.token_hex(16)}:"
_MARKED = re.compile(f'"{_MARK}([^"]*)"')


def _unknown(annotation: Any) -> UsageError:
    return UsageError(
        f"the input type {annotation!r} is not understood: use plain JSON types, a dataclass, a "
        "TypedDict or a pydantic model, or typing.Any and decode it yourself"
    )


def _anything(value: Any, path: str) -> Any:
    return value


def _exactly(wanted: type, name: str) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        if type(value) is not wanted:
            raise _misfit(path, name, value)
        return value

    return decode


def _float(value: Any, path: str) -> float:
    if type(value) not in (int, float, Decimal):
        raise _misfit(path, "a number", value)
    return float(value)


def _decimal(value: Any, path: str) -> Decimal:
    if type(value) not in (int, float, Decimal):
        raise _misfit(path, "a number", value)
    return Decimal(value)


_SIMPLE: dict[Any, Decoder] = {
    str: _exactly(str, "a string"),
    int: _exactly(int, "an integer"),
    bool: _exactly(bool, "true or false"),
    float: _float,
    Decimal: _decimal,
    None: _exactly(type(None), "null"),
    type(None): _exactly(type(None), "null"),
}
_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
_NAMES |= {int: "an integer", float: "a number", Decimal: "a number", type(None): "null"}


def _misfit(path: str, wanted: str, value: Any) -> MisfitError:
    return MisfitError(f"{path} is {_NAMES.get(type(value), 'something else')}, not {wanted}")


def _union(options: Sequence[Decoder]) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        misfits: list[str] = []
        for option in options:
            try:
                return option(value, path)
            except MisfitError as misfit:
                misfits.append(str(misfit))
        raise MisfitError("; ".join(misfits))

    return decode


def _literal(values: tuple[Any, ...]) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        if not any(type(value) is type(one) and value == one for one in values):
            raise MisfitError(f"{path} is none of {', '.join(map(repr, values))}")
        return value

    return decode


def _list(element: Decoder) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise _misfit(path, "an array", value)
        return [element(one, f"{path}[{at}]") for at, one in enumerate(value)]

    return decode


def _dict(arguments: tuple[Any, ...]) -> Decoder:
    if arguments and arguments[0] is not str:
        raise UsageError("the keys of an object in JSON are text: use dict[str, ...]")
    element = decoder(arguments[1]) if arguments else _anything

    def decode(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _misfit(path, "an object", value)
        return {key: element(one, f"{path}.{key}") for key, one in value.items()}

    return decode


def _class(kind: type) -> Decoder:
    if issubclass(kind, Enum):
        return _enum(kind)
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        return _model(validate)
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        hints = typing.get_type_hints(kind)
        missing = dataclasses.MISSING
        required = {f.name for f in fields if f.default is missing and f.default_factory is missing}
        return _object({f.name: hints[f.name] for f in fields if f.init}, required, kind)
    if typing.is_typeddict(kind):
        required = set(getattr(kind, "__required_keys__", ()))
        return _object(typing.get_type_hints(kind), required, dict)
    raise _unknown(kind)


def _object(hints: dict[str, Any], required: set[str], make: Callable[..., Any]) -> Decoder:
    members = {name: decoder(hint) for name, hint in hints.items()}

    def decode(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _misfit(path, "an object", value)
        for name in required & members.keys():
            if name not in value:
                raise MisfitError(f"{path}.{name} is missing")
        # Unknown members come from newer code and are ignored.
        known = {name: value[name] for name in members if name in value}
        return make(**{n: members[n](one, f"{path}.{n}") for n, one in known.items()})

    return decode


def _enum(kind: type[Enum]) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        try:
            return kind(value)
        except ValueError:
            names = ", ".join(repr(one.value) for one in kind)
            raise MisfitError(f"{path} is none of {names}") from None

    return decode


def _model(validate: Callable[[Any], Any]) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        try:
            return validate(value)
        except ValueError as error:
            raise MisfitError(f"{path}: {error}") from error

    return decode


def _encode(value: Any) -> Any:
    """Return the JSON form of a value that the encoder does not support."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if hasattr(type(value), "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"{value} is not JSON")
        return f"{_MARK}{value}"
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    raise TypeError("the encoder does not know it")
