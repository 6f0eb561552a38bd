"""Jobs opened from public facts: without any record at the server, with one table at an organisation."""

import json
import shutil
import tracemalloc
from dataclasses import replace

import networkx as nx
import numpy as np
import pandas as pd
import pytest

from silograph.core.errors import InputError
from silograph.deploy.public_facts import (
    Facts,
    gather_facts,
    open_organisation,
    open_server,
    organisation_facts,
    read_facts,
)
from silograph.families.clusters.plan import ClusterBudget, ClusterData, ClusteredMethod, ClusteredPlan
from silograph.families.federation.plan import AgentBudget, FederationMethod, FederationPlan, RegionData
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan, Privacy
from silograph.families.meta import job as meta_job
from silograph.families.meta.plan import MetaBudget, MetaData, MetaMethod, MetaPlan
from silograph.families.servers import Servers
from silograph.run.jobs import open_job, run_in_memory

SITES = {"ada": 60, "bob": 81, "cyd": 74}
UNITS = {"east": 4, "north": 3, "west": 5}  # agents
CLIENTS = {"ann": 9, "bea": 12, "cal": 16}
NODES, FEATURES = ["p", "q", "r", "s", "t"], ["u", "v", "w"]
CLASSES = ("down", "level", "up")  # nobody is ever level


def rows_of(name):
    return np.random.default_rng(list(name.encode()))


def shuffled(table, name):
    """Columns in an order of its own: readers match them by name."""
    return table[list(rows_of(name).permutation(table.columns))]


def site(name, scale=1.0):
    rng = rows_of(name)
    common = rng.normal(size=(SITES[name], 1))
    return shuffled(pd.DataFrame(scale * (common + rng.normal(size=(SITES[name], 5))), columns=NODES), name)


def unit(name, scale=1.0, clusters=True, signs=False):
    rng, parts = rows_of(name), []
    for k in range(UNITS[name]):
        part = pd.DataFrame(scale * rng.normal(size=(int(rng.integers(2, 9)), 3)), columns=FEATURES)
        part["score"] = scale * rng.normal(size=len(part))
        parts.append(part.assign(agent=f"{name[0]}{k}", kind=("red", "blue")[k % 2]))
    table = pd.concat(parts).sample(frac=1.0, random_state=1)
    table["score"] = np.sign(table["score"]).astype(int) if signs else table["score"]
    return shuffled(table if clusters else table.drop(columns="kind"), name)


def client(name, scale=1.0, numbers=False):
    rng = rows_of(name)
    table = pd.DataFrame(scale * rng.normal(size=(CLIENTS[name], 3)), columns=FEATURES)
    rises = (table["u"] > table["u"].median()) & (name != "ann")  # ann has one class only
    return shuffled(table.assign(trend=table["u"] + table["v"] if numbers else np.where(rises, "up", "down")), name)


def picture(name, scale=1.0):
    x = scale * rows_of(name).normal(size=(CLIENTS[name], 1, 4, 5))
    return {"x": x, "y": np.where(np.arange(len(x)) % 3 > 0, "up", "down")}


