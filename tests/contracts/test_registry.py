"""What holds for every family in the registry: all of its parts, its sample, its plans as files."""

import pytest

from cases import every, every_case, tables_of, with_the_page
from silograph import families
from silograph.audit.parts import CanaryPart
from silograph.deploy.public_facts import part_of
from silograph.families.samples import PLAN, CasesPart, SamplePart, cases_part
from silograph.report.build import PagePart
from silograph.report.deployment import DeploymentWordsPart
from silograph.run.jobs import JobPart
from silograph.run.plan import PlanPart, dumps, load, parse

FAMILIES = pytest.mark.parametrize("family", list(dict.fromkeys(case.family for case in every_case())))
OWN_SAMPLES = {name: families.part(name, "sample", SamplePart) for name in families.OWN}
PARTS = {
    "plan": PlanPart,
    "job": JobPart,
    "page": PagePart,
    "deployment_words": DeploymentWordsPart,
    "canary": CanaryPart,
}


@FAMILIES
def test_a_family_has_all_its_parts(family):
    for name, kind in PARTS.items():
        families.part(family, name, kind)
    part_of(family)
    assert any(case.private for case in every_case() if case.family == family)
    assert any(not case.private for case in every_case() if case.family == family)


def test_a_family_without_cases_is_named_with_what_is_missing(monkeypatch):
    with with_the_page():
        monkeypatch.delattr("silograph.families.star.StarFamily.cases")
        with pytest.raises(families.FamilyError, match=r"family private_means: expected its part 'cases' with cases"):
            families.part("private_means", "cases", CasesPart)


@FAMILIES
def test_cases_are_seeded_and_another_seed_changes_numbers_alone(family, tmp_path):
    for name, seed in (("one", 0), ("two", 1)):
        (tmp_path / name).mkdir()
        assert cases_part(family).cases(tmp_path / name, seed).keys()
    for path in sorted(tables_of(family).rglob("*.csv")):
        own = path.relative_to(tables_of(family))
        assert (tmp_path / "one" / own).read_bytes() == path.read_bytes()
        lines = [place.joinpath(own).read_text().splitlines() for place in (tmp_path / "one", tmp_path / "two")]
        assert lines[0][0] == lines[1][0]
        assert len(lines[0]) == len(lines[1])


@every
def test_a_written_plan_reads_back_the_same(case, tmp_path):
    (tmp_path / "plan.toml").write_text(dumps(case.plan()))
    assert load(tmp_path / "plan.toml") == case.plan()


@FAMILIES
def test_a_sample_is_seeded_and_can_be_priced(family, tmp_path):
    part = families.part(family, "sample", SamplePart)
    for name in ("one", "two"):
        assert all(path.is_file() for path in part.write(tmp_path / name, 1))
    written = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert written
    assert all((tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes() for path in written)
    if (tmp_path / "one" / PLAN).exists():  # graphs are learned without one
        assert load(tmp_path / "one" / PLAN).method.name == family


@pytest.mark.parametrize("option", [part.OPTION for part in OWN_SAMPLES.values()])
def test_a_sample_overwrites_nothing(option, tmp_path, silograph):
    assert silograph("sample", tmp_path / "there", f"--{option}")[0] == 0
    path = next(path for path in sorted((tmp_path / "there").rglob("*")) if path.is_file())
    path.write_text("mine")
    assert silograph("sample", tmp_path / "there", f"--{option}")[0] == 2
    assert path.read_text() == "mine"


def test_a_method_that_no_family_has_is_refused_by_name():
    with pytest.raises(families.InputError, match=r"expected one of consensus_graph, .*found 'magic'"):
        parse({"format": 1, "data": {"files": ["a.csv"]}, "method": {"name": "magic"}}, "plan")
