"""Audits of sites whose noise protects them together: in sums that they add noise to, or by noise that they share.

The guarantee is for the case that some of them tell others what noise they drew, so the attacker is told. Lower bounds
hold with 99 % confidence at fixed roots.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from audits import PRIVATE, job, tables
from silograph.audit.audit import LEAST_RUNS, audit_job
from silograph.methods.clustered_admm import ClusteredADMM
from silograph.methods.graph_federation import GraphFederation
from silograph.methods.private_graph import ReleasedConsensus
from silograph.methods.summed_graph import SummedConsensus
from silograph.privacy import masking
from silograph.privacy.correlated import CorrelatedGaussian
from silograph.privacy.masking import MaskedSum
from silograph.privacy.mechanisms import DistributedGaussian
from silograph.privacy.relay import relay
from silograph.privacy.samplers import Keystream

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
    [
        (SUM, SummedConsensus),
        ("federation, private, masks skipped, ridge", GraphFederation),
        ("clusters, clients, masks skipped", ClusteredADMM),
    ],
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
        ("federation, private, masks skipped, ridge", GraphFederation),
        ("clusters, clients, masks skipped", ClusteredADMM),
    ],
)
def test_a_result_that_is_handed_over_without_noise_is_caught(name, method, folder, monkeypatch):
    monkeypatch.setattr(method, "deliver", lambda self, carry, data, gate: {"copy": raw(data)})
    found = audit_job(job(PRIVATE[name], folder), runs=LEAST_RUNS, root=ROOT)
    assert found.refuted
    assert math.isinf(found.epsilon_lower)
    assert "delivered: copy" in found.leak


# ---- those who tell --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [SUM, SHARED])
def test_of_a_sound_plan_nearly_all_that_is_promised_is_found(name, folder):
    """Without being told any noise, an attack could show only sqrt(2/3) of mu in a sum."""
    found = audit_job(job(PRIVATE[name], folder), runs=2000, root=1_000_000)
    assert 0.9 * found.promised <= found.epsilon_lower <= found.promised
    assert "tell others what noise they drew" in found.canary


def test_what_is_told_is_the_noise_that_is_in_the_sum():
    """All of it taken off leaves the vectors on their grid."""
    noise = DistributedGaussian(0.1)
    made = MaskedSum(("a", "b", "c", "d"), 0, "u", "x", 2.0, 5, masking.Masks("skipped"), noise)
    vectors = {name: np.full(5, 0.25 * k) for k, name in enumerate(made.members)}
    total = masking.Summands(vectors, made).task(ROOT)().values
    told = sum(made.noise_of(ROOT, name) for name in made.members)
    assert np.abs(told).min() > 0.0
    assert total - told == pytest.approx(sum(vectors.values()), abs=1e-9)


@pytest.mark.parametrize("name", [SUM, "federation, private, masks skipped, ridge", "clusters, clients, masks skipped"])
def test_shares_of_noise_for_more_than_are_counted_on_are_caught(name, folder, monkeypatch):
    """The twin's shares add up to what the ledger says only if nobody tells."""
    real = masking.planned

    def hopeful(agents, *rest):
        made = real(agents, *rest)
        return replace(made, share=made.share * math.sqrt(made.contributors / agents))

    monkeypatch.setattr(masking, "planned", hopeful)
    found = audit_job(job(PRIVATE[name], folder), runs=2000 if name == SUM else 500, root=ROOT)
    assert math.isfinite(found.epsilon_lower)
    assert found.refuted


def test_shared_noise_for_more_than_are_counted_on_is_caught(folder, monkeypatch):
    real = CorrelatedGaussian._streams

    def hopeful(self, place):
        own, shared = math.sqrt(2.0 / 5), math.sqrt(2.0 * 3) / 5  # of five sites three are counted on
        for k, (sign, _, stream) in enumerate(real(self, place)):
            yield sign, shared if k else own, stream

    monkeypatch.setattr(CorrelatedGaussian, "_streams", hopeful)
    found = audit_job(job(PRIVATE[SHARED], folder), runs=2000, root=ROOT)
    assert math.isfinite(found.epsilon_lower)
    assert found.refuted


def test_sites_of_a_sum_that_draw_the_same_noise_are_caught(folder, monkeypatch):
    def same(self, root, name):
        return Keystream(root, self.region, self.round, self.release_point).take

    monkeypatch.setattr(MaskedSum, "noise_source", same)
    found = audit_job(job(PRIVATE[SUM], folder), runs=LEAST_RUNS, root=ROOT)
    assert found.refuted
    assert "two sites add the same noise" in found.leak


def test_sites_that_share_noise_and_draw_the_same_of_their_own_are_caught(folder, monkeypatch):
    real = CorrelatedGaussian._streams

    def same(self, place):
        streams = list(real(self, place))
        return [(1, self.own, Keystream(*place._replace(silo=place.silo.split("/")[0]))), *streams[1:]]

    monkeypatch.setattr(CorrelatedGaussian, "_streams", same)
    found = audit_job(job(PRIVATE[SHARED], folder), runs=LEAST_RUNS, root=ROOT)
    assert found.refuted
    assert "two sites add the same noise" in found.leak
