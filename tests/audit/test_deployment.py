"""`silograph audit deployment/`: dishonest questions to the real organisations. Broken organisations are found, sound
ones are not accused: all random numbers are fixed, and with others an audit accuses at most one sound deployment in a
hundred."""

import json
import math
import sys

import numpy as np
import pytest

from audits import EPS, OPEN, PRIVATE, plan, tables
from silograph import cli
from silograph.audit.deployment import LEAST_PAIRS, audit_deployment, deployment_at
from silograph.audit.strategies import Strategy
from silograph.core.errors import InputError, LeakError
from silograph.deploy.deployment import FILE, Terms, make
from silograph.engines import sums
from silograph.engines.silo import Silo
from silograph.methods.base import Limits
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.privacy.door import Door
from silograph.privacy.secure_agent import Agent
from silograph.run.plan import parse

#: A client whose solver overflows, or not, depending on its records, where nothing bounds what comes down.
OVERFLOWING = plan("clusters, records, huber", EPS, penalty=1.0)
PLANS = {
    "units": PRIVATE["federation, private, masks"],
    "records": OVERFLOWING,
    "graphs": PRIVATE["graphs, one release"],
    "trusted": PRIVATE["federation, trusted server"],
    "open": OPEN["clusters, open"],
    "networks": PRIVATE["meta, first order"],
    "clients": PRIVATE["clusters, clients, masks skipped"],
    "sites": PRIVATE["graphs, secure sum"],
}


@pytest.fixture(scope="module")
def deployments(tmp_path_factory):
    """A folder for each plan, as `silograph deploy` writes the server's."""
    base, made = tables(tmp_path_factory.mktemp("tables")), {}
    for name, content in PLANS.items():
        folder = tmp_path_factory.mktemp(name) / "server"
        folder.mkdir()
        deployment = make(parse(content, "plan"), base, Terms("127.0.0.1:1", False, 2))
        (folder / FILE).write_bytes(deployment.to_bytes())
        made[name] = folder
    return made


def attacked(folder, only=None, pairs=LEAST_PAIRS, rounds=1):
    return audit_deployment(folder, pairs, 20.0, only, rounds, root=1)


# ---- broken twins ----------------------------------------------------------------------------------------------------


class PaysLate(Agent):
    """An agent as it once was: the row is written when it confirms, and its masked input has left before."""

    def mask(self, delivery, vector):
        self._late, self._pay = self._pay, lambda: None
        return super().mask(delivery, vector)

    def confirm(self, request):
        self._late()
        return super().confirm(request)


@pytest.mark.parametrize("name", ["units", "clients"])
def test_sums_that_are_paid_for_when_they_are_confirmed_are_found(name, deployments, monkeypatch):
    (sound,) = attacked(deployments[name], "unconfirmed sums", rounds=2).outcomes
    assert not sound.refuted
    assert sound.epsilon_lower < sound.paid
    monkeypatch.setattr(sums, "Agent", PaysLate)
    siege = attacked(deployments[name], "unconfirmed sums", rounds=2)
    (broken,) = siege.outcomes
    assert siege.refuted
    assert (broken.paid, broken.answers["sum"] > 0.0) == (0.0, True)
    assert 0.0 < broken.epsilon_lower < 3.0


def test_a_refusal_that_depends_on_records_is_found_by_a_search(deployments, monkeypatch):
    """An organisation as it once was: it takes any finite number from its server, and lets the solver's error out."""
    (sound,) = attacked(deployments["records"], "extreme downs").outcomes
    assert not sound.refuted
    assert {"RefusedError", "answer"} == sound.answers.keys()
    with pytest.raises(InputError, match="found nothing"):
        attacked(deployments["records"], "searched downs")
    monkeypatch.setattr(Limits, "hold", lambda limits, value: bool(np.isfinite(value).all()))
    monkeypatch.setattr(Silo, "_stood_in", _let_out)
    bounded, nothing = ClusteredADMM._record_bounded, np.zeros((1, 1))  # and the dual is not in its sensitivity
    monkeypatch.setattr(ClusteredADMM, "_record_bounded", lambda *given: bounded(*given[:4], nothing, nothing))
    siege = attacked(deployments["records"], "searched downs")
    assert siege.refuted
    (broken,) = siege.outcomes
    assert (broken.epsilon_lower, broken.paid) == (math.inf, 0.0)
    assert "LeakError" in broken.leak


def _let_out(silo, question, carry, door, name):
    raise LeakError("Bounded", "finite values", "found another")


def test_rounds_that_are_not_paid_for_are_found(deployments, monkeypatch):
    """A ledger that has a row for the first round alone. What was got is more than that row, and that is shown."""
    admit = Door.admit
    monkeypatch.setattr(Door, "admit", lambda door, row: None if row.round else admit(door, row))
    (broken,) = attacked(deployments["records"], "as agreed", pairs=60, rounds=4).outcomes
    assert broken.rounds == 4
    assert broken.refuted
    assert broken.paid < broken.epsilon_lower < math.inf


# ---- sound organisations
# ---------------------------------------------------------------------------------------------------


