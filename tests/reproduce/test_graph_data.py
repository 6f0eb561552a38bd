"""The tables on real data, on stand-ins: every cell, the scores by other means, and what is said without data."""

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

from copies import write_abide, write_coil
from silograph.core.errors import InputError
from silograph.data.brains import load_brains
from silograph.data.views import load_views, view_signals
from silograph.kernels.dual_newton import solve
from silograph.kernels.edges import pairs, squared_distances
from silograph.reproduce import graph_brains, graph_views
from silograph.reproduce.graph_brains import adjusted_difference, by_person, reconstruct, relative_error
from silograph.reproduce.graph_views import agreement, communities, settings
from silograph.reproduce.runner import find

NAMES = ("s3-table4", "s3-table5", "s0-table6")
SHAPES = {
    "s3-table4": (
        ["degree 6", "degree 11"],
        ["IGL", "FedAvg", "FedProx", "MRMTL", "Ditto", "PPGL-L", "PPGL-C", "exact-L", "exact-C"],
        ["NMI", "RI", "FMI"],
    ),
    "s3-table5": (
        ["abide_um_aal116, standardised", "abide_um_aal116, as measured"],
        ["Autism", "Non-autism"],
        ["#Edges", "Average weight"],
    ),
    "s0-table6": (
        ["10% masked", "30% masked", "50% masked"],
        ["mean of the observed", "IGL", "FedAvg", "PPGL-L", "PPGL-L (eps=0.8)", "PPGL-L (eps=1.0)", "exact-L"],
        ["RE"],
    ),
}


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies")
    write_coil(folder)
    write_abide(folder)
    return folder


