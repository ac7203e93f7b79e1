from __future__ import annotations

import dataclasses
import enum
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, Literal, TypedDict

import pydantic
import pytest

import trax
from trax.outcome import sendable
from trax.typed import MisfitError, decoder, dumps, loads, names_decimal


class Colour(enum.Enum):
    RED = "red"


class Where(TypedDict, total=False):
    street: str


@dataclasses.dataclass
class Line:
    text: str
    count: int = 1


@dataclasses.dataclass
class Mail:
    to: str
    lines: list[Line]
    where: Where | None = None
    kind: Literal["plain", "html"] = "plain"
    colour: Colour = Colour.RED


@dataclasses.dataclass
class Part:
    amount: Decimal


@dataclasses.dataclass
class Price:
    amount: Decimal
    parts: list[Part]
    rate: float = 1.0


class Bill(pydantic.BaseModel):
    price: Decimal
    rate: float
    at: datetime | None = None


class Model(pydantic.BaseModel):
    at: datetime
    to: str


def test_an_input_becomes_what_the_annotation_says() -> None:
    given = {
        "to": "a",
        "lines": [{"text": "x"}, {"text": "y", "count": 2}],
        "where": {"street": "s"},
        "kind": "html",
        "colour": "red",
        "unknown": 1,
    }
    wanted = Mail("a", [Line("x"), Line("y", 2)], {"street": "s"}, "html", Colour.RED)
    assert decoder(Mail)(given, "input") == wanted
    assert decoder(dict[str, float])({"a": 1}, "input") == {"a": 1.0}
    assert decoder(list)([1, "a"], "input") == [1, "a"]
    assert decoder(Any)({"a": 1}, "input") == {"a": 1}
    assert decoder(None)(None, "input") is None
    model = decoder(Model)({"at": "2027-01-01T00:00:00Z", "to": "a"}, "input")
    assert model == Model(at=datetime(2027, 1, 1, tzinfo=timezone.utc), to="a")


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (Mail, {"lines": []}, "input.to is missing"),
        (Mail, {"to": 1, "lines": []}, "input.to is an integer, not a string"),
        (
            Mail,
            {"to": "a", "lines": [{"text": "x"}, {"text": None}]},
            "input.lines[1].text is null",
        ),
        (Mail, {"to": "a", "lines": [], "kind": "x"}, "input.kind is none of 'plain', 'html'"),
        (Mail, {"to": "a", "lines": [], "colour": "x"}, "input.colour is none of 'red'"),
        (Mail, [], "input is an array, not an object"),
        (int, True, "input is a boolean, not an integer"),
        (int, 1.5, "input is a number, not an integer"),
        (Model, {"to": "a"}, "Field required"),
        (str | None, 1, "not a string; input is an integer, not null"),
    ],
)
def test_a_misfit_says_where(kind: Any, given: Any, said: str) -> None:
    with pytest.raises(MisfitError) as misfit:
        decoder(kind)(given, "input")
    assert said in str(misfit.value)


@pytest.mark.parametrize("kind", [object(), set, dict[int, str], bytes, list[bytes]])
def test_an_unknown_annotation_is_refused(kind: Any) -> None:
    with pytest.raises(trax.UsageError):
        decoder(kind)


def test_outputs_of_common_types_are_json() -> None:
    at = datetime(2027, 1, 1, tzinfo=timezone.utc)
    assert dumps(None) is None
    assert dumps(Line("x")) == '{"text":"x","count":1}'
    assert dumps([at, Colour.RED]) == '["2027-01-01T00:00:00+00:00","red"]'
    assert dumps(Model(at=at, to="a")) == '{"at":"2027-01-01T00:00:00Z","to":"a"}'


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}, b"x"])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        dumps(value)


def circle() -> Any:
    inner: dict[str, Any] = {}
    return {"a": [inner.setdefault("b", inner)]}


