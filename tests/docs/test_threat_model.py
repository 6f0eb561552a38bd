"""The threat model names a test for every hostile action; each of them exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
ACTIONS = PAGE.partition("## Hostile actions")[2].partition("\n## ")[0]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def rows():
    lines = [line for line in ACTIONS.splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines if not line.startswith(("| ---", "| does"))]


def test_every_test_that_the_threat_model_names_exists():
    named = NAMED.findall(ACTIONS)
    assert len(named) > 30
    defined = {}
    for file, name in named:
        if file not in defined:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            defined[file] = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in defined[file], f"{file}::{name}"


def test_every_action_has_an_outcome_and_a_test_or_says_that_it_has_none():
    assert rows()
    for row in rows():
        assert len(row) == 3, row
        action, outcome, shown = row
        assert action
        assert outcome
        assert NAMED.search(shown) or shown == "none", row


def test_the_page_on_reporting_names_it_and_holds_no_address():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "docs/threat-model.md" in text
    assert "advisory" in text
    assert "@" not in text
