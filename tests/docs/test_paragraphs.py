"""Paragraphs stand by themselves: no page has spaces between two sentences where a paragraph began once."""

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]


def run_together(page):
    """Where spaces stand between sentences, outside code and tables: there a paragraph once began."""
    texts = [token.content for token in MarkdownIt("commonmark").enable("table").parse(page) if token.type == "inline"]
    prose = [re.sub(r"`[^`]+`", "`", text) for text in texts]
    return [text[max(0, at.start() - 30) : at.end() + 30] for text in prose for at in re.finditer(r"\S {2,}\S", text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_paragraph_of_a_page_ran_into_the_one_before(page):
    assert not run_together(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("mark", ["", "- ", "1. ", "> "])
def test_a_lost_paragraph_is_found(mark):
    assert run_together(f"{mark}One ends here.  Another begins.\n")
    assert not run_together(f"{mark}One ends here.\n\nAnother begins.\n")


def test_spaces_in_code_and_tables_are_no_lost_paragraphs():
    assert not run_together(
        "`a  b`\n\n    x = 1  # one\n\n```\nx = 1.  # one\n```\n\n| a.  | b   |\n| --- | --- |\n| a.  | b   |\n"
    )
