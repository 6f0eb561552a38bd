"""What a release says about itself: the same version and the same needs wherever they stand."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPE = (ROOT / "conda/meta.yaml").read_text()


def plain(need):
    return re.sub(r"\s", "", need)


def test_the_version_is_one():
    assert re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)[1] == PROJECT["version"]
    assert re.search(r'version = "(.+?)"', RECIPE)[1] == PROJECT["version"]


def test_conda_installs_what_pip_installs():
    asked = {plain(line[6:]) for line in RECIPE.splitlines() if line.startswith("    - ")}
    assert asked == {*map(plain, PROJECT["dependencies"]), "python>=3.11"}


@pytest.mark.parametrize("need", PROJECT["dependencies"])
def test_the_lock_file_has_every_need_as_it_was_tested_and_with_hashes(need):
    name = re.match(r"[\w-]+", need)[0]
    tested = re.search(rf"^{name}==.+$", (ROOT / "constraints.txt").read_text().replace("_", "-"), re.M | re.I)[0]
    locked = re.search(rf"^{name}==(\S+) \\\n    --hash=sha256:[0-9a-f]{{64}}", (ROOT / "lock.txt").read_text(), re.M)
    assert locked is not None
    assert f"{name}=={locked[1]}" == tested.lower()
