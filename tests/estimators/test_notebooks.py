"""What a notebook shows: estimators before and after fitting, and finished runs opened again."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
import sklearn

from pages import Page
from silograph import ClusteredModels, ConsensusGraph, cli, open_run
from silograph.core.errors import DamageError, InputError

BOLD = "<i>west<i>"


@pytest.fixture(scope="module")
def sites():
    return [np.random.default_rng(k).normal(size=(60, 6)) for k in range(3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, sites):
    """A run by the command line."""
    home = tmp_path_factory.mktemp("runs")
    for name, table in zip("abc", sites, strict=True):
        np.savetxt(home / f"{name}.csv", table, delimiter=",", header="n0,n1,n2,n3,n4,n5", comments="")
    words = ["learn", *(str(home / f"{name}.csv") for name in "abc"), "-o", str(home / "out"), "--degree", "2"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["silograph", *words, "--json"])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
    assert not stopped.value.code
    return home / "out"


def shown(estimator):
    """As Jupyter asks: the bundle and the HTML are the same, but for a number that scikit-learn counts up."""
    html, other = estimator._repr_mimebundle_()["text/html"], estimator._repr_html_()
    assert re.sub(r"\d+", "", html) == re.sub(r"\d+", "", other)
    return html


@pytest.mark.parametrize("estimator", [ConsensusGraph(degree=3), ClusteredModels(find=2)])
def test_before_fitting_it_is_scikit_learns_own_diagram(estimator):
    assert "sk-top-container" in shown(estimator)
    with sklearn.config_context(display="text"):
        assert "text/html" not in estimator._repr_mimebundle_()
        assert not hasattr(estimator, "_repr_html_")


def test_a_fitted_graph_shows_its_sites_edges_gap_cost_and_picture(sites):
    model = ConsensusGraph(degree=2, random_state=0).fit(sites, names=["north", "south", BOLD])
    html = shown(model)
    reader = Page(html)
    assert "<i>" not in html
    assert BOLD in reader.text
    assert reader.tags["svg"] == 1
    assert reader.tags["circle"] == 6
    edges = int((model.consensus_ > 0).sum() / 2)
    assert f"consensus edges {edges}" in " ".join(reader.text.split())
    assert "certified gap" in reader.text
    assert reader.text.count("no protection") == 3
    assert "sk-top-container" not in html


def test_a_fitted_graph_with_a_budget_shows_epsilon_rounded_up():
    tables = [np.random.default_rng(k).normal(size=(4000, 4)) for k in range(2)]
    model = ConsensusGraph(degree=2, epsilon=4.0, delta=1e-5, random_state=0).fit(tables)
    told = Page(shown(model)).text
    spent = {guarantee["epsilon"] for guarantee in model.privacy_["guarantees"]}
    assert max(spent) <= 4.0
    assert "no protection" not in told
    assert "0.00001" in told or "10⁻⁵" in told


def test_fitted_models_show_clients_and_clusters():
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(5, 2)), rng.normal(size=5)) for _ in range(6)]
    model = ClusteredModels(rounds=3, tau=0.0).fit(clients, clusters=["a", "b"] * 3)
    told = " ".join(Page(shown(model)).text.split())
    assert "clients 6" in told
    assert "clusters 2" in told


def test_a_start_and_a_personal_model_say_which_they_are():
    pytest.importorskip("torch")
    from silograph import PrivateMetaRegressor

    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(8, 2)), rng.normal(size=8)) for _ in range(3)]
    model = PrivateMetaRegressor("linear", rounds=2, random_state=0)
    assert "sk-top-container" in shown(model)
    model.fit(clients)
    assert "the shared start" in Page(shown(model)).text
    assert "a client's own" in Page(shown(model.personalise(*clients[0]))).text


def test_a_finished_run_is_opened_with_its_graphs_and_ledger(folder):
    run = open_run(folder)
    assert set(run.graphs) == {"consensus", "a", "b", "c"}
    written = nx.read_graphml(folder / "consensus.graphml")
    graph = run.graph()
    assert set(graph.nodes) == set(written.nodes)
    assert {frozenset(e): d["weight"] for *e, d in graph.edges(data=True)} == {
        frozenset(e): d["weight"] for *e, d in written.edges(data=True)
    }
    assert run.result["rounds"] == json.loads((folder / "result.json").read_text())["rounds"]
    assert len(run.ledger) == len((folder / "ledger.jsonl").read_text().splitlines())
    assert "[method]" in run.plan
    reader = Page(run._repr_html_())
    assert reader.tags["svg"] == 1
    assert "certified gap" in reader.text
    assert repr(run) == f"FinishedRun(folder={folder!r})"
    with pytest.raises(InputError, match="one of consensus, a, b, c"):
        run.graph("nobody")


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(DamageError, match="no such folder"):
        open_run(tmp_path / "nothing")


def test_naming_it_is_light():
    code = "import silograph, sys; dir(silograph); print({'sklearn', 'networkx', 'jinja2', 'numba'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
