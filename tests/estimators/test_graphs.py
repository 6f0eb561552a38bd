"""The estimator in scikit-learn's world."""

import json
import pickle
import warnings

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.covariance import GraphicalLassoCV
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from silograph import ConsensusGraph
from silograph import open_run as silograph_run
from silograph.core.errors import InputError
from silograph.kernels.dual_newton import solve
from silograph.kernels.edges import squared_distances
from support import federation

TWO_NODES = "fits a table of two columns; a graph needs three nodes"
NOT_APPLICABLE = dict.fromkeys(
    (
        "check_estimators_overwrite_params",
        "check_estimators_fit_returns_self",
        "check_readonly_memmap_input",
        "check_fit_idempotent",
        "check_fit_check_is_fitted",
        "check_n_features_in",
    ),
    TWO_NODES,
)


@parametrize_with_checks([ConsensusGraph()], expected_failed_checks=lambda estimator: NOT_APPLICABLE)
def test_scikit_learns_own_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_the_front_door():
    signals = federation()
    model = ConsensusGraph(degree=3).fit(list(signals.values()), names=list(signals))
    assert model.graphs_.shape == (3, 8, 8)
    assert model.consensus_.shape == (8, 8)
    assert model.weights_.shape == (3,)
    assert model.gap_ <= 1e-3
    assert ConsensusGraph(degree=3, learner="papers").fit(list(signals.values())).gap_ <= 1e-6
    assert {row.silo for row in model.ledger_} == set(signals)
    np.testing.assert_array_equal(model.graphs_, model.graphs_.transpose(0, 2, 1))
    made = model.to_networkx("bob")
    assert isinstance(made, nx.Graph)
    a, b = next(iter(made.edges))
    k, l = (model.nodes_.index(x) for x in (a, b))
    assert made[a][b]["weight"] * made[a][b]["sign"] == model.graphs_[1, k, l]
    assert made[a][b]["probability"] == model.probabilities_[1, k, l]
    assert model.to_networkx().number_of_nodes() == 8
    with pytest.raises(InputError, match="one of"):
        model.to_networkx("zoe")


def test_sites_keep_the_order_they_were_given_in():
    signals = federation()
    forward = ConsensusGraph(degree=3).fit(list(signals.values()), names=list(signals))
    backward = ConsensusGraph(degree=3).fit(list(signals.values())[::-1], names=list(signals)[::-1])
    np.testing.assert_array_equal(forward.graphs_, backward.graphs_[::-1])
    np.testing.assert_array_equal(forward.weights_, backward.weights_[::-1])


def test_the_privacy_budget_is_met():
    signals = list(federation().values())
    model = ConsensusGraph(degree=3, epsilon=2.0, delta=1e-5, scale="none", random_state=0).fit(signals)
    again = clone(model).fit(signals)
    np.testing.assert_array_equal(model.graphs_, again.graphs_)
    assert all(g["epsilon"] <= 2.0 for g in model.privacy_["guarantees"])
    secret = ConsensusGraph(degree=3, epsilon=2.0, delta=1e-5, scale="none").fit(signals)
    assert not np.array_equal(model.graphs_, secret.graphs_)
    assert all("secret" in row.randomness for row in secret.ledger_)


def test_a_single_table_is_one_site_and_frames_name_the_nodes():
    x = federation()["ada"]
    frame = pd.DataFrame(x, columns=list("stuvwxyz"))
    model = ConsensusGraph(beta=0.05, scale="none").fit(frame)
    assert model.nodes_ == list("stuvwxyz")
    alone = solve(squared_distances(x)[None], 1.0, 0.05).w[0]
    np.testing.assert_allclose(model.graphs_[0][np.triu_indices(8, 1)], alone, atol=1e-4)


def test_bad_parameters():
    x = federation()["ada"]
    with pytest.raises(InputError, match="found degree and beta"):
        ConsensusGraph(degree=3, beta=1.0).fit([x])
    with pytest.raises(InputError, match="epsilon"):
        ConsensusGraph(delta=1e-5).fit([x])


# ---- the likelihood --------------------------------------------------------------------------------------------------


def gaussian_tables(counts=(200, 300), nodes=10, seed=4):
    """Rows of one signed chain."""
    theta = np.eye(nodes) * 1.2
    for k in range(nodes - 1):
        theta[k, k + 1] = theta[k + 1, k] = -0.5 if k % 2 else 0.5
    rng = np.random.default_rng(seed)
    return theta, [3.0 + rng.multivariate_normal(np.zeros(nodes), np.linalg.inv(theta), n) for n in counts]