def write_all(folder, scale=1.0):
    """Tables of all kinds; another scale changes every number in them, and no name and no count."""
    kinds = {
        "sites": [site(name, scale) for name in SITES],
        "units": [unit(name, scale) for name in UNITS],
        "bare": [unit(name, scale, clusters=False) for name in UNITS],
        "signs": [unit(name, scale, signs=True) for name in UNITS],
        "bare signs": [unit(name, scale, clusters=False, signs=True) for name in UNITS],
        "clients": [client(name, scale) for name in CLIENTS],
        "numbers": [client(name, scale, numbers=True) for name in CLIENTS],
    }
    for kind, made in kinds.items():
        (folder / kind).mkdir(parents=True)
        names = SITES if kind == "sites" else CLIENTS if kind in ("clients", "numbers") else UNITS
        for name, table in zip(names, made, strict=True):
            table.to_csv(folder / kind / f"{name}.csv", index=False)
    (folder / "pictures").mkdir()
    for name in CLIENTS:
        np.savez(folder / "pictures" / f"{name}.npz", **picture(name, scale))
    (folder / "edges.csv").write_text("source,target\np,q\nq,r\nr,s\ns,t\n")
    (folder / "places.csv").write_text(
        "node,x,y\n" + "".join(f"{node},{k},{k % 2}\n" for k, node in enumerate("pqrst"))
    )
    nx.write_graphml(nx.path_graph(["west", "east", "north"]), folder / "servers.graphml")
    unit("east", scale).to_csv(folder / "test.csv", index=False)
    unit("east", scale, clusters=False).to_csv(folder / "bare.csv", index=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("organisations")
    write_all(made)
    return made


@pytest.fixture(autouse=True)
def quick_planner(monkeypatch):
    """The planner looks at no other rounds and rates: each takes about a second to calibrate."""
    monkeypatch.setattr(meta_job, "_PLANNED_ROUNDS", ())
    monkeypatch.setattr(meta_job, "_PLANNED_RATES", ())


def tables(kind, names, suffix=".csv"):
    return tuple(f"{kind}/{name}{suffix}" for name in names)


CHOSEN, RING = ConsensusGraph(rounds=30), Servers(graph="ring")


def graphs(method=CHOSEN, privacy=None, **data):
    # The first file says the order of nodes, and it is not the first by name.
    return GraphPlan(Data(tables("sites", reversed(SITES)), **data), method, privacy, seed=3)


PAPER = ConsensusGraph(solver="paper", beta=0.1, nu=1.0, lam=0.1, rounds=4)


def federation(privacy=None, topology=RING, **method):
    chosen = {"loss": "ridge", "rounds": 4, "clip": 0.5, "ridge": 0.1, "minimum": 2} | method
    files = tables("bare signs" if chosen["loss"] == "logistic" else "bare", UNITS)
    data = RegionData("agent", "score", files, test="bare.csv")
    return FederationPlan(data, topology, FederationMethod(**chosen), privacy, seed=3)


def clustered(privacy=None, cluster="kind", **method):
    chosen = {"rounds": 4, "minimum": 2} | method
    files = tables("bare" if cluster is None else "signs" if "logistic" in chosen.values() else "units", UNITS)
    data = ClusterData("agent", "score", files, cluster=cluster, test="test.csv")
    return ClusteredPlan(data, RING, ClusteredMethod(**chosen), privacy, seed=3)


def meta(privacy=None, data=(), **method):
    chosen = {"rounds": 3, "rate": 1.0, "hidden": (4,)} | method
    told = {"target": "trend", "files": tables("clients", CLIENTS)} | dict(data)
    return MetaPlan(MetaData(**told), MetaMethod(**chosen), privacy, seed=3)


BUDGET, RECORDS = AgentBudget(5.0, 1e-2), ClusterBudget(5.0, 1e-2)
WHOLE = ClusterBudget(5.0, 1e-2, protect="clients")
NUMBERS = {"answers": "numbers", "files": tables("numbers", CLIENTS)}

PLANS = {
    "graphs": graphs(scale="own"),
    "graphs, standardised, candidates": graphs(standardise=True, candidates="edges.csv", coordinates="places.csv"),
    "graphs, paper": graphs(ConsensusGraph(solver="paper", rounds=4), scale="own"),
    "graphs, one release": graphs(privacy=Privacy(50.0, 1e-3)),
    "graphs, per round": graphs(PAPER, Privacy(50.0, 1e-3, mode="per-round", clip=2.0)),
    "federation": federation(epochs=(1, 3)),
    "federation, graph file": federation(topology=Servers(file="servers.graphml"), sample=2, batch=(2, 4)),
    "federation, logistic": federation(loss="logistic"),
    "federation, private": federation(BUDGET),
    "federation, private, trusted": federation(BUDGET, masks="none", batch=(2, 4)),
    "clustered": clustered(compare=True),
    "clustered, logistic": clustered(loss="logistic"),
    "clustered, found": clustered(find=2),
    "clustered, found without a column": clustered(cluster=None, find=2),
    "clustered, records": clustered(RECORDS, step="linearised", clip=1.0, sample=2),
    "clustered, clients": clustered(WHOLE, clip=1.0, masks="skipped"),
    "meta": meta(),
    "meta, private": meta(MetaBudget(5.0, 1e-2), {"classes": CLASSES}),
    "meta, numbers": meta(data=NUMBERS),
    "meta, pictures": meta(data={"files": tables("pictures", CLIENTS, ".npz")}),
}
PROTECTED = ("federation, private", "federation, private, trusted", "clustered, clients")


def paths_of(plan, folder):
    return {name: folder / file for file in plan.data.files for name in [file.split("/")[1].split(".")[0]]}


def arrays_of(data):
    """By name, with silos on axis 0."""
    return data if isinstance(data, dict) else {name: np.stack([each[name] for each in data]) for name in data[0]}


# ---- the job ----


def test_the_server_needs_no_accelerator(folder):
    plan = meta(device="cuda")
    job = open_server(plan, gather_facts(plan, folder), folder)
    assert job.plan == plan
    assert job.method.start(job.topo).down["model"].shape == (len(CLIENTS), job.task.size)


@pytest.mark.parametrize("loss", ["ridge", "huber", "logistic"])
@pytest.mark.parametrize("kind", ["federation", "batches", "exact", "linearised"])
def test_no_result_depends_on_the_padding(kind, loss, folder):
    """So an organisation may pad to its own largest agent, and says nothing of it."""
    plan = {
        "federation": federation(loss=loss, epochs=(1, 3)),
        "batches": federation(loss=loss, batch=(2, 4)),
        "exact": clustered(loss=loss, radius=1.0),
        "linearised": clustered(loss=loss, step="linearised", clip=1.0),
    }[kind]
    job = open_job(plan.deployable(), folder)
    task = replace(job.method.task, most=4 * job.method.task.most + 3)
    own = {"task": task} if isinstance(plan, ClusteredPlan) else {}
    wider = replace(job, method=replace(job.method, task=task), **own)
    assert wider.data()["x"].shape[1] > 4 * job.data()["x"].shape[1]
    (one, _), (other, _) = run_in_memory(job, 3), run_in_memory(wider, 3)
    assert one.arrays["model"].tobytes() == other.arrays["model"].tobytes()
    assert np.abs(one.arrays["model"]).max() > 0.0


# ---- what facts say, and what not ----


def test_how_many_records_an_agent_has_is_told_only_where_it_is_public(folder):
    for name, plan in PLANS.items():
        told = gather_facts(plan, folder)
        assert (told.holdings[0].records is None) == (name in PROTECTED)
        assert ("records" in json.dumps(told.to_json())) == (name not in PROTECTED)
    # One agent with a thousand times as many records: nothing that is told changes, so no bound is told either.
    plan = PLANS["federation, private"]
    table = pd.read_csv(folder / "bare/west.csv")
    copy = folder / "bare" / "west.csv.gz"
    pd.concat([table] + [table[table["agent"] == "w0"]] * 1000).to_csv(copy, index=False)
    assert organisation_facts(plan, copy) == organisation_facts(plan, folder / "bare/west.csv")
    facts = gather_facts(plan, folder)
    many = open_organisation(plan, facts, "west", copy, folder)
    assert many.data(["west/w1"])["count"] == open_job(plan, folder).data(["west/w1"])["count"]


def test_clusters_are_told_only_where_they_are_used(folder):
    assert gather_facts(PLANS["clustered"], folder).holdings[0].clusters == ("red", "blue", "red", "blue")
    assert not gather_facts(PLANS["clustered, found"], folder).holdings[0].clusters


def test_a_billion_records_elsewhere_take_no_memory(folder):
    for name in ("graphs", "federation", "clustered", "meta"):
        plan = PLANS[name].deployable()
        open_server(plan, gather_facts(plan, folder), folder)  # whatever is loaded or compiled, now
        small = gather_facts(plan, folder)
        huge = tuple(replace(each, records=tuple(10**9 for _ in each.records)) for each in small.holdings)
        facts = Facts.from_json(replace(small, holdings=huge).to_json(), "facts")
        tracemalloc.start()
        job = open_server(plan, facts, folder)
        job.forecast()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 5e6
        assert job.most_rounds == open_job(plan, folder).most_rounds


# ---- files of others ----


@pytest.fixture
def own(folder, tmp_path):
    """A folder of one's own to spoil."""
    return shutil.copytree(folder, tmp_path / "own")


def told_instead(plan, base, name):
    """The organisation takes its table away and leaves its facts."""
    file = next(file for file in plan.data.files if f"/{name}." in file)
    path = (base / file).with_name(f"{name}.facts.json")
    path.write_text(json.dumps(organisation_facts(plan, base / file)))
    (base / file).rename(base / (file + ".away"))
    return path


@pytest.mark.parametrize("name", PLANS)
def test_facts_files_stand_for_tables(name, own):
    plan = PLANS[name]
    facts, paths = gather_facts(plan, own), paths_of(plan, own)
    for organisation in paths:
        told_instead(plan, own, organisation)
        assert gather_facts(plan, own) == facts
    open_server(plan, facts, own)


def test_an_organisation_is_called_by_its_file_in_the_plan(own):
    plan = PLANS["federation"]
    facts = gather_facts(plan, own)
    home = (own / "bare/west.csv").rename(own / "bare/whatever we call it.csv")
    (own / "bare/west.facts.json").write_text(json.dumps(organisation_facts(plan, home)))
    assert gather_facts(plan, own) == facts
    assert (
        len(open_organisation(plan, facts, "west", home, own).data(facts.organisations["west"])["x"]) == UNITS["west"]
    )


def test_neither_table_nor_facts(own):
    (own / "bare/west.csv").unlink()
    with pytest.raises(InputError, match=r"west\.csv: expected a table, or 'west\.facts\.json' in its place"):
        gather_facts(PLANS["federation"], own)


def test_a_facts_file_must_be_json(own):
    path = told_instead(PLANS["graphs"], own, "bob")
    for content in (b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b'{"format": ' + b"9" * 10_000 + b"}", b"NaN", b"[]"):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"bob\.facts\.json"):
            gather_facts(PLANS["graphs"], own)
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match="an ordinary file"):
        read_facts(path)


