"""What commands print: tables, costs, and lines that the summaries of all families share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import ROUND_CEILING, Context

from silograph.core import schema
from silograph.core.results import Result
from silograph.core.types import Json
from silograph.report.words import alike, counted

_NAMED = 5  # names in a cell of a table


def cost_rows(guarantees: Sequence[Json]) -> list[tuple[str, ...]]:
    """Make one line for each cost: whom it protects, and against whom."""
    everybody = len({each["site"] for each in guarantees})

    def named(names: list[str]) -> str:
        if len(names) == everybody > 1:
            return f"all {everybody}"
        return ", ".join(names) if len(names) <= _NAMED else f"{', '.join(names[:2])} and {len(names) - 2} more"

    rows = [(each["site"], each["observer"], (cost(each), each["accountant"])) for each in guarantees]
    return [(named(sites), price, ", ".join(against), how) for (price, how), sites, against in alike(rows)]


def cost(guarantee: Json) -> str:
    if guarantee["epsilon"] == "infinity":
        return "none"
    text = f"epsilon {at_most(guarantee['epsilon'])}, delta {at_most(guarantee['delta'])}"
    return text + (" (rehearsal)" if guarantee["rehearsal"] else "")


def at_most(value: float) -> str:
    """Four digits, rounded up: a printed cost is never less than the true one, apart from rounding of floats."""
    return f"{float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(value * (1.0 - 1e-12)))):.4g}"


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table."""
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]
    for row in (header, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def privacy_lines(result: Result, noun: str = "site") -> Iterator[str]:
    """Yield the table of what a run cost."""
    yield ""
    yield from table((noun, "privacy", "against", "how"), cost_rows(schema.write(result.privacy.guarantees)))


def claim_lines(claim: Json | None) -> Iterator[str]:
    """Yield a line about the cost that the paper would have claimed."""
    if claim is not None:
        claimed = f"epsilon {claim['epsilon']:.4g} at delta {claim['delta']:.3g}"
        yield f"{claim['basis']} would claim {claimed}: {claim['defect']}"


def error(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def rounds_of_servers(rounds: int, disagreement: float | None) -> str:
    """How many rounds servers needed, and how far apart their models are, if that is known."""
    return counted(rounds, "round") + ("" if disagreement is None else f", disagreement {disagreement:.2e}")
