"""Numbers and findings of a run in plain words. Bounds are rounded up, so that no printed guarantee is too good."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from typing import TypeGuard, TypeVar

T = TypeVar("T")
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
#: Control characters, halves of a character, and marks that turn the reading direction: none belongs in a name.
INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def number(value: object, digits: int = 4, rounding: str = ROUND_HALF_UP) -> str:
    """A number as a person writes it: 4 digits, thousands marked, powers of ten where it is tiny or huge."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) and abs(value) < 10**9:
        return f"{value:,}".replace("-", "−")
    if isinstance(value, float) and not math.isfinite(value):
        return "not a number" if math.isnan(value) else "∞" if value > 0 else "−∞"
    exact = Decimal(repr(value))
    if exact == 0:
        return "0"
    rounded = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=rounding)
    power = rounded.adjusted()
    if -5 < power < 6:
        return _trim(f"{rounded:,f}").replace("-", "−")
    mantissa = _trim(f"{rounded.scaleb(-power):f}").replace("-", "−")
    return ("" if mantissa == "1" else f"{mantissa} × ") + f"10{superscript(power)}"


def superscript(power: int) -> str:
    return str(power).translate(SUPERSCRIPT)


def column(values: Iterable[object]) -> list[str]:
    """Numbers under each other with equally many decimals, unless they are too unlike for that."""
    values = list(values)
    sizes = [abs(value) for value in values if is_number(value) and value and math.isfinite(value)]
    top = max(sizes, default=0.0)
    if not sizes or not 1e-3 <= top < 1e6 or min(sizes) < top / 1000:
        return [number(value) for value in values]
    decimals = max(0, 3 - math.floor(math.log10(top)))
    # A mean that is half-way in decimals may lie a little below in binary.
    return [
        f"{Decimal(f'{value:.12g}').quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP):,f}".replace("-", "−")
        if is_number(value) and math.isfinite(value)
        else number(value)
        for value in values
    ]


def bound(value: object) -> str:
    """A number for "at most", rounded up."""
    return number(value, rounding=ROUND_CEILING)


def decibels(ratio: object) -> str:
    """A squared measure, or a ratio of two, as the papers print it: 10 log10."""
    return f"{10 * math.log10(ratio):.1f} dB".replace("-", "−") if is_number(ratio) and 0 < ratio < math.inf else "–"


def found(value: object) -> str:
    """A number for "at least", rounded down."""
    return number(value, rounding=ROUND_FLOOR)


def percent(share: float) -> str:
    """A share in percent, rounded down: what is not certain never reads as 100 %."""
    return f"{number(round(100.0 * share, 9), digits=3, rounding=ROUND_FLOOR)} %"


def apart(lower: float, upper: float) -> tuple[str, str]:
    """Round `lower` (found) down and `upper` (promised) up, with enough digits that a larger number looks larger."""

    def larger(digits: int) -> bool:
        low = Context(digits, ROUND_FLOOR).create_decimal(repr(lower))
        return low > Context(digits, ROUND_CEILING).create_decimal(repr(upper))

    digits = 4 if lower <= upper else next((many for many in range(4, 17) if larger(many)), 17)
    return number(lower, digits, ROUND_FLOOR), number(upper, digits, ROUND_CEILING)


def spread(values: Iterable[object]) -> str:
    """One number, or the range of several. Anything that is not a number is left out."""
    found = sorted(float(value) for value in values if is_number(value))
    if not found:
        return "–"
    low, high = number(_whole(found[0])), number(_whole(found[-1]))
    return low if low == high else f"{low} to {high}"


def ends(value: object) -> str:
    """A number, or the two ends of a range; only one number if both look the same."""
    return " to ".join(first_seen(map(number, value if isinstance(value, list) else [value])))


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def visible(text: str) -> str:
    """The text with a mark instead of every character that could hide or reorder what is read."""
    return INVISIBLE.sub("\ufffd", text)


def capital(text: str) -> str:
    """The text with a capital first letter; its other letters stay as they are."""
    return text[:1].upper() + text[1:]


def counted(amount: int, thing: str) -> str:
    return f"{number(amount)} {thing}" + ("" if amount == 1 else "s")


def listed(items: Sequence[str], most: int = 12) -> str:
    """Write "a, b and c". A long list ends with how many more there are."""
    if len(items) > most:
        items = [*items[: most - 1], f"{number(len(items) - most + 1)} more"]
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + f" and {items[-1]}" if items else ""


def first_seen(items: Iterable[str]) -> list[str]:
    """Each item once."""
    return list(dict.fromkeys(items))


def alike(rows: Iterable[tuple[str, str, T]], key: Callable[[T], str] = repr) -> list[tuple[T, list[str], list[str]]]:
    """Join rows (site, observer, content) with equal content: the content once, with all its sites and observers."""
    observers: dict[tuple[str, str], list[tuple[str, T]]] = {}
    for site, observer, said in rows:
        observers.setdefault((site, key(said)), []).append((observer, said))
    found: dict[tuple[str, ...], tuple[T, list[str], list[str]]] = {}
    for (site, said_as), against in observers.items():
        names = [observer for observer, _ in against]
        found.setdefault((said_as, *names), (against[0][1], [], names))[1].append(site)
    return list(found.values())


def how_exact(gap: float | None) -> str:
    if gap is None:
        return (
            "No certificate: this solver cannot say how far the result is from the best possible one. "
            "Treat it as approximate."
        )
    if not math.isfinite(gap):
        return "The certificate is empty: nothing is proven about how far the result is from the best possible one."
    if gap > 1e-2:
        return "Not solved: the run stopped early, and its certificate is too weak to say anything useful."
    # The gap is relative to the value reached; relative to the best possible one it may be a little more.
    above = max(gap, 1e-6) if gap <= 1e-6 else gap / (1.0 - gap)
    percent = float(Decimal(repr(above)).scaleb(2))  # scaled as a decimal: times 100 would round up a digit
    proven = f"the objective is proven to be at most {bound(percent)} % above the best possible value."
    if gap <= 1e-4:
        return f"Solved: {proven}"
    return f"Nearly solved: {proven}"


def _trim(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _whole(value: float) -> float | int:
    return int(value) if value.is_integer() and abs(value) < 1e9 else value