HOSTILE = [
    (lambda f: f.pop("columns"), "expected the key 'columns', but it is missing"),
    (lambda f: f.update(more=1), "found 'more'"),
    (lambda f: f.update(format=True), "expected format 2"),
    (lambda f: f.update(format=3), "expected format 2"),
    (lambda f: f.update(method="mine"), "method: expected one of"),
    (lambda f: f.update(method=["graphs"]), "method: expected a text"),
    (lambda f: f.update(method="graph_federation"), "clusters: expected none for graph_federation"),
    (lambda f: f.update(method="consensus_graph"), "agents where a table has several"),
    (lambda f: f.update(columns="uvw"), "columns: expected a list"),
    (lambda f: f.update(columns=[]), "columns: expected at least 1"),
    (lambda f: f.update(columns=["u", "u", "w"]), "names that differ"),
    (lambda f: f.update(columns=["u", None]), "columns[1]: expected a text"),
    (lambda f: f.update(columns=["u", " "]), "a name for every column"),
    (lambda f: f.update(columns=["u", "\x1b[2J"]), "names that can be written"),
    (lambda f: f.update(shape=[3]), "neither shape nor classes"),
    (lambda f: f.update(classes=["a", "b"]), "neither shape nor classes"),
    (lambda f: f.update(organisations=[]), "organisations: expected at least one"),
    (lambda f: f.update(organisations={}), "organisations: expected a list"),
    (lambda f: f.update(organisations=[[1]]), "organisations[0]: expected a section of named values"),
    (lambda f: f["organisations"][0].update(name="\x1b[2J"), "a name that can name a file"),
    (lambda f: f.update(organisations=f["organisations"] * 2), "with different names"),
    (
        lambda f: f.update(organisations=[*f["organisations"], f["organisations"][0] | {"name": "x"}]),
        "the facts of one organisation",
    ),
    (lambda f: f["organisations"][0].update(name="../etc"), "a name that can name a file"),
    (lambda f: f["organisations"][0].update(name=7), "a name that can name a file, but found 7"),
    (lambda f: f["organisations"][0].update(agents=[]), "agents where a table has several"),
    (lambda f: f["organisations"][0].update(agents=["../a", "b", "c"]), "a name that can name a file"),
    (lambda f: f["organisations"][0].update(agents=["n0", "n0", "n2"]), "different names, sorted"),
    (lambda f: f["organisations"][0].update(agents=["n1", "n0", "n2"]), "different names, sorted"),
    (lambda f: f["organisations"][0].update(agents=["n0", 1, "n2"]), "agents[1]: expected a name that can name a file"),
    (lambda f: f["organisations"][0].update(records=[2, 3]), "3 numbers from 1"),
    (lambda f: f["organisations"][0].update(records=[2, 3, 0]), "a whole number from 1"),
    (lambda f: f["organisations"][0].update(records=[2, 3, 10**30]), "a whole number from 1"),
    (lambda f: f["organisations"][0].update(records=[2, 3, True]), "a whole number from 1"),
    (lambda f: f["organisations"][0].update(records=[2, 3, 1.5]), "a whole number from 1"),
    (lambda f: f["organisations"][0].update(records=None), "how many each agent has"),
    (lambda f: f["organisations"][0].pop("records"), "how many each agent has"),
    (lambda f: f["organisations"][0].update(clusters=["red"]), "one for each of its 3 agents"),
    (lambda f: f["organisations"][0].update(clusters=["red", "", "red"]), "a name for every cluster"),
    (lambda f: f["organisations"][0].update(clusters=["red", " blue", "red"]), "blanks around"),
    (lambda f: f["organisations"][0].update(clusters=["red", "\ud800", "red"]), "names that can be written"),
    (lambda f: f["organisations"][0].update(clusters=[]), "each agent's cluster"),
    (lambda f: f["organisations"][0].update(secret=1), "found 'secret'"),
]


