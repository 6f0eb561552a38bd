"""A consensus from a secure sum of sites, or with noise that sites share."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from local_organisations import Direct, Federation, stacked
from silograph.core.errors import BudgetError, InputError, LeakError, SilenceError
from silograph.core.keys import stream
from silograph.data.silos import People
from silograph.data.synthetic import paper_graphs, smooth_signals
from silograph.deploy.deployment import Terms, make
from silograph.engines.question import read_question
from silograph.engines.sums import read_step
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan, Privacy
from silograph.methods.private_graph import PATIENCE, LikelyGraphs, ReleasedConsensus
from silograph.methods.summed_graph import SummedConsensus
from silograph.privacy.accounting import gaussian_delta, gaussian_multiplier
from silograph.privacy.bound import Bounded
from silograph.privacy.correlated import CorrelatedGaussian
from silograph.privacy.discrete import LEAST_FINE, distributed_mu
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.masking import Masks, counted_on, planned
from silograph.privacy.mechanisms import Gaussian, SharedGaussian
from silograph.privacy.observers import OBSERVERS
from silograph.privacy.released import sealed_rows
from silograph.report.build import build as build_report
from silograph.run.jobs import open_job
from silograph.run.loop import ENGINES, rounds, simulate
from silograph.run.run import execute
from silograph.run.store import RunFolder
from silograph.tasks.smooth_graph import SmoothGraph, centred_basis
from silograph.topology import star
from support import NODES, federation, same

COUNTS = {"ada": 300, "bob": 400, "cyd": 500, "dan": 60, "eve": 200}
EPSILON, DELTA = 2.0, 1e-5
NOISE = SharedGaussian(gaussian_multiplier(EPSILON, DELTA, 1))
TASKS = {"directions": SmoothGraph(NODES, "moment"), "clip": SmoothGraph(NODES, "moment", 1.5)}
METHODS = {
    name: SummedConsensus(task, LikelyGraphs(3.0), NOISE, tuple(COUNTS.values())) for name, task in TASKS.items()
}
ONE = METHODS["directions"]


def signals():
    return federation(counts=COUNTS)


def door_of(mechanism=NOISE, masks=Masks(), budget=Budget(EPSILON, DELTA), seed=5):  # noqa: B008 (frozen)
    return Door(seed, Ledger(), mechanism, budget, masks=masks)


def place_of(method, door, engine="vector", tables=None):
    tables = signals() if tables is None else tables
    topo = star(list(tables))
    return topo, ENGINES[engine]([method.task.prepare(tables[name]) for name in topo.silos], topo, door)


def run(method, engine="vector", present=None, door=None, tables=None):
    door = door or door_of()
    topo, place = place_of(method, door, engine, tables)
    states = list(rounds(method, topo, place, door, present=present))
    return states, method.outcome(states[-1].servers, {}, topo), door


def test_masks_cancel():
    """The sum of the protocol, every message of it, is the sum of the same integers without."""
    (*_, one), (*_, other) = run(ONE)[0], run(ONE, door=door_of(masks=Masks("skipped")))[0]
    np.testing.assert_array_equal(one.servers["sum"], other.servers["sum"])


def test_a_run_cut_off_after_its_rows_were_written_makes_the_same_sum_and_pays_once(tmp_path):
    here = [name for name in COUNTS if name != "eve"]

    def late(t):
        return here if t < 2 else list(COUNTS)

    states, straight, door = run(ONE, present=late)
    assert len(states) == 3
    folder = RunFolder(tmp_path / "run", "plan", [], 5)
    folder.save(states[0], [])
    state, _ = folder.load()
    again = door_of()
    again.ledger.append(door.ledger.rows)
    topo, place = place_of(ONE, again)
    for after in rounds(ONE, topo, place, again, state, late):
        state = after
    same(ONE.outcome(state.servers, {}, topo).arrays, straight.arrays)
    assert again.ledger.rows == door.ledger.rows


def test_every_site_pays_its_budget_once_against_everybody():
    _, _, door = run(ONE)
    assert [row.silo for row in door.ledger.rows] == list(COUNTS)
    for name in COUNTS:
        for observer in OBSERVERS:
            spent = door.spent(name, DELTA, observer)
            assert spent.epsilon <= EPSILON
            assert spent.epsilon == pytest.approx(EPSILON, rel=1e-6)
    row = door.ledger.rows[0]
    assert "one signal of one site" in row.protected_unit
    assert "3 of them are counted on (secure sum)" in row.why
    assert row.l2 == pytest.approx(math.sqrt(2.0), rel=1e-4)


def test_a_second_sum_is_refused_before_it_is_made(monkeypatch):
    door = door_of()
    run(ONE, door=door)
    monkeypatch.setattr("silograph.privacy.sums.masked_sums", lambda *_: pytest.fail("it was made"))
    topo, place = place_of(ONE, door)
    with pytest.raises(BudgetError, match="It was not made"):
        list(rounds(ONE, topo, place, door, present=lambda t: list(COUNTS) if t == 1 else []))


def test_an_absent_site_is_waited_for_and_then_left_out_and_not_charged():
    here = [name for name in COUNTS if name != "cyd"]
    states, outcome, door = run(ONE, present=lambda t: here)
    assert len(states) == PATIENCE
    assert {row.silo for row in door.ledger.rows} == set(here)
    assert outcome.facts["silent"] == ["cyd"]
    assert outcome.arrays["gamma"][2] == 0.0
    others = replace(ONE, counts=tuple(COUNTS[name] for name in here))
    tables = {name: signals()[name] for name in here}
    # As if the absent one did not exist, but for the noise, which is named by the round.
    alone = run(others, tables=tables, door=door_of(None, budget=None))[0][-1].servers["sum"]
    plain = run(replace(ONE, mechanism=None), present=lambda t: here, door=door_of(None, budget=None))
    np.testing.assert_array_equal(plain[0][-1].servers["sum"], alone)


def test_too_few_sites_are_never_added_up():
    door = door_of()
    with pytest.raises(SilenceError, match="2 answered"):
        run(ONE, present=lambda t: ["ada", "bob"], door=door)
    assert not door.ledger.rows
    with pytest.raises(SilenceError, match="none did for 10 rounds"):
        run(ONE, present=lambda t: [])


@pytest.mark.parametrize("name", TASKS)
def test_without_noise_it_is_the_graph_of_all_signals_in_one_table(name):
    method = replace(METHODS[name], mechanism=None)
    tables = signals()
    (*_, last), outcome, _ = run(method, door=door_of(None, budget=None))
    pooled = np.concatenate([tables[key] for key in sorted(tables)])
    y = pooled @ centred_basis(NODES)
    length = np.linalg.norm(y, axis=1, keepdims=True)
    y = y / length if method.task.clip is None else y * np.minimum(1.0, method.task.clip / length)
    moment = np.trace(y.T @ y)
    alone = ReleasedConsensus(method.task, method.inner, Gaussian(0.0), (len(pooled),))
    expected, _ = simulate(alone, method.task, {"all": pooled}, Gaussian(0.0))
    np.testing.assert_allclose(outcome.arrays["consensus"], expected.arrays["consensus"], rtol=1e-5, atol=1e-6)
    coordinates = method.task.prepare(pooled)["moment"] * len(pooled)
    np.testing.assert_allclose(last.servers["sum"][0], coordinates, atol=1e-5)
    # The trace stands in the sum stretched by sqrt(d).
    assert last.servers["sum"][0, : NODES - 1].sum() == pytest.approx(moment * math.sqrt(NODES), rel=1e-6)


def swaps(rng, nodes):
    """Signals that a site might have in one place."""
    basis = centred_basis(nodes).T
    yield from (1e3 * basis[0], 1e3 * basis[1], np.zeros(nodes), -1e6 * basis[2], 0.8 * basis[0], 1e150 * basis[3])
    yield from rng.normal(size=(6, nodes)) * np.array([[0.1], [0.3], [1.0], [3.0], [10.0], [1e5]])


def furthest(task, rows):
    """The largest move of a summand, over its bound, when one signal or person is replaced."""
    rng = np.random.default_rng(0)

    def summand(first):
        table = rows.copy()
        table[0] = first
        if task.person is not None:
            table = People(np.repeat(table, 3, 0), np.repeat(np.arange(len(table)), 3))
        gate = door_of().gate(["a"], 0)
        data = {name: value[None] for name, value in task.prepare(table).items()}
        sealed = gate.contribute(task.summand(data), "moment", task.longest_term * len(rows))
        return sealed_rows(sealed)[0], sealed.within.l2

    made = [summand(first) for first in swaps(rng, NODES)]
    return max(np.linalg.norm(a - b) / bound for a, bound in made for b, _ in made)


@pytest.mark.parametrize("person", [None, "who"])
@pytest.mark.parametrize("clip", [None, 1.5])
@pytest.mark.parametrize("count", [1, 40])
def test_no_signal_moves_a_sum_further_than_its_bound(count, clip, person):
    task = SmoothGraph(NODES, "moment", clip, person=person)
    worst = furthest(task, np.random.default_rng(1).normal(size=(count, NODES)))
    assert 0.99 < worst <= 1.0


def test_a_trace_stretched_too_far_is_found(monkeypatch):
    """By 1.3 sqrt(d): an empty signal beside one of full length moves it further."""
    real = SmoothGraph.prepare

    def stretched(task, table):
        made = real(task, table)
        trace = np.zeros_like(made["moment"])
        trace[: NODES - 1] = made["moment"][: NODES - 1].mean()
        return {**made, "moment": made["moment"] + 0.3 * trace}

    monkeypatch.setattr(SmoothGraph, "prepare", stretched)
    monkeypatch.setattr(SmoothGraph, "longest_term", property(lambda task: math.sqrt(2.0) * task.radius**2))
    assert furthest(SmoothGraph(NODES, "moment", 1.5), np.zeros((3, NODES))) > 1.05


def test_bounds_of_contributions_are_checked():
    gate = door_of().gate(["a", "b"], 0)
    uneven = Bounded(np.ones((2, 3)), np.array([1.0, 2.0]), "one", "made up")
    for value, clip in ((uneven, 4.0), (replace(uneven, l2=np.ones(2)), None)):
        with pytest.raises(LeakError, match="one bound for all vectors"):
            gate.contribute(value, "moment", clip)


def test_noise_is_once_on_the_sum_and_as_large_as_the_rows_say():
    """Over 40 seeds; all five shares are there, three are counted on: chi-squared, false alarms 1e-4 each side."""
    plain = run(replace(ONE, mechanism=None), door=door_of(None, budget=None))[0][-1].servers["sum"]
    drawn = []
    for seed in range(40):
        door = door_of(masks=Masks("skipped"), seed=seed)
        drawn.append(run(ONE, door=door)[0][-1].servers["sum"] - plain)
    row = door.ledger.rows[0]
    squares, size = float((np.array(drawn) ** 2).sum()), np.array(drawn).size
    low, high = stats.chi2.ppf([1e-4, 1.0 - 1e-4], size)
    assert low < squares / (row.noise**2 * 5.0 / 3.0) < high
    assert ONE.noise(5, 5) == pytest.approx(row.noise * math.sqrt(5.0 / 3.0), rel=1e-6)
    assert squares / size > row.noise**2


@pytest.mark.parametrize("sites", [3, 4, 5, 9, 40])
def test_shares_are_dealt_for_those_who_stay_and_tell_nothing(sites):
    """With so many missing as the docs allow, and one who looks, what is left has the ledger's ratio."""
    within = ONE.task.summand_bound
    cohort = planned(sites, ONE.clip, 28, NOISE, within)
    left = counted_on(sites)
    assert left == math.floor(2 * sites / 3)
    assert cohort.share >= LEAST_FINE
    ratio = within.l2 * 2.0**cohort.bits / (cohort.share * math.sqrt(left))
    assert ratio <= cohort.l2 / cohort.charged <= 1.0 / NOISE.multiplier
    assert ratio == pytest.approx(1.0 / NOISE.multiplier, rel=1e-4)


