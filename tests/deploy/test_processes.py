"""Deployments with real processes, TLS and kill -9: the whole matrix by `make test-deploy`, in `make test` a part."""

import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

pytest.importorskip("nats", reason="deployments need the extra `deploy`")

from organisations import TERMINATED, Organisations, free_port

from silograph.privacy.accounting import cost
from silograph.privacy.ledger import Ledger
from silograph.run.run import execute

FULL = os.environ.get("SILOGRAPH_DEPLOY") == "full"
full = pytest.mark.skipif(not FULL, reason="the long lane: make test-deploy")

GRAPHS = """
format = 1
seed = 4
[data]
files = ["ada.csv", "bob.csv", "cyd.csv"]
[method]
name = "consensus_graph"
solver = "paper"
beta = 0.05
nu = 3.0
lambda = 0.05
rounds = 15
[privacy]
epsilon = 3.0
mode = "per-round"
clip = 6.0
"""

OPEN = """
format = 1
[data]
files = ["ada.csv", "bob.csv", "cyd.csv"]
[method]
name = "consensus_graph"
"""

VOTES = """
format = 1
seed = 4
[data]
files = ["ada.csv", "bob.csv", "cyd.csv"]
unit_column = "who"
[method]
name = "consensus_graph"
learner = "votes"
edges = 6
[privacy]
epsilon = 8.0
delta = 1e-3
"""

MASKS = """
format = 1
seed = 4
[data]
files = ["east.csv", "north.csv", "west.csv"]
agent = "agent"
target = "y"
[method]
name = "graph_federation"
loss = "ridge"
step = 0.3
rounds = 6
clip = 0.5
masks = "protocol"
[privacy]
epsilon = 8.0
delta = 1e-3
"""


