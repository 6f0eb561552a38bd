"""Raw tables of six hospitals, from files to graphs: units, gaps, different columns, noise, relations that go against
each other."""

import csv
import json

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from silograph.core.errors import InputError
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan, Privacy
from silograph.report.build import build as build_report
from silograph.run.jobs import open_job
from silograph.run.run import execute

NAMES = ["pressure", "pulse", "glucose", "crp", "weight", "height", "sodium", "platelets"]
UNITS = 10.0 ** np.array([2.0, 1.0, 0.0, -2.0, 1.0, 2.0, -1.0, 3.0])
RELATED = {(0, 1): 0.6, (1, 2): 0.5, (2, 3): -0.6, (4, 5): 0.6, (5, 6): 0.5, (3, 7): 0.5}
TRUE = {frozenset((NAMES[a], NAMES[b])): int(np.sign(w)) for (a, b), w in RELATED.items()}
SITES = [f"hospital_{k}" for k in range(6)]
LACKED = {0: ["sodium"], 1: ["platelets"], 2: ["pressure", "sodium"]}


def measured(k, rows=500):
    precision = 1.5 * np.eye(8)
    for (a, b), weight in RELATED.items():
        precision[a, b] = precision[b, a] = -weight
    root = np.linalg.cholesky(np.linalg.inv(precision))
    values = np.random.default_rng([8600, k]).standard_normal((rows, 8)) @ root.T
    return pd.DataFrame(5.0 * UNITS + UNITS * values, columns=NAMES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("hospitals")
    for k, site in enumerate(SITES):
        frame, rng = measured(k), np.random.default_rng([8601, k])
        for kind in ("plain", "gaps", "raw", "other", "unlike", "noise"):
            (made / kind).mkdir(exist_ok=True)
        frame.to_csv(made / "plain" / f"{site}.csv", index=False)
        gaps = frame.mask(rng.random(frame.shape) < 0.2)
        gaps.to_csv(made / "gaps" / f"{site}.csv", index=False)
        gaps.drop(columns=LACKED.get(k, [])).to_csv(made / "other" / f"{site}.csv", index=False)
        frame.drop(columns=LACKED.get(k, [])).to_csv(made / "unlike" / f"{site}.csv", index=False)
        shuffled = pd.DataFrame(rng.permuted(gaps.to_numpy(), axis=0), columns=NAMES)
        shuffled.to_csv(made / "noise" / f"{site}.csv", index=False)
        raw = gaps.copy()
        raw.insert(0, "patient_id", rng.permutation(np.arange(10_000, 10_000 + len(raw))))
        raw.insert(1, "admitted", pd.date_range("2024-01-01", periods=len(raw)).strftime("%Y-%m-%d"))
        raw["ward"] = rng.choice(["north", "south"], len(raw))
        raw.to_csv(made / "raw" / f"{site}.csv", index=False)
    every = [(a, b) for k, a in enumerate(NAMES) for b in NAMES[:k] if {a, b} != {"pulse", "weight"}]
    (made / "pairs.csv").write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in every))
    (made / "scale.csv").write_text(
        "column,centre,spread\n" + "".join(f"{n},{5 * u},{u}\n" for n, u in zip(NAMES, UNITS, strict=True))
    )
    return made


def finished(plan, folder, out):
    return execute(plan, folder, out, lambda *_: None, build_report)


def learn(folder, kind, out, privacy=None, data=None, **method):
    files = tuple(f"{kind}/{site}.csv" for site in SITES)
    return finished(GraphPlan(Data(files, **(data or {})), ConsensusGraph(**method), privacy, seed=1), folder, out)


def consensus(run):
    with open(run.folder / "consensus.csv", newline="") as file:
        return {frozenset((row["source"], row["target"])): row for row in csv.DictReader(file)}


# ---- from `learn` with no option -------------------------------------------------------------------------------------


