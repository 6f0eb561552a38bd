"""Products in single precision: against numpy in double, and the same bits whatever surrounds a number."""

import numpy as np
import pytest

from silograph.kernels import products
from silograph.kernels.products import add_products

#: (K, M, L, N): blocks that are full, or not in one way or the other; nothing to add, or nowhere.
SHAPES = [
    (3, 24, 50, 64),
    (2, 25, 7, 32),
    (2, 16, 9, 45),
    (1, 3, 1, 1),
    (4, 1, 30, 33),
    (1, 7, 100, 10),
    (2, 5, 0, 4),
    (2, 0, 5, 4),
    (0, 5, 5, 4),
]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def problem(clients, rows, terms, columns):
    return numbers(clients, rows, terms), numbers(clients, terms, columns, seed=1), numbers(clients, rows, columns)


def product(a, b):
    out = np.zeros((len(a), a.shape[1], b.shape[2]), np.float32)
    add_products(a, b, out)
    return out


def turned(x):
    """The same numbers, columns before rows in memory."""
    return np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1)


def apart(x):
    """The same numbers, with others before every matrix and after it."""
    room = np.full((len(x), x[:1].size + 7), np.nan, np.float32)
    out = room[:, 1 : x[:1].size + 1].reshape(x.shape)
    assert np.shares_memory(room, out) or not x.size
    out[...] = x
    return out


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lie", [np.copy, turned, apart])
def test_it_is_the_product(shape, lie):
    a, b, before = problem(*shape)
    out = lie(before.copy())
    add_products(lie(a), lie(b), out)
    exact = before + a.astype(np.float64) @ b
    # Each of L terms is rounded twice, and the sum once more.
    bound = (shape[2] + 2) * 2.0**-24 * (np.abs(before) + np.abs(a).astype(np.float64) @ np.abs(b))
    assert (np.abs(out - exact) <= 2.0 * bound).all()


def test_nothing_beside_the_result_is_written():
    a, b, _ = problem(2, 5, 6, 20)
    room = np.full((2, 9, 40), 7.0, np.float32)
    add_products(a, b, room[:, 2:7, 3:23])
    room[:, 2:7, 3:23] = 7.0
    assert (room == 7.0).all()


@pytest.mark.parametrize("lie", [turned, apart])
def test_where_matrices_lie_changes_no_bit(lie):
    a, b, _ = problem(3, 20, 90, 70)
    expected = product(a, b)
    np.testing.assert_array_equal(product(lie(a), b), expected)
    np.testing.assert_array_equal(product(a, lie(b)), expected)


def test_a_number_depends_on_its_row_and_column_alone():
    a, b, _ = problem(3, 20, 90, 70)
    expected = product(a, b)
    for rows in (slice(0, 1), slice(3, 17), slice(19, 20)):
        np.testing.assert_array_equal(product(a[:, rows], b), expected[:, rows])
    for columns in (slice(0, 1), slice(5, 60), slice(69, 70)):
        np.testing.assert_array_equal(product(a, b[:, :, columns]), expected[:, :, columns])
    for k in range(3):
        np.testing.assert_array_equal(product(a[k : k + 1], b[k : k + 1]), expected[k : k + 1])


def test_a_term_with_factor_zero_changes_no_bit():
    a, b, _ = problem(2, 9, 60, 33)
    a[:, :, 25] = 0.0
    expected = product(np.delete(a, 25, 2), np.delete(b, 25, 1))
    np.testing.assert_array_equal(product(a, b), expected)


def test_what_is_no_number_stays_in_its_row_and_column():
    a, b, _ = problem(1, 20, 12, 40)
    expected = product(a, b)
    a[0, 19], b[0, 3, 39] = np.nan, np.inf
    out = product(a, b)
    np.testing.assert_array_equal(out[0, :19, :39], expected[0, :19, :39])
    assert np.isnan(out[0, 19]).all()
    assert not np.isfinite(out[0, :, 39]).any()


@pytest.mark.parametrize("clients", [1, 5])
def test_many_threads_give_the_same_bits(clients, monkeypatch):
    a, b, _ = problem(clients, 50, 40, 70)
    expected, parts = product(a, b), []
    one = products._add_products
    monkeypatch.setattr("silograph.core.threads._WORTH_A_THREAD", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: range(4))
    monkeypatch.setattr(products, "_add_products", lambda *arrays: (parts.append(arrays), one(*arrays)))
    np.testing.assert_array_equal(product(a, b), expected)
    assert len(parts) > 1
