"""Fills the templates: what every page, and every page of a run, has in common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from silograph.core.types import Json
from silograph.report import figures, words
from silograph.report.attacked import attacked
from silograph.report.privacy_words import PrivacyWords
from silograph.report.read import RunFolder


def render(template: str, **values: Any) -> str:
    return str(_environment().get_template(template).render(values))


def render_run(template: str, run: RunFolder, privacy: PrivacyWords, releases: list[Json], **values: Any) -> str:
    return render(
        template,
        result=run.result,
        plan=run.plan,
        protected=privacy.is_protected(),
        protection=privacy.verdict(),
        private=privacy.summary(),
        attacked=attacked(run.audits),
        unprotected=privacy.left_open(),
        releases=releases,
        **values,
    )


def summarise(ledger: Iterable[Json], by: Sequence[str]) -> list[Json]:
    """The ledger in one row for each combination of the columns `by`."""
    groups: dict[tuple[str, ...], list[Json]] = {}
    for row in ledger:
        groups.setdefault(tuple(str(row.get(key)) for key in by), []).append(row)

    def texts(rows: list[Json], key: str) -> str:
        return words.listed(words.first_seen(str(row[key]) for row in rows if row.get(key) is not None), most=4)

    return [
        {"count": len(rows)}
        | {key: texts(rows, key) for key in ("silo", "site", "mechanism", "observer", "randomness", "why", "part")}
        | {key: words.spread(row.get(key) for row in rows) for key in ("round", "dim", "l2", "noise", "sampling")}
        for rows in groups.values()
    ]


def markup(svg: str) -> str:
    """A picture of ours, which is clean already."""
    from markupsafe import Markup

    return Markup(svg)


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
    environment.filters |= {name: getattr(words, name) for name in ("number", "bound", "column", "counted")}
    environment.globals |= {"light": asdict(figures.LIGHT), "dark": asdict(figures.DARK), "infinity": math.inf}
    return environment
