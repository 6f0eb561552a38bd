"""One exchange of second moments, and their secure sum: the same at every engine and between organisations."""

from dataclasses import replace

import numpy as np
import pytest

from local_organisations import Direct, Federation, stacked
from silograph.core.errors import InputError, SilenceError
from silograph.kernels.edges import pairs
from silograph.kernels.levels import with_level
from silograph.methods.joint_graphs import learn_graphs
from silograph.methods.moments_once import FOLDS, JointLearner, MomentsOnce, MomentsSummed
from silograph.methods.private_graph import PATIENCE
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks
from silograph.privacy.observers import OBSERVERS
from silograph.run.loop import ENGINES, rounds, simulate
from silograph.tasks.smooth_graph import SmoothGraph
from silograph.topology import star
from support import same

NODES = 10
COUNTS = {"ada": 300, "bob": 401, "cyd": 502, "dan": 250}
A, B = pairs(NODES)
ONCE = MomentsOnce(NODES, tuple(COUNTS.values()))
SUMMED = MomentsSummed(NODES, tuple(COUNTS.values()))
MOMENTS, CORRELATIONS = SmoothGraph(NODES, "second-moments"), SmoothGraph(NODES, "correlations")


def truth(seed=0):
    """One precision for all sites, with edges of both signs, and its signs as edges have them."""
    rng = np.random.default_rng(seed)
    theta = np.zeros((NODES, NODES))
    taken = rng.choice(len(A), 12, replace=False)
    theta[A[taken], B[taken]] = rng.uniform(0.6, 1.2, 12) * np.where(np.arange(12) % 2, -1.0, 1.0)
    theta += theta.T
    return theta + np.diag(np.abs(theta).sum(0) + 0.3), -np.sign(theta[A, B])


def tables(seed=1):
    rng = np.random.default_rng(seed)
    covariance = np.linalg.inv(truth()[0])
    units = np.geomspace(1e-3, 1e3, NODES)
    return {n: 5.0 + units * rng.multivariate_normal(np.zeros(NODES), covariance, k) for n, k in COUNTS.items()}


def assert_found(signs):
    """Every edge of the truth with its sign, and at most two others of 33."""
    expected = truth()[1]
    edges = expected != 0.0
    np.testing.assert_array_equal(signs[edges], expected[edges])
    assert (signs[~edges] != 0.0).sum() <= 2


def run(method, task, engine="vector", present=None):
    data = tables()
    topo, door = star(list(data)), Door(5, Ledger(), masks=Masks() if method is SUMMED else None)
    place = ENGINES[engine]([task.prepare(data[name]) for name in topo.silos], topo, door)
    states = list(rounds(method, topo, place, door, present=present))
    return states, method.outcome(states[-1].servers, {}, topo), door


def organisations(method, task, folder):
    data = tables()
    topo = star(list(data))
    held = stacked([task.prepare(data[name]) for name in topo.silos])
    return Federation(method, topo, held, folder, masks=Masks() if method is SUMMED else None)


def test_the_server_learns_what_the_moments_of_the_tables_say():
    """Against numpy's covariances, and against the truth: 12 edges with their signs, at 1450 rows."""
    _, outcome, door = run(ONCE, MOMENTS)
    data = tables()
    expected = learn_graphs(np.array([np.cov(x.T, bias=True) for x in data.values()]), np.array(ONCE.counts))
    np.testing.assert_allclose(outcome.arrays["precision"], expected.precision, rtol=1e-6, atol=1e-12)
    np.testing.assert_array_equal(outcome.arrays["signs"], expected.signs)
    assert_found(outcome.arrays["consensus_signs"])
    own = np.sqrt(np.einsum("kaa->ka", expected.precision))
    partial = -expected.precision[:, A, B] / (own[:, A] * own[:, B])
    np.testing.assert_allclose(outcome.arrays["graph"] * outcome.arrays["signs"], partial, rtol=1e-6, atol=1e-12)
    rows = door.ledger.rows
    assert [(row.silo, row.round, row.dim, row.mechanism) for row in rows] == [(n, 0, 55, "reveal") for n in COUNTS]


@pytest.mark.parametrize(("method", "task"), [(ONCE, MOMENTS), (SUMMED, CORRELATIONS)], ids=["moments", "sum"])
def test_engines_and_organisations_agree_bit_for_bit(method, task, tmp_path):
    states, one, door = run(method, task)
    assert len(states) == 1
    _, other, other_door = run(method, task, "silowise")
    _, apart, server = organisations(method, task, tmp_path).run()
    for outcome, ledger in ((other, other_door.ledger), (apart, server.ledger)):
        same(outcome.arrays, one.arrays)
        assert outcome.facts == one.facts
        assert ledger.rows == door.ledger.rows


