"""The code blocks of a page: found, run in their order, and held to what they show.

A page is run in an empty folder. What its blocks are:

    python              run, all of a page in one namespace
    pycon               run likewise, and what it prints is compared, `...` standing for anything
    console             lines after `$ ` are commands; what they print is compared in the same way
    sh, or indented     commands alone, which must succeed; an indented block counts if it begins with a program's name
    any with title=     a file of that name, written and not run

A comment `<!-- not run: why -->` before a block leaves it out, `<!-- needs: module -->` where the module is missing.
"""

from __future__ import annotations

import contextlib
import doctest
import glob
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from markdown_it import MarkdownIt

from silograph.cli import main

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PROGRAMS = ("silograph", "make", "pip", "python", "export", "examples/hospitals/run.sh")
RUN = ("python", "pycon", "console", "sh")
_MARK = re.compile(r"<!--\s*(not run|needs):\s*(.+?)\s*-->", re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """A block of a page, from `line` on. `left_out` says why it is not run, `needs` which module it needs."""

    line: int
    kind: str
    text: str
    title: str | None = None
    left_out: str | None = None
    needs: str | None = None


def blocks(page: str) -> Iterator[Block]:
    """All blocks of a page that are code."""
    marks: dict[str, str] = {}
    for token in MarkdownIt("commonmark").parse(page):
        if token.type == "html_block" and (found := _MARK.search(token.content)):
            marks[found[1]] = " ".join(found[2].split())
        elif token.type in ("fence", "code_block"):
            assert token.map is not None
            kind, _, rest = token.info.strip().partition(" ")
            if token.type == "code_block" and token.content.split()[0] in PROGRAMS:
                kind = "sh"
            title = _TITLE.search(rest)
            if kind in RUN or title or marks:
                name = title[1] if title else None
                yield Block(token.map[0] + 1, kind, token.content, name, marks.get("not run"), marks.get("needs"))
            marks = {}


def run_page(path: Path) -> list[Block]:
    """Run a page's blocks in the present folder; returns those that were left out."""
    skipped = []
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(path.read_text(encoding="utf-8")):
        where = f"{path.name}, line {block.line}"
        if block.left_out or (block.needs and importlib.util.find_spec(block.needs) is None):
            skipped.append(block)
        elif block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.kind == "python":
            exec(compile("\n" * block.line + block.text, str(path), "exec"), names)
        elif block.kind == "pycon":
            _session(block, names, where)
        else:
            for command, shown in _commands(block):
                _command(command, shown, f"{where}: {command}")
    return skipped


def _session(block: Block, names: dict[str, Any], where: str) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, names, where, where, block.line)
    runner, told = doctest.DocTestRunner(optionflags=FLAGS), io.StringIO()
    failed, _ = runner.run(test, out=told.write, clear_globs=False)
    assert not failed, told.getvalue()
    names.update(test.globs)


def _commands(block: Block) -> Iterator[tuple[str, str | None]]:
    """Commands, each with what it is shown to print, if that is shown."""
    text = block.text.replace("\\\n", " ")
    if block.kind == "sh":
        yield from ((line.strip(), None) for line in text.splitlines() if line.strip() and line.strip()[0] != "#")
        return
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def _command(command: str, shown: str | None, where: str) -> None:
    code, out, err = _silograph(command) if command.startswith("silograph ") else _shell(command)
    refused = shown is not None and shown.startswith("silograph: ")  # shows how bad input is refused
    assert (code == 2) if refused else (code == 0), f"{where}\nexit code {code}\n{out}{err}"
    if shown is None:
        return
    came = err if refused else out
    checker, example = doctest.OutputChecker(), doctest.Example(command, shown or "\n")
    assert checker.check_output(example.want, came or "\n", FLAGS), (
        f"{where}\n{checker.output_difference(example, came, FLAGS)}"
    )


def _silograph(command: str) -> tuple[int, str, str]:
    """The real entry point in this process, because starting Python takes longer than most commands."""
    words = [w for word in shlex.split(command, comments=True) for w in (sorted(glob.glob(word)) or [word])]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return code, out.getvalue(), err.getvalue()


def _shell(command: str) -> tuple[int, str, str]:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr
