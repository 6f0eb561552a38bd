"""Named random numbers are numpy's Philox, row by row. Each statistical test has a false-alarm rate of 1e-4."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from silograph.kernels.draws import _philox, batches, draw_key, integers, silo_ids, uniforms, words

ALARM = 1e-4
WORD = st.integers(0, 2**64 - 1)


def philox(key, silo):
    return np.random.Philox(key=np.array([key, silo], dtype=np.uint64))


def test_known_answer():
    """The first line for philox4x64-10 in Random123's own list: counter and key all 0."""
    zero = np.uint64(0)
    expected = [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    assert [int(word) for word in _philox(zero, zero, zero)] == expected


@given(key=WORD, silos=st.lists(WORD, min_size=1, max_size=5), count=st.integers(0, 13))
@settings(derandomize=True, deadline=None, max_examples=150)
def test_every_row_is_numpys_generator(key, silos, count):
    raw, flat = words(key, silos, count), uniforms(key, silos, count)
    for row, (silo, own) in enumerate(zip(silos, raw, strict=True)):
        np.testing.assert_array_equal(own, philox(key, silo).random_raw(count))
        np.testing.assert_array_equal(flat[row], np.random.Generator(philox(key, silo)).random(count))


@given(key=WORD, silo=WORD, below=st.integers(1, 2**63 - 1))
@settings(derandomize=True, deadline=None, max_examples=150)
def test_integers_are_multiply_and_shift(key, silo, below):
    expected = [int(word) * below >> 64 for word in philox(key, silo).random_raw(7)]
    assert integers(key, [silo], 7, below).tolist() == [expected]


def test_a_row_is_the_same_alone_among_others_and_when_more_is_asked():
    ids, key = silo_ids(f"unit-{k // 10}/agent-{k}" for k in range(50)), draw_key(7, 3, "batches")
    limits = np.arange(1, 51)
    flat, whole = uniforms(key, ids, 9), integers(key, ids, 9, limits)
    order = np.random.default_rng(0).permutation(50)
    np.testing.assert_array_equal(uniforms(key, ids[order], 9), flat[order])
    for k in range(50):
        np.testing.assert_array_equal(uniforms(key, ids[k : k + 1], 4)[0], flat[k, :4])
        np.testing.assert_array_equal(integers(key, ids[k : k + 1], 4, limits[k])[0], whole[k, :4])
        assert (whole[k] < limits[k]).all()
    assert uniforms(key, ids[:0], 9).shape == (0, 9)


def test_names_and_places_do_not_collide():
    names = [f"unit-{k // 1000:03d}/agent-{k % 1000:03d}" for k in range(100_000)]
    ids = silo_ids(names)
    assert ids.dtype == np.uint64
    assert len(np.unique(ids)) == len(names)
    assert ids[777] == silo_ids([names[777]])[0]  # the name alone decides
    keys = [draw_key(*place) for place in ((1, 23, "a"), (12, 3, "a"), (1, 2, "3a"), (1, 23, "b"), (1, 24, "a"))]
    assert len(set(keys)) == len(keys)
    assert all(0 <= key < 2**64 for key in keys)


@pytest.mark.parametrize(
    "bad", [lambda: uniforms(-1, [1], 1), lambda: uniforms(2**64, [1], 1), lambda: integers(1, [1, 2], 1, [3, 0])]
)
def test_our_own_mistakes_are_noticed(bad):
    with pytest.raises(AssertionError):
        bad()


# ---- statistics: neighbouring ids and keys are the hard case ---------------------------------------------------------

NEIGHBOURS = uniforms(5, np.arange(2000), 100)
NEXT_KEY = uniforms(6, np.arange(2000), 100)


def correlated(a, b):
    """The p-value of no correlation."""
    z = np.corrcoef(a.ravel(), b.ravel())[0, 1] * np.sqrt(a.size)
    return 2.0 * stats.norm.sf(abs(z))


def test_uniform_over_all_and_within_silos():
    assert NEIGHBOURS.min() >= 0.0
    assert NEIGHBOURS.max() < 1.0
    assert stats.kstest(NEIGHBOURS.ravel(), "uniform").pvalue > ALARM
    # Within each silo and each place, the p-values of a Kolmogorov-Smirnov test are uniform themselves.
    for rows in (NEIGHBOURS, NEIGHBOURS.T):
        inside = [stats.kstest(row, "uniform").pvalue for row in rows[:200]]
        assert stats.kstest(inside, "uniform").pvalue > ALARM


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (NEIGHBOURS[:, :-1], NEIGHBOURS[:, 1:]),
        (NEIGHBOURS[:, :-4], NEIGHBOURS[:, 4:]),
        (NEIGHBOURS[:-1], NEIGHBOURS[1:]),
        (NEIGHBOURS, NEXT_KEY),
        (NEIGHBOURS[:-1, :-1], NEIGHBOURS[1:, 1:]),
    ],
    ids=["serial", "next block", "next silo", "next key", "diagonal"],
)
def test_no_correlation(a, b):
    assert correlated(a, b) > ALARM
    assert correlated((a - 0.5) ** 2, (b - 0.5) ** 2) > ALARM
    pairs = np.histogram2d(a.ravel(), b.ravel(), bins=16, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(pairs.ravel()).pvalue > ALARM


def test_every_bit_is_a_fair_coin():
    """All 53 bits at once, Bonferroni."""
    scaled = (NEIGHBOURS * 2.0**53).astype(np.uint64).ravel()
    ones = np.array([(scaled >> np.uint64(bit) & np.uint64(1)).sum() for bit in range(53)])
    z = (ones - 0.5 * scaled.size) / np.sqrt(0.25 * scaled.size)
    assert 2.0 * stats.norm.sf(np.abs(z).max()) > ALARM / 53


def test_integers_are_uniform():
    draws = integers(9, np.arange(2000), 100, 7)
    assert stats.chisquare(np.bincount(draws.ravel(), minlength=7)).pvalue > ALARM


def test_a_weak_generator_is_noticed():
    """The broken twin: the same check on ids that only shift one sequence."""
    sequence = philox(1, 1).random_raw(2100) / 2.0**64
    shifted = np.stack([sequence[k : k + 100] for k in range(2000)])
    assert correlated(shifted[:-1, 1:], shifted[1:, :-1]) < ALARM


def test_batches_are_the_beginning_of_a_shuffle():
    """Different numbers in every step, all of them where there are few, and the rest of a row zero."""
    ids, below = silo_ids(f"agent-{k}" for k in range(200)), np.r_[np.full(100, 3), np.full(100, 12)]
    made = batches(7, ids, 4, 5, below)
    assert made.shape == (200, 4, 5)
    assert np.sort(made[:100, :, :3]).tolist() == np.broadcast_to(np.arange(3), (100, 4, 3)).tolist()
    assert not made[:100, :, 3:].any()
    assert (np.diff(np.sort(made[100:])) > 0).all()
    assert made.max() == 11
    for k in (0, 57, 133):  # whoever else is in the call
        np.testing.assert_array_equal(batches(7, ids[k : k + 1], 4, 5, below[k : k + 1])[0], made[k])


def test_batches_choose_every_pair_equally_often():
    """Ordered pairs of 5 numbers, 20 of them, in 20000 steps: chi-square at a rate of 1e-4."""
    ids = silo_ids(f"agent-{k}" for k in range(1000))
    made = batches(11, ids, 20, 2, np.full(1000, 5)).reshape(-1, 2)
    seen = np.bincount(5 * made[:, 0] + made[:, 1], minlength=25).reshape(5, 5)
    assert not seen.diagonal().any()
    assert stats.chisquare(seen[~np.eye(5, dtype=bool)]).pvalue > 1e-4
    # Steps do not follow from one another: what comes first in two steps running.
    pairs = np.bincount(5 * made[:-1, 0] + made[1:, 0], minlength=25)
    assert stats.chisquare(pairs).pvalue > 1e-4
