"""Sites are matched by node name, or refused with the names that do not match."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from silograph.core.errors import InputError
from silograph.data.gaps import at_every_site, refuse_gaps, with_gaps
from silograph.data.readers import Table
from silograph.data.silos import align, from_arrays, read_silos, standardise

RNG = np.random.default_rng(11)


def table(name, nodes, rows=4):
    return Table(name, tuple(nodes), RNG.standard_normal((rows, len(nodes))), Path(f"/data/{name}.csv"))


def refused(call, *arguments, **options):
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    return str(caught.value)


def test_nodes_are_matched_by_name():
    first, second = table("one", "abcd"), table("two", "dbac", rows=7)
    silos = align([first, second])
    assert (silos.names, silos.nodes) == (("one", "two"), ("a", "b", "c", "d"))
    np.testing.assert_array_equal(silos.signals[0], first.signals)
    for k, node in enumerate("abcd"):
        np.testing.assert_array_equal(silos.signals[1][:, k], second.signals[:, "dbac".index(node)])
    assert all(signals.flags.c_contiguous for signals in silos.signals)


def test_different_nodes_are_named():
    message = refused(align, [table("one", "abcd"), table("two", "abxy")])
    assert "site 'two'" in message
    assert "it lacks 'c', 'd'" in message
    assert "it also has 'x', 'y'" in message
    assert "it lacks" not in refused(align, [table("one", "abc"), table("two", "abcd")])
    many = [f"n{k}" for k in range(12)]
    assert "'n3', 'n4', 'n5', 'n6', 'n7' and 4 more" in refused(align, [table("one", many), table("two", many[:3])])


def test_at_least_one_site():
    assert "found none" in refused(align, [])
    assert align([table("one", "abc")]).names == ("one",)


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "a\\b", "a\nb", "a\0b", "a\udcffb"])
def test_site_names_must_name_files(name):
    message = refused(from_arrays, [RNG.standard_normal((4, 3))], names=[name])
    assert "can name a file" in message
    message.encode()


def test_sites_with_the_same_name(tmp_path):
    assert "Rename" in refused(align, [table("Mill", "abc"), table("mill", "abc")])
    paths = [tmp_path / "a" / "site.csv", tmp_path / "b" / "site.csv"]
    for path in paths:
        path.parent.mkdir()
        path.write_text("a,b,c\n1,2,3\n4,5,7\n")
    message = refused(read_silos, paths)
    assert str(paths[0]) in message
    assert str(paths[1]) in message


def test_read_silos(tmp_path):
    (tmp_path / "one.csv").write_text("a,b,c\n1,2,3\n4,5,7\n")
    (tmp_path / "two.csv").write_text("c,a,b\n1,2,3\n4,5,7\n6,6,6\n")
    silos = read_silos([tmp_path / "one.csv", str(tmp_path / "two.csv")])
    assert silos.names == ("one", "two")
    assert silos.signals[1].tolist() == [[2, 3, 1], [5, 7, 4], [6, 6, 6]]


def test_standardise():
    offsets, scales = np.array([0, 1e6, -1e69, 0]), np.array([1, 1e-3, 1e60, 1e-200])
    signals = RNG.standard_normal((50, 4)) * scales + offsets
    silos = standardise(from_arrays([signals, signals[:7] * 2]))
    for result in silos.signals:
        np.testing.assert_allclose(result.mean(axis=0), 0, atol=1e-14)
        np.testing.assert_allclose((result**2).mean(axis=0), 1, rtol=1e-14)
    plain = (signals[:, 0] - signals[:, 0].mean()) / signals[:, 0].std()
    np.testing.assert_allclose(silos.signals[0][:, 0], plain, rtol=1e-12, atol=1e-14)


def test_standardise_the_smallest_numbers():
    silos = standardise(from_arrays([np.array([[0, 1, 2], [5e-324, 2, 1.0]])]))
    np.testing.assert_allclose(silos.signals[0], [[-1, -1, 1], [1, 1, -1]])


def test_from_arrays():
    arrays = [RNG.standard_normal((5, 3)), RNG.integers(-9, 9, (6, 3)).tolist()]
    silos = from_arrays(arrays)
    assert silos.names == ("site_0", "site_1")
    assert silos.nodes == ("node_0", "node_1", "node_2")
    for given, kept in zip(arrays, silos.signals, strict=True):
        np.testing.assert_array_equal(kept, given)
    assert from_arrays(arrays, names=["a", "b"], nodes=list("xyz")).nodes == ("x", "y", "z")
    assert from_arrays(arrays, names=[1, 2], nodes=range(3)).nodes == ("0", "1", "2")
    arrays[0][:] = 0
    assert silos.signals[0].any()  # a copy, whatever happens to the caller's array


def test_from_frames_by_name():
    frame = pd.DataFrame(RNG.standard_normal((5, 3)), columns=list("abc"))
    silos = from_arrays([frame, frame[["c", "a", "b"]], frame.to_numpy()], nodes=list("abc"))
    for signals in silos.signals:
        np.testing.assert_array_equal(signals, frame.to_numpy())
    assert from_arrays([pd.DataFrame(frame.to_numpy())]).nodes == ("0", "1", "2")


def test_objects_that_are_numbers():
    frame = pd.DataFrame({"a": [1, 2.5], "b": [Decimal("0.1"), np.int8(3)], "c": [4, 5]}, dtype=object)
    assert from_arrays([frame]).signals[0].tolist() == [[1, 0.1, 4], [2.5, 3, 5]]
    assert from_arrays([frame.to_numpy()]).signals[0].tolist() == [[1, 0.1, 4], [2.5, 3, 5]]


@pytest.mark.parametrize(
    "array, words",
    [
        (np.ones(3), ["a 1-D array"]),
        ([[1, 2, 3], [4, 5]], ["no array can be made"]),
        ("text", ["a 0-D array"]),
        (None, ["a 0-D array"]),
        (np.ma.array([[1, 2, 3.0], [4, 5, 6]], mask=[[0, 0, 1], [0, 0, 0]]), ["column 'node_2'", "missing"]),
        ([[1, 2, 3], [4, np.nan, 6]], ["column 'node_1'", "it has 1: all others are missing"]),
        (np.array([[1, 2, 3], [4, None, 6]]), ["column 'node_1'", "missing"]),
        (np.array([[1, 2, 3], [4, "5", 6]], dtype=object), ["column 'node_1', data row 2", "text", "'5'"]),
        (np.array([[1, 2, 3], [4, True, 6]], dtype=object), ["column 'node_1', data row 2", "type bool"]),
        (np.array([[1, 2, 3], [4, 10**400, 6]], dtype=object), ["column 'node_1', data row 2", "2**53"]),
        (np.array([[1, 2, 3], [4, 2, 6]]), ["column 'node_1'", "every value is 2"]),
        (pd.DataFrame({"a": [1, 2], "b": [3, None], "c": [4, 5]}), ["column 'b'", "missing"]),
        (pd.DataFrame([[1, 2, 3], [4, 5, 6]], columns=["a", "b", "a"]), ["'a' occurs 2 times"]),
        (
            pd.DataFrame({"a": pd.Series([1, pd.NA], dtype="Int64"), "b": [3, 4], "c": [4, 5]}),
            ["column 'a'", "missing"],
        ),
        (pd.DataFrame({"a": pd.to_datetime(["2020", "2021"]), "b": [3, 4], "c": [4, 5]}), ["'a'", "dates or times"]),
        (pd.DataFrame({"a": [1j, 2], "b": [3, 4], "c": [4, 5]}), ["'a'", "complex"]),
    ],
)
def test_bad_arrays_are_refused_like_files(array, words):
    message = refused(from_arrays, [array])
    assert message.startswith("site 'site_0'")
    for word in words:
        assert word in message, message


def test_one_table_instead_of_a_list():
    frame = pd.DataFrame(RNG.standard_normal((5, 3)), columns=list("abc"))
    assert "2-D" in refused(from_arrays, frame)
    assert "2-D" in refused(from_arrays, frame.to_numpy())


def test_names_must_fit():
    arrays = [RNG.standard_normal((5, 3))]
    assert "there are 2" in refused(from_arrays, arrays, names=["a", "b"])
    assert "there are 0 names" in refused(from_arrays, arrays, nodes=[])
    assert "there are 2 names" in refused(from_arrays, arrays, nodes=["a", "b"])


# ---- gaps and different nodes ----------------------------------------------------------------------------------------


def test_nodes_of_any_site_or_of_every_site():
    one, two = table("one", "abcd"), table("two", "dxbc")
    every = align([one, two], rule="all")
    assert every.nodes == ("a", "b", "c", "d", "x")
    assert every.lacks == ({"x"}, {"a"})
    np.testing.assert_array_equal(every.signals[0], np.column_stack([one.signals, np.full(len(one.signals), np.nan)]))
    np.testing.assert_array_equal(every.signals[1][:, [3, 4, 1, 2]], two.signals)
    assert with_gaps(every)
    common = align([one, two], rule="common")
    assert (common.nodes, common.lacks, common.left_out) == (("b", "c", "d"), (), ("a", "x"))
    assert not with_gaps(common)
    same = align([one, table("two", "dcba")], rule="all")
    assert (same.nodes, same.lacks) == (("a", "b", "c", "d"), ())
    assert align([two], "abcdx", "all").lacks == ({"a"},)
    assert "it also has 'x'" in refused(align, [two], "abcd", "all")


def test_sites_that_share_no_nodes_have_nothing_to_learn_together():
    message = refused(align, [table("one", "abc"), table("two", "axy")], rule="all")
    assert "two nodes that other sites have" in message
    assert "at least 3 nodes that every site has" in refused(
        align, [table("one", "abc"), table("two", "bcd")], rule="common"
    )


def test_gaps_stay_gaps_and_are_standardised_by_what_is_there():
    rows = RNG.standard_normal((20, 3)) * [1.0, 50.0, 1e-3] + 7.0
    rows[2, 1] = rows[5, 0] = rows[6, 0] = np.nan
    masked = np.ma.masked_invalid(rows)
    for given in (rows, masked, pd.DataFrame(rows)):
        silos = from_arrays([given])
        np.testing.assert_array_equal(silos.signals[0], rows)
    scaled = standardise(silos).signals[0]
    np.testing.assert_array_equal(np.isnan(scaled), np.isnan(rows))
    np.testing.assert_allclose(np.nanmean(scaled, 0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.nanstd(scaled, 0), 1.0)
    assert at_every_site(silos) == "the same in every site; 5 % of the values are missing"
    assert "column 'node_0'" in refused(refuse_gaps, from_arrays([rows], nodes=None), "complete rows", "Fill them.")