@pytest.mark.parametrize("spoil, says", HOSTILE)
def test_a_hostile_facts_file_is_refused_by_name_and_in_short(spoil, says, own):
    plan = PLANS["clustered"]
    path = told_instead(plan, own, "north")
    content = json.loads(path.read_text())
    spoil(content)
    path.write_text(json.dumps(content))
    with pytest.raises(InputError) as refused:
        gather_facts(plan, own)
    assert says in str(refused.value)
    assert len(str(refused.value)) < 600
    assert "\x1b" not in str(refused.value)


@pytest.mark.parametrize(
    "name, spoil, says",
    [
        ("federation, private", lambda f: f["organisations"][0].update(records=[1] * 3), "part of what is protected"),
        ("clustered, clients", lambda f: f["organisations"][0].update(records=[1] * 3), "part of what is protected"),
        ("clustered, found", lambda f: f["organisations"][0].update(clusters=["red"] * 3), "none with this plan"),
        ("federation", lambda f: f["organisations"][0].update(clusters=["red"] * 3), "none for graph_federation"),
    ],
)
def test_facts_that_the_plan_has_no_use_for_are_refused(name, spoil, says, own):
    path = told_instead(PLANS[name], own, "north")
    content = json.loads(path.read_text())
    spoil(content)
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=says):
        gather_facts(PLANS[name], own)


