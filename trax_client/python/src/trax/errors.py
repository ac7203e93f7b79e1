"""The errors of calls, classified by SQLSTATE."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Any

import psycopg

from . import level
from .hint import in_python


class TraxError(Exception):
    """The base of all errors of this package."""


class UsageError(TraxError):
    """A mistake in a worker, a handler or a call; the text has the remedy."""


class WrongTypeError(UsageError, TypeError):
    """An argument of the wrong type, or an unknown option."""


class WrongValueError(UsageError, ValueError):
    """An argument of the right type, out of its range."""


_KINDS = {str: "a text", type(None): "None", bool: "True or False", bytes: "bytes"}


def kind_of(value: object) -> str:
    """Return the kind of a value, in the words of messages."""
    kind = type(value).__name__
    article = "an" if kind[:1] in "aeiouAEIOU" else "a"
    return _KINDS.get(type(value), f"{article} {kind}")


class VersionError(TraxError):
    """The extension in the database is older than this package needs."""


class TimedOutError(TraxError, TimeoutError):
    """The time of a wait was up: no signal was sent, or not all `children` have ended."""

    def __init__(self, message: str, children: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.children = list(children)


class ServerError(TraxError):
    """An error of the server: the message, and DETAIL and HINT if present."""

    def __init__(
        self,
        message: str,
        *,
        sqlstate: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.sqlstate = sqlstate
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        code = f" ({self.sqlstate})" if self.sqlstate else ""
        lines = [f"{self.message}{code}"]
        lines += [f"{name}: {text}" for name, text in self._more() if text]
        return "\n".join(lines)

    def _more(self) -> tuple[tuple[str, str | None], ...]:
        return (("DETAIL", self.detail), ("HINT", self.hint))


class UnknownNameError(ServerError):
    """42704: no manifest, group, rate, dead letter, job or role has this name."""


class InvalidArgumentError(ServerError):
    """22004, 22023 and the rest of class 22: an argument is missing or out of range."""


class TooLargeError(ServerError):
    """Class 54: the input or output is over a size limit, or nested too deeply."""


class WrongStateError(ServerError):
    """55000, 25001, 25006, 25P02: the state of the server or the transaction refuses the call."""


class ConflictError(ServerError):
    """40001, 40P01, 23505: a conflict with a concurrent transaction; a retry may succeed."""


class BusyError(ServerError):
    """57014, 55P03, classes 53 and 58: no time, lock or resources; a retry may succeed."""


class NotPermittedError(ServerError):
    """42501: the role lacks the right; `trax.grant_access` grants it."""


class NotInstalledError(ServerError):
    """42883, 3F000, 42P01: the extension, or a part of it, is not in this database."""


class UnsupportedError(ServerError):
    """0A000: a feature that the server's version of the extension does not have."""


class DisconnectedError(ServerError):
    """The server cannot be reached, or the connection broke: the call may have succeeded."""


class Blame(Enum):
    """The cause of an error, which decides whether to retry and on which connection."""

    CONNECTION = "connection"
    MOMENT = "moment"
    CALL = "call"


# Session ended, server starting, too many connections, or a standby.
_OF_CONNECTION = frozenset(
    ("57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04", "53300", "25006")
)
# A time limit, a lock, a lost race.
_OF_MOMENT = frozenset(("57014", "55P03", "55006", "23505"))
_BY_CODE: dict[str, type[ServerError]] = {
    "42704": UnknownNameError,
    "55000": WrongStateError,
    "25001": WrongStateError,
    "25006": WrongStateError,
    "25P02": WrongStateError,
    "23505": ConflictError,
    "42501": NotPermittedError,
    "42883": NotInstalledError,
    "3F000": NotInstalledError,
    "0A000": UnsupportedError,
}
_OURS = re.compile(r"(?<!\w)trax\.")
_INSTALL = "Type: create extension trax;"
_HINTS = {
    "3F000": _INSTALL,
    "42883": "Type: alter extension trax update; or: create extension trax;",
    "25P02": "Type: connection.rollback()",
}
WRITE_UTF8 = 'Write client_encoding="UTF8" in psycopg.connect().'


