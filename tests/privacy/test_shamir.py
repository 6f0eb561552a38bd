"""Any threshold of shares gives the secret back exactly; fewer are uniform whatever the secret."""

import itertools
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from silograph.core.errors import InputError
from silograph.privacy.shamir import PRIME, combine, share_size, split

ALARM = 1e-4


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_threshold_of_shares_gives_the_secret_back(data):
    secret = data.draw(st.binary(min_size=1, max_size=40).map(lambda half: half + half))
    points = data.draw(st.lists(st.integers(1, PRIME - 1), min_size=1, max_size=30, unique=True))
    threshold = data.draw(st.integers(1, len(points)))
    shares = dict(zip(points, split(secret, points, threshold, os.urandom), strict=True))
    chosen = data.draw(st.permutations(points))[: data.draw(st.integers(threshold, len(points)))]
    assert combine({x: shares[x] for x in chosen}) == secret
    assert {len(share) for share in shares.values()} == {share_size(len(secret))}


def test_every_subset_of_a_small_cohort():
    secret = bytes(range(32))
    shares = dict(zip(range(1, 7), split(secret, range(1, 7), 4, os.urandom), strict=True))
    for size in range(1, 7):
        for chosen in itertools.combinations(shares, size):
            assert (combine({x: shares[x] for x in chosen}) == secret) == (size >= 4)


def test_extreme_limbs_and_a_field_element_of_seventeen_bits():
    """Coefficients are words mod the prime: with all coefficients 65536 = -1 the share at 1 is the limb minus one."""
    secret = b"\xff\xff\x00\x00"
    minus_one = (65536).to_bytes(4, "little")
    share = split(secret, [1, 2], 2, lambda n: minus_one * (n // 4))[0]
    assert np.frombuffer(share, "<u4").tolist() == [65534, 65536]
    assert combine(dict(zip([1, 2], split(secret, [1, 2], 2, lambda n: minus_one * (n // 4)), strict=True))) == secret


def test_the_one_word_that_would_bias_a_coefficient_is_drawn_again():
    answers = iter([b"\xff" * 4 + (7).to_bytes(4, "little"), (9).to_bytes(4, "little")])
    share = split(bytes(4), [1, 2], 2, lambda n: next(answers))[0]
    assert np.frombuffer(share, "<u4").tolist() == [7, 9]


@pytest.mark.parametrize("limb", [0, 65535])
def test_shares_below_the_threshold_are_uniform(limb):
    """Two shares of three, threshold three: each alone and combined, by chi-square at rate 1e-4, at a fixed seed."""
    secret = limb.to_bytes(2, "little") * 40_000
    shares = split(secret, [1, 2, 3], 3, np.random.default_rng(limb).bytes)
    one, two = (np.frombuffer(share, "<u4").astype(np.int64) for share in shares[:2])
    for view in (one, two, (one - two) % PRIME, (one + 2 * two) % PRIME):
        counts = np.histogram(view, bins=64, range=(0, PRIME))[0]
        edges = np.ceil(np.linspace(0, PRIME, 65))
        assert stats.chisquare(counts, view.size * np.diff(edges) / PRIME).pvalue > ALARM


def test_shares_of_two_secrets_join():
    a, b = os.urandom(32), os.urandom(32)
    both = split(a + b, [1, 2, 3], 2, os.urandom)
    half = share_size(32)
    assert combine({1: both[0][:half], 3: both[2][:half]}) == a
    assert combine({1: both[0][half:], 3: both[2][half:]}) == b


@pytest.mark.parametrize(
    ("points", "threshold"), [([1, 1], 2), ([0, 1], 2), ([1, PRIME], 2), ([1, 2], 3), ([1, 2], 0), ([], 1)]
)
def test_points_that_cannot_be_used_are_refused(points, threshold):
    with pytest.raises(InputError, match="points"):
        split(bytes(4), points, threshold, os.urandom)
