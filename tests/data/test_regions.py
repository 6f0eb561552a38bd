"""Every agent gets its own records, whatever the order of files, rows and columns; what is wrong is named."""

import gzip
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from silograph.core.errors import InputError
from silograph.data.regions import read_regions, read_test

WOUNDS = (b",", b"\n", b'"', b"", b"nan", b"x", b"\xff", b"\0")
FEATURES = ("age", "dose", "weight")


def frame(rows=30, clinics=("b-2", "a-1", "c"), seed=0):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((rows, 4)) * 10.0 ** rng.integers(-9, 9, (rows, 4))
    table = pd.DataFrame(values, columns=["age", "outcome", "dose", "weight"])
    table.insert(2, "clinic", [*clinics, *rng.choice(clinics, rows - len(clinics))])
    return table


WRITERS = {
    ".csv": lambda table, path: table.to_csv(path, index=False),
    ".tsv": lambda table, path: table.to_csv(path, index=False, sep="\t"),
    ".csv.gz": lambda table, path: path.write_bytes(gzip.compress(table.to_csv(index=False).encode())),
    ".parquet": lambda table, path: table.to_parquet(path, index=False),
}


def saved(folder, tables, suffix=".csv"):
    paths = [folder / f"{name}{suffix}" for name in tables]
    for table, path in zip(tables.values(), paths, strict=True):
        WRITERS[suffix](table, path)
    return paths


