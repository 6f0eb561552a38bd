"""A view of a run says what its files say at that moment, whatever state they are in, and leaves no trace."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
import threading
import time
from pathlib import Path

import pytest

from silograph.core.errors import InputError
from silograph.data.synthetic import write_sample_sites
from silograph.families.graphs.plan import ConsensusGraph, Data, GraphPlan, Privacy
from silograph.report import watch
from silograph.report.watch import follow, live_page, state_of
from silograph.run.cost import cost_of_run
from silograph.run.run import execute


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sites")
    return folder, tuple(path.name for path in write_sample_sites(folder, rows=(300,) * 5, nodes=8))


def plan_of(tables, **changes) -> GraphPlan:
    return GraphPlan(
        Data(tables[1], scale="none"),
        **{"method": ConsensusGraph(degree=3.0), "privacy": Privacy(3.0), "seed": None} | changes,
    )


def run(tables, goal: Path, **changes) -> Path:
    return execute(plan_of(tables, **changes), tables[0], goal, lambda *_: None, lambda folder: "").folder


def under_way(finished: Path, out: Path, lines: list[dict]) -> Path:
    """A folder as it lies while a server runs: the files of a finished run, its identity, and a line for each round."""
    hidden = out.parent / f".{out.name}.unfinished"
    shutil.copytree(finished, hidden)
    (hidden / "result.json").unlink()
    plan = (hidden / "plan.toml").read_text()
    (hidden / "plan.toml").unlink()
    (hidden / "identity.json").write_text(json.dumps({"plan": plan, "inputs": []}))
    (hidden / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return hidden


def line(number: int, absent: tuple[str, ...] = (), **more) -> dict:
    told = {"at": time.time(), "round": number, "asked": 5, "answered": 5 - len(absent), "seconds": 0.25}
    return told | {"absent": list(absent)} | more


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(p): (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_finished_run_costs_what_its_result_says(tables, tmp_path):
    for changes in ({}, {"privacy": None}, {"privacy": Privacy(2.0, mechanism="laplace")}):
        out = run(tables, tmp_path / f"out{len(changes)}{changes.get('privacy')!s:.9}", **changes)
        seen = state_of(out)
        assert seen.state == "finished"
        billed = {row["site"]: float(row["epsilon"]) for row in cost_of_run(out)["guarantees"]}
        assert {row.silo: row.epsilon for row in seen.spent} == billed
        assert all(("no protection" in seen.text()) == math.isinf(epsilon) for epsilon in billed.values())
        json.dumps(seen.to_json(), allow_nan=False)


def test_a_run_under_way_is_shown_by_its_rounds_and_ledger(tables, tmp_path):
    finished, out = run(tables, tmp_path / "done"), tmp_path / "out"
    under_way(
        finished, out, [line(0), line(1, ("site_hill",)), line(2, ("site_hill",), refused={"site_park": "LeakError"})]
    )
    seen = state_of(out)
    told = seen.to_json()
    assert (told["state"], told["rounds"], told["absent"]) == ("under way", 3, {"site_hill": 2})
    assert told["budget"] == {"epsilon": 3.0, "delta": 1e-6}
    assert told["last"]["answered"] == 4
    for words in ("under way, 3 rounds", "4 of 5 answered", "site_hill (2 rounds)", "site_park (LeakError)", "of 3"):
        assert words in seen.text()
    assert "rehearsal" not in seen.text()


def test_a_rehearsal_says_so(tables, tmp_path):
    assert "protects nothing" in state_of(run(tables, tmp_path / "out", seed=4)).text()


def test_files_torn_at_any_byte_are_survived_and_nothing_is_touched(tables, tmp_path):
    finished, out = run(tables, tmp_path / "done"), tmp_path / "out"
    hidden = under_way(finished, out, [line(0), line(1)])
    whole = state_of(out)
    for name, step in (("rounds.jsonl", 7), ("ledger.jsonl", 101), ("identity.json", 53)):
        content = (hidden / name).read_bytes()
        for cut in range(0, len(content), step):
            (hidden / name).write_bytes(content[:cut])
            before = contents(tmp_path)
            seen = state_of(out)
            json.dumps(seen.to_json(), allow_nan=False)
            assert len(seen.spent) <= len(whole.spent)
            assert len(seen.rounds) <= len(whole.rounds)
            assert contents(tmp_path) == before
        (hidden / name).write_bytes(content)
    (hidden / "state.npz").write_bytes(b"PK half a file")
    (hidden / "result.json").write_bytes(b'{"trace": [')
    assert state_of(out).spent == whole.spent


def test_looking_all_the_time_does_not_disturb_a_run(tables, tmp_path):
    """The whole way of a run: before it is there, while it writes and is renamed, and when it is finished."""
    quick, out = plan_of(tables, privacy=None, method=ConsensusGraph(degree=3.0, rounds=300)), tmp_path / "out"
    states, trouble = [], []

    def look() -> None:
        while not states or states[-1] != "finished":
            try:
                states.append(state_of(out).state)
            except InputError:
                assert not states, "a run that was there is not lost from sight"
            except BaseException as error:
                trouble.append(error)
                return

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    execute(quick, tables[0], out, lambda *_: time.sleep(0.002), lambda folder: "")
    looking.join(20.0)
    assert not trouble
    assert set(states) == {"under way", "finished"}
    alone = execute(quick, tables[0], tmp_path / "alone", lambda *_: None, lambda folder: "").folder
    assert (alone / "ledger.jsonl").read_bytes() == (out / "ledger.jsonl").read_bytes()


def test_a_view_ends_with_its_run(tables, tmp_path, monkeypatch, capsys):
    finished, out = run(tables, tmp_path / "done"), tmp_path / "out"
    under_way(finished, out, [line(0)])
    looks = []

    def pause(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            finished.rename(out)
            shutil.rmtree(tmp_path / ".out.unfinished")

    monkeypatch.setattr(watch.time, "sleep", pause)
    follow(out)
    assert len(looks) == 4
    assert min(looks[:3]) >= 1.0
    assert "finished" in capsys.readouterr().out


def test_ctrl_c_ends_a_view_and_nothing_else(tables, tmp_path, monkeypatch, capsys):
    under_way(run(tables, tmp_path / "done"), tmp_path / "out", [line(0)])

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch.time, "sleep", interrupt)
    before = contents(tmp_path)
    follow(tmp_path / "out")
    assert contents(tmp_path) == before


def test_a_run_that_failed_is_not_under_way(tables, tmp_path):
    hidden = under_way(run(tables, tmp_path / "done"), tmp_path / "out", [])
    (hidden / "identity.json").unlink()  # as a run leaves it that cannot go on
    seen = state_of(tmp_path / "out")
    assert seen.state == "failed"
    assert len(seen.spent) == 5
    follow(tmp_path / "out")


def test_what_is_no_run_is_said_to_be_none(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nowhere"):
        with pytest.raises(InputError, match="there is none"):
            state_of(tmp_path / name)


def test_a_live_page_says_what_the_terminal_says_and_loads_itself_until_the_run_is_over(tables, tmp_path):
    done, out = run(tables, tmp_path / "done"), tmp_path / "<b>out"
    assert "nothing is written yet" in live_page(out)
    under_way(done, out, [line(0), line(1, ("site_<hill>",))])
    page = live_page(out)
    assert 'http-equiv="refresh"' in page
    assert "absent lately: site_&lt;hill&gt; (1 round)" in page
    assert "<b>" not in page
    page = live_page(done)
    assert 'http-equiv="refresh"' not in page
    assert all(html.escape(text) in page for text in state_of(done)._sentences())
    bars = {
        silo: float(share) for share, silo in re.findall(r'value="([0-9.e-]+)" aria-label="spent by ([^"]+)"', page)
    }
    assert bars == pytest.approx({row.silo: min(1.0, row.epsilon / 3.0) for row in state_of(done).spent})
    drawn = live_page(out).partition('points="')[2].partition('"')[0].split()
    assert len(drawn) == 2