def test_precision_covariance_and_signs_say_the_same():
    theta, tables = gaussian_tables()
    model = ConsensusGraph().fit(tables)
    np.testing.assert_allclose(model.covariance_ @ model.precision_, np.tile(np.eye(10), (2, 1, 1)), atol=1e-9)
    own = np.sqrt(np.einsum("kaa->ka", model.precision_))
    partial = -model.precision_ / (own[:, :, None] * own[:, None, :]) * (1.0 - np.eye(10))
    np.testing.assert_allclose(model.graphs_, partial, atol=1e-12)
    np.testing.assert_array_equal(model.signs_, np.sign(model.graphs_))
    chain = -np.sign(theta) * (1.0 - np.eye(10))
    np.testing.assert_array_equal(np.sign(model.consensus_)[chain != 0.0], chain[chain != 0.0])
    assert (model.consensus_probabilities_[chain != 0.0] > 0.9).all()
    assert (ConsensusGraph(nonnegative=True).fit(tables).graphs_ >= 0.0).all()


def test_the_score_is_the_mean_log_density_of_rows():
    _, tables = gaussian_tables()
    _, other = gaussian_tables((50, 70), seed=5)
    model = ConsensusGraph(degree=2).fit(tables)
    each = [multivariate_normal(model.location_[k], model.covariance_[k]).logpdf(rows) for k, rows in enumerate(other)]
    assert model.score(other) == pytest.approx(np.concatenate(each).mean())
    pooled = multivariate_normal(model.weights_ @ model.location_, np.linalg.inv(model.consensus_precision_))
    assert model.score(other[0]) == pytest.approx(pooled.logpdf(other[0]).mean())
    held_out = [*other, other[0]]  # as many as in a fold of sites: of no site of `fit`
    assert model.score(held_out) == pytest.approx(pooled.logpdf(np.concatenate(held_out)).mean())
    with pytest.raises(InputError, match="the learner 'likelihood'"):
        ConsensusGraph(degree=2, learner="papers").fit(tables).score(other)


def test_model_selection_works_and_predicts_as_well_as_scikit_learns_own():
    """Held-out rows of a chain, five folds; GraphicalLassoCV chooses its penalty within each."""
    table = gaussian_tables((300,))[1][0]
    ours = cross_val_score(ConsensusGraph(), table, cv=5)
    # Its score leaves the constant of the density in, as ours does.
    theirs = cross_val_score(GraphicalLassoCV(), table, cv=5)
    assert ours.mean() > theirs.mean()
    search = GridSearchCV(ConsensusGraph(), {"degree": [0.4, 1.8, 8.0]}, cv=3).fit(table)
    assert search.best_params_ == {"degree": 1.8}


def tables_with_words(rows=60):
    rng = np.random.default_rng(4)
    frames = {}
    for site in ("north", "south"):
        frame = pd.DataFrame(rng.standard_normal((rows, 4)), columns=list("abcd"))
        frames[site] = frame.assign(ward=rng.permutation(np.resize(np.array(["x", "y", "z"]), rows)))
    return frames


def test_dicts_frames_and_paths_are_the_same_sites(tmp_path):
    import pyarrow as pa

    frames = tables_with_words()
    for site, frame in frames.items():
        frame.to_csv(tmp_path / f"{site}.csv", index=False)
    model = ConsensusGraph(categories={"ward": ("x", "y", "z")})
    by_name = model.fit(frames)
    assert list(by_name.names_) == ["north", "south"]
    assert tuple(by_name.nodes_) == ("a", "b", "c", "d", "ward=y", "ward=z")
    expected = by_name.graphs_.copy()
    arrow = {site: pa.Table.from_pandas(frame) for site, frame in frames.items()}
    for given in (list(frames.values()), arrow, [tmp_path / "north.csv", tmp_path / "south.csv"], tmp_path):
        np.testing.assert_array_equal(model.fit(given).graphs_, expected)