def test_moments_of_parts_add_up_to_those_of_all_rows():
    parts = replace(ONCE, folds=FOLDS)
    for name, table in tables().items():
        sent = replace(MOMENTS, folds=FOLDS).prepare(table)["moments"][None]
        whole, each = parts.moments(sent, np.array([float(COUNTS[name])]))
        np.testing.assert_allclose(whole[0], np.cov(table.T, bias=True), rtol=1e-9)
        first = (table - table.mean(0))[: -(-COUNTS[name] // FOLDS)]
        np.testing.assert_allclose(each[0, 0], first.T @ first / len(first), rtol=1e-9)


def test_held_out_likelihood_needs_parts_and_chooses_by_them():
    method = replace(ONCE, folds=FOLDS, learner=JointLearner(criterion="held-out"))
    outcome, _ = simulate(method, replace(MOMENTS, folds=FOLDS), tables())
    assert outcome.facts["path"]["score"] == "held-out log-likelihood"
    best = int(np.argmax(outcome.facts["path"]["scores"]))
    assert outcome.facts["path"]["values"][best] == outcome.facts["path"]["chosen"]


def test_a_site_that_never_comes_gets_the_consensus():
    here = [name for name in COUNTS if name != "bob"]
    states, outcome, door = run(ONCE, MOMENTS, present=lambda t: here)
    assert len(states) == PATIENCE
    assert {row.silo for row in door.ledger.rows} == set(here)
    assert outcome.facts["silent"] == ["bob"]
    np.testing.assert_array_equal(outcome.arrays["graph"][1], outcome.arrays["consensus"])
    assert outcome.arrays["gamma"][1] == 0.0


# ---- the sum ---------------------------------------------------------------------------------------------------------


def test_the_sum_is_that_of_the_tables_correlations_to_the_grid():
    (*_, last), outcome, door = run(SUMMED, CORRELATIONS)
    data = tables()
    expected = sum(len(x) * np.corrcoef(x.T)[A, B] for x in data.values())
    np.testing.assert_allclose(last.servers["sum"][0], expected, atol=1e-7)
    assert_found(outcome.arrays["consensus_signs"])
    assert outcome.arrays["gamma"] == pytest.approx(np.array(list(COUNTS.values())) / sum(COUNTS.values()))
    assert "graph" not in outcome.arrays
    # Nothing hides the sum, and everybody gets what is learned from it: no observer may be promised anything.
    for name in COUNTS:
        assert all(np.isinf(door.spent(name, 1e-6, observer).epsilon) for observer in OBSERVERS)


def test_no_message_of_a_sum_shows_a_sites_correlations(tmp_path):
    """Neither plain, nor as the integers that are masked; a sum that skipped the masks would show them."""
    there = organisations(SUMMED, CORRELATIONS, tmp_path)
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})
    crossed = []
    link.between = lambda organisation, asked, said: (crossed.append(said), said)[1]
    states, *_ = there.run(link)
    seen = b"".join(crossed)
    bits = 44 - int(np.floor(np.log2(2.0 * SUMMED.clip)))
    for k, name in enumerate(there.topo.silos):
        vector = there.data["correlations"][k] * COUNTS[name]
        steps = np.rint(vector * 2.0**bits).astype(np.int64)
        for held in (vector, there.data["correlations"][k], steps):
            assert held.tobytes()[:16] not in seen
        assert not any(np.allclose(value, vector) for value in states[-1].servers.values() if np.size(value) == 45)


def test_too_few_sites_are_never_added_up():
    with pytest.raises(SilenceError, match="2 answered"):
        run(SUMMED, CORRELATIONS, present=lambda t: ["ada", "bob"])


# ---- rows without a level, and moments of no rows --------------------------------------------------------------------


def test_shares_of_a_whole_are_told_up_to_their_level():
    """Rows less their mean over nodes: without a level every pair looks negative, with it the graph is found again."""
    theta = np.abs(truth()[0]) * -1.0
    np.fill_diagonal(theta, 0.0)
    theta += np.diag(np.abs(theta).sum(0) + 0.2)
    rng = np.random.default_rng(2)
    rows = rng.multivariate_normal(np.zeros(NODES), np.linalg.inv(theta), 3000)
    rows = rows - rows.mean(1, keepdims=True) + 1e-3 * rng.normal(size=rows.shape)
    moments, counts = np.cov(rows.T, bias=True)[None], np.array([3000.0])
    edges = theta[A, B] != 0.0
    levelled, lacking = with_level(moments)
    assert lacking.all()
    bare = learn_graphs(moments, counts, edges=12)
    found = learn_graphs(levelled, counts, edges=12)
    assert ((bare.signs[0] > 0) & edges).sum() < 4
    assert ((found.signs[0] > 0) & edges).sum() >= 10
    assert "level" in JointLearner().learn(moments, counts).reason


def test_rows_with_a_level_are_left_as_they_are():
    """Of 200 tables, some with fewer rows than nodes; each would be taken by chance 2 in a thousand at the most."""
    rng = np.random.default_rng(3)
    covariance = np.linalg.inv(truth()[0])
    moments = [
        np.cov(rng.multivariate_normal(np.zeros(NODES), covariance, n).T, bias=True) for n in [8, 12, 50, 1000] * 50
    ]
    levelled, lacking = with_level(np.array(moments))
    assert lacking.sum() <= 3
    np.testing.assert_array_equal(levelled[~lacking], np.array(moments)[~lacking])


@pytest.mark.parametrize("broken", ["nan", "no variance", "not of rows"])
def test_moments_that_no_rows_have_are_refused_by_the_sites_name(broken):
    sent = np.array([MOMENTS.prepare(table)["moments"] for table in tables().values()])
    variances = np.flatnonzero(np.equal(*np.triu_indices(NODES)))
    sent[2, variances[0] if broken != "nan" else 7] = {"nan": np.nan, "no variance": 0.0, "not of rows": 1e-9}[broken]
    servers = {"moments": sent, "heard": np.ones(4, bool), "round": np.int64(1)}
    with pytest.raises(InputError, match="moments of cyd"):
        ONCE.outcome(servers, {}, star(list(COUNTS)))


def test_collinear_nodes_are_joined_and_nothing_fails():
    data = {name: np.column_stack([x, x[:, 0]]) for name, x in tables().items()}
    task, method = SmoothGraph(NODES + 1, "second-moments"), replace(ONCE, nodes=NODES + 1)
    outcome, _ = simulate(method, task, data)
    a, b = pairs(NODES + 1)
    twins = (a == 0) & (b == NODES)
    assert outcome.arrays["signs"][:, twins] == pytest.approx(1.0)
    assert np.isfinite(outcome.arrays["graph"]).all()
    assert outcome.arrays["graph"].max() <= 1.0