def test_a_sum_of_discrete_gaussians_costs_no_more_than_the_curve_it_is_charged_by():
    """e^h delta(eps - 2h) at mu against delta(eps) at mu + 7h, wherever delta is below one half."""
    rng = np.random.default_rng(0)
    for _ in range(4000):
        mu, eps, h = (10.0 ** rng.uniform(low, high) for low, high in ((-4.0, 1.0), (-4.0, 1.5), (-7.0, -3.0)))
        if eps > 2.0 * h and 1e-12 < gaussian_delta(mu + 7.0 * h, eps) < 0.5:
            assert math.exp(h) * gaussian_delta(mu, eps - 2.0 * h) <= gaussian_delta(mu + 7.0 * h, eps) * (1 + 1e-9)
    assert distributed_mu(2.0**24, 2.0**24, 4, 190) == pytest.approx(0.5, rel=1e-7)
    with pytest.raises(InputError, match="shares of at least"):
        distributed_mu(1.0, 2.0**17, 4, 190)


# ---- between organisations -------------------------------------------------------------------------------------------


def organisations(method, folder, **options):
    tables = signals()
    topo = star(list(tables))
    data = stacked([method.task.prepare(tables[name]) for name in topo.silos])
    return Federation(method, topo, data, folder, method.mechanism, Budget(EPSILON, DELTA), Masks(), **options)