@pytest.mark.parametrize(
    "name, change, says",
    [
        ("meta", {"shape": [4]}, "the number of columns"),
        ("meta", {"shape": []}, "the number of columns"),
        ("meta", {"columns": [], "shape": [1, 2]}, "three numbers of a picture"),
        ("meta", {"columns": [], "shape": [10**9, 10**9, 10**9]}, "three numbers of a picture"),
        ("meta", {"classes": ["up", "down"]}, "'down', 'up', in this order"),
        ("meta", {"classes": ["up", "0.5"]}, "a class: text or a whole number"),
        ("meta", {"classes": []}, "at least 1 classes"),
        ("meta, private", {"classes": ["down", "up"]}, "'down', 'level', 'up', in this order"),
        ("meta, numbers", {"classes": ["down", "up"]}, "none with this plan"),
    ],
)
def test_shapes_and_classes_of_others_are_checked(name, change, says, own):
    path = told_instead(PLANS[name], own, "bea")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=says):
        gather_facts(PLANS[name], own)


def test_organisations_that_disagree_are_named(own):
    lacking = site("bob").rename(columns={"q": "Q"})
    lacking.to_csv(own / "sites/bob.csv", index=False)
    with pytest.raises(
        InputError, match=r"organisation 'bob': expected the columns of organisation 'cyd', but it lacks 'q' and"
    ):
        gather_facts(PLANS["graphs"], own)
    more = unit("west", clusters=False).assign(extra=1.0)
    more.to_csv(own / "bare/west.csv", index=False)
    with pytest.raises(
        InputError, match=r"organisation 'west': expected the columns of organisation 'east', but it also has 'extra'"
    ):
        gather_facts(PLANS["federation"], own)
    np.savez(own / "pictures/cal.npz", x=np.zeros((5, 1, 4, 4)), y=np.arange(5) % 2)
    with pytest.raises(
        InputError, match=r"organisation 'cal': expected records of the shape \(1, 4, 5\), as of organisation 'ann'"
    ):
        gather_facts(PLANS["meta, pictures"], own)
    client("bea").assign(trend=7).to_csv(own / "clients/bea.csv", index=False)
    with pytest.raises(InputError, match="all whole numbers or all text"):
        gather_facts(PLANS["meta"], own)
    for name in CLIENTS:
        client(name).assign(trend="up").to_csv(own / f"clients/{name}.csv", index=False)
    with pytest.raises(InputError, match="at least 2 classes"):
        gather_facts(PLANS["meta"], own)


