"""An organisation that answers in stock Flower, a new process for every message."""

import pytest

from audits import PRIVATE, tables
from silograph.audit.worlds import secret
from silograph.deploy.deployment import FILE, Terms, make
from silograph.deploy.organisation import ROOT, enrol
from silograph.engines.question import NEVER, Question
from silograph.engines.silo import OWN
from silograph.run.plan import parse

pytest.importorskip("flwr", reason="needs the extra flower")


def test_an_organisation_forgets_the_root_of_its_noise_when_the_run_is_over(tmp_path, monkeypatch):
    from flwr.app import Context, Message, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    from silograph.flower_apps import ASK, ask, content

    for name in ("task", "run", "node"):
        monkeypatch.setattr(TaskIdentity, f"_{name}_id", 1)  # as in a process that Flower started
    (tmp_path / "tables").mkdir()
    base, folder = tables(tmp_path / "tables"), tmp_path / "ada"
    deployment = secret(make(parse(PRIVATE["graphs, one release"], "plan"), base, Terms("127.0.0.1:1", False, 2)))
    folder.mkdir()
    (folder / FILE).write_bytes(deployment.to_bytes())
    enrol(folder, base / "consensus_graph" / "ada.csv")
    members = tuple(deployment.facts.organisations)

    def answered(kind, round):
        question = Question(deployment.digest, "ada", kind, round, NEVER, ("ada",), members, {})
        context = Context(1, 1, {"folder": str(folder)}, RecordDict(), {})
        return ask(Message(content(blob=question.pack()), 1, ASK), context).has_content()

    assert answered("deliver", 0)
    assert (folder / ROOT).exists()
    assert answered("end", 1)
    assert (folder / OWN).exists()
    assert not (folder / ROOT).exists()
    assert not answered("deliver", 2)
    assert not (folder / ROOT).exists()
