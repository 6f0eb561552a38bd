"""Two groups of persons compared by their votes: the bound, what is found, what is refused beforehand."""

import csv
import math
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest

from silograph.core.errors import InputError
from silograph.data.groups import read_groups
from silograph.data.silos import People
from silograph.families.graphs.build import build
from silograph.families.graphs.canary_votes import opposites
from silograph.families.graphs.job import read_sites
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan, Privacy, learner_of
from silograph.report.build import build as report
from silograph.run.run import execute
from silograph.tasks.person_votes import PersonVotes

NODES, PERSONS, ROWS, SITES = 12, 60, 60, ("ada", "bob", "cyd")
NAMES = [f"n{k}" for k in range(NODES)]
DATA = Data(tuple(f"{site}.csv" for site in SITES), unit_column="who", group_column="dx", groups=("ill", "well"))
PLAN = GraphPlan(DATA, ConsensusGraph(edges=NODES), Privacy(12.0, 1e-3), seed=3)


def root(own):
    """A chain, and one more edge that a group has of its own."""
    matrix = 2.4 * np.eye(NODES) - np.eye(NODES, k=1) - np.eye(NODES, k=-1)
    matrix[own], matrix[own[::-1]] = -1.0, -1.0
    return np.linalg.cholesky(np.linalg.inv(matrix))


ROOTS = {"ill": root((0, 5)), "well": root((3, 9))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("groups")
    rng = np.random.default_rng(0)
    for site in SITES:
        with open(made / f"{site}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["who", *NAMES, "dx"])
            for person in range(PERSONS):
                group = "ill" if person % 3 else "well"
                rows = rng.standard_normal((ROWS, NODES)) @ ROOTS[group].T
                writer.writerows([f"p{person}", *(f"{x:.5g}" for x in row), group] for row in rows)
    return made


def test_no_person_of_any_group_moves_the_sum_further_than_the_bound():
    """Persons who share no vote, of different groups, reach it."""
    task, rng = PersonVotes(NODES, 6, "who", ("ill", "well")), np.random.default_rng(1)
    others = rng.standard_normal((NODES + 1, NODES))
    loud = [rows for pair in opposites(task) for rows, _ in pair]
    wild = [rng.standard_normal((NODES + 1, NODES)) @ rng.standard_normal((NODES, NODES)) for _ in range(10)]

    def summed(rows, group):
        people = People(np.concatenate([others, rows]), np.repeat([0, 1], NODES + 1), np.array([0, group]))
        return task.prepare(people)["votes"]

    every = [summed(rows, group) for rows, group in product([*loud, *wild, np.zeros_like(others)], (0, 1))]
    assert {len(each) for each in every} == {task.size}
    furthest = max(float(np.linalg.norm(one - other)) for one in every for other in every)
    assert furthest == pytest.approx(task.summand_bound.l2)
    assert task.summand_bound.l2 == pytest.approx(math.sqrt(2 * 6 + 6 / 2))


def test_what_sets_two_groups_apart_is_found_and_nothing_else(folder, tmp_path):
    done = execute(PLAN, folder, tmp_path / "out", lambda *_: None, report)
    known = done.result["groups"]
    assert known["names"] == ["ill", "well"]
    assert known["persons"] == pytest.approx([120.0, 60.0], abs=25.0)  # behind noise
    assert sum(known["persons"]) == pytest.approx(180.0)
    with open(done.folder / "differences.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    found = {(row["source"], row["target"]): float(row["difference"]) for row in rows}
    assert set(found) == {("n0", "n5"), ("n3", "n9")}
    assert found["n0", "n5"] > 0.3
    assert found["n3", "n9"] < -0.3
    assert known["edges"] == 2
    page = (done.folder / "report.html").read_text()
    assert "Which group a person is in is protected, too." in page
    assert done.result["learner_why"] == "groups of persons are compared by their votes"


def test_groups_that_noise_would_hide_are_refused_with_the_persons_it_takes(folder):
    poor = replace(PLAN, privacy=Privacy(2.0, 1e-3))
    silos = read_sites(poor, [folder / name for name in DATA.files])
    with pytest.raises(InputError, match=r"Nothing was spent\. It takes about (\d+) persons") as refused:
        build(poor, silos)
    needed = int(str(refused.value).split("takes about ")[1].split()[0])
    assert needed > 180
    grown = [np.concatenate([own.person + k * PERSONS for k in range(needed // 180 + 1)]) for own in silos.signals]
    more = [
        People(np.tile(own.rows, (needed // 180 + 1, 1)), person, np.tile(own.group, needed // 180 + 1))
        for own, person in zip(silos.signals, grown, strict=True)
    ]
    # The advice holds: with as many, delta smaller for as many, it goes on.
    build(replace(poor, privacy=Privacy(2.0, 9e-4)), replace(silos, signals=tuple(more)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"groups": ("ill",)}, "expected two groups, but found 1"),
        ({"groups": ("ill", "ill")}, "expected two groups"),
        ({"group_column": None}, "found groups and no column"),
        ({"unit_column": None}, "persons who vote"),
    ],
)
def test_plans_that_do_not_say_which_groups_are_refused(changes, words):
    with pytest.raises(InputError, match=words):
        replace(PLAN, data=replace(DATA, **changes))
    assert learner_of(PLAN, NODES) == "votes"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("who,dx,a\np,ill,1\np,well,2\n", "data row 2: expected one group for all rows of a person"),
        ("who,dx,a\np,ill,1\nq,unknown,2\n", "data row 2: expected one of the groups 'ill', 'well'"),
        ("who,group,a\np,ill,1\n", "a column 'dx', which names the group of each person"),
    ],
)
def test_tables_that_do_not_say_the_group_of_a_person_are_refused(tmp_path, rows, words):
    (tmp_path / "x.csv").write_text(rows)
    with pytest.raises(InputError, match=words):
        read_groups([tmp_path / "x.csv"], "who", "dx", ("ill", "well"))


def test_groups_are_of_persons_in_the_order_of_their_names(tmp_path):
    (tmp_path / "x.csv").write_text("who,dx,a\nq,well,1\np10,ill,1\np9,well,2\nq,well,3\n")
    assert read_groups([tmp_path / "x.csv"], "who", "dx", ("ill", "well"))["x"].tolist() == [0, 1, 1]


def test_folders_and_one_long_table_say_the_groups_too(folder, tmp_path):
    """A folder of sites, a folder of folders with a file a person, and one table of all sites are the same sites."""
    named = read_sites(PLAN, [folder / name for name in DATA.files])
    frames = {site: pd.read_csv(folder / f"{site}.csv") for site in SITES}
    pd.concat([frame.assign(site=site) for site, frame in frames.items()]).to_csv(tmp_path / "long.csv", index=False)
    for site, frame in frames.items():
        (tmp_path / "persons" / site).mkdir(parents=True)
        for person, rows in frame.groupby("who"):
            rows.drop(columns="who").to_csv(tmp_path / "persons" / site / f"{person}.csv", index=False)
    ways = (
        ([folder], {}),
        ([tmp_path / "long.csv"], {"site_column": "site"}),
        ([tmp_path / "persons"], {"unit_column": "file"}),
    )
    for files, said in ways:
        silos = read_sites(replace(PLAN, data=replace(DATA, **said)), files)
        assert silos.names == named.names
        for own, other in zip(silos.signals, named.signals, strict=True):
            np.testing.assert_array_equal(own.group, other.group)
