"""What a user types, and what comes back."""

import csv
import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from typer.main import get_command

from silograph.cli import app
from silograph.cli.console import time_left
from silograph.cli.examples import EXAMPLES
from silograph.data.synthetic import write_sample_sites
from silograph.kernels.dual_newton import solve
from silograph.kernels.edges import squared_distances
from silograph.privacy.ledger import Ledger


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    return [str(p) for p in write_sample_sites(tmp_path_factory.mktemp("sites"), rows=(200, 250, 300, 350, 400))]


def graph(path: Path, nodes: list[str]) -> np.ndarray:
    """An edge vector from a written CSV."""
    position = {name: k for k, name in enumerate(nodes)}
    matrix = np.zeros((len(nodes), len(nodes)))
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            a, b = sorted((position[row["source"]], position[row["target"]]))
            matrix[a, b] = float(row["weight"])
    return matrix[np.triu_indices(len(nodes), 1)]


def test_learn_leaves_everything_the_readme_says(silograph, sites, tmp_path):
    out = tmp_path / "out"
    code, text, _ = silograph("learn", *sites, "-o", out, "--degree", 6)
    assert code == 0
    assert "certified gap" in text
    assert "report.html" in text
    names = [Path(s).stem for s in sites]
    expected = {
        "consensus.graphml",
        "consensus.csv",
        "result.json",
        "ledger.jsonl",
        "plan.toml",
        "report.html",
        "sites",
    }
    assert {p.name for p in out.iterdir()} == expected
    assert {p.name for p in (out / "sites").iterdir()} == {f"{n}.{kind}" for n in names for kind in ("csv", "graphml")}
    result = json.loads((out / "result.json").read_text())
    assert (result["learner"], result["rounds"]) == ("likelihood", 1)
    assert result["certified_gap"] <= 1e-3
    assert {g["observer"] for g in result["privacy"]["guarantees"]} == {"server", "other sites", "wire", "public"}
    assert all(g["epsilon"] == "infinity" for g in result["privacy"]["guarantees"])
    assert {site["edges"] for site in result["sites"]} == {60}


def test_the_papers_model_leaves_what_it_did(silograph, sites, tmp_path):
    code, text, _ = silograph("learn", *sites, "-o", tmp_path / "out", "--learner", "papers", "--degree", 6)
    assert code == 0
    assert "because" not in text
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert set(result["parameters"]) == {"alpha", "beta", "nu", "lambda", "zeta"}
    assert result["certified_gap"] <= 1e-6
    degree = np.mean([2 * site["edges"] / 20 for site in result["sites"]])
    assert degree == pytest.approx(6.0, abs=0.5)


def test_written_weights_are_the_optimum_of_8(silograph, sites, tmp_path):
    """Objective recomputed from the CSVs and tables alone, against the reported one and its certificate."""
    out = tmp_path / "out"
    assert silograph("learn", *sites, "-o", out, "--beta", 0.02, "--nu", 4, "--lambda", 0.08, "--scale", "none")[0] == 0
    result = json.loads((out / "result.json").read_text())
    consensus = graph(out / "consensus.csv", result["nodes"])
    total = 0.08 * consensus.sum()
    for path in sites:
        table = pd.read_csv(path)
        x = table[result["nodes"]].to_numpy()
        zbar = np.array([((x[:, a] - x[:, b]) ** 2).mean() for a, b in zip(*np.triu_indices(20, 1), strict=True)])
        w = graph(out / "sites" / f"{Path(path).stem}.csv", result["nodes"])
        matrix = np.zeros((20, 20))
        matrix[np.triu_indices(20, 1)] = w
        degrees = (matrix + matrix.T).sum(1)
        total += zbar @ w - np.log(degrees).sum() + 2 * 0.02 * w @ w + 0.32 * np.linalg.norm(w - consensus)
    assert total == pytest.approx(result["objective"], rel=1e-9)
    assert result["certified_gap"] <= 1e-6


def test_one_site_alone_is_the_plain_smooth_graph(silograph, sites, tmp_path):
    assert silograph("learn", sites[0], "-o", tmp_path / "out", "--beta", 0.02, "--scale", "none")[0] == 0
    table = pd.read_csv(sites[0])
    alone = solve(squared_distances(table.to_numpy())[None], 1.0, 0.02).w[0]
    w = graph(tmp_path / "out" / "sites" / f"{Path(sites[0]).stem}.csv", list(table.columns))
    np.testing.assert_allclose(w, alone, atol=1e-4)


