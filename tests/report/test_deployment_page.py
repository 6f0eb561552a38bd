"""The page of a deployment says what really leaves, in which size and how protected: a run's ledger is the judge."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from pages import NASTY, Page, refuse_requests, table
from silograph.deploy.deployment import Terms, deploy, make, open_job
from silograph.report.deployment import page
from silograph.report.words import number
from silograph.run.jobs import open_job as open_simulated
from silograph.run.jobs import run_in_memory
from silograph.run.plan import load

HEAD = 'format = 1\n{top}\n[data]\nfiles = ["east.csv", "north.csv", "west.csv"]\n{data}\n[method]\nname = "{name}"\n'
GRAPHS = HEAD.replace("{name}", "consensus_graph").replace("{data}", "") + "degree = 3.0\nrounds = 3\n"
UNITS = HEAD.replace("{data}", 'agent = "agent"\ntarget = "y"')
UNITS = UNITS.replace("{name}", "graph_federation") + "rounds = 2\nstep = 0.1\nclip = 0.5\n"
CLUSTERS = HEAD.replace("{data}", 'agent = "agent"\ntarget = "y"\ncluster = "kind"')
CLUSTERS = CLUSTERS.replace("{name}", "clustered_admm") + "rounds = 3\n"
START = HEAD.replace("{data}", 'target = "kind"\nclasses = ["a", "b"]')
START = START.replace("{name}", "private_meta") + "rounds = 2\nrate = 0.5\nhidden = [5]\n"
BUDGET = "[privacy]\nepsilon = 8.0\ndelta = 1e-3\n"
PER_ROUND = GRAPHS.replace("degree = 3.0", 'solver = "paper"\nbeta = 0.05\nnu = 3.0\nlambda = 0.05')

PLANS = {
    "graphs": GRAPHS,
    "graphs, a budget": GRAPHS + BUDGET,
    "graphs, a budget, secure sum": GRAPHS.replace("rounds = 3\n", "") + BUDGET + 'mode = "secure-sum"\n',
    "graphs, a budget, per round": PER_ROUND + BUDGET + 'mode = "per-round"\nclip = 6.0\n',
    "units": UNITS,
    "units, masks": UNITS + 'masks = "protocol"\n',
    "units, a budget": UNITS + BUDGET,
    "units, a budget, trusting": UNITS + 'masks = "none"\n' + BUDGET,
    "clusters": CLUSTERS,
    "clusters, found": CLUSTERS + "find = 2\n",
    "clusters, records": CLUSTERS + 'step = "linearised"\nclip = 1.0\n' + BUDGET,
    "clusters, clients": CLUSTERS + 'clip = 1.0\nmasks = "protocol"\n' + BUDGET + 'protect = "clients"\n',
    "a start": START,
    "a start, a budget": START + BUDGET,
}


def write_plan(folder: Path, text: str, top: str = "") -> Path:
    """A plan with its tables beside it: two clusters of three agents each in every one."""
    rng = np.random.default_rng(3)
    for name in ("east", "north", "west"):
        rows = rng.normal(size=(600, 5))
        kind = np.arange(600) // 100 % 2
        if "agent" in text:
            lines = ["agent,kind,a,b,c,d,y"] if "cluster =" in text else ["agent,a,b,c,d,y"]
            label = [f"{'ab'[k]}," if "cluster =" in text else "" for k in kind]
            lines += [
                f"{name} {k // 100},{label[k]}{','.join(map(str, row[:4]))},{row[0] > 0:d}"
                for k, row in enumerate(rows)
            ]
        elif "target" in text:
            lines = ["a,b,c,d,e,kind", *(f"{','.join(map(str, row))},{'ab'[int(row[0] > 0)]}" for row in rows)]
        else:
            lines = ["a,b,c,d,e", *(",".join(map(str, row)) for row in rows)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (folder / "plan.toml").write_text(text.replace("{top}", top))
    return folder / "plan.toml"


def pages(folder: Path, text: str, top: str = "", **terms) -> dict[str | None, str]:
    """By organisation; None is the server's."""
    path = write_plan(folder, text, top)
    deployment = make(load(path), folder, Terms("127.0.0.1:8765", **terms))
    told, forecast = json.loads(deployment.to_bytes()), open_job(deployment, folder).forecast()
    return {
        organisation: page(told, deployment.digest, forecast, organisation)
        for organisation in (None, "east", "north", "west")
    }


@pytest.mark.parametrize("name", PLANS)
def test_what_leaves_is_what_a_run_releases(name, tmp_path):
    text = PLANS[name]
    if "private_meta" in text:
        pytest.importorskip("torch")
    told = table(pages(tmp_path, text)["north"], "What leaves")[1:-1]  # the last row is about the ledger's rows
    told = [row for row in told if not row[0].startswith("keys of the round")]
    _, door = run_in_memory(open_simulated(load(tmp_path / "plan.toml"), tmp_path), seed=1)
    ours = [row for row in door.ledger.rows if row.silo.split("/")[0] == "north" and row.observer != "other servers"]
    if "trusting" in name:  # what the server does with it is another story
        ours = [row for row in ours if row.observer == "own server"]
    sizes = {int(match[1].replace(",", "")) for row in told if (match := re.match(r"([\d,]+) number", row[2]))}
    assert sizes == {row.dim for row in ours}
    bare = {"no protection" in row[1] or "in the clear" in row[1] or "no noise" in row[1] for row in told}
    assert bare == {row.mechanism == "reveal" for row in ours}


