"""The worker's connections: bounded connecting, bounded calls, notifications, and bells.

A *link* is a connection with its notifications. A *bell* wakes the thread that waits for the link.
The *watchdog* cuts a link whose call is not answered in time.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from .argument import text
from .clock import now
from .errors import UsageError

Heard = Callable[[str, str], None]
"""Called with the channel and the payload of a notification."""

# libpq's refusal of an option by its name.
_OF_NAME = re.compile(r'invalid (?:URI query parameter:|connection option) ".*"')
# The limit for connecting to one host; the minimum that the driver allows.
CONNECT_SECONDS = 2
WATCH_SECONDS = 0.25
BACKOFF_SECONDS = 0.1
# The longest wait in one piece: a selector takes no more than 24 days.
LONGEST_WAIT_SECONDS = 3600.0
# The maximum pause between attempts, and so the time within which a recovered server is found.
LONGEST_BACKOFF_SECONDS = 1.0


def checked_address(address: str | None) -> str:
    """Return the address, by default `DATABASE_URL`, or "" for libpq's own variables."""
    if address is None:
        address = os.environ.get("DATABASE_URL", "")
    text("address", address, "postgresql://localhost/shop")
    try:
        parsed = conninfo_to_dict(address)
    except psycopg.Error as error:
        hint = "write postgresql://user@host/database"
        if said := _OF_NAME.match(str(error)):
            named = said[0] if _is_no_secret(address) else "it has an unknown option"
            raise UsageError(
                f"the address of the database is invalid: {named}; correct the option"
            ) from None
        if address.partition("://")[0] == "postgresql+psycopg":
            hint = 'that is an address of SQLAlchemy: leave out "+psycopg"'
        # libpq's message may contain a part of the password.
        raise UsageError(f"the address of the database is invalid; {hint}") from (
            None if "@" in address or "password" in address else error
        )
    if "://" in address and "@" in str(parsed.get("dbname", "")):
        raise UsageError(
            "the address of the database has an @ behind a /: write / in a password as %2F"
        )
    ports = [port for port in str(parsed.get("port", "")).split(",") if port]
    if not all(re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) < 1 << 16 for port in ports):
        raise UsageError(
            "the address of the database is invalid: its port is no number from 1 to 65535; write "
            "postgresql://user@host:5432/database"
        )
    return address


def unset(address: str) -> str:
    """Return what a failure to connect adds if nothing names a server: libpq takes its default."""
    names = ("DATABASE_URL", "PGHOST", "PGHOSTADDR", "PGSERVICE")
    is_named = address or any(os.environ.get(name) for name in names)
    return "" if is_named else "; DATABASE_URL is not set"


def _is_no_secret(address: str) -> bool:
    """Return whether what libpq takes for the name of an option is no part of a password."""
    return "password" not in address and "@" not in address.partition("?")[2]


def bounded(address: str, name: str, lease: float) -> dict[str, Any]:
    """Return connection parameters: the caller's, in UTF-8 and with a limit on every wait."""
    # Linux refuses more than 32,767 s.
    probe = max(1, int(min(120.0, lease) / 4))
    defaults: dict[str, Any] = {
        "application_name": f"trax worker {name}",
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": probe,
        "keepalives_interval": probe,
        "keepalives_count": 2,
        "tcp_user_timeout": int(max(1.0, min(15.0, lease / 2)) * 1000),
    }
    # Of several hosts only the primary can claim.
    if "PGTARGETSESSIONATTRS" not in os.environ:
        defaults["target_session_attrs"] = "read-write"
    # Every job can be read in UTF-8, whatever the database, PGOPTIONS or the address say.
    return {**defaults, **conninfo_to_dict(address), "client_encoding": "UTF8"}


