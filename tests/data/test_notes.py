"""Notes on tables that can be learned from: units, a site in other units, columns that follow from others."""

from __future__ import annotations

import numpy as np
import pytest

from silograph.data.notes import notes_on
from silograph.data.silos import Silos

NODES = tuple("abcdef")


def _sites(count: int = 6, rows: int = 200, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    mixing = np.eye(len(NODES)) + 0.3 * rng.standard_normal((len(NODES), len(NODES)))
    return [rng.standard_normal((rows, len(NODES))) @ mixing for _ in range(count)]


def _notes(sites: list[np.ndarray]) -> list[str]:
    return notes_on(Silos(tuple(f"site_{k}" for k in range(len(sites))), NODES, tuple(sites)))


def test_usual_tables_get_none() -> None:
    """100 tables of three to eight sites, 20 to 300 rows, units within a factor of 100: no note."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        units = 10.0 ** rng.uniform(-1.0, 1.0, len(NODES))
        sites = _sites(int(rng.integers(3, 9)), int(rng.integers(20, 300)), seed)
        assert _notes([own * units for own in sites]) == [], seed


@pytest.mark.parametrize("factor", [10.0, 0.1, 1000.0])
def test_a_site_in_other_units_is_named(factor: float) -> None:
    sites = _sites()
    sites[2] = sites[2] * factor
    (note,) = _notes(sites)
    assert "'site_2'" in note
    sites = _sites()
    sites[4][:, 3] *= factor
    (note,) = _notes(sites)
    assert "'site_4'" in note
    assert "'d'" in note


def test_of_two_sites_in_different_units_the_wider_is_named() -> None:
    first, second = _sites()[:2]
    (note,) = _notes([first, 10.0 * second])
    assert "'site_1'" in note
    assert _notes([first, second]) == []


def test_columns_that_hardly_differ_are_named_where_few_do() -> None:
    rng = np.random.default_rng(5)
    sites = _sites()
    for own in sites:
        own[:, 2] = 0.1 * rng.standard_normal(len(own)) * own[:, 1].std() - own[:, 1]
    (note,) = _notes(sites)
    assert "'b' and 'c' are nearly the same (correlation -0.99" in note
    assert _notes([own[:, :1] + 0.01 * own for own in sites]) == []


def test_units_far_apart_are_said() -> None:
    (note,) = _notes([own * 10.0 ** np.arange(6) for own in _sites()])
    assert "'f'" in note
    assert "correlations" in note


def test_a_total_is_named_with_its_parts() -> None:
    sites = _sites()
    for own in sites:
        own[:, 5] = own[:, 0] + 2.0 * own[:, 1] + 7.0
    (note,) = _notes(sites)
    assert "follows exactly" in note
    assert all(f"'{name}'" in note for name in "abf")
    assert "'c'" not in note


def test_signals_of_mean_zero_are_no_total() -> None:
    """All columns together follow from each other then: that is how the papers' signals are drawn."""
    assert _notes([own - own.mean(1, keepdims=True) for own in _sites()]) == []


def test_gaps_and_few_rows_are_no_reason_to_speak() -> None:
    sites = _sites()
    sites[0][::3, 2] = np.nan
    assert _notes(sites) == []
    assert _notes(_sites(3, 3)) == []


def test_one_table_under_two_names_is_named() -> None:
    sites = _sites()
    sites[3] = np.concatenate([sites[1][:150], sites[3][:50]])
    (note,) = _notes(sites)
    assert "'site_1' and 'site_3' have 150 rows in common" in note
    coarse = [np.rint(own / 3.0) for own in _sites()]  # rows of few values meet by chance
    assert not [note for note in _notes(coarse) if "in common" in note]


def test_a_file_put_together_twice_is_noted_and_answers_that_many_give_are_not() -> None:
    sites = _sites()
    sites[1] = np.concatenate([sites[1], sites[1][:40]])
    (note,) = _notes(sites)
    assert "40 rows of site 'site_1'" in note
    rng = np.random.default_rng(1)
    assert _notes([rng.integers(0, 2, (200, len(NODES))).astype(float) for _ in range(3)]) == []


def test_long_tails_are_named_unless_a_logarithm_does_not_help() -> None:
    sites = [np.abs(own) + 5.0 for own in _sites()]
    assert not any("tails" in note for note in _notes(sites))
    for own in sites:
        own[:, 4] = np.exp(1.2 * np.random.default_rng(len(own)).standard_normal(len(own)))
    (note,) = (note for note in _notes(sites) if "tails" in note)
    assert "'e'" in note
    assert not any("tails" in note for note in _notes([own[:50] for own in sites]))


def test_values_that_are_taken_as_they_are_say_that_edges_follow_units() -> None:
    silos = Silos(("a", "b"), NODES, tuple(own * np.array([1, 1, 1, 1, 1, 100.0]) for own in _sites(2)))
    assert notes_on(silos) == []
    (note,) = notes_on(silos, raw=True)
    assert "do not believe this graph" in note
    assert "--scale own" in note
