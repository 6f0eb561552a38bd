"""Files that silograph 0.1 wrote are read under today's names, or refused in a text that says what to do.

`written_by_0_1` was made by silograph 0.1.0: a run of graphs with its audit, one of regions, an organisation's facts, a
deployment.
"""

import json
import shutil
from pathlib import Path

import pytest

from silograph.core import old_names
from silograph.core.errors import DamageError, InputError
from silograph.deploy.deployment import Deployment
from silograph.deploy.public_facts import read_facts
from silograph.privacy.ledger import Ledger
from silograph.report.build import build
from silograph.run.cost import cost_of_run

OLD = Path(__file__).parent / "written_by_0_1"
RUNS = ["graphs", "regions"]


def parsed(name, file="result.json"):
    return json.loads((OLD / name / file).read_text(encoding="utf-8"))


@pytest.mark.parametrize("run", RUNS)
def test_a_ledger_is_whole_and_costs_what_it_did(run):
    told = parsed(run)
    rows = Ledger(OLD / run / "ledger.jsonl", mend=False)
    rows.check_tip(told["ledger"])
    first = json.loads((OLD / run / "ledger.jsonl").read_text(encoding="utf-8").split("\n")[0])
    assert (rows.rows[0].release_point, rows.rows[0].protected_unit) == (first["site"], first["unit"])
    cost_of_run(OLD / run)  # refuses a result that is not its ledger's


def test_a_changed_row_is_refused_under_its_old_name_too(tmp_path):
    content = (OLD / "graphs" / "ledger.jsonl").read_text(encoding="utf-8")
    (tmp_path / "ledger.jsonl").write_text(
        content.replace('"site": "moment"', '"site": "another"', 1), encoding="utf-8"
    )
    with pytest.raises(DamageError, match="line 1"):
        Ledger(tmp_path / "ledger.jsonl")


def test_an_old_ledger_goes_on_under_new_names(tmp_path):
    path = tmp_path / "ledger.jsonl"
    shutil.copy(OLD / "graphs" / "ledger.jsonl", path)
    ledger = Ledger(path)
    count, row = len(ledger.rows), ledger.rows[0]
    ledger.append([type(row)(**(vars(row) | {"round": 7}))])
    again = Ledger(path)
    assert again.tip == ledger.tip
    assert [r.release_point for r in again.rows] == [row.release_point] * (count + 1)


@pytest.mark.parametrize("run", RUNS)
def test_a_page_of_an_old_run_can_be_made(run):
    assert ("Regions" if run == "regions" else "Effective rows") in build(OLD / run)


def test_results_have_todays_names_and_nothing_is_lost():
    graphs, regions = (old_names.result(parsed(run)) for run in RUNS)
    assert graphs["privacy"]["protected_unit"] == parsed("graphs")["privacy"]["unit"]
    assert graphs["sites"][0]["effective_rows"] == parsed("graphs")["sites"][0]["effective_records"]
    assert regions["regions"] == parsed("regions")["units"]
    old = parsed("regions")["numbers_are"]
    assert regions["numbers_are"] == {
        key.replace("units", "regions"): kind.replace("oracle", "simulation only") for key, kind in old.items()
    }
    assert old_names.result(graphs) == graphs


def test_an_audit_has_todays_names():
    audit = old_names.audits(parsed("graphs", "audit.json"))["audits"][0]
    assert audit["protected_unit"].startswith("one signal")
    assert "unit" not in audit


def test_facts_are_read_and_an_old_deployment_says_what_to_do(tmp_path):
    assert list(read_facts(OLD / "east.facts.json").organisations) == ["east"]
    shutil.copy(OLD / "deployment.json", tmp_path)
    with pytest.raises(InputError, match="silograph deploy"):
        Deployment.read(tmp_path)


@pytest.mark.parametrize("told", [None, 3, [], {"site": 1, "release_point": 2}, {"numbers_are": 3, "sites": 4}])
def test_what_nobody_wrote_passes_as_it_is(told):
    assert old_names.ledger_row(told) == old_names.audits(told) == old_names.facts(told) == told
    assert old_names.result(told) == told
