"""Persons as the protected unit: a column says whose a signal is, from the table to the cost."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from silograph.core.errors import InputError
from silograph.core.keys import stream
from silograph.data.readers import read_people, read_table
from silograph.data.silos import People, read_silos
from silograph.data.synthetic import paper_graphs, smooth_signals
from silograph.deploy.public_facts import gather_facts, open_organisation, open_server, organisation_facts
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan, Privacy
from silograph.run.jobs import open_job, run_in_memory
from silograph.run.plan import dumps, load
from silograph.run.run import execute

NODES = [f"n{k}" for k in range(6)]
SITES = {"ada": 300, "bob": 400}  # persons
BUDGET = Privacy(8.0, 1e-4)


def site(seed, persons):
    """Everybody has between one and five signals."""
    rng = stream(seed, "persons", 0, "how many")
    graph = paper_graphs(seed, 2, len(NODES), 0.7).local[0]
    who = np.repeat([f"p{k}" for k in range(persons)], rng.integers(1, 6, persons))
    table = pd.DataFrame(smooth_signals(rng, graph, len(who)), columns=NODES)
    table.insert(2, "person", who)
    return table.sample(frac=1.0, random_state=seed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("people")
    for seed, (name, persons) in enumerate(SITES.items()):
        site(seed, persons).to_csv(made / f"{name}.csv", index=False)
    return made


PLAN = GraphPlan(
    Data(tuple(f"{name}.csv" for name in SITES), unit_column="person", scale="none"),
    ConsensusGraph(degree=3.0),
    BUDGET,
    seed=2,
)


def test_people_are_read_with_their_signals(folder):
    table = pd.read_csv(folder / "ada.csv")
    silos = read_silos([folder / "ada.csv"], private=True, unit_column="person")
    (people,) = silos.signals
    assert silos.nodes == tuple(NODES)
    assert isinstance(people, People)
    assert len(people) == SITES["ada"]
    np.testing.assert_array_equal(people.rows, table[NODES].to_numpy())
    same = table["person"].to_numpy()[:, None] == table["person"].to_numpy()
    np.testing.assert_array_equal(people.person[:, None] == people.person, same)


def test_numbers_name_persons_as_written(tmp_path):
    """007 and 7 are two persons: identifiers are not numbers."""
    rows = ["who,a,b,c", "007,1,2,3", "7,2,1,3", "7,3,2,1"]
    (tmp_path / "x.csv").write_text("\n".join(rows) + "\n")
    assert read_people(tmp_path / "x.csv", "who", private=True).person.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("a,b,c\n1,2,3\n2,1,3\n", "a column 'who'"),
        ("who,a,b,c\nx,1,2,3\n,2,1,3\n", "data row 2: expected the name of a person"),
        ("who,a,b,c\nx,1,2,3\ny,2,oh,3\n", "column 'b', data row 2: expected a number"),
        ("who,a,b\nx,1,2\ny,2,3\n", "at least 3 nodes"),
    ],
)
def test_tables_that_do_not_say_whose_signals_they_hold_are_refused(tmp_path, rows, words):
    (tmp_path / "x.csv").write_text(rows)
    with pytest.raises(InputError, match=words):
        read_people(tmp_path / "x.csv", "who", private=True)


def test_a_column_of_words_named_like_an_identifier_asks_for_the_unit(folder):
    with pytest.raises(InputError, match=r"'person' has the name of an identifier.*unit_column=\"person\""):
        read_table(folder / "ada.csv", private=True)


def test_the_bill_says_that_persons_are_protected(folder, tmp_path):
    finished = execute(PLAN, folder, tmp_path / "out", lambda *_: None, lambda _: "")
    result = finished.result
    assert [site["signals"] for site in result["sites"]] == list(SITES.values())
    assert result["counted"] == "persons"
    assert result["privacy"]["protected_unit"] == "one person of one site: all signals with the same 'person'"
    assert "number of persons" in result["privacy"]["relation"]
    assert any("several sites" in note for note in result["privacy"]["notes"])
    assert all(site["effective_rows"] > 30.0 for site in result["sites"])
    released = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    assert {row["silo"] for row in released} == set(SITES)
    for row in released:
        assert row["protected_unit"] == result["privacy"]["protected_unit"]
        assert row["l2"] == pytest.approx(np.sqrt(2.0) / SITES[row["silo"]], rel=1e-5)


def test_organisations_tell_how_many_persons_they_have_and_the_job_is_the_same_everywhere(folder):
    facts = gather_facts(PLAN, folder)
    assert [holding.records for holding in facts.holdings] == [(count,) for count in SITES.values()]
    assert organisation_facts(PLAN, folder / "bob.csv")["organisations"][0]["records"] == [SITES["bob"]]
    whole, server = open_job(PLAN, folder), open_server(PLAN, facts, folder)
    assert server.method == whole.method
    assert server.forecast() == whole.forecast()
    for k, name in enumerate(SITES):
        organisation = open_organisation(PLAN, facts, name, folder / f"{name}.csv", folder)
        assert organisation.method == whole.method
        (own,) = organisation.data([name])
        for part, value in own.items():
            np.testing.assert_array_equal(value, whole.data()[k][part])


def test_signals_beyond_the_first_of_a_person_do_not_lower_the_noise(folder, tmp_path):
    """The same persons with every signal written twice: the same release, noise included."""
    for name in SITES:
        pd.read_csv(folder / f"{name}.csv").pipe(lambda t: pd.concat([t, t])).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    one, first = run_in_memory(open_job(PLAN, folder), 2)
    other, second = run_in_memory(open_job(PLAN, tmp_path), 2)
    np.testing.assert_allclose(one.arrays["graph"], other.arrays["graph"], rtol=1e-4, atol=1e-6)
    assert [row.noise for row in first.ledger.rows] == [row.noise for row in second.ledger.rows]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"privacy": None}, "a privacy budget, whose protected unit it names"),
        ({"data": replace(PLAN.data, nodes_in="rows")}, "nodes in columns"),
        ({"data": replace(PLAN.data, unit_column=" ")}, "the name of a column"),
        (
            {
                "privacy": replace(BUDGET, mode="per-round", clip=1.0),
                "method": ConsensusGraph(solver="paper", beta=1.0, nu=1.0, lam=1.0),
            },
            "one release",
        ),
    ],
)
def test_a_unit_that_cannot_be_kept_is_refused(change, words):
    with pytest.raises(InputError, match=words):
        replace(PLAN, **change)


def test_the_plan_keeps_its_unit_and_learner(tmp_path):
    plan = replace(PLAN, method=ConsensusGraph(learner="log-degree"))
    (tmp_path / "plan.toml").write_text(dumps(plan))
    assert load(tmp_path / "plan.toml") == plan


@pytest.mark.parametrize(
    ("name", "asks"),
    [("patient_id", True), ("Subject", True), ("visit.user", True), ("north_01", False), ("idle", False)],
)
def test_a_number_column_named_like_an_identifier_is_refused_or_brings_a_note(tmp_path, name, asks):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((2000, 4)), columns=["a", "b", "c", name])
    table.to_csv(tmp_path / "x.csv", index=False)
    if asks:
        with pytest.raises(InputError, match=r"has the name of an identifier.*unit_column="):
            open_job(GraphPlan(Data(("x.csv",)), ConsensusGraph(), BUDGET), tmp_path)
    job = open_job(GraphPlan(Data(("x.csv",), keep=(name,)), ConsensusGraph(), BUDGET), tmp_path)
    assert any("--unit-column" in note for note in job.forecast()["notes"]) == asks


def test_the_command_line_counts_persons_and_says_what_graphs_are_worth(folder, tmp_path, silograph):
    files = [folder / f"{name}.csv" for name in SITES]
    options = ("--seed", 2, "--epsilon", 8, "--unit-column", "person")
    code, text, _ = silograph("learn", *files, "-o", tmp_path / "out", *options)
    assert code == 0
    assert text.split("\n")[0].split()[:2] == ["site", "persons"]
    assert "effective rows" in text.split("\n")[0]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Persons" in page
    assert "Effective rows" in page
