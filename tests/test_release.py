"""What a release says about itself: the same version and the same needs wherever they stand."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPE = (ROOT / "conda/meta.yaml").read_text()
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


def plain(need):
    return re.sub(r"\s", "", need)


def test_the_version_is_one():
    """pyproject.toml has it; a citation must repeat it, and the changelog says what is in it."""
    assert re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)[1] == PROJECT["version"]
    assert 'load_file_data("../pyproject.toml", from_recipe_dir=True)["project"]["version"]' in RECIPE
    assert re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[0] == PROJECT["version"]


def test_conda_installs_what_pip_installs():
    asked = {plain(line[6:]) for line in RECIPE.splitlines() if line.startswith("    - ")}
    assert asked == {*map(plain, PROJECT["dependencies"]), "python>=3.11"}


def test_every_need_is_a_range_with_a_lower_bound():
    """Exact versions are for constraints.txt; `make test-lowest` installs the lower bounds."""
    extras = [need for needs in PROJECT["optional-dependencies"].values() for need in needs]
    assert not [need for need in PROJECT["dependencies"] if not re.match(r"^[\w-]+>=[\d.]+(,<[\d.]+)?$", need)]
    assert not [need for need in extras if re.search(r"==[\d.]+$", need)]


@pytest.mark.parametrize("need", PROJECT["dependencies"])
def test_the_lock_file_has_every_need_as_it_was_tested_and_with_hashes(need):
    name = re.match(r"[\w-]+", need)[0]
    tested = re.search(rf"^{name}==.+$", (ROOT / "constraints.txt").read_text().replace("_", "-"), re.M | re.I)[0]
    locked = re.search(rf"^{name}==(\S+) \\\n    --hash=sha256:[0-9a-f]{{64}}", (ROOT / "lock.txt").read_text(), re.M)
    assert locked is not None
    assert f"{name}=={locked[1]}" == tested.lower()


@pytest.mark.skipif(not WORKFLOWS, reason="an unpacked source archive has no workflows")
def test_workflows_call_what_is_there_on_every_python_that_is_named():
    """`make lint-workflows` holds them to GitHub's schema."""
    yaml = pytest.importorskip("yaml")
    jobs = {path.stem: yaml.safe_load(path.read_text())["jobs"] for path in WORKFLOWS}
    commands = [step.get("run", "") for file in jobs.values() for job in file.values() for step in job["steps"]]
    called = {word for line in commands if line.startswith("make ") for word in line.split()[1:] if "=" not in word}
    assert {"dist", "test-wheel", "test-lowest", "sbom", "lint-workflows"} <= called <= TARGETS
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert jobs["test"]["wheel"]["strategy"]["matrix"]["python"] == named
    assert jobs["release"]["publish"]["needs"] == "build"
    assert jobs["release"]["publish"]["permissions"]["id-token"] == "write"
