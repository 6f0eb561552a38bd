"""Tables in CSV. Names in them are of strangers, and a spreadsheet that opens the file computes a cell that begins
with = + - @ as a formula: such a name gets an apostrophe in front, which is taken off where silograph reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

#: Where a spreadsheet may begin a cell (a semicolon parts cells in many countries), and the name would be a formula.
_BEGINS = r"(?:^|(?<=[;\t\r\n]))"
_FORMULA = r"(?='*[=+\-@＝＋－＠\t\r].)"
_PLAIN = re.compile(_BEGINS + _FORMULA, re.DOTALL)
_WRITTEN = re.compile(_BEGINS + "'" + _FORMULA, re.DOTALL)


def csv_of(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    return "".join(",".join(map(_cell, row)) + "\n" for row in [header, *rows]).encode()


def as_named(cell: str) -> str:
    """The name that `csv_of` wrote as this cell."""
    return _WRITTEN.sub("", cell)


def _cell(value: object) -> str:
    text = str(value)
    plain = text if _is_number(text) else _PLAIN.sub("'", text)
    # Python's own writer leaves a carriage return without quotes, and its reader ends the row there.
    return '"{}"'.format(plain.replace('"', '""')) if re.search(r'[",\r\n]', plain) else plain


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