def test_formats_mix_and_node_order_does_not_matter(silograph, sites, tmp_path):
    tables = [pd.read_csv(s) for s in sites[:3]]
    shuffled = tables[1][list(reversed(tables[1].columns))]
    shuffled.to_parquet(tmp_path / "b.parquet")
    np.savez(tmp_path / "c.npz", signals=tables[2].to_numpy(), nodes=np.array(tables[2].columns, dtype=str))
    tables[0].to_csv(tmp_path / "a.csv", index=False)
    for k, name in enumerate("abc"):
        tables[k].to_csv(tmp_path / f"{name}_plain.csv", index=False)
    mixed = [tmp_path / n for n in ("a.csv", "b.parquet", "c.npz")]
    plain = [tmp_path / f"{n}_plain.csv" for n in "abc"]
    assert silograph("learn", *mixed, "-o", tmp_path / "one", "--degree", 5)[0] == 0
    assert silograph("learn", *plain, "-o", tmp_path / "two", "--degree", 5)[0] == 0
    nodes = list(tables[0].columns)
    np.testing.assert_array_equal(
        graph(tmp_path / "one/consensus.csv", nodes), graph(tmp_path / "two/consensus.csv", nodes)
    )


def test_nodes_in_rows(silograph, sites, tmp_path):
    for k in range(2):
        table = pd.read_csv(sites[k])
        table.T.to_csv(tmp_path / f"{Path(sites[k]).stem}.csv", header=False)
    turned = [tmp_path / f"{Path(s).stem}.csv" for s in sites[:2]]
    assert silograph("learn", *turned, "-o", tmp_path / "one", "--nodes-in", "rows", "--degree", 5)[0] == 0
    assert silograph("learn", *sites[:2], "-o", tmp_path / "two", "--degree", 5)[0] == 0
    assert (tmp_path / "one/consensus.csv").read_bytes() == (tmp_path / "two/consensus.csv").read_bytes()