def test_a_sound_organisation_is_not_accused(deployments):
    siege = attacked(deployments["graphs"])
    assert not siege.refuted
    assert {each.strategy.name for each in siege.outcomes} >= {
        "as agreed",
        "chosen rounds",
        "older copy",
        "other plans",
    }
    for each in siege.outcomes:
        assert each.epsilon_lower <= each.paid
        assert each.paid <= siege.budget * (1.0 + 1e-9) or each.strategy.copies
    agreed = siege.outcomes[0]
    assert agreed.epsilon_lower > 0.2 * agreed.paid  # the attack sees something


def test_an_older_copy_of_the_folder_spends_twice_and_that_is_said(deployments):
    (copied,) = attacked(deployments["records"], "older copy").outcomes
    assert copied.ledger < copied.paid
    assert not copied.refuted
    (noticed,) = attacked(deployments["records"], "older state").outcomes
    assert "DamageError" in noticed.answers
    assert noticed.ledger == noticed.paid


@pytest.mark.parametrize("name", ["records", "units"])
def test_an_early_end_gets_answers_before_it_and_none_after_it(name, deployments):
    (ended,) = attacked(deployments[name], "early end", rounds=2).outcomes
    assert ended.released
    assert ended.paid > 0.0
    assert not ended.refuted
    # Two rounds with results before and after each, and the end; then a question at once, and one after a restart.
    assert (ended.answers["answer"], ended.answers["RefusedError"]) == (7, 2)
    assert "gone" not in ended.answers


def test_a_strategy_to_which_nothing_was_released_says_so(deployments, monkeypatch, capsys):
    nothing = Strategy(
        "silence", "asks for another plan", lambda at, rounds: at.ask(at.theatre.worlds.organisation, b"")
    )
    monkeypatch.setattr("silograph.audit.deployment.STRATEGIES", (nothing,))
    chosen = ("--strategy", "silence", "--runs", LEAST_PAIRS, "--seconds", 1)
    code, text = said(monkeypatch, capsys, deployments["graphs"], *chosen)
    assert (code, "nothing was released" in text.out) == (0, True)


@pytest.mark.parametrize("name", ["networks", "sites"])
def test_every_method_can_be_attacked(name, deployments):
    siege = attacked(deployments[name], "never used")
    assert not siege.refuted
    assert siege.outcomes[0].answers["answer"] > 0.0
    assert siege.worlds.steps == (2 if name == "networks" else 1)


@pytest.mark.parametrize("name", ["trusted", "open"])
def test_where_nothing_is_claimed_nothing_is_refuted(name, deployments):
    siege = attacked(deployments[name])
    assert not siege.refuted
    assert siege.to_json()["claimed"] is False


# ---- as a person and as a machine sees it ----------------------------------------------------------------------------


def said(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["silograph", "audit", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code, capsys.readouterr()


def test_a_deployment_is_found_by_its_file_and_by_any_of_its_folders(deployments, tmp_path):
    server = deployments["graphs"]
    assert deployment_at(server / FILE) == deployment_at(server) == deployment_at(server.parent) == server
    assert deployment_at(tmp_path) is None


def test_words_and_numbers(deployments, monkeypatch, capsys):
    monkeypatch.setattr("silograph.audit.deployment.secret_root", lambda: 1)
    chosen = ("--strategy", "older copy", "--runs", LEAST_PAIRS, "--seconds", 1)
    code, text = said(monkeypatch, capsys, deployments["graphs"].parent, *chosen)
    assert code == 0
    for words in ("The plan promises ada, whatever its server asks, at most epsilon 3 at delta 1e-05", "not refuted"):
        assert words in text.out
    code, text = said(monkeypatch, capsys, deployments["graphs"], *chosen, "--json")
    told = json.loads(text.out)
    assert (code, told["refuted"], told["epsilon_budget"], told["confidence"]) == (0, False, 3.0, 0.99)
    assert told["strategies"][0]["strategy"] == "older copy"
    code, text = said(monkeypatch, capsys, deployments["open"])
    assert (code, "claims no epsilon" in text.out) == (0, True)


def test_a_refuted_deployment_has_an_exit_code_of_its_own(deployments, monkeypatch, capsys):
    monkeypatch.setattr("silograph.audit.deployment.secret_root", lambda: 1)
    monkeypatch.setattr(sums, "Agent", PaysLate)
    chosen = ("--strategy", "unconfirmed sums", "--runs", LEAST_PAIRS, "--seconds", 1)
    code, text = said(monkeypatch, capsys, deployments["units"], *chosen)
    assert code == 3
    assert "REFUTED. A server can learn more than an organisation's ledger says." in text.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--one-run",), "the server as the observer"),
        (("--observer", "wire"), "the server as the observer"),
        (("--runs", "3"), f"{LEAST_PAIRS} to"),
        (("--seconds", "-1"), "a number above 0"),
        (("--strategy", "prayer", "--seconds", "1"), "one of as agreed"),
    ],
)
def test_what_an_audit_of_a_deployment_cannot_do_is_refused(options, words, deployments, monkeypatch, capsys):
    code, text = said(monkeypatch, capsys, deployments["graphs"], *options)
    assert code == 2
    assert words in text.err


def test_seconds_are_for_deployments(deployments, monkeypatch, capsys, tmp_path):
    (tmp_path / "plan.toml").write_text("")
    assert said(monkeypatch, capsys, tmp_path / "plan.toml", "--seconds", "3")[0] == 2


def test_too_few_trials_are_refused_before_any_work(deployments):
    with pytest.raises(InputError, match="for a deployment"):
        audit_deployment(deployments["graphs"], LEAST_PAIRS - 1)
