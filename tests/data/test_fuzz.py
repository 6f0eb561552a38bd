"""Whatever is wrong with a table, it is read or refused with an InputError: nothing else, and no warning."""

import gzip
import io
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from silograph.core.errors import InputError
from silograph.data.readers import SUFFIXES, read_table
from silograph.data.silos import from_arrays

ROUNDS = 1000
NODES = [f"sensor_{k}" for k in range(5)]
SIGNALS = np.random.default_rng(0).standard_normal((12, 5)).round(4)
FRAME = pd.DataFrame(SIGNALS, columns=NODES)

SNIPPETS = [
    b"nan",
    b"inf",
    b"oops",
    b'"',
    b"'",
    b"\0",
    b"\n",
    b"\r",
    b",",
    b";",
    b"\t",
    b",,,,",
    b"1e999",
    b"-",
    b"\xff",
]
SNIPPETS += [
    b"9" * 30,
    b"True",
    b"2020-01-01",
    b"1+2j",
    b"\xef\xbb\xbf",
    b"\xc3",
    b"\n\n\n",
    b"0x1F",
    b"1_000",
    b"#",
    b"=1+1",
]


def saved(save):
    buffer = io.BytesIO()
    save(buffer)
    return buffer.getvalue()


SEEDS = {
    ".csv": FRAME.to_csv(index=False).encode(),
    ".tsv": FRAME.to_csv(sep="\t").encode(),
    ".csv.gz": gzip.compress(FRAME.to_csv().encode(), mtime=0),
    ".parquet": saved(lambda file: FRAME.to_parquet(file)),
    ".npy": saved(lambda file: np.save(file, SIGNALS)),
    ".npz": saved(lambda file: np.savez_compressed(file, signals=SIGNALS, nodes=np.array(NODES))),
    ".mat": saved(lambda file: scipy.io.savemat(file, {"signals": SIGNALS, "nodes": np.array(NODES, dtype=object)})),
}


def damaged(data, rng):
    """One to four random wounds."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        place = int(rng.integers(len(data) + 1))
        match rng.integers(7):
            case 0:
                del data[place:]
            case 1:
                data[place : place + 1] = bytes([rng.integers(256)])
            case 2:
                data[place:place] = SNIPPETS[rng.integers(len(SNIPPETS))]
            case 3:
                del data[place : place + int(rng.integers(1, 40))]
            case 4:
                data[place:place] = data[int(rng.integers(len(data) + 1)) :][:50]
            case 5:
                old, new = rng.choice([b",", b";", b"\t", b"\n", b".", b"e"], 2)
                data = data.replace(bytes(old), bytes(new))
            case 6 if place < len(data):
                data[place] ^= 1 << int(rng.integers(8))
    return bytes(data)


def read_or_refused(path, nodes_in="columns"):
    """Whether the file was read; what is read is a proper table."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            table = read_table(path, nodes_in)
        except InputError as error:
            message = str(error)
            table = None
    if table is None:
        message.encode()
        assert "\n" not in message
        assert len(message) < 1000
        return False
    assert not np.isinf(table.signals).any()  # a gap is NaN
    assert table.signals.shape[1] == len(set(table.nodes)) >= 3
    assert len(table.signals) >= 2
    assert (np.nanmax(table.signals, axis=0) > np.nanmin(table.signals, axis=0)).all()
    return True


@pytest.mark.parametrize("suffix", SEEDS)
def test_damaged_files(tmp_path, suffix):
    rng = np.random.default_rng(20)
    path = tmp_path / f"site{suffix}"
    path.write_bytes(SEEDS[suffix])
    assert read_or_refused(path)
    outcomes = set()
    for round_ in range(ROUNDS):
        path.write_bytes(damaged(SEEDS[suffix], rng))
        outcomes.add(read_or_refused(path, "rows" if round_ % 4 == 0 else "columns"))
    assert False in outcomes


def test_damaged_text_inside_gzip(tmp_path):
    rng = np.random.default_rng(21)
    path = tmp_path / "site.csv.gz"
    for _ in range(ROUNDS):
        path.write_bytes(gzip.compress(damaged(SEEDS[".csv"], rng), compresslevel=1))
        read_or_refused(path)


def test_wrong_suffix(tmp_path):
    for suffix in SUFFIXES:
        for other, data in SEEDS.items():
            path = tmp_path / f"site{suffix}"
            path.write_bytes(data)
            assert read_or_refused(path) or suffix != other


def outcome(load):
    """The numbers, or what was expected instead; a gap is a gap, whatever bits its NaN has."""
    try:
        numbers = load()
        return np.where(np.isnan(numbers), np.nan, numbers).tobytes()
    except InputError as error:
        return error.expected


HYPOTHESIS = settings(
    derandomize=True,
    deadline=None,
    max_examples=400,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

CELLS = st.one_of(
    st.floats().map(repr),
    st.integers(-9, 9).map(str),
    st.integers().map(str),
    st.sampled_from(["", " ", "NA", "x", '"', '"a,b"', "1;2", "1 2", "-0", "1e-400", "Infinity", "TRUE", "1.2.3", "é"]),
    st.text(max_size=4),
)


@HYPOTHESIS
@given(
    rows=st.lists(st.lists(CELLS, max_size=6), max_size=6),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    nodes_in=st.sampled_from(["columns", "rows"]),
)
def test_any_cells(tmp_path, rows, end, nodes_in):
    path = tmp_path / "site.csv"
    path.write_bytes(end.join(",".join(row) for row in rows).encode(errors="surrogatepass"))
    read_or_refused(path, nodes_in)


@HYPOTHESIS
@given(data=st.binary(max_size=200), suffix=st.sampled_from(SUFFIXES))
def test_any_bytes(tmp_path, data, suffix):
    path = tmp_path / f"site{suffix}"
    path.write_bytes(data)
    assert not read_or_refused(path) or suffix in (".csv", ".tsv")


@HYPOTHESIS
@given(
    values=st.lists(st.lists(st.floats(), min_size=3, max_size=3), min_size=2, max_size=6),
    names=st.lists(st.text(max_size=3), min_size=3, max_size=3),
    suffix=st.sampled_from([".csv", ".npz", ".mat"]),
)
def test_a_file_and_its_array_are_judged_alike(tmp_path, values, names, suffix):
    """A file is refused if and only if its array is, and otherwise holds the same numbers."""
    signals = np.array(values)
    path = tmp_path / f"site{suffix}"
    if suffix == ".csv":
        names = [f"n{k}" for k in range(3)]
        pd.DataFrame(signals, columns=names).to_csv(path, index=False)
    elif suffix == ".npz":
        np.savez(path, signals=signals, nodes=np.array(names))
        names = [str(name) for name in np.array(names)]  # numpy drops NULs at the end of a string
    else:
        scipy.io.savemat(path, {"signals": signals})
        names = [f"n{k}" for k in range(3)]
    assert outcome(lambda: read_table(path).signals) == outcome(lambda: from_arrays([signals], nodes=names).signals[0])
