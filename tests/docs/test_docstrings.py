"""Every public name has an example in its docstring, which runs and prints what it shows."""

import doctest

import pytest
from blocks import FLAGS

import silograph

NAMES = (
    "ClusteredModels",
    "ConsensusGraph",
    "PrivateMetaClassifier",
    "PrivateMetaRegressor",
    "RegionModels",
    "open_run",
)


def test_all_are_here_but_an_error_and_what_open_run_returns():
    assert {*NAMES, "FinishedRun", "SilographError", "__version__"} == set(silograph.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_and_prints_what_it_shows(name, tmp_path, monkeypatch):
    if name.startswith("PrivateMeta"):
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest(getattr(silograph, name).__doc__, {}, name, name, 0)
    told = []
    failed, tried = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=told.append)
    assert not failed, "".join(told)
    assert tried
