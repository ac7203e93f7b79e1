"""OpenTelemetry, if installed: the same spans and names as the Rust client's.

`send TASK` around enqueueing, whose context is stored with the job as `{"traceparent": ...}`, and
`process TASK` around each execution, linked to it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

try:
    from opentelemetry import trace as otel
    from opentelemetry.context import Context as OtelContext
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    _IS_THERE = False
else:
    _IS_THERE = True


class Traced(Protocol):
    """The properties of an attempt that its span has."""

    @property
    def job_id(self) -> int: ...  # noqa: D102
    @property
    def task(self) -> str: ...  # noqa: D102
    @property
    def trace(self) -> dict[str, Any] | None: ...  # noqa: D102


def around(function: Callable[..., Any]) -> Callable[[Traced, dict[str, Any]], Any]:
    """Return a function that runs a handler inside its span."""

    def run(context: Traced, arguments: dict[str, Any]) -> Any:
        with _execution(context):
            return function(**arguments)

    return run


def around_async(
    function: Callable[..., Awaitable[Any]],
) -> Callable[[Traced, dict[str, Any]], Awaitable[Any]]:
    """Return a function that runs an async handler inside its span."""

    async def run(context: Traced, arguments: dict[str, Any]) -> Any:
        with _execution(context):
            return await function(**arguments)

    return run


@contextmanager
def sending(task: str, operation: str, jobs: int | None = None) -> Iterator[dict[str, str] | None]:
    """Wrap enqueueing in a span; yield the trace data to store with the job."""
    if not _IS_THERE:
        yield None
        return
    attributes = _attributes("send", operation, task)
    if jobs is not None:
        attributes["messaging.batch.message_count"] = jobs
    tracer = otel.get_tracer("trax")
    name, kind = f"send {task}", otel.SpanKind.PRODUCER
    with tracer.start_as_current_span(name, kind=kind, attributes=attributes):
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        yield carrier or None


@contextmanager
def _execution(context: Traced) -> Iterator[None]:
    if not _IS_THERE:
        yield
        return
    attributes = _attributes("process", "process", context.task)
    attributes["messaging.message.id"] = str(context.job_id)
    tracer = otel.get_tracer("trax")
    failure: BaseException | None = None
    try:
        with tracer.start_as_current_span(
            f"process {context.task}",
            context=OtelContext(),
            kind=otel.SpanKind.CONSUMER,
            attributes=attributes,
            links=_links(context.trace),
        ):
            try:
                yield
            except BaseException as error:
                failure = error
                raise
    except BaseException:
        if failure is None:
            raise
    if failure is not None:
        # The span may have raised another one, as it describes what the handler has raised.
        try:
            raise failure
        finally:
            failure = None  # Its traceback has this frame.


def _links(trace: dict[str, Any] | None) -> list[Any]:
    carrier = {k: v for k, v in (trace or {}).items() if isinstance(v, str)}
    extracted = TraceContextTextMapPropagator().extract(carrier, OtelContext())
    sender = otel.get_current_span(extracted).get_span_context()
    return [otel.Link(sender)] if sender.is_valid else []


def _attributes(kind: str, operation: str, task: str) -> dict[str, Any]:
    return {
        "messaging.system": "trax",
        "messaging.operation.type": kind,
        "messaging.operation.name": operation,
        "messaging.destination.name": task,
    }
