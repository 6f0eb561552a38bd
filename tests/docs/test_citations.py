"""What the documentation cites is there: tests, files and names."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def functions(path):
    return set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def cited(text):
    """(file, test): by full name, or by name alone in a table whose head names the file."""
    home = None
    for line in text.splitlines():
        if line.startswith("## "):
            home = None
        if found := re.search(r"test in `(tests/[\w/]+\.py)`", line):
            home = found[1]
        yield from re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", line)
        yield from ((home, name) for name in re.findall(r"`(test_\w+)`", line))


def test_every_test_that_the_page_on_papers_cites_is_there():
    pairs = list(cited((ROOT / "docs" / "papers.md").read_text(encoding="utf-8")))
    assert len(pairs) > 60
    missing = [(file, name) for file, name in pairs if file is None or name not in functions(ROOT / file)]
    assert not missing


def test_every_line_of_the_page_on_papers_shows_its_test():
    lines = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8").splitlines()
    verdicts = [line for line in lines if line.startswith("| ") and not line.startswith(("| statement", "| ---"))]
    assert len(verdicts) > 30
    assert all("test_" in line for line in verdicts)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page):
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"\b((?:tests|docs|examples|benchmarks|src)/[\w/.-]+\.(?:py|md|svg|sh|toml))", text))
    assert not [name for name in named if not there(name)]


def there(name):
    """The site makes examples/NAME.md of what examples/NAME says of itself."""
    return (ROOT / name).exists() or (ROOT / name).with_suffix("").joinpath("README.md").exists()


def test_every_example_has_its_line_and_command():
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    scripts = [*(ROOT / "examples").rglob("*.py"), *(ROOT / "examples").rglob("*.sh")]
    examples = [path for path in scripts if path.stem != "worked"]  # which is what some of them share
    assert len(examples) > 5
    assert not [path for path in examples if f" {path.relative_to(ROOT)}" not in text.replace("`", " ")]


COMMAND = re.compile(r"python -m\s+benchmarks\.(\w+)((?:\s+(?!-m\b)--?[\w-]+(?:\s+[\w/.]+)?)*)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_benchmarks_that_a_page_names_are_there_with_their_options(page):
    for name, words in COMMAND.findall(page.read_text(encoding="utf-8")):
        source = (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
        given = words.split()
        values = [value for option, value in pairwise(given) if option == "--only" and not value.isupper()]
        missing = [word for word in [*values, *(word for word in given if word[0] == "-")] if f'"{word}"' not in source]
        assert not missing, f"benchmarks/{name}.py does not know {missing}"


def test_the_page_of_benchmarks_lists_every_benchmark_that_a_page_names():
    listed = set(re.findall(r"`benchmarks\.(\w+)`", (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")))
    named = {name for page in PAGES for name, _ in COMMAND.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 10
    assert not named - listed