def test_graphml_and_csv_hold_the_same_graph(silograph, sites, tmp_path):
    assert silograph("learn", *sites[:2], "-o", tmp_path / "out", "--degree", 5, "--threshold", 0.2)[0] == 0
    made = nx.read_graphml(tmp_path / "out/consensus.graphml")
    with open(tmp_path / "out/consensus.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert made.number_of_edges() == len(rows)
    assert made.number_of_nodes() == 20
    for row in rows:
        assert made[row["source"]][row["target"]]["weight"] == float(row["weight"])
        assert float(row["weight"]) > 0.2


def test_privacy_by_default_is_one_release_within_budget(silograph, sites, tmp_path):
    out = tmp_path / "out"
    code, text, _ = silograph("learn", *sites, "-o", out, "--epsilon", 4, "--delta", 1e-5, "--scale", "none")
    assert code == 0
    assert "epsilon 4, delta 1e-05" in text
    rows = Ledger(out / "ledger.jsonl").rows
    assert len(rows) == len(sites)
    result = json.loads((out / "result.json").read_text())
    for guarantee in result["privacy"]["guarantees"]:
        assert guarantee["epsilon"] <= 4.0
        assert guarantee["delta"] == 1e-5
        assert guarantee["accountant"] == "exact Gaussian curve"
        assert guarantee["claim"] is None
    again = json.loads(silograph("privacy", out, "--json")[1])
    assert again["sites"][0]["epsilon"] == result["privacy"]["guarantees"][0]["epsilon"]


def test_per_round_noise_shows_the_papers_claim_beside_the_truth(silograph, sites, tmp_path):
    words = "--privacy per-round --epsilon 3.05 --delta 1e-5 --clip 20 --beta .05 --nu 5 --lambda .1 --seed 1".split()
    assert silograph("learn", *sites, "-o", tmp_path / "out", *words)[0] == 0
    guarantee = json.loads((tmp_path / "out/result.json").read_text())["privacy"]["guarantees"][0]
    assert guarantee["epsilon"] == pytest.approx(3.05, rel=1e-6)
    # T = 50 rounds whose exact total is 3.05 are claimed as 50 * .5 by the paper, with its sensitivity 2C/N.
    assert guarantee["claim"]["epsilon"] == pytest.approx(25 * np.sqrt(2.0), rel=1e-3)
    assert "instead of composing" in guarantee["claim"]["defect"]


def test_plans_are_rerunnable_and_seeds_fix_everything(silograph, sites, tmp_path):
    words = ["--epsilon", 4, "--seed", 9, "--degree", 4, "--scale", "none"]
    assert silograph("learn", *sites, "-o", tmp_path / "one", *words)[0] == 0
    assert silograph("run", tmp_path / "one/plan.toml", "-o", tmp_path / "two")[0] == 0
    for name in ("result.json", "ledger.jsonl", "consensus.csv", "report.html", "plan.toml"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_without_a_seed_private_runs_differ(silograph, sites, tmp_path):
    for name in ("one", "two"):
        assert silograph("learn", *sites, "-o", tmp_path / name, "--epsilon", 4, "--scale", "none")[0] == 0
    assert (tmp_path / "one/consensus.csv").read_bytes() != (tmp_path / "two/consensus.csv").read_bytes()


@pytest.mark.parametrize("form", ["S3", "S0"])
def test_the_papers_solver(silograph, sites, tmp_path, form):
    assert (
        silograph("learn", *sites, "-o", tmp_path / "out", "--solver", "paper", "--form", form, "--degree", 6)[0] == 0
    )
    result = json.loads((tmp_path / "out/result.json").read_text())
    assert result["solver"] == "paper"
    assert result["certified_gap"] is None
    assert result["rounds"] == 50
    assert len(result["trace"]) == 50


def test_json_is_one_object_on_standard_output(silograph, sites, tmp_path):
    code, text, _ = silograph("learn", *sites, "-o", tmp_path / "out", "--json")
    assert (code, json.loads(text)["method"]) == (0, "consensus_graph")
    for words in (["check", *sites], ["privacy", tmp_path / "out"], ["privacy", tmp_path / "out/plan.toml"],
                  ["report", tmp_path / "out"], ["reproduce"]):  # fmt: skip
        code, text, _ = silograph(*words, "--json")
        assert code == 0
        assert isinstance(json.loads(text), dict)
    code, text, _ = silograph("check", tmp_path / "none.csv", "--json")
    assert code == 2
    assert json.loads(text)["error"]["code"] == "bad-input"


def test_report_is_a_pure_function_of_the_folder(silograph, sites, tmp_path):
    out = tmp_path / "out"
    assert silograph("learn", *sites, "-o", out)[0] == 0
    before = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    assert silograph("report", out)[0] == 0
    assert (out / "report.html").read_bytes() == before


BAD_TABLES = {
    "different nodes": ("x,y,z\n1,2,3\n2,1,4\n3,3,3\n", "site"),
    "constant column": ("n,y,z\n", "constant"),
    "one row": ("a,b,c\n1,2,3\n", "row"),
    "empty": ("", "empty"),
    "two nodes": ("a,b\n1,2\n2,1\n", "3"),
    "strings": ("a,b,c\n1,2,x\n2,1,3\n", "x"),
    "missing": ("a,b,c\n1,,3\n2,1,3\n", "missing"),
    "infinite": ("a,b,c\n1,inf,3\n2,1,3\n", "inf"),
    "duplicate names": ("a,a,c\n1,2,3\n2,1,3\n", "a"),
    "not a table": ("\x00\x01\x02", ""),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_bad_tables_exit_2_and_write_nothing(silograph, sites, tmp_path, kind):
    text, word = BAD_TABLES[kind]
    bad = tmp_path / "bad.csv"
    bad.write_text("a,b,c\n1,2,3\n1,3,5\n1,4,1\n" if kind == "constant column" else text)
    others = [sites[0]] if kind == "different nodes" else []
    code, _, error = silograph("learn", *others, bad, "-o", tmp_path / "out")
    assert code == 2
    assert word in error.lower()
    assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--epsilon", "0"], "above 0"),
        (["--epsilon", "-1"], "above 0"),
        (["--epsilon", "1", "--delta", "0.01"], "below 1/N"),
        (["--epsilon", "1", "--delta", "2"], "between 0 and 1"),
        (["--epsilon", "0.01"], "times as many signals"),
        (["--delta", "1e-6"], "--epsilon"),
        (["--degree", "40"], "--degree: expected at most 19"),
        (["--edges", "1000"], "--edges: expected at most 190: then all pairs of 20 nodes are edges, but found 1000"),
        (["--degree", "-1"], "above 0"),
        (["--beta", "nan"], "above 0"),
        (["--epsilon", "2", "--standardise"], "standardis"),
        (["--privacy", "per-round", "--epsilon", "2"], "clip"),
        (["--solver", "magic"], "magic"),
    ],
)
def test_bad_options_exit_2_and_write_nothing(silograph, sites, tmp_path, words, said):
    code, _, error = silograph("learn", *sites, "-o", tmp_path / "out", *words)
    assert code == 2
    assert said in error
    assert list(tmp_path.iterdir()) == []


def test_an_occupied_folder_is_left_alone(silograph, sites, tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    code, _, error = silograph("learn", *sites, "-o", tmp_path)
    assert code == 2
    assert "not empty" in error
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


def test_folders_that_are_no_run(silograph, tmp_path):
    for words in (["report", tmp_path], ["privacy", tmp_path]):
        assert silograph(*words)[0] == 2


def test_a_changed_ledger_is_not_priced(silograph, sites, tmp_path):
    out = tmp_path / "out"
    assert silograph("learn", *sites, "-o", out, "--epsilon", 4, "--scale", "none")[0] == 0
    ledger = out / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"dim": 190', '"dim": 19', 1))
    for words in (["privacy", out], ["report", out]):
        code, _, error = silograph(*words)
        assert code == 2
        assert "line 1" in error


def test_sample_is_seeded(silograph, tmp_path):
    for name in ("one", "two"):
        assert silograph("sample", tmp_path / name)[0] == 0
    files = sorted(p.name for p in (tmp_path / "one").iterdir())
    assert len(files) == 5
    assert all((tmp_path / "one" / f).read_bytes() == (tmp_path / "two" / f).read_bytes() for f in files)


def test_import_is_light():
    """numpy and little else; under half a second on a quiet machine, so the modules are what is tested."""
    heavy = "('scipy', 'numba', 'pandas', 'sklearn', 'networkx', 'typer')"
    code = f"import sys, silograph; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize("words", [[], ["--epsilon", "4", "--seed", "1", "--scale", "none"], ["--solver", "paper"]])
def test_only_candidate_edges_are_used(silograph, sites, tmp_path, words):
    nodes = list(pd.read_csv(sites[0]).columns)
    ring = {frozenset((nodes[k], nodes[(k + step) % 20])) for k in range(20) for step in (1, 2, 3)}
    listed = tmp_path / "edges.csv"
    listed.write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in map(sorted, ring)))
    out = tmp_path / "out"
    assert silograph("learn", *sites, "-o", out, "--degree", "4", "--candidates", listed, *words)[0] == 0
    for path in [out / "consensus.csv", *(out / "sites").glob("*.csv")]:
        with open(path, newline="") as file:
            used = {frozenset((row["source"], row["target"])) for row in csv.DictReader(file)}
        assert used <= ring
    assert silograph("run", out / "plan.toml", "-o", tmp_path / "again")[0] == 0
    assert (tmp_path / "again/consensus.csv").read_bytes() == (out / "consensus.csv").read_bytes()
    listed.write_text(f"source,target\n{nodes[0]},{nodes[1]}\n")
    code, _, error = silograph("learn", *sites, "-o", tmp_path / "bad", "--candidates", listed)
    assert code == 2
    assert "cannot reach" in error


