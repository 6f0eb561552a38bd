"""What is read from outside is what a dataclass says, or an error that says where and what was meant."""

import json
import math
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any, Literal, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from silograph.core.errors import DamageError, InputError, SilographError
from silograph.core.schema import Epsilon, Finite, Such, of_format, parse_json, read, read_json, shortened, write

Span = Annotated[
    tuple[int, int],
    Such("a whole number, or two", before=lambda value: [value, value] if type(value) is int else value),
]


@dataclass(frozen=True)
class Place:
    address: str
    port: Annotated[int, Such("a port from 1 to 65535", lambda n: 1 <= n <= 65535)] = 80


@dataclass(frozen=True)
class Everything:
    text: str
    whole: int
    number: float
    flag: bool
    blob: bytes
    word: Literal["ridge", "huber"]
    tau: float | Literal["learned"]
    place: Place
    places: tuple[Place, ...]
    pair: tuple[str, float]
    weights: list[float]
    named: Mapping[str, bytes]
    anything: dict[str, Any]
    epsilon: Epsilon
    lam: float | None = None
    holdings: tuple[str, ...] = field(default=(), metadata={"key": "organisations"})
    beside: list[Any] = field(default_factory=list, metadata={"key": ""})
    finite: Finite = 0.0
    span: Span = (1, 1)


GOOD = {
    "text": "a",
    "whole": 3,
    "number": 2,
    "flag": True,
    "blob": "AAE=",
    "word": "huber",
    "tau": "learned",
    "place": {"address": "here"},
    "places": [{"address": "there", "port": 5}],
    "pair": ["a", 1],
    "weights": [1, 2.5],
    "named": {"a": "AA=="},
    "anything": {"x": [None, {"y": 1}]},
    "epsilon": "infinity",
    "lambda": None,
    "organisations": ["a"],
    "span": 4,
}


def refused(**changes):
    with pytest.raises(InputError) as caught:
        read(Everything, {**GOOD, **changes}, "file")
    return str(caught.value)


def test_every_kind_of_field_is_read():
    value = read(Everything, GOOD, "file")
    assert value == Everything(
        **{name: GOOD[name] for name in ("text", "whole", "flag", "word", "tau", "anything")},
        number=2.0,
        blob=b"\0\1",
        place=Place("here", 80),
        places=(Place("there", 5),),
        pair=("a", 1.0),
        weights=[1.0, 2.5],
        named={"a": b"\0"},
        epsilon=math.inf,
        holdings=("a",),
        span=(4, 4),
    )
    assert type(value.number) is type(value.pair[1]) is type(value.weights[0]) is float


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wole": 3}, "file: expected only text, whole, .*, but found 'wole'"),
        ({"text": 3}, "file, text: expected a text, but found 3. Put it in quotes."),
        ({"whole": True}, "file, whole: expected a whole number, but found true."),
        ({"whole": 3.0}, "file, whole: expected a whole number, but found 3.0."),
        ({"whole": 2**5000}, "file, whole: expected a number of at most 300 digits, but found "),
        (
            {"whole": 2**50000},
            "file, whole: expected a number of at most 300 digits, but found a number of very many digits.",
        ),
        ({"number": 2**5000}, "file, number: expected a number of at most 300 digits"),
        ({"number": "3"}, "file, number: expected a number, but found '3'."),
        ({"number": True}, "file, number: expected a number, but found true."),
        ({"number": None}, "file, number: expected a number, but found nothing."),
        ({"flag": 1}, "file, flag: expected true or false, but found 1."),
        ({"blob": "?"}, "file, blob: expected base64"),
        ({"blob": [0]}, "file, blob: expected "),
        ({"word": "hubert"}, "file, word: expected one of ridge, huber, but found 'hubert'. Did you mean huber?"),
        ({"word": ["ridge"]}, "file, word: expected one of ridge, huber, but found ['ridge']."),
        ({"tau": "learnt"}, "file, tau: expected a number, or learned, but found 'learnt'. Did you mean learned?"),
        ({"place": "here"}, "file, place: expected a section of named values, but found 'here'."),
        ({"place": {}}, "file, place: expected the key 'address', but it is missing."),
        (
            {"place": {"adress": "x"}},
            "file, place: expected only address, port, but found 'adress'. Did you mean address?",
        ),
        ({"places": [GOOD["place"], {"address": "x", "port": 0}]}, "file, places[1].port: expected a port from 1 to"),
        ({"places": {"address": "x"}}, "file, places: expected a list of items, each a section of named values"),
        ({"pair": ["a"]}, "file, pair: expected a list of 2: a text, a number, but found ['a']."),
        ({"pair": ["a", 1, 2]}, "file, pair: expected a list of 2: a text, a number"),
        ({"pair": [1, 1]}, "file, pair[0]: expected a text"),
        ({"weights": [1, None]}, "file, weights[1]: expected a number, but found nothing."),
        ({"weights": "12"}, "file, weights: expected a list of numbers, but found '12'."),
        ({"named": {"a": 1}}, "file, named['a']: expected "),
        ({"named": {1: "AA=="}}, "file, named[1]: expected a text"),
        ({"anything": 3}, "file, anything: expected a section"),
        ({"epsilon": -1}, 'file, epsilon: expected a number from 0 up, or "infinity", but found -1.'),
        ({"epsilon": math.nan}, "file, epsilon: expected a number from 0 up"),
        ({"epsilon": "much"}, "file, epsilon: expected a number from 0 up"),
        ({"finite": math.inf}, "file, finite: expected a finite number, but found inf."),
        ({"lam": 0.5}, "but found 'lam'."),
        ({"holdings": []}, "but found 'holdings'."),
        ({"beside": []}, "but found 'beside'."),
        ({"span": [1]}, "file, span: expected a whole number, or two, but found [1]."),
    ],
)
def test_what_is_wrong_is_said_with_its_place(changes, message):
    text = refused(**changes)
    assert all(part in text for part in message.split(".*"))