@pytest.mark.parametrize("name", PLANS)
def test_pages_stand_alone_and_say_the_whole_way(name, tmp_path):
    if "private_meta" in PLANS[name]:
        pytest.importorskip("torch")
    made = pages(tmp_path, PLANS[name])
    extras = "deploy,neural" if "start" in name else "deploy"
    for organisation, html in made.items():
        refuse_requests(html)
        words = Page(html).text
        assert f'pip install "silograph[{extras}]"' in words
        if organisation is None:
            steps = [
                "server/ca.crt",
                "ca.key",
                "nodes/west.enrolment.json",
                "silograph serve server -o out",
                "watch out",
            ]
        else:
            steps = [f"sha256sum {organisation}/deployment.json", f"{organisation}/ca.crt"]
            steps += [f"silograph {verb} {organisation} --data {organisation}.csv" for verb in ("check", "enrol")]
            steps += [f"silograph join {organisation}"]
        places = [words.index(step) for step in steps]
        assert places == sorted(places)


def test_an_organisation_reads_its_own_cost_and_the_operator_everybodys(tmp_path):
    made = pages(tmp_path, PLANS["clusters, records"])
    (own,) = table(made["north"], "Guarantees")[1:]
    assert "north/north 0" in own[0]
    assert "east" not in own[0]
    assert own[1] == "ε = 8 at δ = 0.001"
    assert table(made[None], "Guarantees")[1][0] == "all 18"


@pytest.mark.parametrize(
    ("name", "words", "never"),
    [
        ("graphs", ["No protection", "ε is infinite against everybody"], ["Your machine keeps the budget"]),
        ("graphs, a budget", ["Private", "Your machine keeps the budget", "everything that would cost more"], ["∞"]),
        (
            "units, masks",
            ["No protection", "Masks hide", "no noise", "and subtract them"],
            ["also from a dishonest one"],
        ),
        ("units, a budget", ["only under masks", "not how many records an agent has", "a dishonest one"], ["∞"]),
        (
            "units, a budget, trusting",
            ["Private in part", "trust the operator to add the noise"],
            ["everything that would cost"],
        ),
    ],
)
def test_protection_is_said_as_it_is(name, words, never, tmp_path):
    text = Page(pages(tmp_path, PLANS[name])["east"]).text
    assert all(word in text for word in words)
    assert not any(word in text for word in never)


def test_a_rehearsal_promises_nothing_and_plain_is_red(tmp_path):
    html = pages(tmp_path, PLANS["graphs, a budget"], top="seed = 7", tls=False)["east"]
    assert "whoever knows it can remove the noise" in Page(html).text
    assert '<div class="verdict none"><strong>Rehearsal: no protection' in html
    assert '<div class="verdict none"><strong>PLAIN: nothing is encrypted' in html
    assert '<span class="none">PLAIN</span>' in html
    assert "verdict full" not in html
    secure = pages(tmp_path, PLANS["graphs, a budget"])["east"]
    assert "PLAIN" not in secure
    assert "verdict full" in secure


def test_rounds_and_terms_are_those_that_hold(tmp_path):
    for name in ("graphs", "graphs, a budget, per round", "units", "clusters", "a start"):
        if name == "a start":
            pytest.importorskip("torch")
        for text in (PLANS[name], re.sub(r"\nrounds = \d+", "", PLANS[name])):
            html = pages(tmp_path, text, minimum=2, deadline=45.0, patience=99.0)["west"]
            deployment = make(load(tmp_path / "plan.toml"), tmp_path, Terms("127.0.0.1:8765"))
            stated = re.search(r"<dt>Rounds</dt><dd>([^<]*)</dd>", html)[1]
            job = open_job(deployment, tmp_path)
            once = job.plan.method.name == "consensus_graph" and job.plan.method.learner == "likelihood"
            assert stated.endswith("one exchange" if once else number(job.most_rounds))
            assert "<dd>45 s</dd>" in html
            assert "<dd>99 s</dd>" in html


def test_the_digest_on_the_page_is_that_of_the_file(tmp_path):
    path = write_plan(tmp_path, PLANS["graphs, a budget"])
    deploy(load(path), tmp_path, tmp_path / "goal", Terms("127.0.0.1:8765"), page)
    for folder in ("server", "east"):
        content = (tmp_path / "goal" / folder / "deployment.json").read_bytes()
        assert hashlib.sha256(content).hexdigest() in (tmp_path / "goal" / folder / "README.html").read_text()


def test_a_plan_that_protects_persons_says_persons(tmp_path):
    path = write_plan(tmp_path, PLANS["graphs, a budget"])
    deployment = make(load(path), tmp_path, Terms("127.0.0.1:8765"))
    told, forecast = json.loads(deployment.to_bytes()), open_job(deployment, tmp_path).forecast()
    told["plan"] = told["plan"].replace("[data]\n", '[data]\nunit_column = "patient"\n')
    text = Page(page(told, deployment.digest, forecast, "east")).text
    assert "over the whole run about one person, with all signals of theirs." in text
    assert "one signal" not in text


def test_names_are_text_on_the_page_and_in_a_shell(tmp_path):
    path = write_plan(tmp_path, PLANS["graphs, a budget"])
    deployment = make(load(path), tmp_path, Terms("127.0.0.1:8765"))
    forecast = open_job(deployment, tmp_path).forecast()

    def renamed(name: str) -> str:
        told = json.loads(deployment.to_bytes())
        told["facts"]["organisations"][0]["name"] = name
        told["plan"] = deployment.plan_text.replace('"east.csv"', json.dumps(f"{name}.csv"))
        return page(told, deployment.digest, forecast, name)

    assert "silograph join 'St. Mary'\"'\"'s'" in Page(renamed("St. Mary's")).text
    assert "--data 'St. Mary'\"'\"'s.csv'" in Page(renamed("St. Mary's")).text
    refuse_requests(renamed(NASTY))