def test_under_privacy_a_refusal_does_not_depend_on_all_records_together(silograph, tmp_path):
    """One replaced record makes a column constant: with privacy both tables run, without both say what is wrong."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(3000, 3)), columns=["a", "b", "flag"])
    table["flag"] = 0.0
    table.loc[7, "flag"] = 1.0
    for name in ("one", "none"):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        table.loc[7, "flag"] = 0.0
        assert silograph("learn", tmp_path / f"{name}.csv", "-o", tmp_path / f"{name}.out", "--epsilon", 2)[0] == 0
    assert silograph("learn", tmp_path / "none.csv", "-o", tmp_path / "open")[0] == 2


def test_a_record_never_becomes_the_names_of_the_nodes(silograph, tmp_path):
    (tmp_path / "a.csv").write_text("0.5,1.25,<LOD\n1,2,3\n2,1,5\n")
    code, _, error = silograph("learn", tmp_path / "a.csv", "-o", tmp_path / "out")
    assert code == 2
    assert "must not become the names" in error


def test_a_rehearsal_says_so_wherever_it_states_a_number(silograph, sites, tmp_path):
    out = tmp_path / "out"
    assert "(rehearsal)" in silograph("learn", *sites, "-o", out, "--epsilon", 4, "--seed", 1, "--scale", "none")[1]
    for what in (out, out / "plan.toml"):
        assert "(rehearsal)" in silograph("privacy", what)[1]
        assert all(site["rehearsal"] for site in json.loads(silograph("privacy", what, "--json")[1])["sites"])
    assert all(g["rehearsal"] for g in json.loads((out / "result.json").read_text())["privacy"]["guarantees"])


@pytest.mark.parametrize("keep", [0, 2])
def test_a_ledger_that_lost_its_end_is_not_priced(silograph, sites, tmp_path, keep):
    out = tmp_path / "out"
    assert silograph("learn", *sites, "-o", out, "--epsilon", 4, "--scale", "none")[0] == 0
    ledger = out / "ledger.jsonl"
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:keep]))
    for words in (["privacy", out], ["report", out]):
        code, _, error = silograph(*words)
        assert code == 2
        assert "5 rows" in error


def test_a_run_that_stops_early_says_so(silograph, sites, tmp_path):
    assert "stopped too early" in silograph("learn", *sites, "-o", tmp_path / "one", "--rounds", 1)[1]
    assert "not solved" in silograph("learn", *sites, "-o", tmp_path / "two", "--rounds", 5)[1]
    assert json.loads((tmp_path / "two/result.json").read_text())["certified_gap"] > 1e-6


def test_options_that_do_not_exist_are_bad_input_in_json_too(silograph, sites):
    for words in (["learn", *sites, "-o", "x", "--nonsense"], ["dance"], ["learn", "-o", "x"]):
        code, text, error = silograph(*words, "--json")
        assert code == 2
        assert json.loads(text)["error"]["code"] == "bad-input"
        assert error.startswith("silograph: ")


def test_ctrl_c_says_how_to_go_on(sites, tmp_path):
    """The run takes seconds, and is interrupted as soon as it has a folder."""
    out, under_way = tmp_path / "out", tmp_path / ".out.unfinished"
    settings = ["--solver", "paper", "--rounds", "2000", "-o", str(out)]
    command = [sys.executable, "-c", "from silograph.cli import main; main()", "learn", *sites, *settings]
    # A shell that starts tests in the background has them ignore Ctrl-C, and so would this process.
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **heard)
    while not under_way.exists():
        assert process.poll() is None, "it ended before it could be interrupted"
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in error
    assert "Type the same command again to resume" in error
    subprocess.run(command, check=True, capture_output=True)
    assert (out / "result.json").exists()


def test_a_clip_far_too_long_draws_no_graph_of_noise(silograph, sites, tmp_path):
    code, _, error = silograph("learn", *sites, "-o", tmp_path / "out", "--epsilon", 4, "--clip", 500, "--seed", 1)
    assert code == 2
    assert "the clip is far longer than the signals" in error
    assert not (tmp_path / "out").exists()


def test_a_result_that_contradicts_its_ledger_is_refused(silograph, sites, tmp_path):
    out = tmp_path / "out"
    assert silograph("learn", *sites, "-o", out, "--epsilon", 4, "--scale", "none")[0] == 0
    result = json.loads((out / "result.json").read_text())
    for guarantee in result["privacy"]["guarantees"]:
        guarantee["epsilon"] = 0.1
    (out / "result.json").write_text(json.dumps(result))
    ledger = (out / "ledger.jsonl").read_bytes()
    for words in (["privacy", out], ["report", out]):
        code, _, error = silograph(*words)
        assert code == 2
        assert "as its ledger says" in error
    (out / "ledger.jsonl").write_bytes(ledger[:-1])
    assert silograph("privacy", out)[0] == 2
    assert (out / "ledger.jsonl").read_bytes() == ledger[:-1]  # a reading command writes nothing


@pytest.mark.parametrize("words", [["--zeta", "10"], ["--learner", "papers", "--degree", "1"]])
def test_odd_settings_end_well(silograph, sites, tmp_path, words):
    code, text, _ = silograph("learn", *sites, "-o", tmp_path / "out", *words)
    assert code == 0
    assert "certified gap" in text
    assert ("is the nearest that was found" in text) == ("--degree" in words)


def test_links_and_pipes_are_refused_before_anything_runs(silograph, sites, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    code, _, error = silograph("learn", *sites, "-o", tmp_path / "link")
    assert code == 2
    assert "it is a link" in error
    assert silograph("run", "/dev/null", "-o", tmp_path / "out")[0] == 2
    assert silograph("learn", *sites, "-o", tmp_path / "out", "--candidates", "/dev/null")[0] == 2


@pytest.mark.parametrize("command", ["learn", "check", "privacy", "report", "reproduce", "audit", "compare"])
def test_help_says_what_arguments_are(silograph, command):
    """Some versions of click drop it."""
    arguments = silograph(command, "--help")[1].split("Arguments")[1].split("Options")[0]
    assert len(arguments.split()) > 12


def test_help_groups_the_commands_and_errors_name_the_commands_own_help(silograph, sites):
    _, shown, _ = silograph("-h")
    at = [shown.index(f"─ {group} ─") for group in ("Start", "Look", "Deploy", "Research")]
    assert at == sorted(at)
    assert at[0] < shown.index(" learn ") < at[1] < shown.index(" audit ") < at[2]
    assert "--degree" in silograph("learn", "-h")[1]
    code, _, error = silograph("learn", *sites, "--degre", 3)
    assert code == 2
    assert "silograph learn --help" in error


def test_a_run_without_a_folder_writes_out(silograph, sites, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert silograph("learn", *sites, "--degree", 3)[0] == 0
    assert (tmp_path / "out" / "report.html").exists()
    code, _, error = silograph("learn", *sites, "--degree", 4)
    assert code == 2
    assert "-o" in error


def test_time_left_is_said_where_it_is_known():
    assert time_left(None, 9.0, None) == time_left((0.0, 0.0), 9.0, 0.0) == time_left((0.0, 0.0), 9.0, 1.0) == ""
    assert time_left((10.0, 0.0), 40.0, 0.25) == "about 1:30 left"
    assert time_left((10.0, 0.5), 40.0, 0.75) == "about 0:30 left"  # went on from the middle


def test_an_option_that_needs_a_budget_says_so(silograph, tmp_path):
    code, _, error = silograph("learn", tmp_path, "--clip", 2, "--mechanism", "laplace")
    assert code == 2
    assert "Add --epsilon 1, or drop --mechanism and --clip." in error


@pytest.mark.parametrize("command", ["learn", "run", "report", "compare", "privacy", "audit", "serve", "reproduce"])
def test_every_command_has_a_short_help_and_calls_a_run_folder_one(silograph, command):
    code, out, _ = silograph(command, "-h")
    assert code == 0
    assert "finished run's folder" not in out
    assert "folder of a finished run" not in " ".join(out.split())


def test_the_examples_below_help_are_commands_that_can_be_typed(silograph):
    group = get_command(app)
    assert set(EXAMPLES) == set(group.commands)
    for name, lines in EXAMPLES.items():
        for line in lines:
            program, command, *words = shlex.split(line)
            assert (program, command) == ("silograph", name)
            group.commands[name].make_context(name, words)  # refuses an option that there is not
            assert line in " ".join(silograph(name, "-h")[1].split())


def test_help_of_learn_has_a_panel_for_each_question_and_the_papers_last(silograph):
    shown = silograph("learn", "-h")[1]
    at = [shown.index(f"─ {panel}") for panel in ("Options", "Graph", "Privacy", "Tables", "The papers' model")]
    assert at == sorted(at)
    assert shown.index("--epsilon") > at[2]
    assert shown.index("--beta") > at[4]
