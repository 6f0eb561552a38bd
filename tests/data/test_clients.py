"""Every client gets its own labelled records, whatever the format and order; what is wrong is named."""

import gzip
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from silograph.core.errors import InputError
from silograph.data.clients import from_arrays, read_clients

FEATURES = ("age", "dose", "weight")
WOUNDS = (b",", b"\n", b'"', b"", b"nan", b"x", b"\xff", b"\0")
WRITERS = {
    ".csv": lambda table, path: table.to_csv(path, index=False),
    ".tsv": lambda table, path: table.to_csv(path, index=False, sep="\t"),
    ".csv.gz": lambda table, path: path.write_bytes(gzip.compress(table.to_csv(index=False).encode())),
    ".parquet": lambda table, path: table.to_parquet(path, index=False),
}


def frame(labels, seed=0):
    values = np.random.default_rng(seed).standard_normal((len(labels), 3))
    table = pd.DataFrame(values, columns=FEATURES)
    table.insert(1, "state", labels)
    return table


def saved(folder, tables, suffix=".csv"):
    paths = [folder / f"{name}{suffix}" for name in tables]
    for table, path in zip(tables.values(), paths, strict=True):
        WRITERS[suffix](table, path)
    return paths


def written(folder, *texts):
    paths = [folder / f"client{k}.csv" for k in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return paths


def packed(folder, **clients):
    paths = [folder / f"{name}.npz" for name in clients]
    for path, arrays in zip(paths, clients.values(), strict=True):
        np.savez(path, **arrays)
    return paths


def refused(call, *arguments, **options):
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    return str(caught.value)


def named(tables):
    """The labels of all clients by name."""
    return [[tables.classes[c] for c in y] for _, y in tables.records]


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_client_has_its_records(tmp_path, suffix):
    tables = {"zoe": frame(["well", "ill", "well"], 1), "ann": frame(["dead", "ill", "ill", "ill"], 2)}
    found = read_clients(saved(tmp_path, tables, suffix), "state")
    assert (found.names, found.features, found.shape) == (("ann", "zoe"), FEATURES, (3,))
    assert found.classes == ("dead", "ill", "well")
    assert named(found) == [list(tables["ann"]["state"]), list(tables["zoe"]["state"])]
    for name, (x, y) in zip(found.names, found.records, strict=True):
        assert (x.dtype, y.dtype) == (np.float32, np.int64)
        assert x.flags.c_contiguous
        np.testing.assert_array_equal(x, tables[name][list(FEATURES)].to_numpy(np.float32))


def test_features_are_matched_by_name(tmp_path):
    first, second = frame(["a", "b"], 1), frame(["b", "a"], 2)
    turned = second[["weight", "state", "age", "dose"]]
    straight = read_clients(saved(tmp_path, {"1": first, "2": second}), "state")
    other = read_clients(saved(tmp_path, {"2": turned, "1": first}), "state")
    assert straight.features == other.features
    for (x, y), (x_other, y_other) in zip(straight.records, other.records, strict=True):
        np.testing.assert_array_equal(x, x_other)
        np.testing.assert_array_equal(y, y_other)


def test_new_clients_follow_what_was_learned(tmp_path):
    learned = read_clients(saved(tmp_path, {"old": frame(["a", "b", "c"], 1)}), "state")
    table = frame(["c", "c"], 2)[["weight", "state", "dose", "age"]]
    path = saved(tmp_path, {"new": table})
    new = read_clients(path, "state", classes=learned.classes, features=learned.features)
    assert (new.features, new.classes) == (learned.features, learned.classes)
    (x, y), *_ = new.records
    np.testing.assert_array_equal(x, table[list(FEATURES)].to_numpy(np.float32))
    assert y.tolist() == [2, 2]
    assert read_clients([tmp_path / "old.csv", *path], "state").features == ("weight", "dose", "age")
    message = refused(read_clients, path, "state", classes=learned.classes, features=("age", "dose"))
    assert "the features of the model" in message
    assert "also has 'weight'" in message


@pytest.mark.parametrize(
    "labels, classes",
    [
        (["10", "2", "-1", "2"], ("-1", "2", "10")),
        (["b10", "b2", "a"], ("a", "b10", "b2")),
        (["1.0", "0.0", "10.0"], ("0", "1", "10")),
        (["True", "False"], ("False", "True")),
        (["NA", "none", "null"], ("NA", "none", "null")),
        (["  spaced ", "Sankt Pölten"], ("Sankt Pölten", "spaced")),
        (["007", "7", "10"], ("007", "7", "10")),
    ],
)
def test_labels_are_text_or_whole_numbers(tmp_path, labels, classes):
    path = written(tmp_path, "state,x\n" + "".join(f"{label},1\n" for label in labels))
    found = read_clients(path, "state")
    assert found.classes == classes
    wanted = [label.strip().removesuffix(".0") for label in labels]
    assert named(found) == [wanted]


def test_a_label_is_the_same_in_every_format(tmp_path):
    whole = [2, 10, 2]
    pd.DataFrame({"x": [1, 2, 3], "state": whole}).to_csv(tmp_path / "text.csv", index=False)
    pd.DataFrame({"x": [1, 2, 3], "state": np.array(whole, dtype=np.int8)}).to_parquet(tmp_path / "int.parquet")
    pd.DataFrame({"x": [1, 2, 3], "state": np.array(whole, dtype=float)}).to_parquet(tmp_path / "float.parquet")
    pd.DataFrame({"x": [1, 2, 3], "state": list(map(str, whole))}).to_parquet(tmp_path / "str.parquet")
    pd.DataFrame({"x": [1, 2, 3], "state": whole}).set_index("state").to_parquet(tmp_path / "index.parquet")
    pd.DataFrame({"x": [1, 2, 3], "state": pd.Categorical(whole)}).to_parquet(tmp_path / "category.parquet")
    found = read_clients(tmp_path.iterdir(), "state")
    assert found.classes == ("2", "10")
    assert named(found) == [["2", "10", "2"]] * 6


def test_classes_are_not_at_every_client(tmp_path):
    paths = written(tmp_path, "y,x\na,1\na,2\n", "y,x\nb,1\nb,2\n")
    found = read_clients(paths, "y")
    assert [y.tolist() for _, y in found.records] == [[0, 0], [1, 1]]
    assert "at least 2 classes" in refused(read_clients, paths[:1], "y")
    alone = read_clients(paths[:1], "y", classes=["c", "a", "b"])
    assert alone.classes == ("a", "b", "c")


def test_a_regression_has_numbers(tmp_path):
    table = frame([1.5, -2, 0.1])
    found = read_clients(saved(tmp_path, {"a": table}), "state", regression=True)
    (_, y), *_ = found.records
    assert found.classes == ()
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, table["state"].to_numpy(np.float32))
    words = "column 'state', data row 2"
    assert words in refused(read_clients, saved(tmp_path, {"b": frame(["1", "high"])}), "state", regression=True)
    assert words in refused(read_clients, saved(tmp_path, {"b": frame([1.0, None])}), "state", regression=True)
    assert "none for a regression" in refused(
        read_clients, saved(tmp_path, {"a": table}), "state", classes=["1", "2"], regression=True
    )


