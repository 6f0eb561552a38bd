"""The Matlab reader against scipy's, on what scipy writes and on files that many Matlab versions wrote."""

import io
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.io.matlab

from silograph.data.matlab import read_mat
from silograph.data.readers import read_table

SIGNALS = np.random.default_rng(4).standard_normal((6, 4))

# Installed with scipy, though not by every packager.
FILES = sorted((Path(scipy.io.matlab.__file__).parent / "tests" / "data").glob("*.mat"))


def same(ours, theirs):
    """Whether two values are equal, cells and all."""
    if ours is None:  # a struct, an object, a function, a sparse matrix
        return not isinstance(theirs, np.ndarray) or theirs.dtype.kind not in "biufcU"
    if theirs.dtype == object:
        pairs = zip(ours.ravel(), theirs.ravel(), strict=True)
        return ours.shape == theirs.shape and all(same(*pair) for pair in pairs)
    if theirs.dtype.kind == "U":
        return [str(text).rstrip() for text in ours] == ([str(text).rstrip() for text in theirs.ravel()] or [""])
    return ours.shape == theirs.shape and np.array_equal(ours, theirs)


@pytest.mark.parametrize("do_compression", [False, True])
@pytest.mark.parametrize(
    "value",
    [
        SIGNALS,
        SIGNALS.astype("float32"),
        np.arange(12, dtype="int8").reshape(3, 4),
        np.arange(24, dtype="uint64").reshape(2, 3, 4),
        SIGNALS + 2j * SIGNALS,
        SIGNALS > 0,
        np.array(7.5),
        np.empty((0, 3)),
        "one text",
        "",
        "ä ö 漢",
        np.array(["a", "bcd"]),
        np.array(["a", "bcd", ""], dtype=object),
        np.array([SIGNALS, np.array(["a", SIGNALS], dtype=object)], dtype=object),
    ],
)
def test_what_scipy_writes(value, do_compression):
    file = io.BytesIO()
    scipy.io.savemat(file, {"value": value, "after": SIGNALS}, do_compression=do_compression)
    variables = read_mat(file.getvalue())
    assert list(variables) == ["value", "after"]
    assert same(variables["value"], scipy.io.loadmat(file)["value"])
    np.testing.assert_array_equal(variables["after"], SIGNALS)


def attempt(read, file):
    try:
        return read(file)
    except Exception:  # several of the files are damaged on purpose
        return {}


@pytest.mark.skipif(not FILES, reason="scipy came without its test files")
def test_what_matlab_wrote():
    compared, refused = 0, []
    for path in FILES:
        theirs, ours = attempt(scipy.io.loadmat, path), attempt(read_mat, path.read_bytes())
        if path.read_bytes()[126:128] in (b"IM", b"MI") and theirs and not ours:
            refused.append(path.name)
        for name in ours.keys() & theirs.keys():
            assert same(ours[name], theirs[name]), (path.name, name)
            compared += 1
    assert refused == ["broken_utf8.mat"]  # scipy reads it with replacement characters
    assert compared > 60


@pytest.mark.skipif(not FILES, reason="scipy came without its test files")
def test_both_byte_orders():
    read = [read_mat(path.read_bytes()) for path in FILES if path.stem in ("big_endian", "little_endian")]
    assert len(read) == 2
    for name in ("floats", "strings"):
        assert same(read[0][name], read[1][name])


def test_what_is_no_matrix_is_named(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", {"signals": scipy.sparse.eye_array(5).tocsc()})
    with pytest.raises(ValueError, match=r"'signals': expected a full matrix .* full\("):
        read_table(tmp_path / "a.mat")
    scipy.io.savemat(tmp_path / "b.mat", {"signals": SIGNALS, "nodes": {"x": 1}})
    with pytest.raises(ValueError, match=r"'nodes': expected a full matrix .* cellstr\("):
        read_table(tmp_path / "b.mat")
