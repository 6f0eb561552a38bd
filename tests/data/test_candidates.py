"""Candidate edges are a public list that must make sense."""

import numpy as np
import pytest

from silograph.core.errors import InputError
from silograph.data.candidates import read_candidates

NODES = ("a", "b", "c", "d")


def write(tmp_path, text):
    path = tmp_path / "edges.csv"
    path.write_text(text)
    return path


def test_a_list_becomes_pairs_in_edge_order(tmp_path):
    path = write(tmp_path, "source,target,weight\nb,a,1\nc,b,2\nd,c,3\n")
    np.testing.assert_array_equal(read_candidates(path, NODES), [[0, 1, 2], [1, 2, 3]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "source,target"),
        ("from,to\na,b\n", "source,target"),
        ("source,target\n", "at least one edge"),
        ("source,target\na,z\n", "found 'z'"),
        ("source,target\na\n", "found ''"),
        ("source,target\na,a\n", "twice"),
        ("source,target\na,b\nb,a\n", "again"),
        ("source,target\na,b\nc,d\n", "a cannot reach c, d"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, text, words):
    with pytest.raises(InputError, match=words):
        read_candidates(write(tmp_path, text), NODES)


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_candidates(tmp_path / "none.csv", NODES)