class Bell:
    """Wakes the thread that waits at it; any thread or signal handler may ring it."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)
        self._has_rung = False

    def ring(self) -> None:
        """Wake the thread now, or when it waits next."""
        if not self._has_rung:
            self._has_rung = True
            with contextlib.suppress(OSError):
                self._sender.send(b"!")

    def wait(self, link: Link | None, timeout: float) -> None:
        """Wait for a ring, for data on the link, or for the timeout, an hour at most.

        Raise psycopg.OperationalError if the link is broken.
        """
        seconds = min(max(0.0, timeout), LONGEST_WAIT_SECONDS)
        with selectors.DefaultSelector() as selector:
            selector.register(self._receiver, selectors.EVENT_READ)
            if link is not None:
                selector.register(link.fileno(), selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(seconds)}
        if self._receiver.fileno() in ready:
            with contextlib.suppress(BlockingIOError):
                while self._receiver.recv(64):
                    pass
            # Reset before the caller checks for work, so that a later ring is not lost.
            self._has_rung = False
        if link is not None and link.fileno() in ready:
            link.hear()

    def close(self) -> None:
        """Close both ends."""
        self._receiver.close()
        self._sender.close()


class Watchdog(threading.Thread):
    """Cuts links whose call is overdue, as a frozen server does not close its connections."""

    def __init__(self) -> None:
        super().__init__(name="trax-watchdog", daemon=True)
        self._links: set[Link] = set()
        self._end = threading.Event()

    def watch(self, link: Link) -> None:
        """Watch a link until it is closed."""
        self._links.add(link)

    def run(self) -> None:
        """Check all links four times a second."""
        while not self._end.wait(WATCH_SECONDS):
            self._links = {link for link in list(self._links) if not link.is_closed}
            for link in list(self._links):
                link.cut_if_overdue(now())

    def end(self) -> None:
        """End the thread."""
        self._end.set()


class Link:
    """A connection in autocommit, for one thread."""

    def __init__(self, parameters: Mapping[str, Any], watchdog: Watchdog, heard: Heard) -> None:
        self.is_closed = False
        self.was_cut = False
        self._heard = heard
        # No statement stays prepared, so calls work behind a transaction pooler.
        self._connection = psycopg.connect(autocommit=True, prepare_threshold=None, **parameters)
        self._connection.add_notify_handler(lambda one: heard(one.channel, one.payload))
        # A duplicate, so that the watchdog never shuts down another socket with a reused number.
        self._socket = socket.socket(fileno=os.dup(self._connection.fileno()))
        self._deadline: float | None = None
        watchdog.watch(self)

    def fileno(self) -> int:
        """Return the file descriptor for a selector."""
        return self._connection.fileno()

    def call(self, sql: str, parameters: Mapping[str, Any], limit: float) -> list[tuple[Any, ...]]:
        """Run one statement; raise psycopg.Error, also if no answer arrives within the limit."""
        self._deadline = now() + limit
        try:
            cursor = self._connection.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            if self.was_cut:
                raise psycopg.OperationalError(f"no answer within {limit:.1f} s") from error
            raise
        finally:
            self._deadline = None

    def listen(self, channel: str, limit: float) -> None:
        """Listen on a channel; if that is refused, polling takes its place."""
        try:
            self.call(f"listen {channel}", {}, limit)
        except psycopg.Error:
            if self._connection.broken:
                raise

    def hear(self) -> None:
        """Read pending data and pass on the notifications."""
        self._connection.pgconn.consume_input()
        while one := self._connection.pgconn.notifies():
            self._heard(one.relname.decode(), one.extra.decode())

    def cut_if_overdue(self, moment: float) -> None:
        """Shut the connection down if its call is overdue."""
        deadline = self._deadline
        if deadline is not None and deadline < moment:
            self.was_cut = True
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection and ignore errors."""
        self.is_closed = True
        with contextlib.suppress(Exception):
            self._connection.close()
        self._socket.close()


class Backoff:
    """Exponential backoff with full jitter, up to a limit."""

    def __init__(self, longest: float) -> None:
        self._longest = min(longest, LONGEST_BACKOFF_SECONDS)
        self._tries = 0

    def next(self) -> float:
        """Return the pause before the next attempt."""
        ceiling = min(self._longest, BACKOFF_SECONDS * 2.0 ** min(self._tries, 16))
        self._tries += 1
        return ceiling * random.random()  # noqa: S311

    def reset(self) -> None:
        """Start over after a success."""
        self._tries = 0
