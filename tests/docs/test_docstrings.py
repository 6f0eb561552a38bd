"""Examples in docstrings run and print what they show; tests/docs/test_site.py asks for one in all that is shown."""

import doctest
import importlib
from pathlib import Path

import numpy as np
import pytest
from blocks import FLAGS

SOURCE = Path(__file__).parents[2] / "src"
MODULES = [path for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_examples_run_and_print_what_they_show(path, tmp_path, monkeypatch):
    """They know numpy as np, and the module's own names."""
    if path.match("estimators/meta.py"):
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    module = importlib.import_module(".".join(path.relative_to(SOURCE).with_suffix("").parts))
    own = {name: each for name, each in vars(module).items() if home(each) in (None, module.__name__)}
    tests = doctest.DocTestFinder().find(module, module.__name__, globs={"np": np, **own})
    told = []
    for test in tests:
        doctest.DocTestRunner(optionflags=FLAGS).run(test, out=told.append)
    assert not told, "".join(told)
    shown = [line for line in path.read_text(encoding="utf-8").splitlines() if line.lstrip().startswith(">>> ")]
    assert sum(len(test.examples) for test in tests) == len(shown)


def home(each):
    return getattr(each, "__module__", None)
