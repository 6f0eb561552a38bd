"""Tables in all formats, spoiled or not: `silograph check` reads them rightly or refuses with exit code 2.

`make test-tables` makes 10,000 of them. Every 50th table that is read is learned from, too.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from fuzz.tables import REFUSED, Case, make
from silograph.data.silos import read_silos

TABLES = int(os.environ.get("SILOGRAPH_TABLES", "300"))
PARTS = 10
LEARNED = 50


def _check_truth(case: Case) -> None:
    """What was read is what was written, to the last bit; nodes by name, or by place where the format has none."""
    files = [Path(name) for name in case.arguments if not name.startswith("--")]
    silos = read_silos(files, rule="all", **case.options)
    assert set(silos.names) == set(case.sites)
    for k, (name, signals) in enumerate(zip(silos.names, silos.signals, strict=True)):
        truth, lacks = case.sites[name], silos.lacks[k] if silos.lacks else ()
        own = [node not in lacks for node in silos.nodes]
        nodes = [node for node in silos.nodes if node not in lacks]
        named = set(nodes) == set(truth)
        assert named or nodes[0] == "node_0", (nodes, list(truth))
        expected = truth[nodes].to_numpy() if named else truth.to_numpy()
        np.testing.assert_array_equal(signals[:, own], expected)


@pytest.mark.parametrize("part", range(PARTS))
def test_odd_tables(part: int, silograph, tmp_path: Path) -> None:
    read = refused = 0
    for seed in range(part, TABLES, PARTS):
        folder = tmp_path / str(seed)
        case = make(folder, seed)
        code, *said = silograph("check", *case.arguments)
        assert code in (0, 2), f"{seed}: {said}"
        if case.spoiled in REFUSED:
            assert code == 2, f"{seed}: {case.spoiled} was read"
        if case.spoiled is None:
            assert code == 0, f"{seed}: {said}"
        if code == 0 and case.spoiled != "damage":
            _check_truth(case)
            if read % LEARNED == 0:
                code, *said = silograph("learn", *case.arguments, "-o", folder / "out")
                assert code == 0, f"{seed}: {said}"
        read, refused = read + (code == 0), refused + (code == 2)
        shutil.rmtree(folder)
    assert min(read, refused) > TABLES / PARTS / 5