def test_raw_tables_lead_to_a_remedy_and_then_to_the_right_graph(folder, tmp_path, silograph):
    """Never an edge to an identifier, never a graph ordered by units: what is refused says what to type."""
    files = [str(folder / "raw" / f"{site}.csv") for site in SITES]
    drops = ["--drop", "patient_id", "--drop", "admitted", "--drop", "ward"]
    code, _, refusal = silograph("learn", *files, "-o", tmp_path / "no")
    assert code == 2
    for column in ("patient_id", "admitted", "ward"):
        assert f"--drop {column}" in " ".join(refusal.split())
    assert not (tmp_path / "no").exists()
    code, printed, _ = silograph("learn", *files, "-o", tmp_path / "yes", *drops)
    assert code == 0
    assert "scale: correlations, so units do not matter" in printed
    assert "note: Missing values: hospital_0" in printed
    with open(tmp_path / "yes" / "consensus.csv", newline="") as file:
        found = {frozenset((row["source"], row["target"])): int(row["sign"]) for row in csv.DictReader(file)}
    assert found == TRUE


# ---- scale -----------------------------------------------------------------------------------------------------------


def test_the_papers_model_is_standardised_unless_raw_values_are_asked_for(folder, tmp_path):
    """Edges of raw values follow units; those of standardised ones the relations that are positive."""
    positive = {pair for pair, sign in TRUE.items() if sign > 0}
    own = learn(folder, "plain", tmp_path / "own", learner="papers", edges=6)
    raw = learn(folder, "plain", tmp_path / "raw", data={"scale": "none"}, edges=6)
    assert positive <= consensus(own).keys()
    assert len(positive & consensus(raw).keys()) < len(positive)
    assert own.result["scale"].startswith("each site's nodes have mean 0")
    assert raw.result["scale"].startswith("as in the tables")
    assert raw.result["learner"] == "papers"
    old = learn(folder, "plain", tmp_path / "old", data={"standardise": True}, learner="papers", edges=6)
    assert (old.folder / "consensus.csv").read_bytes() == (own.folder / "consensus.csv").read_bytes()


def test_public_constants_or_a_share_of_the_budget_scale_private_tables(folder, tmp_path):
    """Without them a private graph of raw tables is one of units, and the run says so; with them the strongest
    positive relations are found. What was paid for once can be named the next time."""
    budget = Privacy(8.0)
    raw = learn(folder, "plain", tmp_path / "raw", budget, {"scale": "none"}, edges=5)
    scaled = learn(folder, "plain", tmp_path / "scaled", budget, {"scale": "scale.csv"}, edges=5)
    assert any("edges follow its units" in note for note in raw.result["privacy"]["notes"])
    assert not any("follow the size of units" in note for note in scaled.result["privacy"]["notes"])
    assert scaled.result["scale"] == "by public constants for every column (scale.csv)"
    positive = {pair for pair, sign in TRUE.items() if sign > 0}
    assert len(consensus(scaled).keys() & positive) >= 4 > len(consensus(raw).keys() & positive)
    gaps = learn(folder, "gaps", tmp_path / "gaps", budget, {"scale": "scale.csv"}, edges=5)
    assert len(consensus(gaps).keys() & positive) >= 4
    paid = learn(folder, "gaps", tmp_path / "paid", budget, edges=5)
    assert paid.result["scale"].startswith("by private means and spreads of all sites together, for")
    assert len(consensus(paid).keys() & positive) >= 4
    told = {"scale": str(paid.folder / "scale.csv")}
    assert len(consensus(learn(folder, "gaps", tmp_path / "again", budget, told, edges=5)).keys() & positive) >= 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("column,centre\n", "lacks 'spread'"),
        ("column,centre,spread\npulse,1,0\n", "a spread above 0"),
        ("column,centre,spread\npulse,1,much\n", "a spread above 0"),
        ("column,centre,spread\npulse,1,2\npulse,1,2\n", "twice"),
        ("column,centre,spread\npulse,1,2\n", "it lacks 'pressure', 'glucose'"),
    ],
)
def test_a_scale_that_is_no_scale_is_refused(text, words, folder, tmp_path):
    (folder / "bad.csv").write_text(text)
    with pytest.raises(InputError, match=words):
        learn(folder, "plain", tmp_path / "out", Privacy(8.0), {"scale": "bad.csv"})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("data", "privacy", "method", "words"),
    [
        ({"scale": "own"}, {}, {}, "public constants, with privacy"),
        ({}, {}, {}, 'nodes="common"'),
        ({"nodes": "all"}, {"mode": "correlated"}, {}, "the mode correlated"),
    ],
)
def test_what_privacy_cannot_have_is_refused_before_anything_is_spent(data, privacy, method, words, folder, tmp_path):
    with pytest.raises(InputError, match=words):
        learn(folder, "unlike", tmp_path / "out", Privacy(8.0, **privacy), data, **method)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("mode", ["one-release", "secure-sum"])
