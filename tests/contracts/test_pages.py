"""What holds for every page, of a run, of a deployment, of a comparison: whoever is in the registry is held to it.

Pages are made of the folders that real runs of all cases leave.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from cases import every, every_case, params, private, skip_without_its_packages, titled, unprotected, with_the_page
from pages import NASTY, Page, change, everywhere_in, refuse_requests
from silograph import families
from silograph.core.errors import DamageError, InputError
from silograph.deploy.deployment import Terms, deploy
from silograph.report.build import build, page_part
from silograph.report.build import result_of as typed
from silograph.report.compare import compare
from silograph.report.compare_page import page as compare_page
from silograph.report.deployment import page as deployment_page
from silograph.run.cost import cost_of_run
from silograph.run.run import execute

#: Of every family one case with a promise and one without: what takes long is done to these.
SOME = params(list({(case.family, case.private): case for case in every_case()[::-1]}.values()))
ODD = (None, -1, 1e308, float("nan"), NASTY, [], {})


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def folder(case, home):
    """The folder of the case's run: made once, and not to be changed."""
    place = home / case.title.replace("/", " ")
    if not place.exists():
        execute(case.plan(), case.base, place, lambda *_: None, build)
    return place


@pytest.fixture
def copy(folder, tmp_path):
    """One of its own, to be damaged."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def result_of(folder):
    return json.loads((folder / "result.json").read_text())


def numbers_in(case):
    """Long numbers of the private tables, as they are written there."""
    paths = [case.base / name for name in case.content["data"]["files"]]
    texts = [path.read_text() for path in paths if path.suffix == ".csv"]
    return {cell for text in texts for cell in re.split(r"[,\n]", text) if len(cell) > 8 and cell[-1].isdigit()}


# ---- the page of a run ----


@every
def test_a_page_is_well_formed_in_order_and_asks_for_nothing(case, folder):
    html = (folder / "report.html").read_text()
    page = Page(html)
    refuse_requests(html)
    assert html.startswith("<!doctype html>")
    headings = re.findall(r"<h2[^>]*>([^<]*)", html)
    wanted = ["What was learned", "How", "Who took part", "What it cost in privacy", "How to redo it"]
    assert [heading for heading in wanted if heading in headings] == [h for h in headings if h in wanted]
    assert {"What was learned", "What it cost in privacy", "How to redo it"} <= set(headings)
    assert page.tags["h1"] == 1
    assert page.tags["table"] == page.tags["caption"]
    assert page.tags["th"] == sum(key == "scope" for tag, key, _ in page.attributes if tag == "th")
    assert page.tags["svg"] == sum(key == "aria-label" for tag, key, _ in page.attributes if tag == "svg")
    ids = [value for _, key, value in page.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    assert "".join((folder / "plan.toml").read_text().split()) in "".join("".join(page.words).split())


@every
def test_a_page_is_made_of_its_folder_alone(case, folder, copy):
    """Elsewhere, without its tables, it is the same."""
    assert build(copy) == (folder / "report.html").read_text()


@private
def test_a_private_page_says_what_is_protected_from_whom_and_how_well(case, folder):
    privacy, text = result_of(folder)["privacy"], Page((folder / "report.html").read_text()).text
    assert privacy["protected_unit"] in text
    assert privacy["relation"].split(":")[0] in text
    finite = [row for row in privacy["guarantees"] if row["epsilon"] != "infinity"]
    assert finite
    for row in privacy["guarantees"]:
        observer = {"wire": "eavesdroppers"}.get(row["observer"], row["observer"])
        assert observer.casefold() in text.casefold()  # a heading has a capital
    assert all(row["delta"] is None or row["delta"] == 0.0 or "δ" in text for row in finite)
    assert "rehearsal" in text.lower()  # all cases have a seed, which everybody can read
    assert any(f"{row['epsilon']:.1f}".rstrip("0").rstrip(".") in text for row in finite)


@unprotected
def test_a_page_without_privacy_says_so(case, folder):
    result, text = result_of(folder), Page((folder / "report.html").read_text()).text
    assert {row["epsilon"] for row in result["privacy"]["guarantees"]} == {"infinity"}
    assert re.search(r"[Nn]o privacy|[Nn]o protection|[Nn]ot protected|[Nn]ot private|[Oo]bfuscat", text)


@private
def test_no_private_number_is_on_a_page_or_in_a_folder(case, folder):
    numbers = numbers_in(case)
    assert len(numbers) > 30
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".npz":
            text = path.read_text()
            assert not [number for number in numbers if number in text], path.name


@every
def test_what_is_stated_is_what_the_ledger_says(case, folder):
    stated = {(row["site"], row["observer"]): row["epsilon"] for row in result_of(folder)["privacy"]["guarantees"]}
    billed = {(row["site"], row["observer"]): row["epsilon"] for row in cost_of_run(folder)["guarantees"]}
    assert stated == billed


@every
def test_a_summary_tells_the_privacy_and_nothing_private(case, folder):
    result = result_of(folder)
    lines = list(page_part(result["method"]).summary(typed(result, str(folder))))
    assert lines
    text = "\n".join(lines)
    assert ("epsilon" in text) or not case.private
    assert not case.private or not [number for number in numbers_in(case) if number in text]


def test_pages_import_no_job_and_are_the_same_whatever_the_hash_seed(home):
    """In processes of their own: nothing that learns is imported to show what was learned."""
    folders = {}
    for case in every_case():
        if case.family not in folders and case.family in families.OWN:  # all parts of that one are one module
            with suppress(pytest.skip.Exception):
                skip_without_its_packages(case)
                folders[case.family] = home / case.title
                if not folders[case.family].exists():
                    execute(case.plan(), case.base, folders[case.family], lambda *_: None, build)
    code = (
        "import sys, hashlib, silograph.report.build as b\n"
        "assert not {'jinja2', 'networkx', 'scipy'} & set(sys.modules)\n"
        "pages = [b.build(name) for name in sys.argv[1:]]\n"
        "jobs = [name for name in sys.modules if name.endswith('.job') or name.startswith('silograph.methods')]\n"
        "assert not jobs and not {'torch', 'dp_accounting'} & set(sys.modules), jobs\n"
        "print(hashlib.sha256(''.join(pages).encode()).hexdigest())"
    )
    names = list(map(str, folders.values()))
    made = {
        subprocess.run(
            [sys.executable, "-c", code, *names],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(made) == 1


# ---- damage ----


def places(value):
    """Every (container, key) of a JSON value, of long lists the first two."""
    return [(box, key) for box, key in everywhere_in(value) if not isinstance(key, int) or key < 2]


def refusal(folder):
    """What is said where a page is refused."""
    try:
        Page(build(folder))
    except DamageError as error:
        return str(error)
    return None


@SOME
def test_any_single_damage_to_the_result_is_drawn_harmlessly_or_refused(case, copy):
    path, result = copy / "result.json", result_of(copy)
    for k, (container, key) in enumerate(places(result)):
        for odd in (ODD[k % len(ODD)], ODD[(k + 3) % len(ODD)]):  # two kinds in each place, all kinds in some
            kept, container[key] = container[key], odd
            path.write_text(json.dumps(result))
            container[key] = kept
            with suppress(DamageError):
                refuse_requests(build(copy))


@SOME
def test_a_missing_key_is_refused_by_name_or_not_needed(case, copy):
    path, result, refused = copy / "result.json", result_of(copy), set()
    for container, key in places(result):
        if not isinstance(key, str):
            continue
        kept = container.pop(key)
        path.write_text(json.dumps(result))
        container[key] = kept
        said = refusal(copy)
        assert said is None or key in said
        refused |= set() if said is None else {key}
    assert {"method", "privacy", "rounds", "guarantees", "protected_unit", "relation", "epsilon", "observer"} <= refused


@SOME
def test_a_missing_or_unreadable_file_is_refused_by_name_or_not_needed(case, copy):
    before = build(copy)
    files = [path for path in copy.rglob("*") if path.is_file() and path.name != "report.html"]
    refused = set()
    for path in files:
        kept = path.read_bytes()
        for content in (None, b"\xff\xfe\x00"):
            path.unlink()
            if content is not None:
                path.write_bytes(content)
            said = refusal(copy)
            assert build(copy) == before if said is None else path.name in said
            refused |= set() if said is None else {path.name}
            path.write_bytes(kept)
    assert {"result.json", "ledger.jsonl", "plan.toml"} <= refused


@SOME
def test_a_result_of_a_method_nobody_knows_is_refused(case, copy):
    change(copy, method="magic")
    with pytest.raises(DamageError, match=r"a method: one of .*consensus_graph.*found 'magic'"):
        build(copy)
    with pytest.raises(DamageError, match="nowhere"):
        build(copy / "nowhere")


# ---- deployments and comparisons ----


@every
def test_the_pages_of_a_deployment_say_what_leaves_and_know_no_value(case, tmp_path):
    try:
        made = deploy(case.plan(), case.base, tmp_path / "there", Terms("127.0.0.1:9999", False, 1), deployment_page)
    except InputError as error:
        pytest.skip(f"no deployment has it: {error}")
    for organisation in ("server", *made.facts.organisations):
        html = (tmp_path / "there" / organisation / "README.html").read_text()
        page = Page(html)
        assert html.startswith("<!doctype html>")
        assert page.tags["h1"] == 1
        assert not page.tags.keys() & {"img", "iframe", "object", "embed", "form", "base"}
        assert made.digest in html.replace(" ", "")
        assert ("No protection" in page.text) == (not case.private)
        assert ("Rehearsal" in page.text) == case.private
        assert not [number for number in numbers_in(case) if number in html]


@SOME
def test_a_comparison_of_a_run_with_itself_and_with_another_is_a_page(case, folder, tmp_path):
    other = tmp_path / "other"
    execute(case.plan(seed=2), case.base, other, lambda *_: None, build)
    for folders in ([folder, shutil.copytree(folder, tmp_path / "again")], [folder, other]):
        found = compare(list(folders))
        html = compare_page(found)
        refuse_requests(html)
        assert Page(html).tags["h1"] == 1
        assert all(name in html for name in found.names)
    assert not case.private or not [number for number in numbers_in(case) if number in html]


# ---- teeth ----


def test_a_page_that_leaks_or_asks_for_something_is_caught(home):
    case = titled("graphs, one release")
    with with_the_page():
        place = home / "leaky"
        execute(case.plan(), case.base, place, lambda *_: None, build)
        html = (place / "report.html").read_text()
        (place / "report.html").write_text(html.replace("</body>", f"<p>{min(numbers_in(case))}</p></body>"))
        with pytest.raises(AssertionError):
            test_no_private_number_is_on_a_page_or_in_a_folder(case, place)
        for odd in ('<img src="x">', '<p id="x"></p><p id="x"></p>', "<div>", "<script>alert(1)</script>"):
            (place / "report.html").write_text(html.replace("</body>", f"{odd}</body>"))
            with pytest.raises(AssertionError):
                test_a_page_is_well_formed_in_order_and_asks_for_nothing(case, place)
