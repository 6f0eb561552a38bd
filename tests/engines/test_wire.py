"""A blob gives back the very bits, and whatever else comes is refused with one error."""

import json
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from silograph.core.errors import InputError
from silograph.engines.wire import pack, unpack

SPECIAL = np.array(
    [0x8000000000000000, 0x0000000000000001, 0x7FF8000000000123, 0xFFF0000000000001, 0x7FF0000000000000], np.uint64
).view(np.float64)  # -0.0, the smallest number, a NaN with a payload, a signalling NaN, infinity
FACTS = {"round": 3, "who": "Zürich", "rate": 0.1 + 0.2, "none": None, "deep": {"list": [1, [2.5, True]]}}
BLOB = pack(FACTS, {"x": np.arange(6.0).reshape(2, 3), "mask": np.array([True, False])})


def with_head(head, numbers=b""):
    text = head if isinstance(head, bytes) else json.dumps(head, sort_keys=True, separators=(",", ":")).encode()
    return b"SLG1" + len(text).to_bytes(4, "little") + text + numbers


def array_head(*index):
    return {"arrays": list(index), "facts": {}}


@pytest.mark.parametrize("kind", ["<f8", ">f8", "<i8", ">i8", "?", "u1"])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (0, 10**6), (1, 1, 1, 4)])
def test_bits_come_back(kind, shape):
    rng = np.random.default_rng(0)
    size = int(np.prod(shape))
    raw = rng.bytes(size * np.dtype(kind).itemsize)
    value = (np.frombuffer(raw, "u1") % 2).astype("?") if kind == "?" else np.frombuffer(raw, kind)
    value = value.reshape(shape)
    _, arrays = unpack(pack({}, {"x": value}))
    assert arrays["x"].shape == shape
    assert arrays["x"].dtype == value.dtype.newbyteorder("=")
    assert arrays["x"].astype(value.dtype).tobytes() == value.tobytes()


def test_numbers_that_arithmetic_would_change_come_back():
    _, arrays = unpack(pack({}, {"x": SPECIAL, "every other": np.repeat(SPECIAL, 2)[::2]}))
    assert arrays["x"].tobytes() == arrays["every other"].tobytes() == SPECIAL.tobytes()


def test_facts_come_back():
    facts, arrays = unpack(BLOB)
    assert facts == FACTS
    assert list(arrays) == ["x", "mask"]


def test_arrays_are_the_readers_own():
    _, arrays = unpack(BLOB)
    arrays["x"][0, 0] = 9.0
    assert arrays["x"].flags.aligned
    assert unpack(BLOB)[1]["x"][0, 0] == 0.0


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.integers() | st.text() | st.floats(), max_size=3
    ),
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, min_side=0)),
)
def test_what_can_be_packed_comes_back(facts, value):
    try:
        blob = pack(facts, {"x": value})
    except InputError:  # an infinity, NaN or half a character among the facts
        assert any(
            (isinstance(x, float) and not np.isfinite(x))
            or (isinstance(x, str) and any(0xD800 <= ord(c) < 0xE000 for c in x))
            for x in facts.values()
        )
        return
    back, arrays = unpack(blob)
    assert back == facts
    assert arrays["x"].shape == value.shape
    assert arrays["x"].tobytes() == value.tobytes()


@pytest.mark.parametrize(
    "facts, arrays",
    [
        ({"x": np.float64(1.0) * np.ones(2)}, {}),
        ({"x": float("nan")}, {}),
        ({"x": float("inf")}, {}),
        ({"x": b"bytes"}, {}),
        ({"x": "\ud800"}, {}),
        ({}, {"x": np.ones(2, np.float32)}),
        ({}, {"x": np.ones(2, complex)}),
        ({}, {"x": np.array([None, "text"])}),
        ({}, {"x": np.array(["text"])}),
        ({}, {"x": np.ones(2, [("a", "f8")])}),
    ],
)
def test_what_would_not_come_back_is_not_packed(facts, arrays):
    with pytest.raises(InputError):
        pack(facts, arrays)


