"""What holds for every case between organisations: the same job from public facts, the same bits over the wire.

Bytes cross as in a real deployment; a link in memory stands for the network.
"""

import json
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from cases import ROOT, Ran, Twin, every, run, same, tables_of, titled
from local_organisations import Federation, stacked
from silograph.core.errors import InputError
from silograph.deploy.deployment import Terms, make
from silograph.deploy.public_facts import Facts, gather_facts, open_organisation, open_server, organisation_facts
from silograph.privacy.ledger import Ledger
from silograph.run.jobs import open_job

PAD = ("most",)  # a task's room for records: nobody is told the largest of protected agents


@pytest.fixture
def agreed(case):
    """The plan as it can be deployed, its facts, and who holds what."""
    plan = case.plan().deployable()
    try:
        make(plan, case.base, Terms("127.0.0.1:9999", tls=False, minimum=1))
    except InputError as error:
        pytest.skip(f"no deployment has it: {error}")
    return plan, gather_facts(plan, case.base)


def paths_of(plan, facts, base):
    named = {Path(name).name.split(".")[0]: base / name for name in plan.data.files}
    return {organisation: named[organisation] for organisation in facts.organisations}


def equal(a, b, skipped=()):
    """Parameters, compared to the bottom: arrays and networks have no equality of their own."""
    if hasattr(a, "layout"):  # a network
        return a.layout == b.layout and np.array_equal(a.start, b.start)
    if is_dataclass(a):
        names = [part.name for part in fields(a) if part.name not in skipped]
        return type(a) is type(b) and all(equal(getattr(a, name), getattr(b, name), skipped) for name in names)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return a == b


def same_job(a, b, plan):
    skipped = () if plan.tells_counts else PAD
    assert equal(a.topo, b.topo)
    assert equal(a.method, b.method, skipped)
    assert (a.mechanism, a.budget, a.masks, a.most_rounds) == (b.mechanism, b.budget, b.masks, b.most_rounds)
    assert a.forecast() == b.forecast()


def arrays_of(data):
    return data if isinstance(data, dict) else stacked(data)


@every
def test_the_server_opens_the_same_job_without_a_record(case, agreed):
    plan, facts = agreed
    server = open_server(plan, facts, case.base)
    same_job(server, open_job(plan, case.base), plan)
    with pytest.raises(InputError, match="another organisation holds them"):
        server.data()


@every
def test_an_organisation_prepares_its_own_rows_bit_for_bit_and_has_no_others(case, agreed):
    plan, facts = agreed
    job, seen = open_job(plan, case.base), []
    whole = arrays_of(job.data())
    for organisation, path in paths_of(plan, facts, case.base).items():
        mine, silos = open_organisation(plan, facts, organisation, path, case.base), facts.organisations[organisation]
        same_job(mine, job, plan)
        for name, own in arrays_of(mine.data(silos)).items():
            theirs = whole[name][job.topo.index(silos)]
            if not plan.tells_counts:  # it pads to its own largest agent
                rest = np.delete(theirs, np.s_[: own.shape[1]], 1) if own.ndim > 1 else np.zeros(1)
                assert not rest.any()
                theirs = theirs[tuple(slice(size) for size in own.shape)]
            assert (own.dtype, own.shape) == (theirs.dtype, theirs.shape)
            assert own.tobytes() == np.ascontiguousarray(theirs).tobytes()
        others = [silo for silo in job.topo.silos if silo not in silos]
        for asked in (None, others[:1]):
            with pytest.raises(InputError, match="another organisation holds them"):
                mine.data(asked)
        with pytest.raises(InputError, match="there is none of that name"):
            mine.data(["nobody"])
        seen += silos
    assert sorted(seen) == list(job.topo.silos)


def federation(case, agreed, folder):
    """Every organisation as its own table makes it."""
    plan, facts = agreed
    server, paths, parts = open_server(plan, facts, case.base), paths_of(plan, facts, case.base), {}
    for organisation, silos in facts.organisations.items():
        own = open_organisation(plan, facts, organisation, paths[organisation], case.base)
        parts[organisation] = (own.method if case.twin is None else case.twin(own.method)), arrays_of(own.data(silos))
    rest = (server.mechanism, server.budget, server.masks, ROOT, server.most_rounds)
    return Federation(server.method, server.topo, {}, folder, *rest, together=facts.organisations, parts=parts)


@every
def test_organisations_learn_what_one_process_learns_over_the_wire(case, agreed, tmp_path):
    """To the last bit, or to rounding, with the same ledger, in no more rounds than were announced. What the server's
    ledger says of an organisation's silos is in the organisation's own, so that each can read its own cost."""
    plan, _ = agreed
    there = federation(case, agreed, tmp_path)
    states, outcome, door = there.run()
    whole = case.straight if plan == case.plan() else run(open_job(plan, case.base))
    same(whole, Ran(states, outcome, door), case.rounding)
    assert len(states) <= there.most_rounds
    for organisation, silos in there.organisations.items():
        own = {row.place for row in Ledger(tmp_path / organisation / "ledger.jsonl").rows}
        assert {row.place for row in door.ledger.rows if row.silo in silos} <= own


@every
def test_the_server_writes_what_the_whole_run_writes(case, agreed, tmp_path):
    plan, facts = agreed
    job = open_job(plan, case.base)
    ran, told = run(job), {}
    for who, each in (("whole", job), ("server", open_server(plan, facts, case.base))):
        (tmp_path / who).mkdir()
        told[who] = each.write(tmp_path / who, ran.outcome, [], ran.door)
    assert told["whole"] == told["server"]
    left = [{p.relative_to(tmp_path / who): p.read_bytes() for p in (tmp_path / who).rglob("*.*")} for who in told]
    assert left[0] == left[1]
    assert left[0]


@every
def test_facts_know_no_value_and_survive_json(case, agreed):
    """Every number in every table is another one: nothing that is told changes, nor what the server makes of it."""
    plan, facts = agreed
    other = tables_of(case.family, 1)
    here, there = (arrays_of(open_job(plan, base).data()) for base in (case.base, other))
    assert any(not np.array_equal(here[name], there[name]) for name in here)
    assert gather_facts(plan, other) == facts
    for organisation, path in paths_of(plan, facts, other).items():
        told = organisation_facts(plan, path)
        assert told == organisation_facts(plan, case.base / path.relative_to(other))
        assert told["organisations"][0]["name"] == organisation
    assert Facts.from_json(json.loads(json.dumps(facts.to_json())), "facts") == facts


# ---- teeth ----


class Shifting(Twin):
    """A silo whose answer depends on who else is in its organisation."""

    def local(self, carry, down, data, gate):
        carry, message = self.honest.local(carry, down, data, gate)
        many = len(next(iter(data.values())))
        return carry, {name: value.map(lambda x, n: x + 1e-9 * n, many) for name, value in message.items()}


def test_an_answer_that_depends_on_who_is_asked_beside_it_is_caught(tmp_path):
    case = titled("graphs, paper, S0")
    plan = case.plan().deployable()
    with pytest.raises(AssertionError):
        test_organisations_learn_what_one_process_learns_over_the_wire(
            replace(case, twin=Shifting), (plan, gather_facts(plan, case.base)), tmp_path
        )