def is_step(blob, step):
    question = read_question(blob)
    return question.sum is not None and {message["step"] for message in read_step(question).values()} == {step}


def test_sites_in_other_organisations_make_the_same_sum_bit_for_bit(tmp_path):
    _, expected, door = run(ONE)
    there = organisations(ONE, tmp_path)
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})
    crossed = []
    link.between = lambda organisation, asked, said: (crossed.append(said), said)[1]
    _, outcome, ours = there.run(link)
    same(outcome.arrays, expected.arrays)
    assert outcome.facts == expected.facts
    assert ours.ledger.rows == door.ledger.rows
    for organisation, (name,) in there.organisations.items():
        (row,) = Ledger(tmp_path / organisation / "ledger.jsonl").rows
        known = next(row for row in door.ledger.rows if row.silo == name)
        assert replace(row, digest="") == replace(known, digest="")
        vector = there.data["moment"][there.topo.index([name])] * COUNTS[name]
        assert vector.tobytes()[:16] not in b"".join(crossed)


@pytest.mark.parametrize("step", ["mask", "unmask"])
def test_a_site_that_falls_silent_in_a_sum_is_left_out_only_if_its_part_never_came(step, tmp_path):
    there = organisations(ONE, tmp_path)
    organisation = "organisation dan"
    link = Direct({name: there.silo(name) for name in there.organisations})
    link.away = lambda name, blob: name == organisation and is_step(blob, step)
    _, outcome, door = there.run(link, deadline=0.05)
    assert outcome.facts["silent"] == (["dan"] if step == "mask" else [])
    assert {row.silo for row in door.ledger.rows} == COUNTS.keys()  # whoever was asked for its part may have sent it
    assert np.isfinite(outcome.arrays["consensus"]).all()