@pytest.mark.parametrize(
    "text, words",
    [
        ("z,x\na,2\nb,3\n", ["column 'y', the target", "'z', 'x'", "as it is called"]),
        ("y\na\nb\n", ["at least one feature"]),
        ("y,x\n", ["at least 2 records", "there is none", "divides its records"]),
        ("y,x\na,1\n", ["at least 2 records", "only one"]),
        ("", ["the file is empty"]),
        ("1,2\n4,5\n", ["the columns' names", "begins with data"]),
        ("y,x\na,1\n,2\n", ["column 'y', data row 2", "a label", "missing"]),
        ("x,y\n1,a\n2\n", ["column 'y', data row 2", "missing"]),
        ("y,x\na,1\nb,oops\n", ["column 'x', data row 2", "'oops'"]),
        ("y,x\na,1\nb,\n", ["column 'x', data row 2", "missing"]),
        ("y,x\na,inf\nb,1\n", ["column 'x', data row 1", "infinite"]),
        ("y,x\na,1\nb,1e16\n", ["column 'x', data row 2", "at most 1e+15", "rescale"]),
        ("y,x\na,1\n2,2\n", ["data row 2 and", "data row 1", "'2' is a number and 'a' is text"]),
        ("y,x\n1,1\n2.5,2\n", ["column 'y', data row 2", "'2.5'", "regression"]),
        ("y,x\n1,1\nnan,2\n", ["column 'y', data row 2", "'nan'"]),
        ("y,x,x\na,1,2\nb,1,2\n", ["column names that differ"]),
        ("y,z\na,1\nb,2\n", ["the features of client 'client0'", "lacks 'z'", "also has 'x'"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, words):
    paths = written(tmp_path, text, "y,x\na,1\nb,2\n")
    message = refused(read_clients, paths, "y")
    for word in words:
        assert word in message, message
    assert str(paths[0]) in message or str(paths[1]) in message


def test_numbers_at_one_client_and_text_at_another(tmp_path):
    paths = written(tmp_path, "y,x\n1,1\n2,2\n", "y,x\nwell,1\nill,2\n")
    message = refused(read_clients, paths, "y")
    for path in paths:
        assert f"{path}, column 'y', data row 1" in message
    assert read_clients(paths, "y", classes=["1", "2", "well", "ill"]).classes == ("1", "2", "ill", "well")


def test_labels_beyond_the_list(tmp_path):
    paths = written(tmp_path, "y,x\na,1\nsecret,2\n")
    message = refused(read_clients, paths, "y", classes=["a", "b"])
    for word in ("data row 2", "one of the classes 'a', 'b'", "'secret'"):
        assert word in message
    message = refused(read_clients, paths, "y", private=True, classes=["a", "b"])
    assert "data row 2" in message
    assert "secret" not in message
    for classes in (["a"], [], ["a", "a"], ["a", ""], ["1", "1.0"]):
        assert "at least 2 different" in refused(read_clients, paths, "y", classes=classes)
    assert read_clients(written(tmp_path, "y,x\n1,1\n2,1\n"), "y", classes=[10, 2, 1]).classes == ("1", "2", "10")


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
@pytest.mark.parametrize("regression", [True, False])
def test_under_privacy_a_cell_is_named_and_not_quoted(tmp_path, suffix, regression):
    """Whether it is a feature or, of a regression, the answer."""
    for sick in ["x", "y"][: 1 + regression]:
        cells = {"y": ["1", "2"], "x": ["3", "4"]} | {sick: ["1", "syphilis"]}
        if suffix == ".npz":
            x, y = np.array(cells["x"])[:, None], np.array(cells["y"])
            paths = packed(tmp_path, client0={"x": x if sick == "x" else np.ones((2, 1)), "y": y})
        else:
            paths = written(tmp_path, "y,x\n" + "\n".join(map(",".join, zip(cells["y"], cells["x"], strict=True))))
        for private in (True, False):
            classes = None if regression else ["1", "2"]
            message = refused(read_clients, paths, "y", private, classes, regression)
            assert ("syphilis" in message) == (not private and suffix == ".csv")
            assert f"client0{suffix}" in message
            assert "row 2" in message or suffix == ".npz"  # where a whole array is text


def test_under_privacy_gaps_are_not_counted(tmp_path):
    paths = written(tmp_path, "y,x\na,1\nb,\na,\n")
    assert "it is missing, one of 2" in refused(read_clients, paths, "y")
    message = refused(read_clients, paths, "y", private=True, classes=["a", "b"])
    assert "column 'x', data row 2: expected a number, but it is missing." in message


def test_a_file_of_another_kind_is_told_all_that_would_do(tmp_path):
    (tmp_path / "client.docx").write_text("PK")
    message = refused(read_clients, [tmp_path / "client.docx"], "y")
    assert (
        "a name that ends in .csv, .tsv, .zip, .xlsx, .xls, .xlsb, .ods, .parquet, .feather, .npz, but its name ends in"
        in message
    )


def test_under_privacy_no_refusal_depends_on_all_records_together(tmp_path):
    good = written(tmp_path, "y,x\na,1\nb,2\n")
    message = refused(read_clients, good, "y", private=True)
    assert "the list of all classes under privacy" in message
    assert "itself private" in message
    # Only one class, numbers beside text, a first column that counts or does not: known from all records together.
    for text in ("y,x\na,1\na,2\n", "y,x\na,1\n2,2\n", ",y,x\n0,a,1\n1,b,2\n", ",y,x\n0,a,1\n2,b,2\n"):
        found = read_clients(written(tmp_path, text), "y", private=True, classes=["a", "b", "2"])
        assert found.features == ("x",)
    assert "name of column 1 is empty" in refused(read_clients, written(tmp_path, ",y,x\n0,a,1\n2,b,2\n"), "y")
    # One record that cannot be used is refused all the same.
    for text in ("y,x\na,1\nb,\n", "y,x\na,1\n,2\n"):
        assert "data row 2" in refused(read_clients, written(tmp_path, text), "y", private=True, classes=["a", "b"])


def test_clients_need_names_of_their_own(tmp_path):
    (tmp_path / "a").mkdir()
    table = frame(["a", "b"])
    paths = [*saved(tmp_path, {"Ann": table}), *saved(tmp_path / "a", {"ann": table}, ".tsv")]
    message = refused(read_clients, paths, "state")
    for word in ("clients with different names", "case is ignored", *map(str, paths)):
        assert word in message
    assert "found none" in refused(read_clients, [], "state")
    assert "there is none of that name" in refused(read_clients, [tmp_path / "gone.csv"], "state")


@pytest.mark.parametrize(
    "given, shape, turned",
    [
        ((5, 4, 6), (1, 4, 6), lambda x: x[:, None]),
        ((5, 4, 6, 3), (3, 4, 6), lambda x: x.transpose(0, 3, 1, 2)),
        ((5, 4, 6, 1), (1, 4, 6), lambda x: x.transpose(0, 3, 1, 2)),
        ((5, 1, 4, 6), (1, 4, 6), lambda x: x),
        ((5, 7), (7,), lambda x: x),
    ],
)
def test_npz_files(tmp_path, given, shape, turned):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(given), np.array([3, 0, 12, 3, 0], dtype=np.uint8)
    found = read_clients(packed(tmp_path, b={"x": x, "y": y}, a={"x": x[:2], "y": np.array(["3", "12"])}), "any")
    assert (found.names, found.shape, found.classes) == (("a", "b"), shape, ("0", "3", "12"))
    np.testing.assert_array_equal(found.records[1][0], turned(x).astype(np.float32))
    assert named(found) == [["3", "12"], ["3", "0", "12", "3", "0"]]
    assert found.features == (tuple(f"feature_{k}" for k in range(7)) if len(given) == 2 else ())
    assert all(x.flags.c_contiguous for x, _ in found.records)


def test_bytes_are_scaled_in_pictures_only(tmp_path):
    x, y = np.arange(256, dtype=np.uint8).repeat(2).reshape(-1, 2, 2), np.arange(128) % 2
    for name, array, scale in (("pictures", x, 255.0), ("counts", x.reshape(-1, 4), 1.0), ("wide", x.astype(int), 1.0)):
        (found, _), *_ = read_clients(packed(tmp_path, **{name: {"x": array, "y": y}}), "y").records
        assert found.dtype == np.float32
        np.testing.assert_allclose(found.ravel(), x.ravel() / scale, rtol=1e-6)


@pytest.mark.parametrize(
    "arrays, words",
    [
        ({"x": np.ones((2, 3))}, ["the arrays x and y", "'x'"]),
        ({"x": np.ones((2, 3)), "y": [0, 1, 1]}, ["one label for each of the 2 records", "(3,)"]),
        ({"x": np.ones((2, 3)), "y": [[0], [1]]}, ["one label for each of the 2 records", "(2, 1)"]),
        ({"x": np.ones((1, 3)), "y": [0]}, ["at least 2 records"]),
        ({"x": np.ones((0, 4, 4)), "y": np.ones(0)}, ["at least 2 records"]),
        ({"x": np.ones((2, 0)), "y": [0, 1]}, ["at least one feature"]),
        ({"x": np.ones((2, 0, 4)), "y": [0, 1]}, ["the shape is (2, 0, 4)"]),
        ({"x": np.ones(2), "y": [0, 1]}, ["pictures (N, H, W)", "(2,)"]),
        ({"x": np.ones((2, 1, 1, 1, 1)), "y": [0, 1]}, ["pictures (N, H, W)"]),
        ({"x": np.array([["a"], ["b"]]), "y": [0, 1]}, ["column 'feature_0'", "text"]),
        ({"x": np.ones((2, 4, 4), complex), "y": [0, 1]}, ["numbers", "complex128"]),
        ({"x": np.ones((2, 4, 4), bool), "y": [0, 1]}, ["numbers", "bool"]),
        ({"x": [[[1.0, 2.0]], [[1.0, np.nan]]], "y": [0, 1]}, ["record 2", "finite"]),
        ({"x": [[[1.0, 2.0]], [[-np.inf, 1.0]]], "y": [0, 1]}, ["record 2", "finite"]),
        ({"x": [[[1.0, 2.0]], [[1e300, 1.0]]], "y": [0, 1]}, ["record 2", "at most 1e+15"]),
        ({"x": [[1.0, 2.0], [1.0, np.nan]], "y": [0, 1]}, ["column 'feature_1', data row 2", "missing"]),
        ({"x": np.ones((2, 3)), "y": [0.0, np.nan]}, ["label of record 2", "missing"]),
        ({"x": np.ones((2, 3)), "y": ["a", ""]}, ["label of record 2", "missing"]),
        ({"x": np.ones((2, 3)), "y": [b"a", b"b"]}, ["text or whole numbers", "|S1"]),
        ({"x": np.ones((2, 3)), "y": [0.5, 1.5]}, ["label of record 1", "'0.5'", "regression"]),
        ({"x": np.ones((2, 3)), "y": np.array([None, "a"])}, ["an NPZ file", "Object arrays cannot be loaded"]),
        ({"x": np.array([[None], [1]]), "y": [0, 1]}, ["an NPZ file", "Object arrays cannot be loaded"]),
    ],
)
def test_what_is_wrong_in_an_npz_file(tmp_path, arrays, words):
    paths = packed(tmp_path, one=arrays)
    message = refused(read_clients, paths, "y")
    for word in (str(paths[0]), *words):
        assert word in message, message


def test_npz_files_are_all_of_one_shape_and_among_themselves(tmp_path):
    y = np.array([0, 1])
    paths = packed(tmp_path, a={"x": np.ones((2, 4, 4)), "y": y}, b={"x": np.ones((2, 4, 5)), "y": y})
    message = refused(read_clients, paths, "y")
    for word in (str(paths[1]), "(1, 4, 4)", "client 'a'", "(1, 4, 5)"):
        assert word in message
    table = written(tmp_path, "y,x\na,1\nb,2\n")
    message = refused(read_clients, [*table, paths[0]], "y")
    for word in ("NPZ files or tables", str(paths[0]), str(table[0])):
        assert word in message
    flat = packed(tmp_path, c={"x": np.ones((2, 4)), "y": y}, d={"x": np.ones((2, 3)), "y": y})
    assert "it lacks 'feature_3'" in refused(read_clients, flat, "y")
    (tmp_path / "e.npz").write_bytes(b"\x80\x04]\x94.")
    assert "an NPZ file" in refused(read_clients, [tmp_path / "e.npz"], "y")
    assert "an NPZ file" in refused(read_clients, [tmp_path / "gone.npz"], "y")


def test_arrays_and_files_are_the_same(tmp_path):
    tables = {"ann": frame(["b", "a", "c"], 1), "zoe": frame(["c", "c"], 2)}
    read = read_clients(saved(tmp_path, tables), "state")
    frames = [(table[list(FEATURES)], table["state"]) for table in tables.values()]
    arrays = [(np.asarray(x), y.to_list()) for x, y in frames]
    lists = [(x.tolist(), tuple(y)) for x, y in arrays]
    for data in (frames, arrays, lists):
        given = from_arrays(data, ["ann", "zoe"])
        assert (given.names, given.classes, given.shape) == (read.names, read.classes, read.shape)
        for (x, y), (x_read, y_read) in zip(given.records, read.records, strict=True):
            assert (x.dtype, y.dtype) == (x_read.dtype, y_read.dtype)
            np.testing.assert_array_equal(x, x_read)
            np.testing.assert_array_equal(y, y_read)
    assert from_arrays(frames).features == FEATURES
    assert from_arrays(arrays).names == ("client_0", "client_1")
    assert from_arrays(arrays[::-1], ["z", "a"]).names == ("z", "a")  # as given, for results are handed back so
    mixed = [frames[0], (frames[1][0][["weight", "age", "dose"]], frames[1][1])]
    np.testing.assert_array_equal(from_arrays(mixed).records[1][0], read.records[1][0])


def test_arrays_of_any_sort():
    x = np.arange(8.0).reshape(2, 4)
    assert from_arrays([(x, [True, False])]).classes == ("False", "True")
    assert from_arrays([(x, pd.Series([10, 2], dtype="Int64"))]).classes == ("2", "10")
    assert from_arrays([(x, pd.Series(["b", "a"], dtype="category"))]).classes == ("a", "b")
    assert from_arrays([(x.reshape(2, 2, 2), np.array(["b", "a"], dtype=object))]).shape == (1, 2, 2)
    assert from_arrays([(x, [1.5, 2.5])], regression=True).records[0][1].tolist() == [1.5, 2.5]
    assert from_arrays([(x.astype(np.float16), [0, 1])]).records[0][0].dtype == np.float32
    given = from_arrays([(x, [0, 1])])
    given.records[0][0][:] = 0.0
    assert x[1, 3] == 7.0  # what a caller owns is copied


@pytest.mark.parametrize(
    "data, words",
    [
        ((np.ones((2, 2)), ["a", None]), ["client 'client_0', label of record 2", "missing"]),
        ((np.ones((2, 2)), pd.Series(["a", pd.NA])), ["label of record 2", "missing"]),
        ((np.ones((2, 2)), ["a", pd.NA]), ["label of record 2", "NAType"]),
        ((np.ones((2, 2)), [1, "a"]), ["'1' is a number and 'a' is text"]),
        ((np.ones((2, 2)), pd.Series(pd.to_datetime(["2020-01-01", "2020-01-02"]))), ["text or whole", "datetime64"]),
        ((np.ones((2, 2)), "ab"), ["one label for each"]),
        ((np.ma.masked_equal([[1, 2], [3, 4]], 3), [0, 1]), ["records", "masked"]),
        ((np.ones((2, 2)), np.ma.masked_equal([0, 1], 1)), ["labels", "masked"]),
        (([[1, 2], [3]], [0, 1]), ["records", "an array"]),
        ((pd.DataFrame({"a": [1, 2], "b": ["u", "v"]}), [0, 1]), ["column 'b', data row 1", "text"]),
        ((pd.DataFrame(np.ones((2, 2)), columns=["a", "a"]), [0, 1]), ["column names that differ"]),
        ((pd.DataFrame(index=[0, 1]), [0, 1]), ["at least one feature"]),
        (([], []), ["pictures (N, H, W)"]),
    ],
)
def test_what_is_wrong_with_arrays(data, words):
    message = refused(from_arrays, [data, (np.ones((2, 2)), ["a", "b"])])
    for word in ("client 'client_0'", *words):
        assert word in message, message


def test_arrays_are_as_private_as_files():
    data = [(np.ones((2, 2)), ["a", "secret"])]
    assert "under privacy" in refused(from_arrays, data, private=True)
    assert "secret" not in refused(from_arrays, data, private=True, classes=["a", "b"])
    assert "there are 2" in refused(from_arrays, data, ["a", "b"])
    assert "can name a file" in refused(from_arrays, data, ["../up"])
    assert "found none" in refused(from_arrays, [])


def test_damaged_files_are_read_or_refused(tmp_path):
    table = frame(["a", "b"] * 4)
    good = {".csv": table.round(3).to_csv(index=False).encode()}
    np.savez(tmp_path / "good.npz", x=np.ones((3, 2, 2), dtype=np.uint8), y=[0, 1, 1])
    good[".npz"] = (tmp_path / "good.npz").read_bytes()
    rng = np.random.default_rng(7)
    for suffix, whole in good.items():
        path, outcomes = tmp_path / f"client{suffix}", set()
        for _ in range(300):
            data = bytearray(whole)
            for _ in range(rng.integers(1, 4)):
                place = int(rng.integers(len(data)))
                data[place : place + int(rng.integers(3))] = WOUNDS[rng.integers(len(WOUNDS))]
            path.write_bytes(data)
            try:
                found = read_clients([path], "state")
            except InputError:
                outcomes.add("refused")
            else:
                outcomes.add("read")
                assert all(np.isfinite(x).all() and len(x) == len(y) for x, y in found.records)
        assert outcomes == {"read", "refused"}, suffix


def test_import_is_light():
    code = (
        "import sys, silograph.data.clients, silograph.data.class_clients;"
        "print([m for m in ('pandas', 'pyarrow', 'scipy', 'torch') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