def graph_tables(folder, seed=0):
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(6, 6))
    for name, count in {"ada": 200, "bob": 150, "cyd": 260}.items():
        x = rng.normal(size=(count, 6)) @ mix
        lines = ["a,b,c,d,e,f", *(",".join(f"{v:.12f}" for v in row) for row in x)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


def vote_tables(folder, seed=0):
    rng = np.random.default_rng(seed)
    for name in ("ada", "bob", "cyd"):
        rows = rng.normal(size=(50 * 9, 6)).cumsum(1)
        lines = [",".join([f"p{k // 9}", *(f"{v:.6f}" for v in row)]) for k, row in enumerate(rows)]
        (folder / f"{name}.csv").write_text("\n".join(["who,a,b,c,d,e,f", *lines]) + "\n")


def region_tables(folder, seed=0):
    rng = np.random.default_rng(seed)
    for unit in ("east", "north", "west"):
        lines = ["agent,u,v,y"]
        for agent in range(12):
            for u, v in rng.uniform(-1, 1, (8, 2)):
                lines.append(f"{unit}{agent},{u:.5f},{v:.5f},{0.7 * u - 0.2 * v + 0.05 * rng.normal():.5f}")
        (folder / f"{unit}.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def organisations(tmp_path):
    made = []

    def make(text=GRAPHS, tables=graph_tables, **options):
        data = tmp_path / "data"
        data.mkdir()
        tables(data)
        (data / "plan.toml").write_text(text)
        made.append(Organisations(tmp_path, data / "plan.toml", **options))
        return made[0]

    yield make
    for each in made:
        each.close()


class Killer:
    """Kills some of the processes at moments of its own choosing."""

    def __init__(self, there, seed, names, times, span):
        chance = random.Random(seed)
        self.there = there
        self.due = sorted((chance.uniform(0.5, span), chance.choice(names)) for _ in range(times))

    def __call__(self, now):
        while self.due and now > self.due[0][0]:
            _, name = self.due.pop(0)
            if name == "nats":
                self.there.kill_nats()
            elif self.there.running[name].poll() is None:
                self.there.kill(name)


# ---- the short lane --------------------------------------------------------------------------------------------------


def test_a_run_across_processes_with_kills_is_the_run_in_one_process(organisations):
    there = organisations()
    killer = Killer(there, 28, ["server", "bob", "nats"], 4, 14.0)
    there.run(killer)
    there.check_same_as_in_one_process()
    told = [json.loads(line) for line in (there.out / "rounds.jsonl").read_text().splitlines()]
    assert {line["answered"] for line in told} == {3}
    for organisation in there.organisations:  # each ends with its own result and its own account
        folder = there.goal / organisation
        own, account = np.load(folder / "own.npz"), json.loads((folder / "own.json").read_text())
        assert own["w"].shape == own["told_consensus"].shape == (1, 15)
        assert account["rounds"] == 15
        assert all(0 < row["epsilon"] <= 3.0 for row in account["guarantees"])
        assert f"<bdi>{organisation}</bdi>, the run is over" in (folder / "own.html").read_text()
    done = subprocess.run(there.command("server"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "This run was already over." in done.stdout


def test_a_server_says_who_is_connected_and_for_whom_it_waits_how_long(organisations):
    there = organisations(OPEN)
    there.start("server")
    there.wait_for(
        "server", r"0 of 3 are connected. Waiting for ada \(\d+ s\), bob \(\d+ s\) and cyd \(\d+ s\) to connect"
    )
    there.start("bob")
    there.wait_for("server", r"1 of 3 are connected. Waiting for ada \(\d+ s\) and cyd \(\d+ s\) to connect")
    for name in ("ada", "cyd"):
        there.start(name)
    there.run_on()


def fetched(port, page):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5) as answer:
        return answer.read().decode()


def test_a_supervisor_ends_processes_well_sees_how_they_are_and_reads_lines_without_values(organisations):
    there = organisations(GRAPHS.replace("rounds = 15", "rounds = 40"))
    ports = {name: free_port() for name in ("server", "bob")}
    there.more = {name: ["--monitor", str(port), "--json-log"] for name, port in ports.items()}
    seen, due = {}, ["bob", "server"]

    def look(now):
        for name, port in ports.items():
            with contextlib.suppress(OSError):
                told = json.loads(fetched(port, "health"))
                if told["rounds"] >= 5:
                    seen[name] = (told, fetched(port, "metrics"))
        if due and "server" in seen and there.running[due[0]].poll() is None:
            name = due.pop(0)
            there.running[name].send_signal(signal.SIGTERM)
            assert there.running[name].wait(30) == TERMINATED, there.log(name)

    there.run(look)
    there.check_same_as_in_one_process()
    for name, (told, metrics) in seen.items():
        assert told["name"] == name
        assert told["deployment"] == there.deployment.digest
        assert 0.0 <= told["epsilon_left"] < 3.0
        assert "\nsilograph_epsilon_budget 3.0\n" in metrics
        assert '\nsilograph_epsilon_spent{silo="bob"} ' in metrics
    assert '\nsilograph_waiting{organisation="ada"} ' in seen["server"][1]
    lines = {name: [json.loads(line) for line in there.log(name).splitlines() if line[0] == "{"] for name in ports}
    for name in ports:
        assert [line["exit"] for line in lines[name] if line["event"] == "error"] == [TERMINATED]
    assert {line["round"] for line in lines["server"] if line["event"] == "round"} >= set(range(1, 41))
    assert "SIGTERM" in (there.goal / "bob" / "last-error.txt").read_text()


def test_nobody_talks_to_anybody_else_and_nothing_goes_by_udp(organisations, tmp_path):
    """By what the kernel is asked for, in all processes and their children."""
    strace = ["strace", "-ff", "-qq", "-e", "trace=socket,connect,sendto,sendmsg", "-o", str(tmp_path / "calls")]
    if shutil.which("strace") is None:
        pytest.skip("there is no strace here")
    if subprocess.run(["strace", "-o", "/dev/null", "true"], check=False, capture_output=True).returncode:
        pytest.skip("strace may not look here")
    there = organisations(GRAPHS.replace("rounds = 15", "rounds = 3"))
    there.prefix = tuple(strace)
    there.run()
    calls = [line for path in tmp_path.glob("calls.*") for line in path.read_text(errors="replace").splitlines()]
    asked = [line for line in calls if line.startswith("socket(AF_INET")]
    assert asked
    assert not [line for line in asked if "SOCK_STREAM" not in line]
    places = set()
    for line in calls:
        if line.startswith(("connect(", "sendto(", "sendmsg(")) and "sa_family=" in line and "AF_UNIX" not in line:
            places.add(tuple(re.findall(r'sin6?_port=htons\((\d+)\)|inet_(?:addr|pton)\([^"]*"([^"]+)"', line)))
    assert places == {((str(there.deployment.terms.port), ""), ("", "127.0.0.1"))}


def exchange_identities(there):
    """For a sum of sites of different organisations: without the operator."""
    held = {
        organisation: bytes.fromhex((there.goal / organisation / "identity.key").read_text())
        for organisation in there.organisations
    }
    keys = {organisation: Ed25519PrivateKey.from_private_bytes(raw).public_key() for organisation, raw in held.items()}
    roster = {organisation: key.public_bytes_raw().hex() for organisation, key in keys.items()}
    for organisation in there.organisations:
        (there.goal / organisation / "roster.json").write_text(json.dumps(roster))


def check_same_sum(there):
    """The row of an organisation's own ledger is of its vector, that of the server of the sum."""
    expected = execute(there.deployment.plan, there.plan.parent, there.folder / "one", lambda *_: None, lambda _: "")
    for name in ("consensus.csv", "consensus.graphml", "ledger.jsonl"):
        assert (there.out / name).read_bytes() == (expected.folder / name).read_bytes(), name


@full
def test_votes_of_persons_across_processes_are_those_of_one_process(organisations):
    """Nobody named the mode: three organisations agree on a secure sum."""
    there = organisations(VOTES, vote_tables)
    assert 'mode = "secure-sum"' in there.deployment.plan_text
    exchange_identities(there)
    there.run()
    check_same_sum(there)
    assert json.loads((there.out / "result.json").read_text())["learner"] == "votes"


@pytest.mark.parametrize("reveal", [pytest.param("moments", marks=full), "sum"])
def test_moments_and_their_sum_across_processes_are_those_of_one_process(reveal, organisations):
    there = organisations(f'{OPEN}reveal = "{reveal}"\n')
    exchange_identities(there)
    there.run()
    if reveal == "moments":
        there.check_same_as_in_one_process()
    else:
        check_same_sum(there)
    assert json.loads((there.out / "result.json").read_text())["learner"] == "likelihood"


def test_what_lies_at_the_server_is_released_and_what_is_secret_is_for_its_owner_alone(organisations):
    there = organisations(GRAPHS.replace("seed = 4\n", ""))
    for organisation in there.organisations:
        for name in ("node.key", "identity.key"):
            assert (there.goal / organisation / name).stat().st_mode & 0o077 == 0
    roots, memory = {}, set()

    def look(now):
        for path in there.goal.glob("*/root"):
            with contextlib.suppress(FileNotFoundError):
                roots[path.parent.name] = path.read_text()

        for name in there.organisations:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                told = Path(f"/proc/{there.running[name].pid}/smaps_rollup").read_text()
                memory.update(int(line.split()[1]) for line in told.splitlines() if line.startswith("Pss:"))

    there.run(look)
    secrets = set(roots.values())
    assert memory
    assert max(memory) < 150_000  # kB of its own, and its share of what it shares with others
    assert len(secrets) == 3
    assert not [*there.goal.glob("*/root"), *there.goal.glob("*/state.npz")]  # they are gone with the run
    tables = [line for path in there.plan.parent.glob("*.csv") for line in path.read_text().splitlines()[1:]]
    cells = {cell for line in tables for cell in line.split(",")}  # twelve digits: no chance meeting
    for path in (*there.out.rglob("*"), *(there.goal / "server").rglob("*"), *there.folder.glob("*.log")):
        if path.is_file():
            text = path.read_text(errors="replace")
            assert not any(secret in text for secret in secrets), path
            assert not any(cell in text for cell in cells), path
    result = json.loads((there.out / "result.json").read_text())
    assert all(0 < each["epsilon"] <= 3.0 for each in result["privacy"]["guarantees"])
    rows = {row.randomness for row in Ledger(there.goal / "ada" / "ledger.jsonl").rows}
    assert rows == {"secret entropy of this machine"}


# ---- the long lane ---------------------------------------------------------------------------------------------------


@full
@pytest.mark.parametrize("seed", range(30))
def test_kills_at_random_moments_change_nothing(organisations, seed):
    there = organisations()
    who = [["server"], ["ada"], ["ada", "bob", "cyd"], ["server", "ada", "bob", "cyd"]][seed % 4]
    there.run(Killer(there, seed, who, 1 + seed % 5, 16.0))
    there.check_same_as_in_one_process()


@full
@pytest.mark.parametrize("seed", range(10))
def test_kills_of_nats_and_of_anybody_else_change_nothing(organisations, seed):
    there = organisations(GRAPHS.replace("rounds = 15", "rounds = 60"))
    there.run(Killer(there, seed, ["nats", "nats", "server", "ada"], 8, 20.0))
    there.check_same_as_in_one_process()


@full
@pytest.mark.parametrize("seed", range(10))
def test_kills_of_organisations_in_secure_sums_lose_no_row_and_hang_nobody(organisations, seed):
    there = organisations(MASKS, region_tables, options={"deadline": 20.0, "minimum": 3})
    there.run(Killer(there, seed, there.organisations, 1 + seed % 2, 14.0))
    for organisation in there.organisations:
        rows = Ledger(there.goal / organisation / "ledger.jsonl").rows
        assert len({row.place for row in rows}) == len(rows)
        for agent in {row.silo for row in rows}:
            assert cost([row for row in rows if row.silo == agent], 1e-3).epsilon <= 8.0 * (1 + 1e-9)
    assert (there.out / "result.json").exists()


@full
def test_secure_sums_across_processes_are_those_of_one_process(organisations):
    there = organisations(MASKS, region_tables)
    there.run()
    there.check_same_as_in_one_process()


@full
@pytest.mark.parametrize("seed", range(10))
def test_an_organisation_that_sleeps_past_the_deadline_is_absent_and_pays_for_what_it_sent(organisations, seed):
    """Stopped for eight seconds with a deadline of two: rounds go on without it, and it comes back."""
    there = organisations(options={"deadline": 2.0, "minimum": 2})
    chance = random.Random(seed)
    asleep = {"at": chance.uniform(6.0, 12.0), "until": None}

    def disturb(now):
        process = there.running["bob"]
        if asleep["until"] is None and now > asleep["at"] and process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            asleep["until"] = now + 8.0
        elif asleep["until"] and now > asleep["until"]:
            process.send_signal(signal.SIGCONT)
            asleep["until"] = float("inf")

    there.run(disturb)
    own = Ledger(there.goal / "bob" / "ledger.jsonl").rows
    known = {row.place for row in Ledger(there.out / "ledger.jsonl").rows if row.silo == "bob"}
    assert known <= {row.place for row in own}
    assert cost(own, 1e-5).epsilon <= 3.0 * (1 + 1e-9)


@full
def test_an_organisation_that_never_comes_ends_the_run_in_the_stated_time(organisations):
    there = organisations(options={"minimum": 3, "deadline": 3.0, "patience": 15.0})
    for name in ("server", "ada", "bob"):
        there.start(name)
    assert there.running["server"].wait(60) == 1
    assert "missing are cyd" in there.log("server")
    for name in ("ada", "bob"):
        assert there.running[name].wait(90) == 1
        assert "server" in there.log(name)
    # It comes after all, and so do the others: the run goes on.
    there.run()
    there.check_same_as_in_one_process()


@full
def test_an_organisation_that_is_gone_at_the_end_is_done_without_and_hears_of_it_later(organisations):
    there = organisations(options={"minimum": 2, "deadline": 2.0, "patience": 8.0})
    for name in ("server", *there.organisations):
        there.start(name)
    while "round 0" not in there.log("bob"):
        time.sleep(0.02)
    there.kill("bob")
    del there.running["bob"]
    there.run_on()
    assert "not yet informed that the run is over: bob" in there.log("server")
    assert "bob did not hand over" in (there.out / "result.json").read_text()
    there.start("bob")
    there.start("server")
    there.run_on()
    assert "This run was already over." in there.log("server")
    assert (there.goal / "bob" / "own.html").exists()
    assert "not yet told" not in there.log("server").partition("This run was already over.")[2]


@full
def test_an_organisation_from_an_older_copy_ends_and_takes_part_again_with_the_newest(organisations):
    there = organisations(GRAPHS.replace("rounds = 15", "rounds = 300"), options={"deadline": 30.0})
    own, older, newest = there.goal / "ada", there.folder / "older", there.folder / "newest"

    def at_round(number):
        while f"round {number}:" not in there.log("ada"):
            assert there.running["ada"].poll() is None, there.log("ada")
            time.sleep(0.02)
        there.kill("ada")

    for name in ("server", *there.organisations):
        there.start(name)
    at_round(5)
    shutil.copytree(own, older)
    there.start("ada")
    at_round(15)
    own.rename(newest)
    older.rename(own)
    there.start("ada")
    assert there.running["ada"].wait(60) == 2, there.log("ada")
    assert "This folder is an older copy" in there.log("ada").splitlines()[-1]
    shutil.rmtree(own)
    newest.rename(own)
    there.start("ada")
    there.run_on()
    rows = Ledger(own / "ledger.jsonl").rows
    assert len({row.place for row in rows}) == len(rows) > 15


@full
def test_an_organisation_with_a_full_disk_sends_nothing_more_until_there_is_room(organisations):
    there = organisations(options={"deadline": 10.0, "minimum": 3})
    small = 6_000  # bytes a file may have: the ledger fills up after a few rounds

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (small, small))

    for name in ("server", "ada", "cyd"):
        there.start(name)
    there.start("bob", limit)
    assert there.running["server"].wait(60) == 1
    assert "missing are bob (refused: OSError)" in there.log("server")
    there.kill("bob")
    before = Ledger(there.goal / "bob" / "ledger.jsonl").rows
    assert before
    there.start("server")
    there.start("bob")
    there.run_on()
    there.check_same_as_in_one_process()
    assert Ledger(there.goal / "bob" / "ledger.jsonl").rows[: len(before)] == before


@full
def test_it_works_with_no_network_but_loopback(organisations):
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare here")
    probe = subprocess.run(["unshare", "-rn", "true"], check=False, capture_output=True)
    if probe.returncode:
        pytest.skip("namespaces are not allowed here")
    there = organisations()
    script = "ip link set lo up; " + " & ".join(
        " ".join(f"'{part}'" for part in there.command(name)) for name in (*there.organisations, "server")
    )
    done = subprocess.run(
        ["unshare", "-rn", "sh", "-c", script + "; wait"], timeout=200, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    there.check_same_as_in_one_process()