def nested() -> Any:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    return {"a": value}


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        ({"attachment": ["a", 2, b"x"]}, TypeError, "input.attachment[2] is bytes, not JSON"),
        ({"a": {"b": float("nan")}}, ValueError, "input.a.b is nan, not JSON; write a finite"),
        ([Part(Decimal("Infinity"))], ValueError, "input[0].amount is Infinity, not JSON"),
        ({"a": {(1, 2): 3}}, TypeError, "input.a has the key (1, 2); the keys of JSON are texts"),
        (circle(), ValueError, "input.a[0].b is a part of itself; leave it out"),
        (nested(), ValueError, "is nested too deeply; write it flatter"),
        ({1, 2}, TypeError, "input is a set, not JSON; write a text, a list or a dict"),
        ({"a": ["\\u0000", "\0"]}, ValueError, "input.a[1] has the character NUL, which Postgre"),
        ({"\\": "\ud83d"}, ValueError, "input.\\ has half of a surrogate pair, which Postgre"),
        ([{"a\0": 1}], ValueError, "input[0].'a\\x00' has the character NUL"),
        ([{None: 1, "null": 2}], ValueError, 'input[0] has two keys that JSON writes as "null"'),
    ],
    ids=[
        *["bytes", "nan", "dataclass", "key", "circle", "nested", "set"],
        *["nul", "surrogate", "nul in a key", "same keys"],
    ],
)
def test_an_input_that_is_no_json_is_named_by_its_path(
    value: Any, kind: type[Exception], said: str
) -> None:
    client = trax.Client.__new__(trax.Client)
    with pytest.raises(trax.UsageError) as refused:
        client.enqueue("a", value)
    assert said in str(refused.value)
    assert isinstance(refused.value, kind)


def test_a_text_that_only_looks_unstorable_is_json() -> None:
    for value in ("\\u0000", "\\ud800", "\N{GRINNING FACE}", "\ud83d\ude00", {1: 2, "2": "null"}):
        assert dumps(value)


def test_an_error_is_text_that_postgresql_can_store() -> None:
    assert sendable("a \0 and a \ud800") == "a \ufffd and a ?"


LONG = "12345678901234567890.10"


def test_a_decimal_has_every_digit_in_and_out() -> None:
    text = f'{{"amount":{LONG},"parts":[{{"amount":7}}],"rate":0.5}}'
    assert names_decimal(Price)
    price = decoder(Price)(loads(text, decimals=True), "input")
    assert price == Price(Decimal(LONG), [Part(Decimal(7))], 0.5)
    assert type(price.rate) is float
    assert type(price.parts[0].amount) is Decimal
    assert dumps(price) == text
    bill = decoder(Bill)(loads(f'{{"price":{LONG},"rate":0.5}}', decimals=True), "input")
    assert bill == Bill(price=Decimal(LONG), rate=0.5)
    for number in (LONG, "1.10", "1E+400", "0E-10", "-3"):
        assert dumps([Decimal(number)]) == f"[{number}]"
        assert dumps({"trax-number": Decimal(number)}) == f'{{"trax-number":{number}}}'
    for infinite in ("NaN", "Infinity"):
        with pytest.raises(ValueError, match="write a finite number or None"):
            dumps(Decimal(infinite))
    with pytest.raises(MisfitError, match="not a number"):
        decoder(Decimal)("1.10", "input")


def test_an_annotation_asks_for_decimals_where_it_names_them() -> None:
    for asks in (Decimal, dict[str, Decimal | str], list[Price] | None, Bill):
        assert names_decimal(asks), asks
    for plain in (Any, None, float, Mail, Model, dict[str, Any], Literal["Decimal"]):
        assert not names_decimal(plain), plain


def test_integers_and_texts_are_exact() -> None:
    for text in ("12345678901234567890123", '"12345678901234567890.10"', "9007199254740993"):
        assert dumps(loads(text, decimals=False)) == text
