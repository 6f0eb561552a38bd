"""Records by the person whose they are."""

import numpy as np
import pytest

from silograph.core.errors import InputError
from silograph.data.persons import by_person, present

X = np.arange(14.0).reshape(7, 2)
WHOSE = np.array(["eve", "ann", "eve", "eve", "bob", "eve", "bob"], dtype=object)


def test_a_person_has_one_place_and_of_many_records_those_spread_over_them():
    x, y = by_person(X, np.arange(7), WHOSE, 2, "client")
    np.testing.assert_array_equal(y, [[0, 3], [1, -1], [4, 6]])  # eve has the rows 0, 2, 3 and 5
    np.testing.assert_array_equal(x[0], X[[0, 3]])
    np.testing.assert_array_equal(x[1], [X[1], [0.0, 0.0]])
    np.testing.assert_array_equal(present(y), [[True, True], [True, False], [True, True]])


def test_a_regressions_empty_places_are_told_from_negative_answers():
    _, y = by_person(X, -np.arange(7, dtype=np.float32), WHOSE, 3, "client")
    np.testing.assert_array_equal(present(y), [[True] * 3, [True, False, False], [True, True, False]])


def test_what_others_have_does_not_matter_for_a_persons_records():
    alone = by_person(X[[0, 1, 2, 3, 5]], np.array([0, 1, 2, 3, 5]), WHOSE[[0, 1, 2, 3, 5]], 2, "client")[1]
    np.testing.assert_array_equal(alone[0], by_person(X, np.arange(7), WHOSE, 2, "client")[1][0])


@pytest.mark.parametrize("missing", [None, "", np.nan])
def test_a_record_of_nobody_is_refused(missing):
    with pytest.raises(InputError, match="record 3: expected the person whose it is, but it is missing"):
        by_person(X, np.arange(7), np.array([*"ab", missing, *"cdef"], dtype=object), 2, "client")


def test_one_person_cannot_be_divided():
    with pytest.raises(InputError, match="at least 2 persons"):
        by_person(X, np.arange(7), np.array(["ann"] * 7, dtype=object), 2, "client")