def written(folder, *texts):
    paths = [folder / f"region{k}.csv" for k in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return paths


def refused(call, *arguments, **options):
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_agent_has_its_records(tmp_path, suffix):
    tables = {"south": frame(seed=1), "north": frame(40, ("z", "y"), seed=2)}
    found = read_regions(saved(tmp_path, tables, suffix), "clinic", "outcome")
    assert found.regions == ("north", "south")
    assert found.features == FEATURES
    assert found.agents == ("north/y", "north/z", "south/a-1", "south/b-2", "south/c")
    assert found.home == (0, 0, 1, 1, 1)
    for name, (x, y) in zip(found.agents, found.records, strict=True):
        region, agent = name.split("/")
        own = tables[region][tables[region]["clinic"] == agent]
        assert x.tobytes() == np.ascontiguousarray(own[list(FEATURES)]).tobytes()
        assert y.tobytes() == own["outcome"].to_numpy().tobytes()
        assert x.flags.c_contiguous
        assert y.flags.c_contiguous


def test_the_order_of_files_and_columns_does_not_matter(tmp_path):
    first, second = frame(seed=1), frame(seed=2)
    mixed = second[["weight", "clinic", "age", "outcome", "dose"]]
    paths = saved(tmp_path, {"one": first, "two": second})
    (tmp_path / "turned").mkdir()
    turned = saved(tmp_path / "turned", {"two": mixed, "one": first})
    straight, other = (read_regions(given, "clinic", "outcome") for given in (paths, turned))
    assert (straight.regions, straight.features, straight.agents) == (other.regions, other.features, other.agents)
    for (x, y), (x_other, y_other) in zip(straight.records, other.records, strict=True):
        np.testing.assert_array_equal(x, x_other)
        np.testing.assert_array_equal(y, y_other)


def test_names_of_agents_stay_as_they_are_written(tmp_path):
    names = ["007", "7", "NA", "None", "1e3", "  spaced ", "Sankt Pölten", "true"]
    text = "clinic,y,x\n" + "".join(f"{name},{k},{k}\n" for k, name in enumerate(names))
    found = read_regions(written(tmp_path, text), "clinic", "y")
    assert found.agents == tuple(sorted(f"region0/{name.strip()}" for name in names))
    assert {name: y.tolist() for name, (_, y) in zip(found.agents, found.records, strict=True)} == {
        f"region0/{name.strip()}": [k] for k, name in enumerate(names)
    }


def test_numbers_and_an_index_name_agents_in_parquet(tmp_path):
    table = pd.DataFrame({"clinic": [12, 3, 12], "y": [0, 1, 1], "x": [0.5, 1.5, 2.5]})
    table.to_parquet(tmp_path / "numbers.parquet")
    table.set_index("clinic").to_parquet(tmp_path / "index.parquet")
    for name in ("numbers", "index"):
        found = read_regions([tmp_path / f"{name}.parquet"], "clinic", "y")
        assert found.agents == (f"{name}/12", f"{name}/3")
        assert found.records[0][0].tolist() == [[0.5], [2.5]]


@pytest.mark.parametrize(
    "text, words",
    [
        ("region,y,x\na,1,2\n", ["column 'clinic', the agent", "'region', 'y', 'x'", "as it is called"]),
        ("clinic,z,x\na,1,2\n", ["column 'y', the target", "'clinic', 'z', 'x'"]),
        ("clinic,y\na,1\n", ["at least one feature"]),
        ("clinic,y,x\n", ["at least one record", "no row"]),
        ("", ["the file is empty"]),
        ("1,2,3.5\n4,5,6\n", ["the columns' names", "begins with data"]),
        ("a,1,2\nb,3,4\n", ["line 1", "must not become the names"]),
        ("clinic,y,x\na,1,2\nb,1,oops\n", ["column 'x', data row 2", "'oops'"]),
        ("clinic,y,x\na,1,2\nb,maybe,3\n", ["column 'y', data row 2", "'maybe'"]),
        ("clinic,y,x\na,1,2\nb,,3\n", ["column 'y', data row 2", "missing", "Leave the record out"]),
        ("clinic,y,x\na,True,2\nb,False,3\n", ["column 'y', data row 1", "True", 'classes = ["False", "True"]']),
        ("clinic,y,x\na,1,2\nb,FALSE,3\n", ["column 'y', data row 2", 'classes = ["FALSE", "TRUE"]']),
        ("clinic,y,x\na,1,inf\nb,1,3\n", ["column 'x', data row 1", "infinite"]),
        ("clinic,y,x\na,1,2\n,1,3\n", ["column 'clinic', data row 2", "an agent", "empty"]),
        ("x,y,clinic\n1,2,a\n1,3\n", ["column 'clinic', data row 2", "empty"]),
        ('clinic,y,x\na,1,2\n"  ",1,3\n', ["column 'clinic', data row 2", "empty"]),
        ("clinic,y,x\na,1,2\n../b,1,3\n", ["column 'clinic', data row 2", "'../b'", "no slash"]),
        ("clinic,y,x,x\na,1,2,3\n", ["column names that differ", "'x' occurs 2 times"]),
        ("clinic,y,,x\na,1,2,3\n", ["name of column 3 is empty"]),
        ("clinic,y,x\na,1,2,9\nb,1,2\n", ["line 2", "3 cells", "are 4"]),
        ("clinic;y;x\na;1;2,500\n", ["decimal comma", "thousands"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, words):
    good = "clinic,y,x\na,1,2\n"
    paths = written(tmp_path, text, good)
    message = refused(read_regions, paths, "clinic", "y")
    assert str(paths[0]) in message
    for word in words:
        assert word in message, message


def test_a_gap_where_parquet_names_the_agent(tmp_path):
    table = pd.DataFrame({"clinic": ["a", None, "b"], "y": [0, 1, 1], "x": [0.5, 1.5, 2.5]})
    table.to_parquet(tmp_path / "region.parquet")
    assert "data row 2" in refused(read_regions, [tmp_path / "region.parquet"], "clinic", "y")


def test_different_features_are_named(tmp_path):
    paths = written(tmp_path, "clinic,y,a,b\nc,1,2,3\n", "clinic,b,y,d\nc,1,2,3\n")
    message = refused(read_regions, paths, "clinic", "y")
    for word in (str(paths[1]), "region 'region0'", "it lacks 'a'", "it also has 'd'"):
        assert word in message


def test_regions_need_names_of_their_own(tmp_path):
    (tmp_path / "a").mkdir()
    paths = [*saved(tmp_path, {"North": frame()}), *saved(tmp_path / "a", {"north": frame()})]
    message = refused(read_regions, paths, "clinic", "outcome")
    for word in ("regions with different names", "case is ignored", *map(str, paths)):
        assert word in message
    assert "found none" in refused(read_regions, [], "clinic", "outcome")
    assert "different columns" in refused(read_regions, paths, "clinic", "clinic")


def test_arrays_without_columns_are_no_regions(tmp_path):
    np.save(tmp_path / "region.npy", np.ones((3, 3)))
    message = refused(read_regions, [tmp_path / "region.npy"], "clinic", "y")
    assert ".csv, .tsv, .zip, .xlsx, .xls, .xlsb, .ods, .parquet" in message
    assert ".npy," not in message


def test_under_privacy_no_refusal_depends_on_all_records_together(tmp_path):
    # A column without a name that counts is pandas' index. Whether it counts is known from all records together, so
    # under privacy the same columns are read whatever it holds.
    counting = written(tmp_path, ",clinic,y,x\n0,a,1,2\n1,b,1,2\n")
    assert read_regions(counting, "clinic", "y").features == ("x",)
    assert read_regions(counting, "clinic", "y", private=True).features == ("x",)
    other = written(tmp_path, ",clinic,y,x\n0,a,1,2\n2,b,1,2\n")
    assert "name of column 1 is empty" in refused(read_regions, other, "clinic", "y")
    assert read_regions(other, "clinic", "y", private=True).features == ("x",)
    # One record that cannot be used is refused all the same.
    broken = written(tmp_path, "clinic,y,x\na,1,2\nb,1,\n")
    assert "data row 2" in refused(read_regions, broken, "clinic", "y", private=True)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_truth_values_are_two_classes_once_they_are_named(suffix, private, tmp_path):
    table = frame().assign(outcome=frame()["outcome"] > 0.0)
    WRITERS[suffix](table, tmp_path / f"north{suffix}")
    message = refused(read_regions, [tmp_path / f"north{suffix}"], "clinic", "outcome", private)
    assert ('classes = ["no", "yes"]' if private else 'classes = ["False", "True"]') in message
    said = {"private": private, "classes": ("False", "True")}
    tables = read_regions([tmp_path / f"north{suffix}"], "clinic", "outcome", **said)
    assert sorted(tables.answers.tolist()) == sorted(table["outcome"].astype(float))


def test_a_missing_answer_is_not_to_be_filled(tmp_path):
    for private, text in ((False, "b,,3"), (True, "b,,3"), (False, "b,NA,3")):
        paths = written(tmp_path, f"clinic,y,x\na,1,2\n{text}\n")
        assert "`fill`" not in refused(read_regions, paths, "clinic", "y", private)


def test_what_never_varies_is_read(tmp_path):
    """Unlike a node, a feature or a target may be constant: an intercept, or a clinic nobody came back to."""
    (x, y), *_ = read_regions(written(tmp_path, "clinic,y,one\na,0,1\na,0,1\n"), "clinic", "y").records
    assert (x.tolist(), y.tolist()) == ([[1], [1]], [0, 0])


def test_test_files_are_matched_by_name(tmp_path):
    table = frame(seed=3)
    for suffix, write in WRITERS.items():
        write(table[["weight", "clinic", "outcome", "age", "dose"]], tmp_path / f"test{suffix}")
        x, y = read_test(tmp_path / f"test{suffix}", "outcome", FEATURES, "clinic")
        np.testing.assert_array_equal(x, table[list(FEATURES)])
        np.testing.assert_array_equal(y, table["outcome"])
    table.drop(columns="clinic").to_csv(tmp_path / "bare.csv", index=False)
    np.testing.assert_array_equal(read_test(tmp_path / "bare.csv", "outcome", FEATURES, "clinic")[0], x)
    np.testing.assert_array_equal(read_test(tmp_path / "bare.csv", "outcome", FEATURES)[0], x)


def test_test_files_with_other_columns(tmp_path):
    path = saved(tmp_path, {"test": frame()})[0]
    assert "column 'clinic' holds words" in refused(read_test, path, "outcome", FEATURES)
    assert "it also has 'dose'" in refused(read_test, path, "outcome", ["age", "weight"], "clinic")
    assert "it lacks 'height'" in refused(read_test, path, "outcome", [*FEATURES, "height"], "clinic")
    assert "'result', the target" in refused(read_test, path, "result", FEATURES, "clinic")
    empty = written(tmp_path, "clinic,outcome,age,dose,weight\n")[0]
    assert "no row" in refused(read_test, empty, "outcome", FEATURES, "clinic")


def test_damaged_files_are_read_or_refused(tmp_path):
    good = frame(12).round(3).to_csv(index=False).encode()
    rng, path, outcomes = np.random.default_rng(7), tmp_path / "region.csv", set()
    for _ in range(400):
        data = bytearray(good)
        for _ in range(rng.integers(1, 4)):
            place = int(rng.integers(len(data)))
            data[place : place + int(rng.integers(3))] = WOUNDS[rng.integers(len(WOUNDS))]
        path.write_bytes(data)
        try:
            found = read_regions([path], "clinic", "outcome")
        except InputError:
            outcomes.add("refused")
        else:
            outcomes.add("read")
            assert all(np.isfinite(x).all() and np.isfinite(y).all() for x, y in found.records)
    assert outcomes == {"read", "refused"}


def test_import_is_light():
    code = (
        "import sys, silograph.data.federation, silograph.data.collections;"
        "print([m for m in ('pandas', 'pyarrow', 'scipy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