@pytest.mark.parametrize("method", [{}, {"learner": "papers", "edges": 8}], ids=["likelihood", "papers"])
def test_private_tables_with_different_columns_are_one_graph(mode, method, folder, tmp_path):
    """With a budget that hides a row and leaves the relations: all of them are found, signs too where there are any."""
    data = {"nodes": "all", "scale": "scale.csv"}
    run = learn(folder, "unlike", tmp_path / "out", Privacy(30.0, mode=mode), data, **method)
    found = consensus(run)
    expected = {pair for pair, sign in TRUE.items() if sign > 0 or not method}
    assert expected <= found.keys()
    if not method:
        assert {pair: int(found[pair]["sign"]) for pair in expected} == TRUE
    gone = {name: {k for k, lacked in LACKED.items() if name in lacked} for name in NAMES}
    for pair, row in found.items():
        a, b = pair
        assert int(row["could_see"]) == 6 - len(gone[a] | gone[b])
    assert any("3 of 8 nodes are not at every site" in note for note in run.result["findings"])
    assert all(each["epsilon"] <= 30.0 for each in run.result["privacy"]["guarantees"])
    assert [site["nodes"] for site in run.result["sites"]] == [7, 7, 6, 8, 8, 8]
    page = (run.folder / "report.html").read_text()
    assert "could see" in page
    if mode == "one-release":
        assert set(nx.read_graphml(run.folder / "sites" / "hospital_2.graphml")) == set(NAMES) - set(LACKED[2])


# ---- gaps and different columns --------------------------------------------------------------------------------------


def test_different_columns_are_one_graph_that_says_who_could_see_an_edge(folder, tmp_path):
    run = learn(folder, "other", tmp_path / "out")
    found = consensus(run)
    assert {pair: int(row["sign"]) for pair, row in found.items()} == TRUE
    lacking = {name: {k for k, gone in LACKED.items() if name in gone} for name in NAMES}
    for pair, row in found.items():
        a, b = pair
        assert int(row["could_see"]) == 6 - len(lacking[a] | lacking[b])
    graph = nx.read_graphml(run.folder / "consensus.graphml")
    assert graph.edges["height", "sodium"]["could_see"] == 4
    assert set(nx.read_graphml(run.folder / "sites" / "hospital_2.graphml")) == set(NAMES) - set(LACKED[2])
    sites = {site["name"]: site for site in run.result["sites"]}
    assert [sites[site]["nodes"] for site in SITES] == [7, 7, 6, 8, 8, 8]
    assert all(0.15 < sites[site]["missing"] < 0.25 for site in SITES)
    page = (run.folder / "report.html").read_text()
    assert "could have seen an edge" in page
    assert "Missing values" in page


