"""All entries at once: what is done is kept, what is missing is gone on with, what fails is shown."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pages import NASTY, Page, refuse_requests
from silograph import cli
from silograph.report.gallery import page
from silograph.report.reproduced_page import page as table_page
from silograph.reproduce import runner
from silograph.reproduce.gallery import _kept, make_all, setting_of
from silograph.reproduce.runner import DataSet, find

PICTURES = DataSet("Pictures", ("pictures/some.npz",), "arrays")


def gallery(out, chosen=None):
    told = []
    made = make_all(chosen or [find("s2-fig1")], out, 1, False, None, lambda share, text: told.append(share))
    return made, told


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """One entry, made; one whose data are not there; and one that fails, since nothing knows its name."""
    out = tmp_path_factory.mktemp("papers")
    unknown = replace(find("s2-fig1"), name="s2-fig99", title="One that nobody knows")
    needy = replace(find("s2-fig5"), data=(PICTURES,))
    made, told = gallery(out, [find("s2-fig1"), needy, unknown])
    return out, made, told


def test_what_fails_or_has_no_data_does_not_stop_the_others(done):
    out, (made, not_run, failed), told = done
    assert made["state"] == "made"
    assert made["table"]["name"] == "s2-fig1"
    assert made["command"] == "silograph reproduce s2-fig1 --seeds 1"
    assert made["seconds"]["cpu"] > 0
    assert not_run["state"] == "not run"
    assert "pictures/some.npz" in not_run["reason"]
    assert "--data" in not_run["reason"]
    assert failed["state"] == "not run"  # a name that nothing knows is bad input
    assert "s2-fig99" in failed["reason"]
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1.0)
    assert [path.name for path in out.iterdir()] == ["s2-fig1.json"]


def test_what_is_there_is_taken(done):
    out, (made, *_), _ = done
    before = (out / "s2-fig1.json").stat().st_mtime_ns
    (again,), told = gallery(out)
    assert again == made
    assert told == []
    assert (out / "s2-fig1.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("damage", ["", "[]", '{"setting": {}}', '{"state": "made"}'])
def test_what_is_damaged_or_made_otherwise_is_made_again(done, tmp_path, damage):
    setting = setting_of(find("s2-fig1"), 1, False, None)
    other = replace(setting, seeds=2)
    assert other != setting
    (tmp_path / "s2-fig1.json").write_text(damage)
    assert _kept(tmp_path, setting) is None
    assert _kept(done[0], setting) is not None
    assert _kept(done[0], other) is None
    assert _kept(done[0], replace(setting, version="0.0.0")) is None


def test_other_data_are_another_setting(tmp_path):
    entry = replace(find("s2-fig5"), data=(PICTURES,))
    (tmp_path / "pictures").mkdir()
    settings = []
    for value in (0.0, 1.0):
        np.savez(tmp_path / "pictures" / "some.npz", a=np.full(3, value))
        settings.append(setting_of(entry, None, False, tmp_path))
    assert settings[0] != settings[1]
    assert settings[0].command(tmp_path).endswith(f"--seeds 3 --data {tmp_path}")
    assert setting_of(entry, None, True, tmp_path).seeds == 20


def test_a_process_that_dies_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (entry,), _ = gallery(tmp_path)
    assert entry["state"] == "failed"
    assert "without a word" in entry["reason"]


def children(parent):
    """The processes that a process has started, by /proc."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, rest = stat.parent.name, stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if rest[1] == str(parent) and rest[0] != "Z":
            found.append(int(number))
    return found


def gone(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


ENDLESS = """
import time
from dataclasses import replace
from silograph.reproduce import own_process

class Endless:
    def run(self, seeds, progress):
        while True:
            progress(0.5, "")
            time.sleep(0.01)

known = own_process.find
endless = replace(known("s2-fig6"), open=lambda data: Endless(), short=None)
own_process.find = lambda name: endless if name == "s2-fig6" else known(name)
own_process.main()
"""

HANGS = 600.0  # seconds after which something is taken to hang; nothing else depends on the time


def until(true):
    """Wait for what must come, however busy the machine is."""
    end = time.monotonic() + HANGS
    while not true():
        assert time.monotonic() < end, "it hangs"
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_gallery_leaves_nothing_behind_and_goes_on(tmp_path, how):
    """Two entries at a time, of which one is done and the other never ends by itself; then the kill. What was done is
    kept, and the other's process, which is the real one but for its sums, is gone."""
    out, script, python = tmp_path / "papers", tmp_path / "endless.py", tmp_path / "python"
    script.write_text(ENDLESS)
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(script))} "$3"\n')
    python.chmod(0o755)
    code = (
        "import sys; from pathlib import Path; from silograph.reproduce.gallery import make_all; "
        f"from silograph.reproduce.runner import find; sys.executable = {str(python)!r}; "
        f"make_all([find('s2-fig6'), find('s2-fig1')], Path({str(out)!r}), 1, False, None, lambda *a: None)"
    )
    # A shell that starts tests in the background has them ignore Ctrl-C, and so would this process.
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True, env=os.environ, **heard)
    until(lambda: process.poll() is not None or ((out / "s2-fig1.json").exists() and children(process.pid)))
    started = children(process.pid)
    assert started
    process.send_signal(how)
    process.wait(HANGS)
    until(lambda: all(map(gone, started)))
    assert [path.name for path in out.iterdir()] == ["s2-fig1.json"]
    told = []
    quick = replace(find("s2-fig1"), seeds=1, quick=1)
    made = make_all([quick], out, 1, False, None, lambda *a: told.append(a))
    assert (made[0]["state"], told) == ("made", [])