def test_facts_of_other_organisations_than_the_plans(folder):
    plan = PLANS["graphs"].deployable()
    facts = gather_facts(plan, folder)
    fewer = replace(facts, holdings=facts.holdings[1:])
    for opened in (
        lambda: open_server(plan, fewer, folder),
        lambda: open_organisation(plan, fewer, "bob", folder, folder),
    ):
        with pytest.raises(InputError, match="it lacks 'ada'"):
            opened()
    with pytest.raises(InputError, match="organisation 'eve': expected one of 'ada', 'bob', 'cyd'"):
        open_organisation(plan, facts, "eve", folder / "sites/ada.csv", folder)
    with pytest.raises(InputError, match="as in the plan"):
        open_server(PLANS["meta"].deployable(), facts, folder)
    meta_plan = PLANS["meta"].deployable()
    known = gather_facts(meta_plan, folder)
    with pytest.raises(InputError, match="at least 2 classes"):
        open_server(meta_plan, replace(known, classes=("up",)), folder)


@pytest.mark.parametrize("name", ["graphs", "graphs, one release"])
def test_organisations_may_have_different_columns_where_the_plan_says_so(name, own):
    site("bob").drop(columns="q").to_csv(own / "sites/bob.csv", index=False)
    site("ada").assign(extra=np.arange(len(site("ada"))) % 7 + 0.5).to_csv(own / "sites/ada.csv", index=False)
    with pytest.raises(InputError, match="nodes = 'all'"):
        gather_facts(PLANS[name], own)
    kept = {}
    for rule in ("all", "common"):
        plan = replace(PLANS[name], data=replace(PLANS[name].data, nodes=rule)).deployable()
        facts = kept[rule] = gather_facts(plan, own)
        assert Facts.from_json(facts.to_json(), "facts") == facts
        job = open_organisation(plan, facts, "bob", own / "sites/bob.csv", own)
        assert job.silos.nodes == facts.columns == open_server(plan, facts, own).silos.nodes
        site("bob").drop(columns=["p", "q"]).to_csv(own / "wrong.csv", index=False)
        with pytest.raises(InputError, match="'p'"):  # it said that it has it
            open_organisation(plan, facts, "bob", own / "wrong.csv", own)
    every, common = kept["all"], kept["common"]
    assert {each.organisation: each.lacks for each in every.holdings}["bob"] == ("q", "extra")
    assert set(every.columns) - set(common.columns) == {"q", "extra"}
    assert all(each.lacks is None for each in common.holdings)
    damaged = every.to_json()
    damaged["organisations"][1]["lacks"] = ["nobody"]
    with pytest.raises(InputError, match="columns of the list"):
        Facts.from_json(damaged, "facts")


# ---- the wrong table at an organisation ----

SECRET = 424242.125  # in every cell that holds a value


def wrong(table, change):
    made = table.copy()
    for column in made.columns:
        if made[column].dtype.kind == "f":
            made[column] += SECRET
    return change(made)