@pytest.mark.parametrize("data", [{}, {"candidates": "pairs.csv"}, {"neighbours": 4}], ids=["all", "list", "near"])
def test_the_papers_model_takes_different_columns_on_all_pairs_and_on_lists(data, folder, tmp_path):
    kind = "unlike" if data else "other"  # lists take no gaps
    run = learn(folder, kind, tmp_path / "out", data=data, learner="papers", edges=8, resamples=5)
    assert run.result["certified_gap"] <= 1e-7
    positive, found = {pair for pair, sign in TRUE.items() if sign > 0}, consensus(run)
    assert positive <= found.keys()
    gone = {name: {k for k, lacked in LACKED.items() if name in lacked} for name in NAMES}
    for pair, row in found.items():
        a, b = pair
        assert int(row["could_see"]) == 6 - len(gone[a] | gone[b])
    assert set(nx.read_graphml(run.folder / "sites" / "hospital_2.graphml")) == set(NAMES) - set(LACKED[2])
    page = (run.folder / "report.html").read_text()
    assert "in how many sites’ graphs, of those that could see it, each appears" in page


def test_common_nodes_and_the_same_nodes_can_be_asked_for(folder, tmp_path):
    run = learn(folder, "other", tmp_path / "out", data={"nodes": "common"})
    assert run.result["nodes"] == ["pulse", "glucose", "crp", "weight", "height"]
    assert "'sodium'" in run.result["findings"][0]
    with pytest.raises(InputError, match='nodes="common"'):
        learn(folder, "other", tmp_path / "no", data={"nodes": "same"})
    with pytest.raises(InputError, match='nodes="common"'):
        learn(folder, "other", tmp_path / "no", Privacy(8.0))
    assert learn(folder, "other", tmp_path / "private", Privacy(20.0), {"nodes": "common", "scale": "scale.csv"})


@pytest.mark.parametrize(
    ("kind", "data", "method", "words"),
    [
        ("other", {}, {"solver": "paper"}, 'nodes="common"'),
        ("other", {}, {"coupling_by": "held-out"}, 'nodes="common"'),
        ("other", {}, {"reveal": "sum"}, 'nodes="common"'),
        ("gaps", {}, {"reveal": "sum"}, "complete rows for reveal sum"),
        ("gaps", {}, {"choose_by": "held-out"}, "complete rows for choose_by"),
        ("gaps", {}, {"coupling_by": "held-out"}, "complete rows for coupling_by"),
        ("gaps", {"neighbours": 3}, {}, "complete rows for candidate edges"),
    ],
)
def test_what_has_no_way_with_gaps_says_so_before_it_runs(kind, data, method, words, folder, tmp_path):
    with pytest.raises(InputError, match=words):
        learn(folder, kind, tmp_path / "out", data=data, **method)


def test_complete_tables_send_what_they_always_sent(folder):
    """No counts of pairs where nothing is missing, and the same moments at complete sites where others have gaps."""
    files = tuple(f"plain/{site}.csv" for site in SITES)
    complete = open_job(GraphPlan(Data(files)), folder)
    mixed = open_job(GraphPlan(Data((*files[:5], f"gaps/{SITES[5]}.csv"))), folder)
    size = complete.data()[0]["moments"].size
    assert not complete.method.gaps
    assert mixed.method.gaps
    for one, two in list(zip(complete.data(), mixed.data(), strict=True))[:5]:
        assert one["moments"].tobytes() == two["moments"][:size].tobytes()


def test_the_papers_model_compares_pairs_where_both_are_seen(folder, tmp_path):
    run = learn(folder, "gaps", tmp_path / "out", learner="papers", edges=6)
    assert {pair for pair, sign in TRUE.items() if sign > 0} <= consensus(run).keys()
    assert run.result["certified_gap"] <= 1e-6


# ---- is there anything there? ----------------------------------------------------------------------------------------


def test_shuffled_columns_are_called_noise_and_others_are_not(folder, tmp_path):
    for learner in ("likelihood", "papers"):
        noise = learn(folder, "noise", tmp_path / f"noise_{learner}", learner=learner).result["findings"]
        real = learn(folder, "gaps", tmp_path / f"real_{learner}", learner=learner).result["findings"]
        assert any("no better than one of shuffled columns" in note for note in noise)
        assert not any("shuffled" in note for note in real)


