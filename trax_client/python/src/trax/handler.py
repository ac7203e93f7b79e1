"""Handlers: functions with a task, a typed input, and optionally the context."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Collection, Iterator
from typing import Any

from . import telemetry
from .attempt import Attempt
from .context import AsyncContext, BaseContext, Context
from .errors import UsageError, kind_of
from .outcome import Refused, fail
from .typed import Decoder, MisfitError, decoder, loads, names_decimal


class Handler:
    """A function that runs the jobs of one task."""

    def __init__(self, task: str, function: Callable[..., Any], *, is_async: bool) -> None:
        if inspect.isclass(function) or not callable(function):
            said = "a class" if inspect.isclass(function) else kind_of(function)
            raise UsageError(f'the handler of "{task}" is {said}: decorate a function')
        plain, given = _plain(function)
        if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
            raise UsageError(f'the handler of "{task}" yields: return the output instead')
        if is_async != inspect.iscoroutinefunction(plain):
            raise UsageError(
                f'the handler of "{task}" is not async: write async def, or use trax.Worker'
                if is_async
                else f'the handler of "{task}" is async: write def, or use trax.AsyncWorker'
            )
        self.task = task
        self.context_type: type[BaseContext] = AsyncContext if is_async else Context
        self._run = telemetry.around_async(function) if is_async else telemetry.around(function)
        self._context: str | None = None
        self._input: tuple[str, Decoder] | None = None
        self._decimals = False
        self._read_signature(function, plain, given)

    def run(self, attempt: Attempt, context: BaseContext) -> Any:
        """Call the function for an attempt, which loses its input; raise `Refused` if it cannot."""
        arguments = self._arguments(attempt.input)
        attempt.input = ""
        if self._context is not None:
            arguments[self._context] = context
        return self._run(context, arguments)

    def _arguments(self, text: str) -> dict[str, Any]:
        try:
            value = loads(text, decimals=self._decimals)
            if self._input is None:
                return {}
            name, decode = self._input
            return {name: decode(value, "input")}
        except MisfitError as misfit:
            # Not permanent: during a rolling deployment the next attempt may run in newer code.
            raise Refused(fail(f"the input does not fit this handler: {misfit}")) from None
        except (ValueError, RecursionError) as error:
            said = f"the input cannot be decoded: {error}"
            raise Refused(fail(said, permanent=True)) from None

    def _read_signature(
        self, function: Callable[..., Any], plain: Callable[..., Any], given: Collection[str]
    ) -> None:
        where, wanted = f'the handler of "{self.task}"', self.context_type
        annotate = f'annotate the context as "trax.{wanted.__name__}"'
        for name, parameter, hint in self._parameters(function, plain, given):
            is_context = hint in (Context, AsyncContext)
            if is_context and hint is not wanted:
                said = "async" if wanted is AsyncContext else "not async"
                raise UsageError(f"{where} is {said}: {annotate}")
            if is_context and self._context is None:
                self._context = name
            elif self._input is None and not is_context:
                self._take_input(name, hint, name)
            elif parameter.default is inspect.Parameter.empty:
                raise UsageError(
                    f"{where} has more parameters than an input and a context: {annotate}"
                )

    def _take_input(self, name: str, hint: Any, parameter: str) -> None:
        try:
            self._input = (name, decoder(hint))
            self._decimals = names_decimal(hint)
        except UsageError as error:
            where = f'the handler of "{self.task}", parameter "{parameter}"'
            raise UsageError(f"{where}: {error}") from None

    def _parameters(
        self, function: Callable[..., Any], plain: Callable[..., Any], given: Collection[str]
    ) -> Iterator[tuple[str, inspect.Parameter, Any]]:
        """Return the parameters that the worker gives, with their annotations."""
        where = f'the handler of "{self.task}"'
        try:
            hints = typing.get_type_hints(plain)
            parameters = inspect.signature(function).parameters
        except (NameError, TypeError, ValueError) as error:
            raise UsageError(f"{where} has an annotation that cannot be read: {error}") from error
        for name, parameter in parameters.items():
            if name in given:
                continue
            if parameter.kind not in (
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                inspect.Parameter.KEYWORD_ONLY,
            ):
                raise UsageError(f"{where} takes *{name}: name its parameters")
            yield name, parameter, hints.get(name, Any)


def _plain(function: Callable[..., Any]) -> tuple[Callable[..., Any], set[str]]:
    """Return the function of a partial or of an object, and the parameters that a partial gives."""
    given: set[str] = set()
    while isinstance(function, functools.partial):
        given |= function.keywords.keys()
        function = function.func
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        function = getattr(function, "__call__", function)  # noqa: B004
    return function, given