@pytest.fixture(scope="module")
def tables(copies):
    """Every entry once, with two repetitions, and what its progress said. Half of all pictures as degree is slow."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_views, "DEGREES", (6.0, 11.0))
        for name in NAMES:
            told = []
            table = find(name).run(2, copies, lambda done, text, told=told: told.append((done, text)))
            made[name] = table.to_json(), told
    return made


@pytest.mark.parametrize("name", NAMES)
def test_a_table_has_every_cell(name, tables):
    table, told = tables[name]
    cases, methods, columns = SHAPES[name]
    cells = [(row["case"], row["method"], row["metric"]) for row in table["rows"]]
    assert cells == [(case, method, metric) for case in cases for method in methods for metric in columns]
    for row in table["rows"]:
        assert np.isfinite([row["ours"], row["std"]]).all()
        assert (row["paper"] is None) == (row["method"].startswith(("exact", "mean")))
    assert json.loads(json.dumps(table)) == table
    fractions = [done for done, _ in told]
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1.0)


def test_printed_values_are_in_their_cells(tables):
    def paper(name, case, method, metric):
        return next(
            r["paper"]
            for r in tables[name][0]["rows"]
            if (r["case"], r["method"], r["metric"]) == (case, method, metric)
        )

    assert paper("s3-table4", "degree 6", "Ditto", "RI") == 0.883
    assert paper("s3-table4", "degree 11", "PPGL-L", "FMI") == 0.852
    assert paper("s3-table5", "abide_um_aal116, standardised", "Non-autism", "Average weight") == 0.109
    assert paper("s0-table6", "30% masked", "PPGL-L (eps=0.8)", "RE") == 0.771


@pytest.mark.parametrize("name", NAMES)
def test_without_data_it_says_what_is_needed(name, tmp_path, monkeypatch):
    monkeypatch.delenv("SILOGRAPH_DATA", raising=False)
    for folder in (None, tmp_path):
        with pytest.raises(InputError, match=r"COIL-20 is|ABIDE I is"):
            find(name).run(1, folder, lambda done, text: None)


def test_data_that_are_too_small_are_refused(tmp_path):
    write_abide(tmp_path, regions=20)
    for name in NAMES[1:]:
        with pytest.raises(InputError, match="with 34 regions and 176 volumes or more"):
            find(name).run(1, tmp_path, lambda done, text: None)


def test_persons_are_the_first_fifty_of_each_group_with_volumes_like_the_papers(copies):
    brains = load_brains(copies)  # 200 volumes each
    groups = np.repeat([True, False], 60)
    many = replace(
        brains,
        person=tuple(map(str, range(120))),
        autism=groups,
        motion=np.zeros(120),
        series=tuple(brains.series[k % 7][: 176 if k % 60 else 170] for k in range(120)),
    )
    chosen = graph_brains._persons(many)
    assert chosen.person == tuple(map(str, [*range(1, 51), *range(61, 111)]))
    longer = replace(many, series=tuple(brains.series[0][: 170 + k % 60] for k in range(120)))
    assert graph_brains._persons(longer).person[:2] == ("6", "7")  # too few have 176, so more will do


# ---- communities ----


def pair_scores(found, truth):
    """Rand's index, and Fowlkes and Mallows', by counting pairs; mutual information by counting cells."""
    both = one = other = neither = 0
    for a, b in combinations(range(len(found)), 2):
        together, really = found[a] == found[b], truth[a] == truth[b]
        both += together and really
        one += together and not really
        other += really and not together
        neither += not together and not really
    rand = (both + neither) / (both + one + other + neither)
    fowlkes = both / np.sqrt((both + one) * (both + other)) if both else 0.0
    n, mutual = len(found), 0.0
    for c in set(found):
        for t in set(truth):
            share = np.mean((found == c) & (truth == t))
            if share:
                mutual += share * np.log(share / (np.mean(found == c) * np.mean(truth == t)))

    def entropy(of):
        shares = np.unique(of, return_counts=True)[1] / n
        return -(shares * np.log(shares)).sum()

    return [mutual / (0.5 * (entropy(found) + entropy(truth))), rand, fowlkes]


def test_scores_of_communities_by_counting_pairs():
    rng = np.random.default_rng(0)
    for _ in range(20):
        truth, found = rng.integers(0, 3, 12), rng.integers(0, 4, 12)
        np.testing.assert_allclose(agreement(found, truth), pair_scores(found, truth), atol=1e-12)
    assert agreement(np.array([5, 5, 7]), np.array([0, 0, 1])).tolist() == pytest.approx([1, 1, 1])


def test_communities_are_cliques_and_lonely_nodes():
    a, b = pairs(7)
    clique = (a < 3) & (b < 3) | (a >= 3) & (b >= 3) & (b < 6)
    found = communities(np.where(clique, 1.0, np.where((a == 2) & (b == 3), 0.1, 0.0)), 7, 0)
    assert len(set(found[:3])) == len(set(found[3:6])) == 1
    assert len(set(found)) == 3


def test_pictures_of_objects_that_are_unlike_are_told_apart(tables):
    rows = {(r["case"], r["method"]): r["ours"] for r in tables["s3-table4"][0]["rows"] if r["metric"] == "NMI"}
    assert rows["degree 11", "PPGL-C"] > 0.9
    assert rows["degree 11", "exact-C"] > 0.9


def test_settings_give_silos_alone_the_wanted_degree(copies):
    signals = view_signals(load_views(copies), [0, 1, 2, 3])
    for degree in (6.0, 11.0):
        beta, lam, nu = settings(signals, degree)
        graphs = solve(np.array([squared_distances(x) for x in signals.values()]), 1.0, np.full(3, beta), 0.0).w
        assert 2 * (graphs > 0).sum() / 48 / 3 == pytest.approx(degree, rel=0.15)
        assert lam > 0
        assert nu > 0


# ---- masked nodes ----


def test_masked_nodes_are_where_the_variation_is_least():
    """By a general minimiser, value by value."""
    rng = np.random.default_rng(2)
    nodes = 6
    w = rng.uniform(0, 1, nodes * (nodes - 1) // 2) * (rng.random(nodes * (nodes - 1) // 2) < 0.7)
    matrix = np.zeros((nodes, nodes))
    matrix[np.triu_indices(nodes, 1)] = w
    matrix += matrix.T
    matrix /= np.abs(np.linalg.eigvals(matrix)).max()
    signals, masked = rng.normal(size=(3, nodes)), np.array([True, False, False, True, True, False])
    found = reconstruct(w, signals, masked)
    np.testing.assert_array_equal(found[:, ~masked], signals[:, ~masked])
    for row, signal in zip(found, signals, strict=True):

        def variation(values, signal=signal):
            x = signal.copy()
            x[masked] = values
            return ((x - matrix @ x) ** 2).sum()

        best = minimize(variation, np.zeros(3), tol=1e-14)
        np.testing.assert_allclose(row[masked], best.x, atol=1e-5)


def test_errors_are_those_of_the_masked_values():
    w, masked = np.array([1.0, 0.0, 0.0]), np.array([False, True, False])  # 0 - 1 alone
    signals = np.array([[2.0, 3.0, 7.0]])
    assert reconstruct(w, signals, masked)[0, 1] == pytest.approx(2.0)  # x1 = x0: nothing varies
    assert relative_error(w, signals, masked) == pytest.approx(1 / 3)
    assert relative_error(np.zeros(3), signals, masked) == pytest.approx(1.0)  # no graph: 0 is the guess


def test_a_graph_of_what_goes_together_finds_masked_nodes(tables):
    rows = {(r["case"], r["method"]): r["ours"] for r in tables["s0-table6"][0]["rows"]}
    for case in SHAPES["s0-table6"][0]:
        assert rows[case, "PPGL-L"] < 0.9 < rows[case, "mean of the observed"]


# ---- two groups ----


def test_edges_are_counted_from_their_least_weight(copies):
    brains = load_brains(copies).only(range(34))
    counted = by_person(graph_brains._standardised(brains))
    assert counted.shape == (7, 2)
    assert 2 * counted[:, 0].mean() / 34 == pytest.approx(6.0, rel=0.15)
    assert (counted[:, 1] > 0.01).all()


def test_louder_signals_have_fewer_edges(copies):
    """What 'as measured' shows and standardised signals hide: loudness, nothing of who goes with whom."""
    brains = load_brains(copies).only(range(34))
    loud = replace(brains, series=tuple(own * (3.0 if k == 0 else 1.0) for k, own in enumerate(brains.series)))
    measured = by_person(graph_brains._as_measured(loud))[:, 0]
    assert measured[0] < 0.6 * measured[1:].min()
    same = by_person(graph_brains._standardised(loud))[:, 0]
    np.testing.assert_array_equal(same, by_person(graph_brains._standardised(brains))[:, 0])


def test_a_difference_that_is_head_motion_is_gone_at_equal_motion():
    """20 draws of 80 persons whose edges follow motion alone: within 3.5 errors of 0 but for 1 draw in 100."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        autism = np.arange(80) < 40
        motion = rng.uniform(0, 0.2, 80) + 0.1 * autism
        motion[7] = np.nan
        edges = 100 - 200 * np.nan_to_num(motion, nan=0.1) + rng.normal(0, 3, 80)
        gap, error = adjusted_difference(edges, autism, motion)
        assert abs(gap) < 3.5 * error
        gap, error = adjusted_difference(edges - 10 * autism, autism, motion)
        assert gap < -5 * error
