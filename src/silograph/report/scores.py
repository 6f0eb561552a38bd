"""Compare models with other ways of learning, and with the majority baseline, which needs no model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from silograph.core.results import Test
from silograph.core.types import Json
from silograph.report import words

ACCURACY = "accuracy"
#: Where the majority baseline stands in the result.
BASELINE = "test.baseline"


@dataclass(frozen=True)
class Score:
    """`mark` is where `numbers_are` says what kind of number it is."""

    name: str
    value: float | None
    mark: str


def gain(test: Test, ours: float, other: float) -> float:
    """How much better our score is than the other."""
    return ours - other if test.measure == ACCURACY else other - ours


def beside(test: Test | None, pairs: Iterable[tuple[float | None, float | None]]) -> list[tuple[str, str]]:
    """For each pair (our score, another): a class of the style sheet, and how much better or worse ours is."""
    pairs = list(pairs)
    gains = [
        gain(test, ours, other) if test is not None and words.is_number(ours) and words.is_number(other) else None
        for ours, other in pairs
    ]
    # With as many decimals as what they are differences of.
    values = [value for pair in pairs for value in pair]
    sizes = words.column([*values, *(None if better is None else abs(better) for better in gains)])[len(values) :]
    return [_better(better, size) for better, size in zip(gains, sizes, strict=True)]


def _better(better: float | None, size: str) -> tuple[str, str]:
    if better is None:
        return "", "–"
    if better > 0:
        return "", f"{size} better"
    return "none", "no better" if better == 0 else f"{size} worse"


def with_baseline(scores: Sequence[Score], test: Test | None, name: str) -> list[Score]:
    """The given scores and the majority baseline; nothing if there was no test."""
    if test is None:
        return []
    return [*scores, *([Score(name, test.baseline, BASELINE)] if words.is_number(test.baseline) else [])]


UNTESTED = "they were not tested. Name a table of test records in the plan (test under [data]) to know it."


def sentence(scores: Sequence[Score], test: Test | None, beginning: str, untested: str) -> tuple[str, str]:
    """A class of the style sheet, and words: what the first score beats and what it does not, then the numbers."""
    if test is None or not scores or not words.is_number(ours := scores[0].value):
        return "", untested
    others = [(_in_words(score.name), score.value) for score in scores[1:] if words.is_number(score.value)]
    beaten = [name for name, value in others if gain(test, ours, value) > 0]
    unbeaten = [name for name, _ in others if name not in beaten]
    told = [f"Better than {words.listed(beaten)}."] if beaten else []
    told += [f"No better than {words.listed(unbeaten)}."] if unbeaten else []
    numbers = beginning.format(words.number(ours))
    if others:
        numbers += ", beside " + words.listed([f"{words.number(value)} for {name}" for name, value in others])
    look = "partial" if any(not _is_of_all_records(name) for name in unbeaten) else ""
    return look, " ".join([*told, f"{numbers}."])


def _in_words(name: str) -> str:
    return name.replace(", without privacy", " (without privacy)")


def _is_of_all_records(name: str) -> bool:
    """Whether a model is of records that privacy keeps apart: it shows what privacy costs, and need not be beaten."""
    return name.startswith("one model") and "without privacy" in name


def table(scores: Sequence[Score], test: Test | None, numbers_are: Mapping[str, str]) -> list[Json]:
    """The scores in words, each with a bar; what only a simulation can know is marked so."""
    values = [score.value for score in scores]
    sizes = [float(value) if words.is_number(value) and 0 < value < math.inf else 0.0 for value in values]
    top = max(sizes, default=0.0) or 1.0
    baseline = None if test is None else test.baseline
    gains = beside(test, [(score.value, None if score.mark == BASELINE else baseline) for score in scores])
    return [
        {
            "method": words.capital(score.name),
            "path": score.mark,
            "text": text,
            "share": f"{100 * (size / top):.1f}",
            "kind": "baseline" if score.mark == BASELINE else numbers_are.get(score.mark, ""),
            "beside": better,
            "level": _level(score.value, baseline),
        }
        for score, text, size, better in zip(scores, words.column(values), sizes, gains, strict=True)
    ]


def _level(error: float | None, baseline: float | None) -> str:
    """A squared error relative to that of the baseline, in dB."""
    if not words.is_number(error) or not words.is_number(baseline) or not baseline > 0:
        return words.number(None)
    return words.decibels(error / baseline)
