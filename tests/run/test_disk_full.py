"""A full disk stops a run, which says where it stands and what typing the command again costs."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from silograph.data.synthetic import write_sample_sites
from silograph.run import run


@pytest.mark.parametrize("options, more", [([], False), (["--epsilon", 20, "--degree", 4, "--seed", 1], True)])
def test_a_full_disk_is_named_and_the_same_command_resumes(
    silograph: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[Any], more: bool
) -> None:
    sites = write_sample_sites(tmp_path / "sites", rows=(200, 250, 300, 350, 400))
    command = ["learn", *sites, "-o", tmp_path / "out", *options]

    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(run, "write_result", full)
        code, _, error = silograph(*command)
    unfinished = tmp_path / ".out.unfinished"
    assert code == 1
    assert f"{unfinished}: expected space on the disk, but it is full. No result was written." in error
    assert ("spends nothing more for what was released" in error) == more
    ledger = (unfinished / "ledger.jsonl").read_text()
    assert silograph(*command)[0] == 0
    assert (tmp_path / "out" / "ledger.jsonl").read_text() == ledger
