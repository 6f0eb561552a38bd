"""What the site writes while it is built, so that it cannot go stale: commands, gallery, examples, benchmarks."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.main import get_command
from typer.utils import get_params_from_function

from silograph.cli import app

ROOT = Path(__file__).parent.parent
GALLERY = ROOT / "examples" / "gallery"
SCRIPTS = ("consensus_graph", "private_graph", "graph_federation", "clustered_models", "meta_learning")
EXAMPLES = ("brain", "weather", "traffic", "views", "hospitals", "regions")
#: Figures that pages quote from a benchmark: the page, and how its table begins.
QUOTED = {
    "dense_graph": [("solver", "| nodes | ms | graph-structure-learning")],
    "gaps": [("gaps", "| worlds | 200 rows, complete |")],
    "graph_quality": [("choosing", "| rows a site | joint likelihood |")],
    "model_gaps": [("tables", "| gaps | epsilon |")],
    "private_graph": [
        ("private-graphs", "| signals a site | epsilon | q = .5 |"),
        ("private-graphs", "| graph, sites | epsilon |"),
        ("person-votes", "| persons | epsilon | F |"),
    ],
    "sparse_graph": [("solver", "| nodes | candidates |")],
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs before pages are read."""
    files.append(File.generated(config, "cli.md", content=commands_page()))
    pictures = Path(config.site_dir).parent / "gallery"
    pictures.mkdir(parents=True, exist_ok=True)
    files.append(File.generated(config, "gallery.md", content=gallery_page(pictures)))
    for name in SCRIPTS:
        files.append(File.generated(config, f"gallery/{name}.svg", abs_src_path=str(pictures / f"{name}.svg")))
    for name in EXAMPLES:
        files.append(File.generated(config, f"examples/{name}.md", content=example_page(name)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Called by mkdocs with every page."""
    return markdown + all_benchmarks() if page.file.src_uri == "benchmarks.md" else markdown


def on_post_page(output: str, **_: object) -> str:
    """The theme's search is a dialog without a name, which readers of screens need."""
    search = 'data-md-component="search" role="dialog"'
    return output.replace(search, f'{search} aria-label="Search"')


# ---- commands --------------------------------------------------------------------------------------------------------


def commands_page() -> str:
    """Every command with its arguments and options, as the program itself knows them."""
    group = get_command(app)
    assert isinstance(group, click.Group)
    shown = {name: command for name, command in sorted(group.commands.items()) if not command.hidden}
    listing = [f"| [`{name}`](#{name}) | {_cell(each.get_short_help_str(200))} |" for name, each in shown.items()]
    head = [
        "# Commands",
        "",
        "This page is made from the program; `silograph COMMAND --help` shows a part of it in the terminal.",
        "",
        "Every command that prints a result takes `--json`: one JSON object on standard output. Exit codes: 0; 2 for",
        "bad input; 1 for a failure; 3 for a promise that an audit refutes; 130 for Ctrl-C; 143 for SIGTERM.",
        "`silograph --install-completion` teaches your shell to complete commands and options.",
        "",
        "| command | does |",
        "| --- | --- |",
        *listing,
    ]
    return "\n".join([*head, *(line for name, command in shown.items() for line in _command(name, command))]) + "\n"


def _command(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"silograph {name}")
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    # Click forgets what typer was told of an argument, so that is read from the function itself.
    told = get_params_from_function(command.callback)
    yield from ("", f"## {name}", "", command.help or "", "")
    usage = " ".join(p.make_metavar(context) for p in arguments)
    required = " ".join(f"{p.opts[0]} {_kind(p).upper()}" for p in options if p.required)
    yield from ("```text", " ".join(f"silograph {name} {usage} {required} [OPTIONS]".split()), "```", "")
    yield from ("| argument or option | takes | default | means |", "| --- | --- | --- | --- |")
    for p in arguments:
        yield f"| `{p.make_metavar(context)}` | {_kind(p)} | {_default(p)} | {_cell(told[p.name].default.help or '')} |"
    for p in options:
        names = ", ".join(f"`{name}`" for name in (*p.opts, *p.secondary_opts))
        yield f"| {names} | {_kind(p)} | {_default(p)} | {_cell(p.help or '')} |"


def _kind(p: click.Parameter) -> str:
    if isinstance(p, click.Option) and p.is_flag:
        return ""
    if isinstance(p.type, click.Choice):
        return " or ".join(f"`{choice}`" for choice in p.type.choices)
    kinds = {"float": "number", "integer": "whole number", "integer range": "whole number", "text": "text"}
    return kinds.get(p.type.name, "path")


def _default(p: click.Parameter) -> str:
    if p.required:
        return "required"
    if p.default is None or (isinstance(p, click.Option) and p.is_flag):
        return ""
    return f"`{p.default}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# ---- gallery ---------------------------------------------------------------------------------------------------------


def gallery_page(pictures: Path) -> str:
    """Run every script of the gallery; its words, its picture, what it printed, and how it was made."""
    head = [
        "# Gallery",
        "",
        "One script for each method. The pictures were drawn while this site was built. To draw one yourself:",
        "",
        "```sh",
        f".venv/bin/python examples/gallery/{SCRIPTS[0]}.py picture.svg",
        "```",
    ]
    return "\n".join([*head, *(line for name in SCRIPTS for line in _shown(name, pictures / f"{name}.svg"))]) + "\n"


def _shown(name: str, picture: Path) -> Iterator[str]:
    source = (GALLERY / f"{name}.py").read_text(encoding="utf-8")
    title, _, words = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
    printed = run_script(GALLERY / f"{name}.py", picture)
    yield from ("", f"## {title.rstrip('.')}", "", words.strip(), "")
    yield from (f"![{title}](gallery/{name}.svg)", "", "```text", printed.strip(), "```", "")
    yield from (f'??? example "examples/gallery/{name}.py"', "", "    ```python")
    yield from (f"    {line}".rstrip() for line in source.splitlines())
    yield from ("    ```",)


def run_script(script: Path, picture: Path) -> str:
    """In this process, so that what scripts share is imported once; returns what it printed."""
    out = io.StringIO()
    with (
        mock.patch.object(sys, "argv", [str(script), str(picture)]),
        mock.patch.object(sys, "path", [str(script.parent), *sys.path]),
        mock.patch.dict(os.environ, MPLBACKEND="agg"),
        contextlib.redirect_stdout(out),
    ):
        runpy.run_path(str(script), run_name="__main__")
    return out.getvalue()


# ---- examples on real data -------------------------------------------------------------------------------------------


def example_page(name: str) -> str:
    """An example's README, with its links as they are seen from here."""
    text = (ROOT / "examples" / name / "README.md").read_text(encoding="utf-8")
    text = text.replace("](../../docs/", "](../")
    return re.sub(r"\[([^]]+)\]\([\w.]+\.(?:sh|py)\)", rf"`examples/{name}/\1`", text)


# ---- benchmarks ------------------------------------------------------------------------------------------------------


def all_benchmarks() -> str:
    """What every benchmark measures and the command that prints it; the figures that a page quotes, and those that
    `make bench` left."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))  # benchmarks are no part of the package, and mkdocs forgets what a hook adds
    from benchmarks import page
    from benchmarks.__main__ import RESULTS, all_names

    lines: list[str] = []
    for name in all_names():
        title, text = page.described(name)
        lines += ["", f"### {title.rstrip('.')}", "", text]
        lines += ["", "```sh", f".venv/bin/python -m benchmarks.{name}", "```"]
        for where in QUOTED.get(name, []):
            lines += ["", *quoted(*where)]
        if (stored := RESULTS / f"{name}.json").exists():
            lines += ["", *page.table(name, json.loads(stored.read_text()))]
    return "\n".join(lines) + "\n"


def quoted(name: str, beginning: str) -> list[str]:
    """A table as it stands on a page, and where that is."""
    rest = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").split(f"\n{beginning}")
    assert len(rest) == 2, f"docs/{name}.md has {len(rest) - 1} tables that begin with {beginning}"
    table = f"{beginning}{rest[1]}".split("\n\n")[0]
    return [f"Measured, as [this page]({name}.md) explains:", "", table]
