"""Arguments that are refused before anything is sent; no server is needed."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone, tzinfo
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest

import trax
from trax.connection import bounded
from trax.outcome import Kind, Verdict, instead

Call = Callable[..., Any]


class Sent(Exception):
    """The arguments have reached the connection."""


class Connection:
    autocommit = True


class Client(trax.Client):
    def __init__(self) -> None:
        self._connection: Any = Connection()
        self._decimals = False

    def _all(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        raise Sent(parameters)


class AsyncClient(trax.AsyncClient):
    def __init__(self) -> None:
        self._connection: Any = Connection()
        self._decimals = False

    async def _all(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        raise Sent(parameters)


def awaited(method: Call) -> Call:
    return lambda *args, **kwargs: asyncio.run(method(*args, **kwargs))


def done(result: Any) -> None:
    if asyncio.iscoroutine(result):
        asyncio.run(result)


CLIENT, ASYNC = Client(), AsyncClient()
KINDS: list[Call] = [trax.Client, trax.AsyncClient]
WORKERS: list[Call] = [trax.Worker, trax.AsyncWorker]
MANY: list[Call] = [CLIENT.enqueue_many, awaited(ASYNC.enqueue_many)]
ENQUEUE: list[Call] = [
    lambda task="a", **options: CLIENT.enqueue(task, **options),
    lambda task="a", **options: CLIENT.enqueue_many(task, [1], **options),
    lambda task="a", **options: awaited(ASYNC.enqueue)(task, **options),
    lambda task="a", **options: awaited(ASYNC.enqueue_many)(task, [1], **options),
]
SQL: list[Call] = [
    lambda command="call rollup()", **options: CLIENT.enqueue_sql(command, **options),
    lambda command="call rollup()", **options: awaited(ASYNC.enqueue_sql)(command, **options),
]
AWAIT_JOBS: list[Call] = [CLIENT.await_jobs, awaited(ASYNC.await_jobs)]
OF_A_JOB: list[Call] = [
    CLIENT.job,
    CLIENT.cancel,
    lambda job_id: CLIENT.await_job(job_id, 1),
    CLIENT.read_steps,
    CLIENT.fork,
    lambda job_id: CLIENT.send_signal(job_id, "paid"),
    awaited(ASYNC.job),
    awaited(ASYNC.cancel),
    awaited(ASYNC.read_steps),
    awaited(ASYNC.fork),
    lambda job_id: awaited(ASYNC.send_signal)(job_id, "paid"),
    lambda job_id: awaited(ASYNC.await_job)(job_id, 1),
]


def wait(delay: Any) -> None:
    context().wait(delay)


def sent(_attempt: Any, call: Any) -> None:
    raise Sent(call)


def context() -> trax.Context:
    attempt: Any = SimpleNamespace(stopped=SimpleNamespace(wait=lambda _: None), reason=None)
    attempt.is_suspended, attempt.failure = False, None
    attempt.reached, attempt.kept, attempt.calls = set(), {}, {}
    attempt.job_id, attempt.token = 1, ""
    calls: Any = SimpleNamespace(lock_timeout="1", start=sent)
    return trax.Context(attempt, print, calls)


def spawn(kind: Call, *given: Any) -> Any:
    one = context()
    return kind(one._attempt, print, one._calls).spawn("letter", "a", {"n": 1}, *given)


def by_name(calls: list[Call], *names: str) -> list[tuple[str, Call]]:
    """Return each call with each name, the call taking the value of that argument alone."""
    return [
        (name, lambda value, call=call, name=name: call(**{name: value}))
        for call in calls
        for name in names
    ]


LISTS = by_name(WORKERS, "groups", "versions")
LISTS += [("inputs", lambda value, call=call: call("a", value)) for call in MANY]
DURATIONS = by_name(ENQUEUE + SQL, "timeout", "retry_delay")
DURATIONS += [
    ("unique_for", lambda value, call=call: call(unique_for=value, unique_key="a"))
    for call in ENQUEUE + SQL
]
DURATIONS += by_name(WORKERS, "lease", "grace", "poll_interval")
DURATIONS += [("delay", call) for call in (trax.Snooze, trax.RetryIn, wait)]
DURATIONS += [("delay", lambda value: trax.RetryIn(value, "later"))]
DURATIONS += [
    ("timeout", lambda value: CLIENT.await_job(1, value)),
    ("timeout", lambda value: awaited(ASYNC.await_job)(1, value)),
    *(("timeout", lambda value, call=call: call([1], value)) for call in AWAIT_JOBS),
]
DURATIONS += [
    ("until", lambda value: context().sleep("nap", value)),
    ("timeout", lambda value: context().signal("paid", timeout=value)),
    ("timeout", lambda value: context().children(timeout=value)),
]
INTEGERS = by_name(ENQUEUE + SQL, "priority", "max_retries") + by_name(WORKERS, "concurrency")
INTEGERS += [("job_id", call) for call in OF_A_JOB]
TEXTS = by_name(ENQUEUE, "task", "group_name", "unique_key", "concurrency_key")
TEXTS += by_name(SQL, "command", "run_as", "group_name", "unique_key", "concurrency_key")
TEXTS += by_name(WORKERS, "name", "address")
TEXTS += [
    ("name", lambda value: context().step(value, print)),
    ("name", lambda value: context().signal(value)),
    ("name", lambda value: CLIENT.send_signal(1, value)),
    ("from_step", lambda value: CLIENT.fork(1, value)),
    ("undo task", lambda value: context().step("charge", print, undo={"task": value})),
]
FLAGS = [("tree", lambda tree: CLIENT.cancel(1, tree=tree)), *by_name(WORKERS, "obey_signals")]
FLAGS += by_name([lambda kind=kind, **flags: kind(object(), **flags) for kind in KINDS], "decimals")
FLAGS += by_name([lambda **flags: trax.Worker("").run(**flags)], "until_empty")
FLAGS += by_name([lambda **flags: asyncio.run(trax.AsyncWorker("").run(**flags))], "until_empty")


class Mail(pydantic.BaseModel):
    to: str


class Nowhere(tzinfo):
    def utcoffset(self, _: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


def refused(call: Call, value: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(trax.UsageError, match=re.escape(said)) as error:
        call(value)
    assert isinstance(error.value, kind)


def accepted(call: Call, value: Any) -> None:
    with contextlib.suppress(Sent):
        call(value)


@pytest.mark.parametrize(("name", "call"), LISTS)
def test_a_list_refuses_a_single_value(name: str, call: Call) -> None:
    example = {
        "groups": 'groups=["mail"]',
        "versions": 'versions=["v2"]',
        "inputs": 'inputs=[{"to": "ada"}]',
    }[name]
    for value, said in [
        ("mail", "a text"),
        (b"mail", "bytes"),
        (bytearray(b"mail"), "a bytearray"),
        ({"mail": 1}, "a dict"),
        (Mail(to="ada"), "a Mail"),
        (5, "an int"),
        (True, "True or False"),
    ]:
        refused(call, value, TypeError, f"{name} is {said}; write {example}")
    for value in (["a"], ("a", "b"), {"a"}, iter(["a"]), {"a": 1}.keys()):
        accepted(call, value)


@pytest.mark.parametrize("worker", WORKERS)
def test_a_list_of_texts_refuses_other_items(worker: Call) -> None:
    for item, said in [(5, "an int"), (None, "None"), (b"mail", "bytes"), (["mail"], "a list")]:
        said = f'groups[1] is {said}; write groups=["mail"]'
        refused(lambda value: worker(groups=value), ["mail", item], TypeError, said)
    refused(lambda value: worker(groups=value), [], ValueError, "leave it out")
    refused(lambda value: worker(versions=value), [], ValueError, "leave it out")


@pytest.mark.parametrize("call", AWAIT_JOBS)
def test_jobs_to_wait_for_are_a_list_of_ids(call: Call) -> None:
    for value, kind, said in [
        (17, TypeError, "ids is an int; write ids=[17, 18]"),
        ("17", TypeError, "ids is a text; write ids=[17, 18]"),
        ([17, "18"], TypeError, "ids[1] is a text; write ids[1]=17"),
        ([2**70], ValueError, f"ids[0] is {2**70}; write a number from "),
        ([], ValueError, "ids is empty; write those of one or more jobs, as in ids=[17, 18]"),
    ]:
        refused(lambda value: call(value, 1), value, kind, said)
    for value in ([17], (17, 18), {17}, iter([17]), {17: "a"}.keys()):
        accepted(lambda value: call(value, 1), value)


@pytest.mark.parametrize("call", ENQUEUE + SQL + WORKERS)
def test_an_unknown_option_is_refused_with_the_nearest_one(call: Call) -> None:
    near = {"group": "groups", "concurency": "concurrency", "adress": "address"}
    every = "the options are address, name, concurrency, "
    if call in ENQUEUE + SQL:
        near = {"group": "group_name", "retries": "max_retries", "run_At": "run_at"}
        first = "run_as, " if call in SQL else ""
        every = f"the options are {first}run_at, group_name, priority, "
    for name, meant in near.items():
        said = f'there is no option "{name}"; did you mean "{meant}"?'
        refused(lambda value, name=name: call(**{name: value}), "a", TypeError, said)
    said = f'there is no option "colour"; {every}'
    refused(lambda value: call(colour=value), "red", TypeError, said)


MISTYPED: list[tuple[Call, str, str]] = [
    (CLIENT.cancel, "tre", "tree"),
    (awaited(ASYNC.cancel), "tre", "tree"),
    (CLIENT.record_step, "undoo", "undo"),
    (CLIENT.fork, "from_stp", "from_step"),
    (trax.Client, "decimal", "decimals"),
    (trax.Graph, "uniqe_key", "unique_key"),
    (trax.Worker("").run, "untilempty", "until_empty"),
    (awaited(trax.AsyncWorker("").run), "untilempty", "until_empty"),
    (context().step, "retuns", "returns"),
    (awaited(trax.AsyncContext.step), "retuns", "returns"),
    (context().children, "mod", "mode"),
    (trax.RetryIn, "closerate", "close_rate"),
    (trax.Permanent, "details", "detail"),
]


@pytest.mark.parametrize(("call", "name", "meant"), MISTYPED)
def test_a_mistyped_option_of_any_call_is_refused_with_the_nearest_one(
    call: Call, name: str, meant: str
) -> None:
    said = f'there is no option "{name}"; did you mean "{meant}"?'
    refused(lambda value: call(**{name: value}), 1, TypeError, said)


OF_HANDLERS: list[Call] = [
    trax.Worker("").task,
    lambda name, **options: trax.AsyncWorker("").task_many(name, max_jobs=1, **options),
]


@pytest.mark.parametrize("call", OF_HANDLERS)
def test_an_option_of_a_job_is_refused_at_its_handler_with_where_to_give_it(call: Call) -> None:
    for option, sql in [("max_retries", "3"), ("retry_delay", "'90 s'"), ("timeout", "'90 s'")]:
        said = f"give it to enqueue, or type select trax.configure_task('x', {option} => {sql})"
        refused(lambda n, o=option: call("x", **{o: n}), 3, TypeError, said)
    refused(lambda n: call("x", colour=n), 3, TypeError, 'no option "colour"; the options are')


@pytest.mark.parametrize("call", ENQUEUE + SQL)
def test_an_option_of_another_library_is_refused_with_what_to_write(call: Call) -> None:
    later = "write run_at=datetime.now(timezone.utc) + timedelta(seconds=90)"
    limit = "type select trax.limit_queue_time(job_id, '1 hour')"
    others = dict.fromkeys(("delay", "countdown", "eta", "start_after", "startAfter"), later)
    for name, words in {**others, "expires": limit}.items():
        said = f'there is no option "{name}"; {words}'
        refused(lambda value, name=name: call(**{name: value}), 90, TypeError, said)


@pytest.mark.parametrize(
    "call", [*SQL, lambda **options: trax.Graph().add_sql("load", "call rollup()", **options)]
)
def test_a_sql_job_refuses_the_options_of_other_jobs(call: Call) -> None:
    others = trax.JobOptions.__annotations__.keys() - trax.SqlOptions.__annotations__.keys()
    assert others == {"trace", "version", "batch", "rate", "rate_key", "cost"}
    for name in ("task", "input", *others):
        said = f'a SQL job has no option "{name}"; leave it out'
        refused(lambda value, name=name: call(**{name: value}), "a", TypeError, said)


UNNAMED: list[Call] = [
    *(lambda value, call=call: call("a", [1], value) for call in MANY),
    *(
        lambda value, call=call: call("a", {"n": 1}, value)
        for client in (CLIENT, ASYNC)
        for call in (client.enqueue, client.open_batch)
    ),
    *(lambda value, kind=kind: spawn(kind, value) for kind in (trax.Context, trax.AsyncContext)),
    lambda value: trax.Graph().add("load", "a", {"n": 1}, value),
    lambda value: trax.Graph().add_sql("load", "call rollup()", value),
    *(
        lambda value, call=call: call("call rollup()", value)
        for call in (CLIENT.enqueue_sql, ASYNC.enqueue_sql)
    ),
]


@pytest.mark.parametrize("call", UNNAMED)
def test_an_option_without_its_name_is_refused_with_it(call: Call) -> None:
    for value, said in [
        ({"priority": 1, "batch": 7}, "write priority=1, batch=7"),
        ({}, "write priority=5"),
        (7, "write priority=5"),
    ]:
        said = f"options are given by name; {said}"
        refused(lambda value: done(call(value)), value, TypeError, said)


@pytest.mark.parametrize("call", ENQUEUE)
def test_a_time_is_a_datetime_with_a_zone(call: Call) -> None:
    example = "write run_at=datetime(2030, 1, 31, 9, tzinfo=timezone.utc)"
    for value, said in [
        ("tomorrow", "run_at is a text; "),
        (date(2030, 1, 31), "run_at is a date; "),
        (1.9e9, "run_at is a float; "),
        (timedelta(days=1), "run_at is a timedelta; "),
    ]:
        refused(lambda value: call(run_at=value), value, TypeError, said + example)
    naive = datetime(2030, 1, 31)  # noqa: DTZ001, RUF100
    for value in (naive, naive.replace(tzinfo=Nowhere())):
        said = f"run_at has no time zone; {example}"
        refused(lambda value: call(run_at=value), value, ValueError, said)
    accepted(lambda value: call(run_at=value), naive.replace(tzinfo=timezone.utc))


@pytest.mark.parametrize(("name", "call"), DURATIONS)
def test_a_duration_is_a_number_of_seconds_or_a_timedelta(name: str, call: Call) -> None:
    example = f"write {name}=90, a number of seconds, or a timedelta"
    for value, said in [
        ("90", "a text"),
        ("90 s", "a text"),
        (True, "True or False"),
        ([90], "a list"),
        (b"90", "bytes"),
    ]:
        refused(call, value, TypeError, f"{name} is {said}; {example}")
    for value in (
        float("nan"),
        float("inf"),
        -1,
        -0.5,
        timedelta(seconds=-1),
        1e12,
        10**20,
        10**400,
    ):
        refused(call, value, ValueError, f"{name} is {value}; write a finite duration")
    for value in (90, 1.5, timedelta(minutes=1)):
        accepted(call, value)


PERIODS = by_name(ENQUEUE, "timeout") + by_name(WORKERS, "poll_interval")


@pytest.mark.parametrize(("name", "call"), PERIODS)
def test_a_period_is_longer_than_zero(name: str, call: Call) -> None:
    for value in (0, 0.0, timedelta(0)):
        said = f"{name} is {value}; write a finite duration of more than 0 s, at most 3650 days"
        refused(call, value, ValueError, said)
    accepted(call, 0.05)


@pytest.mark.parametrize(("name", "call"), INTEGERS)
def test_an_integer_is_no_fraction_truth_or_text(name: str, call: Call) -> None:
    for value, said in [
        (5.5, "a float"),
        (5.0, "a float"),
        (True, "True or False"),
        ("5", "a text"),
        ([5], "a list"),
    ]:
        refused(call, value, TypeError, f"{name} is {said}; write {name}=")
    accepted(call, 5)


@pytest.mark.parametrize(("name", "call"), TEXTS)
def test_a_text_is_no_number_bytes_or_list(name: str, call: Call) -> None:
    for value, said in [(5, "an int"), (b"a", "bytes"), (["a"], "a list"), (("a", 1), "a tuple")]:
        refused(call, value, TypeError, f'{name} is {said}; write {name}="')
    accepted(call, "" if name == "address" else "a")
    if name != "address":
        refused(call, "a\ud800b", ValueError, "half of a surrogate pair at 1")


@pytest.mark.parametrize(("name", "call"), FLAGS)
def test_a_flag_is_true_or_false(name: str, call: Call) -> None:
    for value, said in [("no", "a text"), (0, "an int"), (None, "None")]:
        refused(call, value, TypeError, f"{name} is {said}; write {name}=True or False")


@pytest.mark.parametrize("call", ENQUEUE)
def test_an_option_out_of_its_range_is_refused_before_it_is_sent(call: Call) -> None:
    for options, said in [
        ({"unique_for": 5}, 'unique_for needs a key; write unique_key="report 7" too'),
        ({"on_duplicate": "keep"}, 'on_duplicate needs a key; write unique_key="report 7" too'),
        ({"on_duplicate": True}, "on_duplicate is True; write one of: keep, replace, postpone"),
        ({"version": ""}, 'version is ""; write a name that neither is empty nor begins or ends'),
        ({"group_name": ""}, 'group_name is ""; write a name that neither is empty nor begins'),
        ({"unique_key": ""}, 'unique_key is empty; write a text, as in unique_key="mail"'),
        ({"concurrency_key": "a" * 256}, 'aaa..." of 256 bytes; write at most 255'),
        ({"priority": 2**40}, f"priority is {2**40}; write a number from 0 to 31"),
        ({"max_retries": -1}, "max_retries is -1; write a number from 0 to 2147483646"),
        ({"cost": 0}, "cost is 0; write a number from 1 to 2147483647"),
        ({"batch": 2**70}, f"batch is {2**70}; write a number from -9223372036854775808 to 9"),
        ({"task": " a"}, 'task is " a"; write a name that neither is empty nor begins'),
    ]:
        refused(lambda options: call(**options), options, ValueError, said)
    refused(CLIENT.job, 2**70, ValueError, f"job_id is {2**70}; write a number from ")
    accepted(lambda value: call(unique_key=value), " a")


@pytest.mark.parametrize("call", ENQUEUE)
def test_trace_data_is_a_mapping(call: Call) -> None:
    for value, said in [("00-1-2-01", "a text"), ([("traceparent", "x")], "a list")]:
        said = f'trace is {said}; write trace={{"traceparent": '
        refused(lambda value: call(trace=value), value, TypeError, said)
    accepted(lambda value: call(trace=value), {"traceparent": "x"})


def test_a_checked_option_is_sent_as_it_was_given() -> None:
    at = datetime(2030, 1, 31, tzinfo=timezone.utc)
    with pytest.raises(Sent) as sent:
        CLIENT.enqueue("a", run_at=at, priority=7, timeout=1.5, trace={"b": "c"}, unique_key=None)
    parameters = sent.value.args[0]
    given = {name: value for name, value in parameters.items() if value is not None}
    timeout = timedelta(seconds=1.5)
    wanted = {"run_at": at, "priority": 7, "timeout": timeout, "trace": '{"b":"c"}'}
    assert given == {"task": "a", "input": "{}", **wanted}
    assert parameters.keys() == {"task", "input", *trax.JobOptions.__annotations__}
    for call in SQL:
        with pytest.raises(Sent) as sent:
            call("vacuum", run_at=at, timeout=1.5, run_as="ada", unique_key=None)
        parameters = sent.value.args[0]
        given = {name: value for name, value in parameters.items() if value is not None}
        assert given == {"command": "vacuum", "run_at": at, "timeout": timeout, "run_as": "ada"}
        assert parameters.keys() == {"command", *trax.SqlOptions.__annotations__}


@pytest.mark.parametrize("worker", WORKERS)
def test_a_task_is_named_as_the_server_takes_it(worker: Call) -> None:
    for name in ("", " mail", "mail\n"):
        said = f'task is "{name}"; write a name that neither is empty nor begins'
        refused(worker().task, name, ValueError, said)
    said = 'which the server runs: queue them with client.enqueue_sql("...")'
    for decorate in (worker().task, lambda name: worker().task_many(name, max_jobs=1)):
        refused(decorate, "sql", ValueError, f'task "sql" is that of SQL jobs, {said}')
    refused(worker().task, "a\0b", ValueError, "task is 'a\\x00b'; remove the NUL")
    refused(worker().task, "a\ud800", ValueError, "task is 'a\\ud800', which has half of a surr")
    refused(worker().task, "\xe9" * 128, ValueError, "of 256 bytes; write at most 255")


def test_none_is_null_and_no_input_is_an_empty_object() -> None:
    def sent(call: Call, *args: Any) -> Any:
        with pytest.raises(Sent) as arrived:
            call("a", *args)
        return arrived.value.args[0]

    for call in (CLIENT.enqueue, awaited(ASYNC.enqueue)):
        assert sent(call)["input"] == "{}"
        assert sent(call, None)["input"] == "null"
        assert sent(call, {})["input"] == "{}"
    for call in MANY:
        assert sent(call, [None, {}])["inputs"] == ["null", "{}"]


def test_a_long_lease_has_keepalives_that_the_system_takes() -> None:
    for lease, probe in [(30.0, 7), (1.0, 1), (172_800.0, 30)]:
        parameters = bounded("host=a", "w", lease)
        assert parameters["keepalives_idle"] == parameters["keepalives_interval"] == probe


def test_a_refused_failure_loses_its_detail_and_then_its_delay() -> None:
    failure = Verdict(Kind.FAIL, error="oops", detail='{"a":1}', delay=timedelta(seconds=5))
    first = instead(failure, "why")
    assert (first.error, first.delay) == ("oops", timedelta(seconds=5))
    assert "why" in (first.detail or "")
    second = instead(first, "still", again=True)
    assert (second.error, second.detail, second.delay) == ("oops", first.detail, None)