def test_a_site_that_says_another_bound_is_not_added_up(tmp_path):
    there = organisations(ONE, tmp_path)
    link = Direct({organisation: there.silo(organisation) for organisation in there.organisations})
    odd = replace(ONE, task=replace(ONE.task, clip=1.5))
    link.silos["organisation bob"].close()
    link.silos["organisation bob"] = replace(there, method=odd, folder=tmp_path / "odd").silo("organisation bob")
    _, outcome, _ = there.run(link, deadline=0.05)
    assert outcome.facts["silent"] == ["bob"]


# ---- from tables to the page -----------------------------------------------------------------------------------------

BUDGET = Privacy(8.0, 1e-4, "secure-sum")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("sums")
    for name, table in signals().items():
        header = ",".join(f"n{k}" for k in range(NODES))
        np.savetxt(made / f"{name}.csv", table, delimiter=",", header=header, comments="")
    return made


def plan(privacy=BUDGET, sites=tuple(COUNTS), **method):
    scale = "none" if privacy.mode == "correlated" else None
    return GraphPlan(
        Data(tuple(f"{name}.csv" for name in sites), scale=scale), ConsensusGraph(**method), privacy, seed=3
    )


def test_a_run_leaves_a_consensus_and_says_that_sites_have_no_graphs(folder, tmp_path):
    finished = execute(plan(degree=3.0), folder, tmp_path / "out", lambda *_: None, build_report)
    result = json.loads((finished.folder / "result.json").read_text())
    assert not (finished.folder / "sites").exists()
    assert result["site_graphs"] is False
    assert {site["edges"] for site in result["sites"]} == {None}
    assert [site["weight"] for site in result["sites"]] == pytest.approx(np.array(list(COUNTS.values())) / 1460.0)
    assert result["consensus"]["edges"] == 12
    assert result["consensus"]["effective_rows"] > 500.0
    epsilons = [guarantee["epsilon"] for guarantee in result["privacy"]["guarantees"]]
    assert epsilons == pytest.approx([8.0] * 4 * len(COUNTS), rel=1e-6)
    notes = " ".join(result["privacy"]["notes"])
    assert "There is a consensus, but no graph of any site" in notes
    assert "3 of 5 shares are enough" in notes
    assert "The guarantee holds if at most 1 of 5 sites fails: by dropping out" in notes
    page = (finished.folder / "report.html").read_text()
    assert "Sites have no graphs of their own: their statistics were added up under masks" in page
    assert "the server saw only their sum" in page
    assert "how many sites have each of them" not in page