def test_a_blob_cut_anywhere_or_with_more_behind_it_is_refused():
    for cut in range(len(BLOB)):
        with pytest.raises(InputError):
            unpack(BLOB[:cut])
    with pytest.raises(InputError):
        unpack(BLOB + b"\0")


@settings(max_examples=600, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(BLOB) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_changed_blob_is_refused_or_is_what_pack_writes(changes):
    """No two blobs mean the same, so a digest of the blob is a digest of what it says."""
    blob = bytearray(BLOB)
    for at, byte in changes:
        blob[at] = byte
    try:
        facts, arrays = unpack(bytes(blob))
    except InputError:
        return
    assert pack(facts, arrays) == bytes(blob)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_refused(noise):
    with pytest.raises(InputError):
        unpack(noise)


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"SLG1\xff\xff\xff\xff",
        b"SLG1\xff\xff\xff\x7f{}",
        with_head(b"{}"),
        with_head(b"[]"),
        with_head(b"1"),
        with_head(b"\xff"),
        with_head({"arrays": []}),
        with_head({"arrays": [], "facts": []}),
        with_head({"arrays": {}, "facts": {}, "more": 1}),
        with_head({"arrays": 5, "facts": {}}),
        with_head(b'{"arrays":[],"facts":{"a":1,"a":2}}'),
        with_head(b'{"arrays":[],"facts":{"a":NaN}}'),
        with_head(b'{"arrays":[],"facts":{"a":1e999}}'),
        with_head(b'{"arrays":[],"facts":{"a":"\\ud800"}}'),
        with_head(b'{"arrays":[], "facts":{}}'),
        with_head(b'{"arrays":[],"facts":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"),
        with_head(b'{"arrays":[],"facts":{"a":' + b"9" * 10_000 + b"}}"),
        with_head(array_head(["x", "<f8", [-1]]), bytes(8)),
        with_head(array_head(["x", "<f8", [-1, -1]]), bytes(8)),
        with_head(array_head(["x", "<f8", [2**61, 8]]), bytes(8)),
        with_head(array_head(["x", "<f8", [2**64 + 1]]), bytes(8)),
        with_head(array_head(["x", "<f8", [10**30, 0]])),
        with_head(array_head(["x", "<f8", [2**62, 0]])),
        with_head(array_head(["x", "<f8", [True]]), bytes(8)),
        with_head(array_head(["x", "<f8", [1.0]]), bytes(8)),
        with_head(array_head(["x", "<f8", "1"]), bytes(8)),
        with_head(array_head(["x", "<f8", 1]), bytes(8)),
        with_head(array_head(["x", "<f8", [1] * 65]), bytes(8)),
        with_head(array_head(["x", ">f8", [1]]), bytes(8)),
        with_head(array_head(["x", "<f4", [2]]), bytes(8)),
        with_head(array_head(["x", "|O", [1]]), bytes(8)),
        with_head(array_head(["x", "<U2", [1]]), bytes(8)),
        with_head(array_head(["x", ["<f8"], [1]]), bytes(8)),
        with_head(array_head(["x", None, [1]]), bytes(8)),
        with_head(array_head([1, "<f8", [1]]), bytes(8)),
        with_head(array_head(["x", "<f8"]), bytes(8)),
        with_head(array_head("abc")),
        with_head(array_head(["x", "<f8", [1]], ["x", "<f8", [1]]), bytes(16)),
        with_head(array_head(["x", "|b1", [2]]), b"\x01\x02"),
        pickle.dumps({"facts": {}}),
    ],
)
def test_hostile_heads_are_refused(blob):
    with pytest.raises(InputError, match="message"):
        unpack(blob)


def test_a_shape_larger_than_the_blob_costs_no_memory():
    blob = with_head(array_head(["x", "<f8", [1 << 40]]), bytes(64))
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            unpack(blob)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