def test_columns_that_are_no_measurements_are_refused_in_python_too():
    frames = tables_with_words()
    with pytest.raises(InputError, match=r"'ward' holds words.*categories=.\"ward\": \[\"x\", \"y\", \"z\""):
        ConsensusGraph().fit(frames)
    for site in frames:
        frames[site] = frames[site].drop(columns="ward").assign(patient_id=range(60))
    with pytest.raises(InputError, match="patient_id"):
        ConsensusGraph().fit(frames)
    assert len(ConsensusGraph(drop=("patient_id",)).fit(frames).nodes_) == 4
    assert len(ConsensusGraph(keep=("patient_id",)).fit(frames).nodes_) == 5
    rng = np.random.default_rng(0)
    bare = np.column_stack([rng.standard_normal((60, 3)), rng.permutation(60)])
    with pytest.raises(InputError, match="'node_3' numbers its rows"):
        ConsensusGraph().fit([bare])
    with pytest.raises(InputError, match="'node_3' is the same as column 'node_0'"):
        ConsensusGraph().fit([np.column_stack([bare[:, :3], 2.0 * bare[:, 0] + 1.0])])


def test_a_sum_has_a_consensus_and_no_graphs_of_sites():
    tables = [np.random.default_rng(k).standard_normal((300, 6)).cumsum(1) for k in range(3)]
    model = ConsensusGraph(reveal="sum", edges=5).fit(tables)
    assert (model.consensus_[np.triu_indices(6, 1)] != 0.0).sum() == 5
    assert model.graphs_ is None
    assert model.precision_ is None
    assert model.consensus_precision_.shape == (6, 6)
    assert "consensus edges" in model._repr_html_()
    with pytest.raises(InputError, match="every site's moments"):
        model.score(tables)
    with pytest.raises(InputError, match="sites have no graphs"):
        model.to_networkx(model.names_[0])


def test_only_edges_of_some_confidence_are_drawn():
    tables = [np.random.default_rng(k).standard_normal((60, 6)).cumsum(1) for k in range(3)]
    every, sure = (ConsensusGraph(edges=12, confidence=least).fit(tables) for least in (None, 0.9))
    for k in range(3):
        expected = np.where(every.probabilities_[k] >= 0.9, every.graphs_[k], 0.0)
        np.testing.assert_array_equal(sure.graphs_[k], expected)
        assert (sure.graphs_[k] != 0.0).sum() < (every.graphs_[k] != 0.0).sum()
    np.testing.assert_array_equal(sure.signs_ != 0, sure.graphs_ != 0)


def test_a_table_of_other_columns_is_refused_in_words():
    tables = [np.random.default_rng(k).standard_normal((60, 6)).cumsum(1) for k in range(2)]
    model = ConsensusGraph().fit(tables)
    with pytest.raises(InputError, match="table 1: expected 6 columns"):
        model.score([tables[0], tables[1][:, :5]])


def test_the_score_matches_columns_and_sites_by_name():
    frames = framed()
    model = ConsensusGraph(degree=2).fit(frames)
    arrays = [frame.to_numpy() for frame in frames.values()]
    aligned, together = model.score(arrays), model.score(arrays[0])
    turned = {site: frame[list("fbdace")] for site, frame in reversed(frames.items())}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.score(turned) == aligned
        assert model.score([turned[site] for site in frames]) == aligned
        assert model.score(turned["east"]) == together
    with pytest.raises(InputError, match=r"table 0: expected the columns of `fit`, .*lacks 'b' .*also has 'B'"):
        model.score([frame.rename(columns={"b": "B"}) for frame in frames.values()])
    with pytest.raises(InputError, match=r"table of each site of `fit`, .*lacks 'south'"):
        model.score({site: frame for site, frame in frames.items() if site != "south"})
    gaps = frames["east"].copy()
    gaps.loc[7, "c"] = np.nan
    mean, covariance = model.weights_ @ model.location_, np.linalg.inv(model.consensus_precision_)
    each = multivariate_normal(mean, covariance).logpdf(frames["east"])
    seen = np.array(model.nodes_) != "c"  # a row with a gap has the density of its other values
    each[7] = multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)]).logpdf(frames["east"].to_numpy()[7, seen])
    for table in (gaps, gaps.to_numpy()):
        assert model.score(table) == pytest.approx(each.mean())
    with pytest.raises(InputError, match="column c, data row 1: expected a number") as told:
        model.score(frames["east"].assign(c="Mrs Miller"))
    assert "Miller" not in str(told.value)


