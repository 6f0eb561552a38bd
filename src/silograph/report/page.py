"""Fills the templates: what every page, and every page of a run, has in common."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from typing import Any

from silograph.core.types import Json
from silograph.report import figures, words
from silograph.report.audits import CONFIDENCE, strongest
from silograph.report.budget import budget_over_rounds
from silograph.report.privacy_words import PrivacyWords
from silograph.report.read import RunFolder
from silograph.report.traffic import traffic

#: The scripts of a page, in their order. Every page can be read without.
TABLES, GRAPH = "tables.js", "graph.js"
#: What result.json calls a mode, in the words of a page.
MODES = {
    "dp": "differential privacy",
    "exact": "no privacy: values as they are",
    "obfuscation": "obfuscation: no guarantee",
    "paper:": "the paper’s own version",
}


def render(template: str, scripts: Sequence[str] = (), **values: Any) -> str:
    """The page; of scripts it runs these and, by its policy, no others."""
    folder = files("silograph.report") / "templates"
    code = "".join((folder / name).read_text(encoding="utf-8") for name in scripts)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if code else "'none'"
    return str(_environment().get_template(template).render(values, code=markup(code), allowed=markup(allowed)))


def render_run(
    template: str,
    run: RunFolder[Any],
    privacy: PrivacyWords,
    releases: list[Json],
    scripts: Sequence[str] = (TABLES,),
    **values: Any,
) -> str:
    shared: dict[str, Any] = {"guarantees": privacy.guarantees()}
    return render(
        template,
        scripts,
        result=run.result,
        made=run.made,
        run_id=run.id,
        plan=run.plan,
        mode=MODES.get(run.result.privacy.mode, run.result.privacy.mode),
        protected=privacy.is_protected(),
        protection=privacy.verdict(),
        promise=privacy.promise(),
        warnings=privacy.warnings(),
        open_parts=privacy.not_protected(),
        audits=run.audits,
        attacked=strongest(run.audits),
        unprotected=privacy.left_open(),
        releases=[row | {"silo": privacy.everybody(row["silos"])} for row in releases],
        traffic=traffic(run),
        spending=_spending(run),
        **(shared | values),
    )


def _spending(run: RunFolder[Any]) -> Json | None:
    found = budget_over_rounds(run)
    return found and found | {"picture": markup(found["picture"])}


def summarise(ledger: Iterable[Json], by: Sequence[str]) -> list[Json]:
    """The ledger in one row for each combination of the columns `by`."""
    groups: dict[tuple[str, ...], list[Json]] = {}
    for row in ledger:
        groups.setdefault(tuple(str(row.get(key)) for key in by), []).append(row)

    def texts(rows: list[Json], key: str) -> str:
        return words.listed(words.first_seen(str(row[key]) for row in rows if row.get(key) is not None), most=4)

    return [
        {"count": len(rows), "silos": words.first_seen(str(row["silo"]) for row in rows)}
        | {key: texts(rows, key) for key in ("release_point", "mechanism", "observer", "randomness", "why", "part")}
        | {key: words.spread(row.get(key) for row in rows) for key in ("round", "dim", "l2", "noise", "sampling")}
        for rows in groups.values()
    ]


def markup(text: str) -> str:
    """A picture or a script of ours, which is clean already."""
    from markupsafe import Markup

    return Markup(text)


def embedded(value: Json) -> str:
    """Data for a script of the page: nothing in it can end the element that holds it, or open another."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return markup(text)


def _visible(value: Any) -> Any:
    # Only plain text: figures are markup, and already clean.
    return words.visible(value) if type(value) is str else value


@cache
def _environment() -> Any:
    # Any, and imported here: a command that makes no page need not wait for jinja2.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("silograph", "report/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (
        "number",
        "bound",
        "capital",
        "column",
        "counted",
        "decibels",
        "ends",
        "found",
        "listed",
        "percent",
        "spread",
    )
    environment.filters |= {name: getattr(words, name) for name in filters}
    environment.globals |= {"light": asdict(figures.LIGHT), "dark": asdict(figures.DARK), "infinity": math.inf}
    environment.globals |= {"apart": words.apart, "confidence": CONFIDENCE}
    return environment
