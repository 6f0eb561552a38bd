"""The ledger survives kills and shows damage."""

import json

import pytest

from silograph.core.errors import DamageError
from silograph.privacy.ledger import Ledger, Row


def row(k):
    return Row("a", k, "x", "server", "gaussian", 1.0, 2.0, 3, 1.0, "u", "replace-one", "seed", "why", f"{k:016x}")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.append([row(0), row(1)])
    ledger.append([row(2)])
    return path


def test_rows_come_back_as_they_were(path):
    assert Ledger(path).rows == [row(0), row(1), row(2)]
    assert all(json.loads(line)["why"] == "why" for line in path.read_text().splitlines())


def test_a_torn_last_line_was_never_sent_and_is_dropped(path):
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines()[-1]) + 1):
        path.write_bytes(whole[:-cut])
        assert Ledger(path).rows == [row(0), row(1)]
        assert path.read_bytes() == b"".join(line + b"\n" for line in whole.splitlines()[:2])
        Ledger(path).append([row(2)])
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: lines[1:],  # first row lost
        lambda lines: [lines[0], lines[2]],  # middle row lost
        lambda lines: [lines[1], lines[0], lines[2]],  # reordered
        lambda lines: [lines[0].replace('"noise": 2.0', '"noise": 1.0'), *lines[1:]],  # changed
        lambda lines: [lines[0], "not json", lines[2]],
        lambda lines: [lines[0], "[1]", lines[2]],
        lambda lines: [lines[0], '{"chain": "0"}', lines[2]],
    ],
)
def test_damage_is_named_by_line(path, damage):
    path.write_text("".join(line + "\n" for line in damage(path.read_text().splitlines())))
    with pytest.raises(DamageError, match=r"ledger\.jsonl, line [12]"):
        Ledger(path)


def test_without_a_path_it_stays_in_memory():
    ledger = Ledger()
    ledger.append([row(0)])
    assert ledger.of("a") == [row(0)]
    assert ledger.of("b") == []