_CREDENTIALS = "Correct user and password (PGUSER, PGPASSWORD), or the server's pg_hba.conf."
# The driver has no SQLSTATE for a connection that the server refused.
_OF_LOGIN = (
    (
        "28P01",
        r"password authentication failed|no password supplied|no password was provided",
        _CREDENTIALS,
    ),
    (
        "28000",
        r"role .* does not exist|not permitted to log in|pg_hba\.conf|authentication failed",
        _CREDENTIALS,
    ),
    ("3D000", r"database .* does not exist", "Correct the name of the database, or create it."),
    (
        "42501",
        r"permission denied for database",
        "Type: grant connect on database ... to ...;",
    ),
    (
        "55000",
        r"database .* is not currently accepting connections",
        "Type: alter database ... allow_connections true;",
    ),
    (None, r"server does not support SSL", "Write sslmode=prefer, or set ssl = on in the server."),
)
_OF_ADDRESS = (
    r"invalid [a-z_ ]*(value|number|option)|unrecognized configuration parameter|could not match \d"
    r"|invalid command-line argument|requires a value|outside the valid range for parameter"
    r"|parameter \S+ cannot be|permission denied to set parameter"
)


def login_refusal(error: psycopg.Error, host: object) -> TraxError | None:
    """Return the error for a connection that no retry makes possible, or None.

    Of several hosts another may accept it. A server with messages in another language is retried.
    """
    message = str(error).strip()
    if "," in str(host or ""):
        return None
    for code, pattern, hint in _OF_LOGIN:
        if re.search(pattern, message):
            return _BY_CODE.get(code or "", ServerError)(message, sqlstate=code, hint=hint)
    if isinstance(error, psycopg.ProgrammingError) or re.search(_OF_ADDRESS, message):
        said = f"the address of the database is invalid: {message}"
        return UsageError(f"{said}; correct the option, in the address or in PGOPTIONS")
    return None


def blame(error: psycopg.Error) -> Blame:
    """Return the blame for an error of the driver; the only place that lists the codes."""
    code = error.sqlstate
    if code is None:
        # The driver's own error: about a value that it cannot send, or about the connection.
        of_value = isinstance(error, psycopg.DataError | psycopg.ProgrammingError)
        return Blame.CALL if of_value else Blame.CONNECTION
    if code in _OF_CONNECTION or code.startswith("08"):
        return Blame.CONNECTION
    if code in _OF_MOMENT or code[:2] in ("40", "53", "58"):
        return Blame.MOMENT
    return Blame.CALL


def brief(error: Exception) -> str:
    """Return an error with its hint on one line, for messages that repeat."""
    line = str(error).strip().partition("\n")[0]
    hint = translated(error).hint if isinstance(error, psycopg.Error) else None
    return f"{line} (hint: {hint})" if hint else line


def is_of_the_values(error: Exception) -> bool:
    """Return whether the server would refuse the same values again."""
    if not isinstance(error, psycopg.Error):
        return isinstance(error, UnicodeError)
    code = error.sqlstate
    return blame(error) is Blame.CALL and (code is None or code[:2] in ("22", "23", "54", "P0"))


def translated(error: psycopg.Error, statement: str = "") -> ServerError:
    """Convert an error of the driver to one of this package; raise it `from` the driver's.

    Without a statement, it is of the claim of a worker.
    """
    code = error.sqlstate
    message = error.diag.message_primary or str(error).strip()
    kind = _kind(code, error)
    given = error.diag.message_hint
    hint = None if given is None else in_python(given)
    hint = _HINTS.get(code or "", hint)
    if code == "22P05" and "in encoding" in message:
        hint = WRITE_UTF8
    if kind is NotPermittedError and hint is None:
        hint = level.advice(statement)
    return kind(message, sqlstate=code, detail=error.diag.message_detail, hint=hint)


def _kind(code: str | None, error: psycopg.Error) -> type[ServerError]:
    at_fault = blame(error)
    if code in _BY_CODE:
        return _BY_CODE[code]
    if at_fault is Blame.CONNECTION:
        return DisconnectedError
    if code is None or code.startswith("22"):
        return InvalidArgumentError
    if code.startswith("54"):
        return TooLargeError
    if code == "42P01" and _OURS.search(error.diag.message_primary or ""):
        return NotInstalledError
    if at_fault is Blame.MOMENT:
        return ConflictError if code.startswith("40") else BusyError
    return ServerError


def not_installed(database: str) -> NotInstalledError:
    """Return the error for a database without the extension."""
    return NotInstalledError(
        f'the database "{database}" has no extension trax',
        detail="A worker and a client need it in the database that they connect to.",
        hint=_INSTALL,
    )
