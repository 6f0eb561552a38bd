"""Audits of persons' votes: the worst person is two who share no vote, and twins of the real code are caught.

Lower bounds hold with 99 % confidence at fixed roots. Two votes a person, so that a third one shows.
"""

import numpy as np
import pytest

from audits import PRIVATE, job, tables
from silograph.audit.audit import audit_job
from silograph.families.graphs.canary_votes import opposites, rows_with
from silograph.kernels import votes as honest
from silograph.tasks import person_votes
from silograph.tasks.person_votes import PersonVotes

SUM, EACH, RUNS, ROOT = "graphs, votes, secure sum", "graphs, votes, one release", 2000, 21


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tables(tmp_path_factory.mktemp("votes"))


def found(name, folder):
    content = {**PRIVATE[name], "method": {**PRIVATE[name]["method"], "edges": 2}}
    return audit_job(job(content, folder), runs=RUNS, root=ROOT)


def test_a_person_can_be_made_for_any_strengths_and_votes_by_them():
    rng = np.random.default_rng(0)
    for nodes, edges in ((8, 6), (30, 60), (116, 348)):
        strength = np.zeros(nodes * (nodes - 1) // 2)
        chosen = rng.choice(len(strength), 2 * edges if nodes > 8 else 14, replace=False)
        strength[chosen] = rng.permutation(np.linspace(0.5, 1.0, len(chosen)))
        strongest = chosen[np.argsort(-strength[chosen])[:edges]]
        assert set(np.flatnonzero(honest.vote(rows_with(strength, nodes), edges))) == set(strongest)


def test_opposites_reach_the_bound_and_share_no_vote_with_others():
    task = PersonVotes(12, 5, "who")
    voted = [[honest.vote(rows, 5) for rows, _ in pair] for pair in opposites(task)]
    assert len(voted) == 5
    for one, other in voted:
        assert np.linalg.norm(one.astype(float) - other) == pytest.approx(task.summand_bound.l2)
    assert np.sum([vote for pair in voted for vote in pair], axis=0).max() == 1


@pytest.mark.parametrize("name", [SUM, EACH])
def test_of_a_sound_plan_nearly_all_that_is_promised_is_found(name, folder):
    audit = found(name, folder)
    assert 0.9 * audit.promised <= audit.epsilon_lower <= audit.promised
    assert "share no vote" in audit.canary


def one_more(rows, edges):
    return honest.vote(rows, edges + 1)


def by_the_data(rows, edges):
    """As many as are clearly there."""
    scaled = (rows - rows.mean(0)) / np.where(rows.std(0) > 0.0, rows.std(0), 1.0)
    clear = int((np.triu(scaled.T @ scaled / len(rows), 1) > 1e-3).sum())
    return honest.vote(rows, clear)


def weighted(rows, edges):
    """A person with more rows counts for more."""
    return honest.vote(rows, edges) * np.log2(len(rows))


@pytest.mark.parametrize("name", [SUM, EACH])
@pytest.mark.parametrize("twin", [one_more, by_the_data, weighted])
def test_votes_beyond_k_and_votes_with_weights_are_caught(twin, name, folder, monkeypatch):
    monkeypatch.setattr(person_votes, "vote", twin)
    assert found(name, folder).refuted