WRONG = [
    ("graphs, one release", "bob", lambda t: t.drop(columns="q"), "it lacks 'q'"),
    ("graphs, one release", "bob", lambda t: t.assign(z=1.5), "it also has 'z'"),
    ("graphs, one release", "bob", lambda t: t.iloc[:-1], "81 records of 'bob', as reported, but there are 80"),
    ("graphs", "bob", lambda t: pd.concat([t, t]), "there are 162"),
    ("clustered, records", "west", lambda t: t.drop(columns="v"), "it lacks 'v'"),
    ("clustered, records", "west", lambda t: t.iloc[:-1], "there are"),
    ("clustered, records", "west", lambda t: t[t["agent"] != "w1"], "it lacks 'w1'"),
    ("clustered, records", "west", lambda t: t.assign(kind="red"), "'w1' in cluster 'blue', as reported, but it is in"),
    ("federation, private", "west", lambda t: t.assign(agent="new"), "it also has 'new'"),
    ("federation, private", "west", lambda t: t.drop(columns="v"), "it lacks 'v'"),
    ("federation, private", "west", lambda t: t[t["agent"] != "w1"], "it lacks 'w1'"),
    ("meta, private", "bea", lambda t: t.drop(columns="v"), "it lacks 'v'"),
    ("meta, private", "bea", lambda t: t.iloc[1:], "expected 12 records of 'bea', as reported, but there are 11"),
    ("meta, private", "bea", lambda t: t.assign(trend="424242"), "found another label"),
    ("meta", "bea", lambda t: t.assign(trend="sideways"), "found 'sideways'"),
]


@pytest.mark.parametrize("name, organisation, change, says", WRONG)
def test_a_table_that_is_not_what_was_told_is_refused(name, organisation, change, says, folder, tmp_path):
    plan = PLANS[name]
    facts = gather_facts(plan, folder)
    path = tmp_path / f"{organisation}.csv"
    wrong(pd.read_csv(paths_of(plan, folder)[organisation]), change).to_csv(path, index=False)
    with pytest.raises(InputError) as refused:
        open_organisation(plan, facts, organisation, path, folder)
    assert says in str(refused.value)
    assert "4242" not in str(refused.value)


def test_columns_in_another_order_are_the_same_table(folder, tmp_path):
    for name, organisation in (("graphs", "bob"), ("clustered", "west"), ("meta", "bea")):
        plan = PLANS[name]
        facts, path = gather_facts(plan, folder), paths_of(plan, folder)[organisation]
        table = pd.read_csv(path, dtype=str)
        table[list(reversed(table.columns))].to_csv(tmp_path / f"{organisation}.csv", index=False)
        silos = facts.organisations[organisation]
        one, other = (
            open_organisation(plan, facts, organisation, at, folder).data(silos) for at in (path, tmp_path / path.name)
        )
        for part, own in arrays_of(one).items():
            np.testing.assert_array_equal(own, arrays_of(other)[part])


def test_a_picture_of_another_shape(folder, tmp_path):
    plan = PLANS["meta, pictures"]
    np.savez(tmp_path / "bea.npz", x=np.zeros((12, 1, 5, 4)), y=np.array(["up", "down"] * 6))
    with pytest.raises(InputError, match=r"records of the shape \(1, 4, 5\), as reported"):
        open_organisation(plan, gather_facts(plan, folder), "bea", tmp_path / "bea.npz", folder)


# ---- what only a simulation has ----


def test_what_a_deployment_leaves_out_is_said():
    full = replace(meta(MetaBudget(5.0, 1e-2, personal_epsilon=1.0), {"classes": CLASSES, "new": ("clients/eve.csv",)}))
    assert full.deployable() == meta(MetaBudget(5.0, 1e-2), {"classes": CLASSES})
    assert [words.split(":")[0] for words in full.left_out()] == ["1 new clients"]
    compared = clustered(compare=True, masks="skipped", clip=1.0)
    assert compared.deployable().data.test is None
    assert not compared.deployable().method.compare
    assert compared.deployable().method.masks == "protocol"
    assert [words.split(":")[0] for words in compared.left_out()] == [
        "the test table test.csv",
        "skipping the masks",
        "the comparison with other ways of learning",
    ]
    for plan in PLANS.values():
        left = plan.deployable()
        assert left.deployable() == left
        assert left.left_out() == []
        assert (left == plan) == (plan.left_out() == [])
