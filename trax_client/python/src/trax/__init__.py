"""trax, the job scheduler inside PostgreSQL: workers and clients with psycopg 3.

A worker::

    worker = trax.AsyncWorker("postgresql://localhost/shop")

    @worker.task("mail.send")
    async def send_mail(mail: Mail, ctx: trax.Context) -> dict[str, bool]:
        ...

    asyncio.run(worker.run())

A producer, in the caller's own transaction::

    with psycopg.connect("postgresql://localhost/shop") as connection:
        trax.Client(connection).enqueue("mail.send", {"to": "ada@example.org"})
"""

from .client import AsyncClient, Client, Job, JobOptions, JobResult
from .context import Context
from .errors import (
    BusyError,
    ConflictError,
    DisconnectedError,
    InvalidArgumentError,
    NotInstalledError,
    NotPermittedError,
    ServerError,
    TooLargeError,
    TraxError,
    UnknownNameError,
    UnsupportedError,
    UsageError,
    VersionError,
    WrongStateError,
)
from .outcome import RECORDED, Cancel, Permanent, Reason, RetryIn, Snooze, Stopped
from .version import __version__
from .worker import AsyncWorker, Worker

__all__ = [
    "RECORDED",
    "AsyncClient",
    "AsyncWorker",
    "BusyError",
    "Cancel",
    "Client",
    "ConflictError",
    "Context",
    "DisconnectedError",
    "InvalidArgumentError",
    "Job",
    "JobOptions",
    "JobResult",
    "NotInstalledError",
    "NotPermittedError",
    "Permanent",
    "Reason",
    "RetryIn",
    "ServerError",
    "Snooze",
    "Stopped",
    "TooLargeError",
    "TraxError",
    "UnknownNameError",
    "UnsupportedError",
    "UsageError",
    "VersionError",
    "Worker",
    "WrongStateError",
    "__version__",
]