@pytest.mark.parametrize("content", [None, 3, "text", [], [GOOD], True])
def test_what_is_no_section_is_refused(content):
    with pytest.raises(InputError, match="file: expected a section of named values"):
        read(Everything, content, "file")


def test_all_missing_keys_are_named():
    with pytest.raises(InputError, match=r"expected the keys 'text', 'whole', .* but they are missing"):
        read(Everything, {}, "file")


def test_the_nearest_free_key_is_meant():
    """One that was given already cannot have been meant."""
    with pytest.raises(InputError, match=r"found 'adress'\. Did you mean address\?"):
        read(Place, {"adress": "x"}, "file")
    with pytest.raises(InputError) as caught:
        read(Place, {"address": "x", "adress": "x"}, "file")
    assert "Did you mean" not in str(caught.value)


def test_the_caller_says_which_error_and_what_to_do():
    with pytest.raises(DamageError, match=r"file, port: .* Restore it\."):
        read(Place, {"address": "x", "port": "y"}, "file", DamageError, "Restore it.")
    with pytest.raises(DamageError, match=r"Did you mean address\?$"):
        read(Place, {"adress": "x"}, "file", DamageError, "Restore it.")


def test_further_keys_are_ignored_where_they_are_welcome():
    content = {**GOOD, "new": 1, "place": {"address": "here", "newer": 2}}
    assert read(Everything, content, "file", further=True) == read(Everything, GOOD, "file")
    with pytest.raises(InputError):
        read(Everything, content, "file")


def test_a_checked_dataclass_refuses_for_itself():
    @dataclass(frozen=True)
    class Even:
        value: int

        def __post_init__(self):
            if self.value % 2:
                raise InputError("even", "an even number", f"found {self.value}")

    with pytest.raises(InputError, match="an even number"):
        read(Even, {"value": 3}, "file")


def test_another_format_is_refused_before_anything_else():
    assert of_format({"format": 2, "x": 1}, 2, "file") == {"x": 1}
    for content in ({"format": 3, "x": 1}, {"format": True}, {"format": 2.0}, {"format": "2"}, {}):
        with pytest.raises(InputError, match="file: expected format 2"):
            of_format(content, 2, "file")
    with pytest.raises(InputError, match="expected format 2, but found nothing"):
        of_format([], 2, "file")