def test_the_score_reads_tables_as_fit_does():
    frames = tables_with_words()
    for site, frame in frames.items():
        frames[site] = frame.assign(patient_id=range(len(frame)))
    model = ConsensusGraph(categories={"ward": ("x", "y", "z")}, drop=("patient_id",)).fit(frames)
    numbers = [
        np.column_stack([frame[list("abcd")], frame.ward == "y", frame.ward == "z"]) for frame in frames.values()
    ]
    expected = model.score(numbers)
    assert model.score(frames) == expected
    long = pd.concat(frame.assign(place=site) for site, frame in frames.items())
    assert model.set_params(site_column="place").fit(long).score(long) == pytest.approx(expected)


def test_tables_with_gaps_and_different_columns():
    rng = np.random.default_rng(5)
    frames = [pd.DataFrame(x, columns=list("stuvwxyz")) for x in federation().values()]
    frames = [frame.mask(rng.random(frame.shape) < 0.1) for frame in frames]
    frames[0] = frames[0].drop(columns="v")
    model = ConsensusGraph().fit(frames)
    gone = model.nodes_.index("v")
    assert np.isnan(model.location_[0, gone])
    assert np.isfinite(np.delete(model.location_[0], gone)).all()
    assert not model.graphs_[0][gone].any()
    assert (model.consensus_ != 0.0).any()
    with pytest.raises(InputError, match="some lacked nodes"):
        model.score(frames)
    assert np.isfinite(model.score(frames[1]))
    alone = ConsensusGraph(learner="papers", resamples=0).fit(frames[1])
    assert alone.gap_ <= 1e-6
    papers = ConsensusGraph(learner="papers", resamples=0).fit(dict(zip("abc", frames, strict=True)))
    for each in (model, papers):
        others = np.delete(np.arange(8), gone)
        assert (each.could_see_[gone, others] == 2).all()
        assert (each.could_see_[np.ix_(others, others)] == 3 * (1 - np.eye(7))).all()
        assert all(edge["could_see"] in (2, 3) for *_, edge in each.to_networkx().edges(data=True))
    assert papers.gap_ <= 1e-7
    assert "v" not in papers.to_networkx("a")
    assert not papers.graphs_[0][gone].any()
    with pytest.raises(InputError, match="same nodes"):
        ConsensusGraph(epsilon=5.0).fit(frames)


def framed(sites=("east", "north", "south"), rows=120):
    tables = gaussian_tables((rows,) * len(sites), nodes=6)[1]
    return {site: pd.DataFrame(table, columns=list("abcdef")) for site, table in zip(sites, tables, strict=True)}