# ---- the page --------------------------------------------------------------------------------------------------------

ABOUT = {"full": False, "version": "0.1.0", "command": "silograph reproduce all -o papers"}


def shown(**changes):
    verdict = {"statement": "The paper: a is better", "outcome": "reproduced", "found": "+0.1", "rule": "By hand."}
    table = {
        "name": "s3-table1",
        "seeds": 3,
        "rows": [
            {"case": "N=20", "method": "IGL", "metric": "FS", "ours": 0.5, "std": 0.01, "paper": 0.521},
            {"case": "N=50", "method": "IGL", "metric": "FS", "ours": 0.6, "std": 0.01, "paper": 0.651},
            {"case": "N=50", "method": "IGL", "metric": "RE", "ours": 0.6, "std": 0.01, "paper": None},
        ],
        "notes": [],
        "verdicts": [verdict, verdict | {"outcome": "statement does not hold", "statement": "The paper: b"}],
    }
    return {
        "name": "s3-table1",
        "title": "S3 Table I",
        "state": "made",
        "command": "silograph reproduce s3-table1 --seeds 3",
        "seconds": {"wall": 2.0, "cpu": 1.5},
        "table": table,
    } | changes


MISSING = {"name": "s4-fig2", "title": "S4 Figure 2", "state": "not run", "reason": "MNIST is not there"}
FAILED = {"name": "s1-fig2", "title": "S1 Figure 2", "state": "failed", "reason": "ValueError: no", "command": "x"}


def test_the_page_has_statement_verdict_command_and_picture():
    html = page([shown(), MISSING, FAILED], ABOUT)
    assert html == page([shown(), MISSING, FAILED], ABOUT)
    refuse_requests(re.sub(r' href="s3-table1\.(html|json)"', "", html))  # its own files stand beside the page
    reader = Page(html)
    assert reader.tags["svg"] == 1  # F-scores have printed numbers, errors have none
    assert html.count('<path d="M') > 2
    for words in ("silograph reproduce s3-table1 --seeds 3", "The paper: a is better", "statement does not hold"):
        assert words in reader.text
    for words in ("MNIST is not there", "ValueError: no", "By hand.", "--full"):
        assert words in reader.text
    assert {"#s3-table1", "s3-table1.html", "s3-table1.json"} <= {v for _, key, v in reader.attributes if key == "href"}
    assert re.findall(r"<h2[^>]*>(S\d)", html) == ["S1", "S3", "S4"]


def test_hostile_names_stay_text():
    html = page([shown(title=NASTY), MISSING | {"reason": NASTY}], ABOUT)
    assert "<script>alert" not in html
    assert Page(html).tags["img"] == 0


def test_the_made_entry_has_a_page_of_its_own(done):
    table = done[1][0]["table"]
    html = table_page(table)
    reader = Page(html)
    assert all(verdict["statement"] in reader.text for verdict in table["verdicts"])
    assert Page(page(done[1], ABOUT)).tags["svg"] == 2  # the reference, and one panel of curves


def test_the_command_writes_the_gallery_and_says_what_it_holds(done, tmp_path, monkeypatch, capsys):
    only = {"s2-fig1": find("s2-fig1")}
    monkeypatch.setattr(runner, "_entries", lambda: only)
    out, *_ = done
    for words, said in ((["--seeds", "1"], "s2-fig1"), (["--seeds", "1", "--json"], '"state": "made"')):
        monkeypatch.setattr(sys, "argv", ["silograph", "reproduce", "all", "-o", str(out), *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        assert not stopped.value.code
        assert said in (printed := capsys.readouterr().out)
    assert json.loads(printed)["entries"][0]["verdicts"]
    assert "silograph reproduce s2-fig1 --seeds 1" in (out / "index.html").read_text()
    assert (out / "s2-fig1.html").exists()
    monkeypatch.setattr(sys, "argv", ["silograph", "reproduce", "all"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
