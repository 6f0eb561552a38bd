"""Audits of sites whose noise protects them together: in sums that they add noise to, or by noise that they share.

The guarantee is for the case that some of them tell what noise they drew, so the attacker is told. Lower bounds hold
with 99 % confidence at fixed roots.
"""

import math

import pytest

from audits import PRIVATE, job, tables
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.methods.graph_federation import GraphFederation
from silograph.methods.private_graph import ReleasedConsensus
from silograph.methods.summed_graph import SummedConsensus
from silograph.privacy.gate import relay
from silograph.run.audit import LEAST_RUNS, audit_job

ROOT = 11
SUM, SHARED = "graphs, secure sum", "graphs, correlated"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tables(tmp_path_factory.mktemp("among"))


# ---- past the gate ---------------------------------------------------------------------------------------------------


def raw(data):
    return relay(data["moment"] if "moment" in data else data["y"])


@pytest.mark.parametrize("observer", ["server", "wire"])
@pytest.mark.parametrize(
    ("name", "method"),
    [(SUM, SummedConsensus), ("units, masks, ridge", GraphFederation), ("clients, masks", ClusteredADMM)],
)
def test_a_copy_without_noise_beside_a_sealed_sum_is_caught(name, method, observer, folder, monkeypatch):
    honest = method.local

    def local(self, carry, down, data, gate):
        fresh, sent = honest(self, carry, down, data, gate)
        return fresh, {**sent, "copy": raw(data)}

    monkeypatch.setattr(method, "local", local)
    found = audit_job(job(PRIVATE[name], folder), observer, runs=LEAST_RUNS, root=ROOT)
    assert found.refuted
    assert math.isinf(found.epsilon_lower)
    assert "'sent: copy' of round 0 changes with the records" in found.leak


@pytest.mark.parametrize(
    ("name", "method"),
    [
        (SUM, SummedConsensus),
        (SHARED, ReleasedConsensus),
        ("units, masks, ridge", GraphFederation),
        ("clients, masks", ClusteredADMM),
    ],
)
def test_a_result_that_is_handed_over_without_noise_is_caught(name, method, folder, monkeypatch):
    monkeypatch.setattr(method, "deliver", lambda self, carry, data, gate: {"copy": raw(data)})
    found = audit_job(job(PRIVATE[name], folder), runs=LEAST_RUNS, root=ROOT)
    assert found.refuted
    assert math.isinf(found.epsilon_lower)
    assert "delivered: copy" in found.leak
