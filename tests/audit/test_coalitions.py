"""Who joins up against an agent finds what is stated against them and no more, and what a sum over all regions costs.

Four regions of five clinics, lower bounds with 99 % confidence at a fixed root.
"""

import json
from dataclasses import replace

import pytest

from silograph.audit.audit import against_coalition, audit_job
from silograph.data.federation import write_sample_clinics
from silograph.families.federation.canary import coalition_stages
from silograph.families.federation.coalitions import Reached, coalitions
from silograph.privacy import accounting, masking
from silograph.privacy.mechanisms import SharedLaplace
from silograph.run.jobs import open_job
from silograph.run.plan import dumps, parse

EPSILON, DELTA, ROOT, RUNS = 2.0, 1e-3, 11, 300


@pytest.fixture(scope="module")
def clinics(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clinics")
    write_sample_clinics(folder, regions=4, clinics=5)
    return folder


def opened(clinics, reach, **given):
    files = sorted(f"regions/{path.name}" for path in (clinics / "regions").iterdir())
    settings = given or {"name": "graph_federation", "rounds": 1, "step": 4.0, "clip": 0.5}
    method = {**settings, "masks": "skipped", "reach": reach}
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


def test_shares_of_laplace_noise_keep_what_is_stated(clinics):
    """Calibrated models of so few agents are a constant, one number with Laplace noise. Attacks without a law for the
    noise find less of it."""
    job = opened(clinics, "all", name="graph_federation")
    assert job.mechanism == SharedLaplace(accounting.laplace_multiplier(EPSILON, 1))
    stated = [each for _, each, _ in coalition_stages(job)]
    assert stated[0] == EPSILON < stated[1] < stated[2]
    for words, each, stage in coalition_stages(job):
        assert against_coalition(stage, DELTA, 2000, ROOT) <= each, words
    *_, (_, _, alone) = coalition_stages(job)
    assert against_coalition(alone, DELTA, 2000, ROOT) > EPSILON


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


def test_the_command_plays_them_and_says_whether_one_learned_more(clinics, silograph, monkeypatch):
    plan = clinics / "plan.toml"
    plan.write_text(dumps(opened(clinics, "all").plan))
    code, out, _ = silograph("audit", plan, "--coalitions", "--runs", RUNS)
    assert code == 0
    assert "Not refuted" in out
    assert "all servers and three whole regions of others" in out
    monkeypatch.setattr("silograph.families.federation.coalitions.Reached.epsilon_against", lambda *_: 0.1)
    code, out, _ = silograph("audit", plan, "--coalitions", "--runs", RUNS, "--json")
    assert code == 3
    assert all(each["refuted"] for each in json.loads(out)["coalitions"])


def test_who_shares_no_noise_has_no_coalitions_to_play(clinics, silograph, tmp_path):
    silograph("sample", tmp_path)
    (tmp_path / "plan.toml").write_text(
        'format = 1\n[data]\nfiles = ["site_hill.csv", "site_mill.csv"]\nscale = "none"\n[privacy]\nepsilon = 9.0\n'
    )
    code, _, error = silograph("audit", tmp_path / "plan.toml", "--coalitions")
    assert code == 2
    assert "secure sums" in error


def test_the_forecast_prints_what_is_played(clinics):
    job = opened(clinics, "all")
    told = json.loads(json.dumps(job.forecast()))["reach"]
    chosen = next(each for each in told if each["chosen"])
    assert [(words, epsilon) for words, epsilon, _ in coalition_stages(job)] == [
        (each["who"], each["epsilon"]) for each in chosen["coalitions"]
    ]


def test_seventy_five_people_with_a_constant_alone_are_audited_as_promised(tmp_path, silograph, monkeypatch):
    """Most of their shares of Laplace noise are zero or next to it, which is no leak; there is no delta, in the finding
    that is kept with the run either."""
    for region in "abc":
        lines = [f"{region}{k},{k % 7 / 10},{k % 5}" for k in range(25)]
        (tmp_path / f"{region}.csv").write_text("\n".join(["person,age,days", *lines]) + "\n")
    (tmp_path / "plan.toml").write_text(
        'format = 1\nseed = 1\n[data]\nfiles = ["a.csv", "b.csv", "c.csv"]\nagent = "person"\ntarget = "days"\n'
        'answers = [0, 6]\n[method]\nname = "graph_federation"\nloss = "ridge"\nmasks = "skipped"\ncompare = false\n'
        "[privacy]\nepsilon = 1.0\n"
    )
    monkeypatch.setattr("silograph.audit.audit.secret_root", lambda: ROOT)
    assert silograph("run", tmp_path / "plan.toml", "-o", tmp_path / "out")[0] == 0
    code, out, err = silograph("audit", tmp_path / "out", "--runs", 200)
    assert code == 0, err
    assert "Not refuted" in out
    (kept,) = json.loads((tmp_path / "out" / "audit.json").read_text())["audits"]
    assert kept["delta"] == 0.0


def test_a_region_of_one_agent_has_no_sum_of_its_own_and_nobody_hides_it_from_all_others(clinics):
    """With three others, or with everybody else, on the other side: what the one agent's own noise leaves."""
    told = [each.words for each in coalitions([1, 20, 20])]
    assert told == ["all servers and fewer than a third of the agents", "all servers and all other agents"]
    for pure in (False, True):
        reached = Reached(EPSILON, DELTA, (1, 20, 20), "all", 0.0, pure)
        first, last = (reached.epsilon_against(one) for one in coalitions([1, 20, 20]))
        assert first == pytest.approx(EPSILON, rel=1e-9)
        assert first < last


def test_laplace_noise_that_nobody_adds_is_caught(clinics, monkeypatch):
    monkeypatch.setattr("silograph.privacy.discrete.laplace_share", lambda *rest: 0)
    assert audit_job(opened(clinics, "all", name="graph_federation"), runs=RUNS, root=ROOT).refuted
