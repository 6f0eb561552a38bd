"""The benchmarks as a page and as Markdown: peers side by side, ratios, growth, and the machine they ran on."""

from __future__ import annotations

import ast
import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks import peers
from silograph.report.charts import lines_svg
from silograph.report.page import TABLES, markup, render
from silograph.report.words import number

Row = dict[str, Any]
#: One benchmark: its rows, when it ran and on what.
Result = dict[str, Any]

HERE = Path(__file__).resolve().parent
PACKAGES = ("silograph", "numpy", "scipy", "numba", "torch")
PEERS = tuple(
    dict.fromkeys(
        peer for peers in (peers.GRAPHS, peers.JOINT, peers.PFL, peers.OPACUS, peers.MODELS) for peer in peers[:2]
    )
)
#: Units of which more is better.
SCORES = ("F-score", "nats a node")


# ---- the machine -----------------------------------------------------------------------------------------------------


def machine() -> dict[str, str]:
    """What the numbers depend on, in words. Other work on the machine shows in its load."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = {
        "processor": _processor(),
        "cores": f"{cores}",
        "memory": f"{memory:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "load before": f"{os.getloadavg()[0]:.2f}",
        "Python": platform.python_version(),
    }
    return found | {name: told for name in PACKAGES if (told := _version(name)) is not None}


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


# ---- the pages -------------------------------------------------------------------------------------------------------


def html(results: dict[str, Result]) -> str:
    """The page of benchmarks by name."""
    parts = [_part(name, result) | {"picture": markup(growth_svg(result["rows"]))} for name, result in results.items()]
    return render("benchmarks.html.j2", (TABLES,), parts=parts, peers=PEERS)


def markdown(results: dict[str, Result]) -> str:
    """The same for the documentation; pictures stand beside it as growth-NAME.svg."""
    lines = ["# Benchmarks", "", "Made by `make bench`; ratios above 1 are in silograph's favour."]
    lines += ["", f"Peers: {', '.join(PEERS)}."]
    for name, result in results.items():
        title, text = described(name)
        lines += ["", f"## {title}", "", text, "", *table(name, result)]
        if growth_svg(result["rows"]):
            lines += ["", f"![How {title.lower()} grows](growth-{name}.svg)"]
    return "\n".join(lines) + "\n"


def table(name: str, result: Result) -> list[str]:
    """A benchmark's rows, and when and on what they were measured."""
    part = _part(name, result)
    return [
        "| case | silograph | peer | theirs | ratio |",
        "| --- | ---: | --- | ---: | ---: |",
        *(f"| {r['case']} | {r['ours']} | {r['peer']} | {r['theirs']} | {r['ratio']} |" for r in part["rows"]),
        "",
        f"{part['date']}: {', '.join(f'{key} {told}' for key, told in part['machine'].items())}.",
    ]


def standing_alone(svg: str) -> str:
    return svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)


def growth_svg(rows: Iterable[Row]) -> str:
    """Ours and every peer over the size of the problem, both axes in powers of ten; nothing without two sizes."""
    sized = [row for row in rows if row.get("size") is not None and row["ours"] is not None]
    if len({row["size"] for row in sized}) < 2:
        return ""
    lines: dict[str, dict[float, float]] = {"silograph": {row["size"]: row["ours"] for row in sized}}
    for row in sized:
        if row.get("theirs") is not None:
            lines.setdefault(row["peer"], {})[row["size"]] = row["theirs"]
    across, up = sized[0]["sweep"], sized[0]["unit"]
    drawn = [(name, sorted(points.items())) for name, points in lines.items()]
    return lines_svg(drawn, f"{up} over {across}", x_name=across, y_name=up, log_x=True, log_y=True)


def _part(name: str, result: Result) -> dict[str, Any]:
    title, text = described(name)
    rows = [
        {
            "case": row["case"],
            "ours": "refused" if row["ours"] is None else f"{number(row['ours'], digits=3)} {row['unit']}",
            "peer": row.get("peer") or "",
            "theirs": "" if row.get("theirs") is None else number(row["theirs"], digits=3),
            "ratio": "" if row.get("ratio") is None else number(row["ratio"], digits=3),
            "memory": "" if row.get("peak_gb") is None else f"{row['peak_gb']:.2f}",
        }
        for row in result["rows"]
    ]
    scores = any(row["unit"] in SCORES for row in result["rows"])
    about = {"name": name, "title": title, "text": text, "rows": rows, "scores": scores}
    return about | {"date": result["date"], "machine": result["machine"]}


def described(name: str) -> tuple[str, str]:
    """The first sentence of a benchmark's docstring, and the rest of it."""
    told = ast.get_docstring(ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8"))) or name
    first, _, rest = told.partition("\n\n")
    return first.partition(": python -m")[0], " ".join(rest.replace("`", "").split())