@pytest.mark.parametrize("method", [{"learner": "papers"}, {"nonnegative": True}])
def test_relations_that_a_learner_cannot_show_are_pointed_out(method, folder, tmp_path):
    table = measured(9)
    table["pulse"] = -3.0 * table["glucose"] + 0.1 * table["pulse"]
    for site in SITES[:2]:
        table.to_csv(folder / f"{site}.csv", index=False)
    plan = GraphPlan(Data(tuple(f"{site}.csv" for site in SITES[:2])), ConsensusGraph(**method))
    found = finished(plan, folder, tmp_path / "out").result["findings"]
    assert any("'pulse' and 'glucose' (-0.9" in note and "cannot show" in note for note in found)
    signed = finished(GraphPlan(plan.data), folder, tmp_path / "signed").result
    assert not any("cannot show" in note for note in signed.get("findings", []))


def test_a_site_in_other_units_is_named_where_units_matter(folder, tmp_path):
    measured(0).mul(10.0).to_csv(folder / "tens.csv", index=False)
    files = ("tens.csv", *(f"plain/{site}.csv" for site in SITES[1:]))
    raw = finished(GraphPlan(Data(files, scale="none"), ConsensusGraph(edges=6)), folder, tmp_path / "raw").result
    assert any(note.startswith("The values of tens spread") for note in raw["findings"])
    own = finished(GraphPlan(Data(files), ConsensusGraph(learner="papers")), folder, tmp_path / "own").result
    assert json.dumps(own).count("check its units") == 0


def test_a_site_that_shows_nothing_of_what_others_show_is_named(folder, tmp_path, silograph):
    """False alarm: none of 6 sites that are like the others, and each shuffled one is named."""
    frames = {site: pd.read_csv(folder / "gaps" / f"{site}.csv") for site in SITES}
    rng, odd = np.random.default_rng(7), SITES[4]
    frames[odd] = pd.DataFrame(rng.permuted(frames[odd].to_numpy(), axis=0), columns=NAMES)
    (tmp_path / "tables").mkdir()
    for site, frame in frames.items():
        frame.to_csv(tmp_path / "tables" / f"{site}.csv", index=False)
    said = "shows none of the"
    code, text, error = silograph("check", tmp_path / "tables")
    assert code == 0, error
    assert [odd in line for line in text.splitlines() if said in line] == [True]
    told = " ".join(learn(tmp_path, "tables", tmp_path / "out").result["findings"])
    assert told.count(said) == 1
    assert said not in " ".join(learn(folder, "gaps", tmp_path / "good").result.get("findings", []))


def test_a_private_graph_of_units_is_refused_before_anything_is_spent(folder, tmp_path, silograph):
    """Rows are too few to tell means and spreads: what would do is said, and does."""
    words = ["learn", folder / "plain", "--epsilon", 1, "--seed", 1]
    code, _, error = silograph(*words, "-o", tmp_path / "no")
    assert code == 2
    assert "--scale FILE" in error
    assert "Nothing was spent" in error
    enough = float(error.split("An epsilon of about ")[1].split()[0])
    assert silograph(*words[:2], "--epsilon", 1.05 * enough, "--seed", 1, "-o", tmp_path / "more")[0] == 0
    assert (tmp_path / "more" / "scale.csv").exists()
    assert json.loads((tmp_path / "more" / "result.json").read_text())["rounds"] == 3
    if "--privacy secure-sum" in error:
        assert silograph(*words, "--privacy", "secure-sum", "-o", tmp_path / "sum")[0] == 0
    assert silograph(*words, "--scale", "none", "-o", tmp_path / "raw")[0] == 0


def test_the_papers_model_says_what_degree_is_usual(folder, tmp_path):
    assert "by default" in learn(folder, "plain", tmp_path / "usual", learner="papers").result["reason"]
    assert "reason" not in learn(folder, "plain", tmp_path / "asked", learner="papers", degree=2.0).result