LAW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine

# ---- laws ------------------------------------------------------------------------------------------------------------

finite = st.floats(allow_nan=False, allow_infinity=False)
places = st.builds(Place, st.text(), st.integers(1, 65535))
everything = st.builds(
    Everything,
    text=st.text(),
    whole=st.integers(1 - 10**300, 10**300 - 1),
    number=finite,
    flag=st.booleans(),
    blob=st.binary(),
    word=st.sampled_from(["ridge", "huber"]),
    tau=st.one_of(finite, st.just("learned")),
    place=places,
    places=st.lists(places).map(tuple),
    pair=st.tuples(st.text(), finite),
    weights=st.lists(finite),
    named=st.dictionaries(st.text(), st.binary()),
    anything=st.dictionaries(st.text(), st.none() | st.integers() | st.text()),
    epsilon=st.floats(min_value=0.0),
    lam=st.none() | finite,
    holdings=st.lists(st.text()).map(tuple),
    finite=finite,
    span=st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
told = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@LAW
@given(everything, st.booleans())
def test_what_is_written_is_read_back(value, nulls):
    text = json.dumps(write(value, nulls), allow_nan=False)
    assert read(Everything, parse_json(text, "file"), "file") == value


@LAW
@given(everything, st.sampled_from(sorted(GOOD)), told)
def test_whatever_comes_is_read_or_refused(value, key, instead):
    """And what is read says the same when it is written."""
    content = {**write(value), key: instead}
    try:
        again = read(Everything, content, "file")
    except SilographError:
        return
    assert read(Everything, write(again), "file") == again


@LAW
@given(told)
def test_any_value_is_shown_in_a_few_words(value):
    assert len(shortened(value)) <= 60


# ---- strangers -------------------------------------------------------------------------------------------------------


def test_large_values_take_no_longer_than_their_size():
    begun = time.process_time()
    for content in (
        {"x" * 10**7: 1},
        {"address": ["y" * 10**7]},
        {"address": [[[0]]] * 10**5},
        {"address": 1 << 10**6},
    ):
        with pytest.raises(InputError) as caught:
            read(Place, content, "file")
        assert len(str(caught.value)) < 300
    with pytest.raises(InputError):
        read(Everything, {**GOOD, "word": "r" * 10**7}, "file")
    assert time.process_time() - begun < 5.0


@pytest.mark.parametrize("text", ["", "{", "[" * 10**5, "1" * 301, "9" * 10**5, b"\xff\xfe\xfd", b"\xff"])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(DamageError, match="file: expected JSON"):
        parse_json(text, "file", DamageError)


def test_a_file_is_read_or_refused(tmp_path):
    path = tmp_path / "place.json"
    with pytest.raises(FileNotFoundError):
        read_json(path, 10, "file")
    path.write_text('{"a": 1}')
    assert read_json(path, 10, "file") == {"a": 1}
    with pytest.raises(InputError, match="at most 7 bytes"):
        read_json(path, 7, "file")


def test_toml_is_read_as_json_is():
    content = tomllib.loads('address = "here"\nport = 0x50')
    assert read(Place, content, "plan.toml") == Place("here", 80)
    with pytest.raises(InputError, match="a number of at most 300 digits"):
        read(Everything, {**GOOD, "whole": tomllib.loads(f"x = 0x{'f' * 10**4}")["x"]}, "plan.toml")


def test_a_name_for_a_type_is_read_as_that_type():
    """numpy's NDArray is one from 2.5 on."""
    typing_extensions = pytest.importorskip("typing_extensions")
    item = TypeVar("item")
    several = typing_extensions.TypeAliasType("several", tuple[item, ...], type_params=(item,))
    kind = make_dataclass("Named", [("counts", several[int])])
    assert read(kind, {"counts": [1, 2]}, "here") == kind((1, 2))
    with pytest.raises(InputError, match="counts"):
        read(kind, {"counts": ["one"]}, "here")