@pytest.mark.parametrize(
    ("privacy", "method", "sites", "words"),
    [
        (BUDGET, {}, ("ada", "bob"), "at least 3 sites"),
        (BUDGET, {"nu": 2.0}, tuple(COUNTS), "nu: expected one release"),
        (BUDGET, {"solver": "paper"}, tuple(COUNTS), "solver: expected one release"),
        (Privacy(1.0, mode="secure-sum", mechanism="laplace"), {}, tuple(COUNTS), "gaussian in the mode secure-sum"),
        (Privacy(1e-3, 1e-5, "secure-sum"), {}, tuple(COUNTS), "Nothing was spent"),
    ],
)
def test_what_a_sum_cannot_do_is_refused_before_anything_is_spent(privacy, method, sites, words, folder, tmp_path):
    with pytest.raises(InputError, match=words):
        execute(plan(privacy, sites, **method), folder, tmp_path / "out", lambda *_: None, build_report)
    assert not (tmp_path / "out").exists()


def test_the_summary_and_the_forecast_say_it_too(folder, tmp_path, silograph, monkeypatch):
    monkeypatch.chdir(folder)
    files = [f"{name}.csv" for name in COUNTS]
    budget = ["--epsilon", "8", "--delta", "1e-4", "--privacy", "secure-sum"]
    code, said, _ = silograph("learn", *files, "-o", tmp_path / "out", *budget)
    assert code == 0
    assert "note: There is a consensus, but no graph of any site" in said
    _, said, _ = silograph("privacy", tmp_path / "out" / "plan.toml")
    assert "All 1460 signals together are at most" in said
    assert "3 protected releases per site" in said


# ---- noise that cancels between sites --------------------------------------------------------------------------------

SHARED = Privacy(8.0, 1e-4, "correlated")


def test_shared_noise_gives_graphs_of_sites_and_says_what_it_rests_on(folder, tmp_path):
    finished = execute(plan(SHARED, degree=3.0), folder, tmp_path / "out", lambda *_: None, build_report)
    result = finished.result
    assert result["site_graphs"] is True
    assert (finished.folder / "sites" / "ada.csv").exists()
    epsilons = [guarantee["epsilon"] for guarantee in result["privacy"]["guarantees"]]
    assert epsilons == pytest.approx([8.0] * 4 * len(COUNTS), rel=1e-6)
    assert max(epsilons) <= 8.0
    assert "The guarantee holds if at most 1 of 5 sites fails: by telling others" in " ".join(
        result["privacy"]["notes"]
    )
    told = open_job(plan(SHARED), folder).forecast()
    assert told["notes"][0].startswith("All 1460 signals together are at most")
    assert told["sites"][0]["epsilon"] == pytest.approx(8.0)


def test_shared_noise_makes_the_consensus_worth_more():
    """At the same cost, where sites of unequal size are alike: noise decides there, and less of it is in the sum."""
    graph = paper_graphs(0, silos=1, nodes=NODES, keep=0.9).local[0]
    tables = {name: smooth_signals(stream(0, name, 0, "alike"), graph, count) for name, count in COUNTS.items()}
    multiplier = gaussian_multiplier(0.5, DELTA, 1)
    shared = CorrelatedGaussian(multiplier, (tuple(sorted(tables)),), counted_on(len(tables)))
    worth = {}
    for noise in (Gaussian(multiplier), shared):
        method = ReleasedConsensus(TASKS["directions"], LikelyGraphs(3.0), noise, tuple(COUNTS.values()))
        found = [simulate(method, method.task, tables, noise, seed=seed)[0].arrays for seed in range(4)]
        worth[noise] = np.mean([arrays["effective_rows"][-1] for arrays in found])
    assert worth[shared] > 1.2 * worth[Gaussian(multiplier)]


def test_shared_noise_is_refused_where_it_gains_nothing_or_has_no_keys(folder, tmp_path):
    with pytest.raises(InputError, match="five sites or more"):
        open_job(plan(SHARED, ("ada", "bob", "cyd", "dan")), folder)
    with pytest.raises(InputError, match="a key for every two"):
        make(replace(plan(SHARED), seed=None), folder, Terms("127.0.0.1:9999", tls=False))
    make(replace(plan(), seed=None), folder, Terms("127.0.0.1:9999", tls=False))  # a secure sum has all it needs
