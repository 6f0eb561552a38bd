"""The command `people`: one file a person becomes one table a site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from silograph.cli.console import START, AsJson, register_in, say
from silograph.core.errors import InputError


def register(app: typer.Typer) -> None:
    register_in(app, START, people)


def people(
    folder: Annotated[
        Path, typer.Argument(help="Folder of a site, one file per person: NPY, NPZ, CSV, TSV, TXT or 1D.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The site's table: a new CSV or Parquet file.")],
    nodes: Annotated[Path | None, typer.Option(help="Text file with the names of the nodes, one per line.")] = None,
    column: Annotated[str, typer.Option(help="Name of the new column that says whose a row is.")] = "person",
    as_json: AsJson = False,
) -> None:
    """Make one table of a site's persons from one file per person; nothing leaves this machine.

    Then `silograph learn *.parquet --unit-column person --epsilon 1` protects persons. A file has a row for every
    moment and a column for every node; lengths may differ.
    """
    from silograph.core.files import write_atomically
    from silograph.data.person_files import read_site

    if out.suffix not in (".csv", ".parquet"):
        raise InputError(str(out), "a name that ends in .csv or .parquet", f"found {out.suffix or 'no suffix'}")
    if out.exists():
        raise InputError(str(out), "a new file", "it already exists", "Choose another name.")
    names = None if nodes is None else _lines(nodes)
    made = read_site(folder, column, names)
    table = made.table
    content = table.to_csv(index=False, lineterminator="\n").encode() if out.suffix == ".csv" else table.to_parquet()
    write_atomically(out, content)
    persons = int(table[column].nunique())
    told = {"table": str(out), "persons": persons, "rows": len(table), "nodes": table.shape[1] - 1}

    def words() -> None:
        print(f"{persons} persons, {len(table)} rows, {table.shape[1] - 1} nodes: {out}")
        if made.masked:
            print(
                f"note: {made.masked} times a node was not measured in a person. The table has 0 there, so the person "
                "does not vote for it. Learners other than votes would take the 0 for a measurement."
            )

    say(as_json, {**told, "masked": made.masked}, words)


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(str(path), "a text file with one name per line", f"it cannot be read ({problem})") from None