def test_a_run_folder_can_be_saved_and_loaded_and_is_what_the_command_writes(tmp_path, silograph):
    frames = framed()
    for site, frame in frames.items():
        frame.to_csv(tmp_path / f"{site}.csv", index=False)
    paths = sorted(tmp_path.glob("*.csv"))
    model = ConsensusGraph(degree=2).fit(frames)
    model.save(tmp_path / "memory")
    ConsensusGraph(degree=2).fit(paths).save(tmp_path / "files")
    silograph("learn", *paths, "-o", tmp_path / "typed", "--degree", 2)
    for name in ("consensus.csv", "ledger.jsonl", "sites/north.csv"):
        assert (tmp_path / "memory" / name).read_bytes() == (tmp_path / "typed" / name).read_bytes()
    for name in ("result.json", "report.html", "plan.toml"):
        assert (tmp_path / "files" / name).read_bytes() == (tmp_path / "typed" / name).read_bytes()
    assert "made in Python from tables in memory" in model.report(tmp_path / "page.html")
    assert model.report() == (tmp_path / "page.html").read_text() == (tmp_path / "memory/report.html").read_text()
    assert silograph("report", tmp_path / "memory")[0] == 0
    with pytest.raises(InputError, match="not empty"):
        model.save(tmp_path / "memory")
    again = ConsensusGraph.load(tmp_path / "typed")
    assert (again.degree, again.nodes_, again.names_) == (2, model.nodes_, model.names_)
    for name in ("graphs_", "consensus_", "signs_", "weights_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    assert again.privacy_ == json.loads((tmp_path / "typed/result.json").read_text())["privacy"]
    with pytest.raises(InputError, match="it has graphs only"):
        again.score(frames["north"])
    assert again.fit(frames).score(frames) == model.score(frames)
    assert model.effective_rows_ is model.consensus_effective_rows_ is None


@pytest.mark.parametrize("mode", ["one-release", "secure-sum"])
def test_effective_rows_are_those_of_the_run_folder(tmp_path, mode):
    model = ConsensusGraph(degree=2, epsilon=40.0, mode=mode, scale="none", random_state=1).fit(framed())
    model.save(tmp_path / "out")
    result = json.loads((tmp_path / "out/result.json").read_text())
    assert model.consensus_effective_rows_ == result["consensus"]["effective_rows"]
    again = ConsensusGraph.load(tmp_path / "out")
    assert again.consensus_effective_rows_ == model.consensus_effective_rows_
    if mode == "secure-sum":
        assert model.effective_rows_ is again.effective_rows_ is None
    else:
        expected = [site["effective_rows"] for site in result["sites"]]
        np.testing.assert_array_equal(model.effective_rows_, expected)
        np.testing.assert_array_equal(again.effective_rows_, expected)


def test_a_pickle_carries_no_tables():
    model = ConsensusGraph(degree=2).fit(framed())
    kept = pickle.dumps(model)
    assert len(kept) < len(pickle.dumps(model._run[0].silos))
    with pytest.raises(InputError, match="does not carry the tables"):
        pickle.loads(kept).report()


def test_edges_as_a_table_and_as_a_picture(tmp_path):
    model = ConsensusGraph(degree=2).fit(framed())
    told = model.to_pandas("north")
    graph = model.to_networkx("north")
    assert len(told) == graph.number_of_edges()
    for row in told.itertuples():
        assert graph[row.source][row.target] == {name: getattr(row, name) for name in told.columns[2:]}
    model.save(tmp_path / "run")
    run = silograph_run(tmp_path / "run")
    pd.testing.assert_frame_equal(run.to_pandas("north"), told)
    axes = model.plot("north")
    assert len(axes.lines) == len(run.plot("north").lines) == len(told)
    assert sorted(text.get_text() for text in axes.texts) == model.nodes_


def test_persons_a_long_table_a_secure_sum_and_public_lists(tmp_path):
    frames = framed()
    long = pd.concat([frame.assign(site=site, person=np.arange(120) // 3) for site, frame in frames.items()])
    plain = ConsensusGraph(degree=2).fit(frames)
    parted = ConsensusGraph(degree=2, site_column="site", drop=("person",)).fit(long)
    np.testing.assert_array_equal(parted.graphs_, plain.graphs_)
    asked = {"degree": 2, "unit_column": "person", "epsilon": 8.0, "mode": "secure-sum", "scale": "none"}
    people = ConsensusGraph(**asked, site_column="site", random_state=1).fit(long)
    assert people.privacy_["protected_unit"].startswith("one person of one site")
    assert people.graphs_ is None
    assert len(people.consensus_) == 6
    (tmp_path / "pairs.csv").write_text("source,target\na,b\nb,c\nc,d\nd,e\ne,f\n")
    listed = ConsensusGraph(beta=0.5, candidates=tmp_path / "pairs.csv").fit(frames)
    assert {frozenset(pair) for pair in zip("abcde", "bcdef", strict=True)} >= {
        frozenset(row) for row in listed.to_pandas()[["source", "target"]].itertuples(index=False)
    }
    for spread in (1, 2):
        rows = "".join(f"{name},0,{spread}\n" for name in "abcdef")
        (tmp_path / f"scale{spread}.csv").write_text("column,centre,spread\n" + rows)
    scaled = ConsensusGraph(degree=2, epsilon=50.0, random_state=1, scale=tmp_path / "scale2.csv").fit(frames)
    halved = {site: frame / 2.0 for site, frame in frames.items()}
    as_is = ConsensusGraph(degree=2, epsilon=50.0, random_state=1, scale=tmp_path / "scale1.csv").fit(halved)
    np.testing.assert_array_equal(scaled.consensus_, as_is.consensus_)
    with pytest.raises(InputError, match="epsilon with delta or clip or mode"):
        ConsensusGraph(mode="secure-sum").fit(frames)
    with pytest.raises(InputError, match="its columns are 'a', 'b'"):
        ConsensusGraph(site_column="ward").fit(frames["north"])


def test_a_search_under_a_budget_is_refused_in_words_before_its_first_fit(monkeypatch):
    table = framed()["north"]
    monkeypatch.setattr(ConsensusGraph, "fit", lambda self, X, y=None: pytest.fail("a budget was spent"))
    search = GridSearchCV(ConsensusGraph(epsilon=50.0, scale="none"), {"degree": [1, 2]}, cv=2)
    with pytest.raises(InputError, match="spends it in every fit"):
        search.fit(table)
