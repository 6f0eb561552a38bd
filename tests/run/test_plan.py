"""Plans are data: they round-trip, and nonsense is refused with words."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from silograph.core.errors import InputError
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan, Privacy
from silograph.run.plan import dumps, load, parse

FILES = Data(("a.csv", "b.csv"))


@pytest.mark.parametrize(
    "plan",
    [
        GraphPlan(FILES),
        GraphPlan(FILES, ConsensusGraph(degree=6.0, threshold=0.1), Privacy(2.0, 1e-6), engine="silowise", seed=3),
        GraphPlan(
            FILES,
            ConsensusGraph(solver="paper", beta=1.0, nu=2.0, lam=0.1, form="S0"),
            Privacy(1.0, mode="per-round", clip=2.0),
        ),
        GraphPlan(FILES, privacy=Privacy(1.0, mechanism="laplace")),
    ],
)
def test_a_written_plan_reads_back_the_same(plan, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(dumps(plan))
    assert load(path) == plan


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "format 1"),
        ({"sed": 3}, "found 'sed'. Did you mean seed"),
        ({"seed": -1}, "from 0 up"),
        ({"seed": "x"}, "whole number"),
        ({"seed": True}, "whole number"),
        ({"engine": "gpu"}, "one of vector, silowise"),
        ({"topology": "ring"}, "star"),
        ({"data": {}}, "at least one table"),
        ({"data": {"files": "a.csv"}}, "a list of names"),
        ({"data": 3}, "a section"),
        ({"method": {"lam": 1.0}}, "found 'lam'. Did you mean lambda"),
        ({"method": {"beta": 0.0}}, "above 0"),
        ({"method": {"beta": float("nan")}}, "above 0"),
        ({"method": {"beta": "1"}}, "a number"),
        ({"method": {"beta": 1.0, "degree": 3}}, "found degree and beta"),
        ({"method": {"density": 0.2, "edges": 3}}, "found density and edges"),
        ({"method": {"density": 1.5}}, "at most 1"),
        ({"method": {"edges": 0}}, "above 0"),
        ({"method": {"consensus_density": 0.2, "lambda": 1.0}}, "no lambda"),
        ({"method": {"coupling_by": "held-out", "nu": 1.0}}, "no nu"),
        ({"method": {"coupling_by": "held-out", "solver": "paper"}}, "exact solver"),
        ({"method": {"resamples": -1}}, "from 0 to"),
        ({"method": {"coupling_by": "held-out", "consensus_density": 0.2}}, "no consensus_density"),
        ({"privacy": {"epsilon": 1, "mode": "secure-sum"}, "method": {"consensus_density": 0.2}}, "Use density"),
        ({"data": {"files": ["a"], "neighbours": 0}}, "from 1 up"),
        ({"data": {"files": ["a"], "search": "exact"}}, "how many neighbours"),
        ({"data": {"files": ["a"], "neighbours": 3, "candidates": "c.csv"}}, "found both"),
        ({"privacy": {"epsilon": 1}, "data": {"files": ["a"], "neighbours": 3}}, "in the clear"),
        ({"privacy": {"epsilon": 1}, "method": {"coupling_by": "held-out"}}, "in the clear"),
        ({"privacy": {"epsilon": 1}, "method": {"resamples": 10}}, "unaccounted"),
        ({"method": {"threshold": -1}}, "from 0 up"),
        ({"method": {"solver": "paper", "rounds": 0}}, "from 1 up"),
        ({"method": {"solver": "paper", "momentum": 1.0}}, "momentum"),
        ({"method": {"solver": "paper", "zeta": 0}}, "above 0"),
        ({"method": {"step": 0.1}}, "solver 'paper'"),
        ({"privacy": {"delta": 1e-6}}, "epsilon"),
        ({"privacy": {"epsilon": 0}}, "above 0"),
        ({"privacy": {"epsilon": float("inf")}}, "above 0"),
        ({"privacy": {"epsilon": 1, "delta": 1.0}}, "between 0 and 1"),
        ({"privacy": {"epsilon": 1, "clip": 0}}, "above 0"),
        ({"privacy": {"epsilon": 1, "delta": 1e-6, "mechanism": "laplace"}}, "Laplace"),
        ({"privacy": {"epsilon": 1, "mode": "per-round"}}, "solver 'paper'"),
        ({"privacy": {"epsilon": 1, "mode": "per-round"}, "method": {"solver": "paper"}}, "beta, nu, lambda, clip"),
        ({"privacy": {"epsilon": 1}, "data": {"files": ["a"], "standardise": True}}, "standardis"),
    ],
)
def test_nonsense_is_refused_with_words(change, words):
    with pytest.raises(InputError, match=words):
        parse({"format": 1, "data": {"files": ["a.csv"]}, **change}, "plan.toml")


def test_files_that_are_no_plan(tmp_path):
    with pytest.raises(InputError, match="there is none"):
        load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("a = [")
    with pytest.raises(InputError, match="TOML"):
        load(tmp_path / "bad.toml")
    (tmp_path / "latin.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="readable"):
        load(tmp_path / "latin.toml")
    with pytest.raises(InputError, match="an ordinary file"):
        load(tmp_path)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from(["format", "seed", "engine", "topology", "data", "method", "privacy", "other"])
fields = st.sampled_from(
    ["files", "nodes_in", "solver", "degree", "beta", "lambda", "epsilon", "delta", "mode", "clip", "x"]
)


@given(st.dictionaries(keys, values | st.dictionaries(fields, values, max_size=4), max_size=6))
@settings(derandomize=True, deadline=None, max_examples=600)
def test_any_content_is_a_plan_or_a_clear_error(content):
    with contextlib.suppress(InputError):
        parse({"format": 1, "data": {"files": ["a.csv"]}, **content}, "plan.toml")
