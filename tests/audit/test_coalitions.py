"""Who joins up against an agent finds what is stated against them and no more, and what a sum over all regions costs.

Four regions of five clinics, lower bounds with 99 % confidence at a fixed root.
"""

import json
from dataclasses import replace

import pytest

from silograph.audit.audit import against_coalition, audit_job
from silograph.data.federation import write_sample_clinics
from silograph.families.federation.canary import coalition_stages
from silograph.privacy import masking
from silograph.run.jobs import open_job
from silograph.run.plan import parse

EPSILON, DELTA, ROOT, RUNS = 2.0, 1e-3, 11, 300


@pytest.fixture(scope="module")
def clinics(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clinics")
    write_sample_clinics(folder, regions=4, clinics=5)
    return folder


def opened(clinics, reach):
    files = sorted(f"regions/{path.name}" for path in (clinics / "regions").iterdir())
    method = {"name": "graph_federation", "rounds": 1, "step": 4.0, "clip": 0.5, "masks": "skipped", "reach": reach}
    plan = {
        "format": 1,
        "seed": 1,
        "data": {"files": files, "agent": "clinic", "target": "readmitted"},
        "method": method,
        "privacy": {"epsilon": EPSILON, "delta": DELTA},
    }
    return open_job(parse(plan, "plan"), clinics)


@pytest.mark.parametrize("reach", ["region", "all"])
def test_no_coalition_finds_more_than_is_stated_against_it(clinics, reach):
    job = opened(clinics, reach)
    for words, stated, stage in coalition_stages(job):
        found = against_coalition(stage, DELTA, RUNS, ROOT)
        assert 0.6 * stated < found <= stated, words


def test_a_sum_over_all_costs_who_is_alone_among_corrupt_regions_more_than_was_planned(clinics):
    """The price, which sums over regions do not have."""
    *_, (words, stated, stage) = coalition_stages(opened(clinics, "all"))
    assert words == "all servers, all other regions and one more agent"
    assert EPSILON < against_coalition(stage, DELTA, RUNS, ROOT) <= stated
    for _, kept, _ in coalition_stages(opened(clinics, "region")):
        assert kept <= EPSILON * (1 + 1e-9)


def test_shares_of_noise_for_more_than_are_counted_on_are_caught(clinics, monkeypatch):
    """The broken twin: agents who count on everybody's noise."""
    real = masking.planned

    def hopeful(agents, *rest):
        made = real(agents, *rest)
        return replace(made, share=made.share * 0.7)

    monkeypatch.setattr(masking, "planned", hopeful)
    job = opened(clinics, "all")
    assert audit_job(job, runs=RUNS, root=ROOT).refuted
    _, stated, stage = coalition_stages(job)[0]
    assert against_coalition(stage, DELTA, RUNS, ROOT) > stated


def test_the_forecast_prints_what_is_played(clinics):
    job = opened(clinics, "all")
    told = json.loads(json.dumps(job.forecast()))["reach"]
    chosen = next(each for each in told if each["chosen"])
    assert [(words, epsilon) for words, epsilon, _ in coalition_stages(job)] == [
        (each["who"], each["epsilon"]) for each in chosen["coalitions"]
    ]
