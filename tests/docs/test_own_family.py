"""The page docs/write-a-family.md: its package is installed outside the repository, and its commands are typed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from blocks import blocks

PAGE = Path(__file__).parents[2] / "docs" / "write-a-family.md"
pytestmark = pytest.mark.skipif(importlib.util.find_spec("setuptools") is None, reason="pip builds with setuptools")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Where the page's package is installed, and an environment that finds it."""
    base = tmp_path_factory.mktemp("family")
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        if block.title is not None:
            (base / "source" / block.title).parent.mkdir(parents=True, exist_ok=True)
            (base / "source" / block.title).write_text(block.text)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*install, "--target", base / "installed", base / "source"], check=True, capture_output=True)
    return base


def typed(base: Path, line: str) -> str:
    """What a command of the page prints."""
    here = os.environ.get("PYTHONPATH", "")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(base / "installed"), here])}
    _, *words = line.split()
    command = [sys.executable, "-c", "from silograph.cli import main; main()", *words]
    done = subprocess.run(command, cwd=base, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_of_the_page_work_for_a_family_of_another_package(place):
    (console,) = (block for block in blocks(PAGE.read_text(encoding="utf-8")) if block.kind == "console")
    lines = [line[2:] for line in console.text.splitlines() if line.startswith("$ silograph")]
    assert [line.split()[1] for line in lines] == ["sample", "privacy", "run", "report", "audit", "audit", "deploy"]
    told = {line: typed(place, line + (" --runs 200" if " audit " in line else "")) for line in lines}
    assert "epsilon 1, delta 1e-06" in told["silograph privacy tables/plan.toml"]
    result = json.loads((place / "out" / "result.json").read_text())
    assert result["values"].keys() == {"height", "weight", "age"}
    # Noise of 4.22 x 2 C / N at each of three sites of 500 records, and the records' own spread, leave a deviation of
    # .047 in the mean: .3 is more than six, a false alarm in a thousand million runs.
    assert all(abs(result["values"][name] - mean) < 0.3 for name, mean in (("height", 1), ("weight", 0), ("age", -1)))
    page = (place / "out" / "report.html").read_text()
    assert "learned the mean of every column" in page
    assert all("Not refuted" in told[f"silograph audit {what}"] for what in ("tables/plan.toml", "out"))
    assert len(json.loads((place / "out" / "audit.json").read_text())["audits"]) == 1
    assert 'href="#attacked"' in page
    assert (place / "deployment" / "north" / "README.html").exists()


def test_a_family_that_lacks_a_part_is_named_with_what_is_missing(place, tmp_path):
    broken = tmp_path / "installed"
    (broken / "lacking.dist-info").mkdir(parents=True)
    (broken / "lacking.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: lacking\nVersion: 1\n")
    (broken / "lacking.dist-info" / "entry_points.txt").write_text("[silograph.families]\nlacking = lacking:FAMILY\n")
    (broken / "lacking.py").write_text("class FAMILY:\n    OPTION, HELP = 'lacking', 'nothing'\n    write = None\n")
    (tmp_path / "plan.toml").write_text('format = 1\n[data]\nfiles = ["a.csv"]\n[method]\nname = "lacking"\n')
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(broken), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", "from silograph.cli import main; main()", "privacy", str(tmp_path / "plan.toml")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "family lacking: expected its part 'plan' with PLAN" in done.stderr
