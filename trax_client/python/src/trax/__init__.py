"""trax, the job scheduler inside PostgreSQL: workers and clients with psycopg 3.

A worker::

    worker = trax.AsyncWorker("postgresql://localhost/shop")

    @worker.task("mail.send")
    async def send_mail(mail: Mail, ctx: trax.AsyncContext) -> dict[str, bool]:
        ...

    asyncio.run(worker.run())

A producer, in the caller's own transaction::

    with psycopg.connect("postgresql://localhost/shop") as connection:
        trax.Client(connection).enqueue("mail.send", {"to": "ada@example.org"})
"""

from .client import AsyncClient, Client
from .context import AsyncContext, Context
from .errors import (
    BusyError,
    ConflictError,
    DisconnectedError,
    InvalidArgumentError,
    NotInstalledError,
    NotPermittedError,
    ServerError,
    TimedOutError,
    TooLargeError,
    TraxError,
    UnknownNameError,
    UnsupportedError,
    UsageError,
    VersionError,
    WrongStateError,
)
from .graph import Graph, Member, Need, Node
from .many import AsyncGatheredJob, GatheredJob
from .options import JobChange, JobOptions, SqlOptions
from .outcome import RECORDED, Cancel, Permanent, Reason, RetryIn, Snooze, Stopped, Suspended
from .results import Job, JobResult, RecordedStep, Step
from .steps import Child
from .version import __version__
from .worker import AsyncWorker, Worker

__all__ = [
    "RECORDED",
    "AsyncClient",
    "AsyncContext",
    "AsyncGatheredJob",
    "AsyncWorker",
    "BusyError",
    "Cancel",
    "Child",
    "Client",
    "ConflictError",
    "Context",
    "DisconnectedError",
    "GatheredJob",
    "Graph",
    "InvalidArgumentError",
    "Job",
    "JobChange",
    "JobOptions",
    "JobResult",
    "Member",
    "Need",
    "Node",
    "NotInstalledError",
    "NotPermittedError",
    "Permanent",
    "Reason",
    "RecordedStep",
    "RetryIn",
    "ServerError",
    "Snooze",
    "SqlOptions",
    "Step",
    "Stopped",
    "Suspended",
    "TimedOutError",
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
