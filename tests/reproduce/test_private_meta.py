"""S4's figures: their rows, what is said of them and how it is decided, on small made-up pictures.

The levels are measured on the real ones, where there is a copy of them.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pages import Page
from silograph import cli
from silograph.core.errors import InputError
from silograph.data.collections import VARIABLE
from silograph.families.meta.network import build_network
from silograph.privacy.accounting import Cost
from silograph.privacy.door import Door
from silograph.report.reproduced_page import page
from silograph.reproduce import meta_runs, runner
from silograph.reproduce.meta_runs import (
    ACCURACY,
    LOSS,
    TRAINING_LOSS,
    Figure,
    Line,
    Result,
    Run,
    Trained,
)
from silograph.reproduce.private_meta import CNN, FIGURES, MLP, MNIST, NONE, PAPER, PAPER_C, RESNET, SOUND
from silograph.reproduce.runner import Row, Table, find
from silograph.reproduce.verdicts import DOES_NOT_HOLD as FAILS
from silograph.reproduce.verdicts import REPRODUCED as HOLDS
from silograph.reproduce.verdicts import UNCLEAR, sign
from silograph.theory.private_meta import true_cost_of_the_literal_version

torch = pytest.importorskip("torch")

NAMES = [figure.name for figure in FIGURES]
TINY = {"clients": 5, "sources": 3, "per_class": 8, "rounds": 10}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pictures in the users' files: every class has its own bright corner, and noise."""
    made, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(1)
    for name, shape in (("mnist", (28, 28)), ("cifar10", (32, 32, 3))):
        arrays = {}
        for part, count in (("train", 400), ("test", 100)):
            y = np.arange(count) % 10
            x = rng.integers(0, 90, (count, *shape))
            for k, c in enumerate(y):
                x[k, 7 * (c // 4) :, 7 * (c % 4) :][:7, :7] += 150
            arrays |= {f"{part}_images": x.astype(np.uint8), f"{part}_labels": y.astype(np.uint8)}
        (made / name).mkdir()
        np.savez(made / name / f"{name}.npz", **arrays)
    return made


def tiny_network(seed):
    return build_network({"model": "mlp", "hidden": (4,)}, (3, 16, 16), 10, "classes", "cpu", seed)


def small(figure):
    """The same lines with few clients, records and rounds, and without convolutions."""

    def problem(old):
        share = 4 if old.records < {MLP.name: MLP, CNN.name: CNN, RESNET.name: RESNET}[old.name].records else 1
        network = old.network if old.name == MLP.name else tiny_network
        return replace(old, network=network, records=24 // share, **TINY)

    lines = [replace(line, run=replace(line.run, problem=problem(line.run.problem))) for line in figure.lines]
    return replace(figure, lines=lines)


def without_accountant(patch):
    """Accountants take most of the time of a small run."""
    patch.setattr(meta_runs, "sampled_multiplier", lambda epsilon, *how: 16.0 / epsilon)
    patch.setattr(Door, "spent", lambda door, silo, delta: Cost(1.0, delta, "none"))


@pytest.fixture(scope="module")
def tables(folder):
    """Every figure once, made small, and what its progress said. What noise costs is tested apart."""

    def made(figure, seeds):
        told = []
        table = small(figure).open(folder).run(seeds, lambda done, text: told.append((done, text)))
        return table.to_json(), told

    with pytest.MonkeyPatch.context() as patch:
        without_accountant(patch)
        return {figure.name: made(figure, 2 if figure.name == "s4-fig3" else 1) for figure in FIGURES}


def note(table, words):
    found = [text for text in table["notes"] if words in text]
    assert found, words
    return found[0]


# ---- tables ----------------------------------------------------------------------------------------------------------


def product(cases, methods, metrics=("accuracy",)):
    return [(case, method, metric) for case in cases for method in methods for metric in metrics]


FOUR = ["sound", "sound-first-order", "paper", "none"]
SWEEP = ["0.8", "1.6", "2.4", "3.2", "4", "4.8"]


def swept(prefix, method, clips, *ends):
    return [(f"{prefix}C={clip}{end}", method) for clip in clips for end in ends]


def clip_cells(*ends):
    wide = ["0.2", "0.4", *SWEEP]
    sound, paper = swept("", "sound", wide, *ends), swept("", "paper", SWEEP, *ends)
    return [*sound, *paper, *swept("cifar ", "sound", wide, *ends)]


CELLS = {
    "s4-fig2": product(["eps=2", "eps=4", "eps=6", "cifar eps=2", "cifar eps=6", "cifar eps=10"], FOUR),
    "s4-fig3": product(["delta=0.0001", "delta=0.001", "delta=0.01"], ["sound", "paper", "none"]),
    "s4-fig4": [
        (case + end, method, "accuracy")
        for case, method in [
            entry
            for who in ("cifar ", "cifar cnn ")
            for entry in (
                *((f"{who}C={c} eps={e}", "sound-first-order") for c in ("0.8", "2.4") for e in (2, 10)),
                (f"{who}no privacy", "none"),
            )
        ]
        for end in ("", ", training")
    ],
    "s4-fig5": [
        *product([f"records={n}" for n in (75, 150, 300, 600)], ["sound", "paper", "none"]),
        *product([f"cifar records={n}" for n in (90, 180, 360)], ["sound", "none"]),
    ],
    "s4-fig6": [
        *product([f"neurons={n}" for n in (8, 16, 32, 64, 128)], ["sound", "none"]),
        *product([f"cifar neurons={n}" for n in (16, 32, 64)], ["sound", "none"]),
    ],
    "s4-fig7": [(case, method, "accuracy") for case, method in clip_cells("")],
    "s4-table2": [(case, method, "loss") for case, method in clip_cells(", training", "")],
}


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_has_all_rows_and_its_page_all_curves(name, tables):
    table, told = tables[name]
    assert [(row["case"], row["method"], row["metric"]) for row in table["rows"]] == CELLS[name]
    for row in table["rows"]:
        assert np.isfinite([row["ours"], row["std"]]).all()
        assert row["metric"] == "loss" or 0.0 <= row["ours"] <= 1.0
    assert json.loads(json.dumps(table, allow_nan=False)) == table
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == pytest.approx(1.0)
    assert told[0][1].startswith(f"{name}, repetition 1 of ")
    assert len(told) >= 7
    assert any(verdict["statement"].startswith("The paper: ") for verdict in table["verdicts"])
    panels = {curve["panel"] for curve in table["curves"]}
    assert Page(page(table)).tags["svg"] == len(panels)


def test_curves_go_round_by_round_or_across_the_clips(tables):
    curves = tables["s4-fig2"][0]["curves"]
    assert {curve["panel"] for curve in curves} == {
        f"{where}: {method}" for where in ("MNIST", "CIFAR-10") for method in FOUR[:3]
    }
    assert [curve["label"] for curve in curves[:4]] == ["eps=2", "eps=4", "eps=6", "none"]
    assert all(curve["x"] == [10] for curve in curves)
    sweep = tables["s4-fig7"][0]["curves"]
    assert [curve["x"] for curve in sweep[1:2]] == [[0.8, 1.6, 2.4, 3.2, 4.0, 4.8]]
    assert {curve["label"] for curve in sweep} == {"sound", "paper"}


def test_printed_and_reference_numbers_are_in_their_cells(tables):
    rows = {(row["case"], row["method"]): row for row in tables["s4-table2"][0]["rows"]}
    assert rows["C=0.8, training", "paper"]["paper"] == 0.861
    assert rows["C=4.8", "sound"]["paper"] == 0.211
    assert rows["cifar C=3.2", "sound"]["paper"] == 0.114
    assert rows["cifar C=2.4, training", "sound"]["paper"] == 0.699
    assert rows["C=0.2", "sound"]["paper"] is None
    rows = {(row["case"], row["method"]): row for row in tables["s4-fig2"][0]["rows"]}
    assert [rows[f"eps={e}", "sound"]["reference"] for e in (2, 4, 6)] == [0.891, 0.897, 0.898]
    assert rows["eps=4", "paper"]["reference"] == 0.547
    assert rows["cifar eps=2", "sound"]["reference"] is None


def test_without_privacy_the_case_does_not_matter(tables):
    rows = tables["s4-fig2"][0]["rows"]
    assert len({row["ours"] for row in rows if row["method"] == "none" and "cifar" not in row["case"]}) == 1


def test_one_repetition_decides_nothing(tables):
    said = tables["s4-fig2"][0]["verdicts"]
    assert [verdict["outcome"] for verdict in said] == [UNCLEAR] * 6
    assert all("(within " in verdict["found"] for verdict in tables["s4-fig3"][0]["verdicts"])


def test_the_papers_losses_are_drawn_beside_ours(tables):
    """Once in each panel, over the six clips that the paper has."""
    printed = [curve for curve in tables["s4-table2"][0]["curves"] if curve["label"] == "printed"]
    assert [curve["x"] for curve in printed] == [[0.8, 1.6, 2.4, 3.2, 4.0, 4.8]] * 4
    assert printed[0]["y"] == [0.861, 0.709, 0.649, 0.657, 0.712, 1.012]


def test_short_runs_point_somewhere_and_decide_nothing(folder, monkeypatch):
    without_accountant(monkeypatch)
    figure = small(FIGURES[1])
    many = [
        replace(line, run=replace(line.run, problem=replace(line.run.problem, rounds=300))) for line in figure.lines
    ]
    table = replace(figure, lines=many).short(folder).run(2, lambda done, text: None).to_json()
    assert table["notes"][0] == (
        "Not the paper's own experiment: MNIST with 30 rounds instead of 300, 2 source clients instead of 3 and 2 "
        "new ones instead of 2."
    )
    assert {verdict["outcome"] for verdict in table["verdicts"]} == {UNCLEAR}
    assert table["curves"][0]["x"] == [10, 20, 30]


def test_a_repetition_gives_the_same_numbers_again(folder, monkeypatch):
    without_accountant(monkeypatch)
    figure = small(FIGURES[1])
    figure = replace(figure, lines=figure.lines[:2])
    first, second = (figure.open(folder).run(1, lambda done, text: None).to_json() for _ in range(2))
    assert first == second


def test_missing_pictures_are_asked_for_by_name(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(InputError, match=r"MNIST: .*mnist/mnist\.npz.*no folder was named.*--data.*SILOGRAPH_DATA"):
        find("s4-fig3").run(1, None, lambda done, text: None)
    with pytest.raises(InputError, match=rf"CIFAR-10: .*cifar10/cifar10\.npz.*not in {tmp_path}"):
        find("s4-fig4").run(1, tmp_path, lambda done, text: None)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(InputError, match=rf"MNIST: .*not in {tmp_path}"):
        find("s4-table2").run(1, None, lambda done, text: None)


def test_without_a_number_of_repetitions_there_are_as_many_as_the_notes_say(tables, monkeypatch, capsys):
    asked = []

    class Empty:
        def run(self, seeds, progress):
            asked.append(seeds)
            return Table("x", seeds, [Row("case", "method", "metric", 0.0, 0.0, None)], [])

    for name in ("s4-fig2", "s1-fig2"):
        entry = replace(find(name), open=lambda data: Empty())
        monkeypatch.setattr(runner, "find", {name: entry}.__getitem__)
        for words in ([], ["--seeds", "7"]):
            monkeypatch.setattr(sys, "argv", ["silograph", "reproduce", name, *words])
            with pytest.raises(SystemExit):
                cli.main()
    capsys.readouterr()
    assert asked == [3, 7, 20, 7]
    assert all("There are 3 unless --seeds says otherwise" in table["notes"][0] for table, _ in tables.values())


def test_no_repetitions_are_refused(folder):
    with pytest.raises(InputError, match="seeds"):
        find("s4-fig2").run(0, folder, lambda done, text: None)


# ---- worlds and runs -------------------------------------------------------------------------------------------------


def test_new_clients_take_one_gradient_step_and_are_tested_on_what_they_held_back(folder):
    """Against torch's own gradient of the mean loss."""
    problem = replace(MLP, **TINY)
    world = problem.world(MNIST.pictures(folder), 3)
    start = world.task.start + np.random.default_rng(0).normal(0.0, 0.1, world.task.size)
    losses, rights = [], []
    for (x, y), (other, z) in world.halves:
        module = problem.network(3).module
        torch.nn.utils.vector_to_parameters(torch.tensor(start, dtype=torch.float32), module.parameters())
        torch.nn.functional.cross_entropy(module(torch.tensor(x)), torch.tensor(y)).backward()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter -= 0.5 * parameter.grad
            out = module(torch.tensor(other))
            losses.append(float(torch.nn.functional.cross_entropy(out, torch.tensor(z))))
            rights.append(float((out.argmax(1) == torch.tensor(z)).double().mean()))
    assert world.tested(start, 0.5) == pytest.approx([np.mean(losses), np.mean(rights)], rel=1e-4)
    assert world.score(start, 0.5)[1] == pytest.approx(world.task.measure(start, *world.known))


def test_the_networks_are_those_that_the_notes_say():
    cnn, resnet, mlp = (problem.network(0) for problem in (CNN, RESNET, MLP))
    assert mlp.size == 196 * 32 + 32 + 32 * 10 + 10
    assert cnn.size == (27 * 8 + 8) + (72 * 16 + 16) + (4 * 4 * 16 * 10 + 10)
    kinds = [type(layer).__name__ for layer in resnet.module.modules()]
    assert sum(kind == "Conv2d" for kind in kinds) == 17 + 3  # with those of the shortcuts
    assert "BatchNorm2d" not in kinds
    assert resnet.shape == cnn.shape == (3, 16, 16)


def test_nobody_is_tested_on_a_record_that_was_learned_from(folder):
    world = replace(MLP, **TINY).world(MNIST.pictures(folder), 0)
    seen = {x.tobytes() for x in world.known[0]} | {x.tobytes() for (own, _), _ in world.halves for x in own}
    tested = [x.tobytes() for _, (test, _) in world.halves for x in test]
    assert len(tested) == 2 * 12
    assert not seen & set(tested)
    assert world.data["query"].tolist() == world.data["support"].tolist() == [12] * 3


def test_fewer_records_change_the_source_clients_alone(folder):
    pictures = MNIST.pictures(folder)
    all_of_them, few = (replace(MLP, records=n, **TINY).world(pictures, 0) for n in (24, 6))
    assert few.data["query"].tolist() == [3] * 3
    assert np.array_equal(few.known[0][:6], all_of_them.known[0][:6])
    for a, b in zip(all_of_them.halves, few.halves, strict=True):
        assert np.array_equal(a[1][0], b[1][0])


def test_noise_is_what_each_version_claims_to_need():
    """The multipliers that dp-accounting was asked for elsewhere; the printed one's is half of S4's sigma."""
    sound, paper = Run(MLP, SOUND, 2.0), Run(MLP, PAPER, 2.0)
    assert sound._door(0).mechanism.multiplier == pytest.approx(2.214, abs=1e-3)
    assert paper._door(0).mechanism.multiplier == pytest.approx(3.348 / 2.0, abs=1e-3)
    assert sound._door(0).budget.epsilon == 2.0
    assert Run(MLP, NONE)._door(0).mechanism is None


def test_the_printed_version_is_said_to_cost_what_theory_has(folder):
    """Of a query record, which pays most; the ledger knows nothing of that formula."""
    problem = replace(MLP, **TINY)
    trained = Run(problem, PAPER, 2.0).go(problem.world(MNIST.pictures(folder), 0), 0, lambda: None)
    sigma = 2.0 * Run(problem, PAPER, 2.0)._door(0).mechanism.multiplier
    cost = true_cost_of_the_literal_version(sigma, 0.1, problem.rounds, 1, 1e-3)
    assert trained.epsilon == pytest.approx(cost.epsilon, rel=1e-3)
    assert trained.epsilon > 2.0
    line = Line("eps=2", Run(problem, PAPER, 2.0))
    said = Result(Figure("x", "", [line], lambda result: []), {line.run: [trained]}, {}).literal_cost()
    assert said == f"MNIST, 2 claimed, {trained.epsilon:.2f} true"


# ---- verdicts --------------------------------------------------------------------------------------------------------


def test_a_difference_is_clear_where_a_t_test_says_so():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(200):
        gains = rng.normal(rng.normal(0.0, 1.0), 1.0, rng.integers(2, 7))
        found.append(sign(gains))
        assert (found[-1] != 0) == (stats.ttest_1samp(gains, 0.0).pvalue < 0.05)
        assert found[-1] in (0, np.sign(gains.mean()))
    assert {*found} == {-1, 0, 1}
    assert sign(np.array([5.0])) == 0
    assert sign(np.zeros(3)) == 0


def result_of(levels, metric=ACCURACY, spread=0.001):
    """Lines with these levels, three runs each."""
    lines, made = [], {}
    for k, level in enumerate(levels):
        line = Line(f"case {k}", Run(MLP, SOUND, 1.0 + k), float(k))
        lines.append(line)
        scores = np.zeros((3, 1, 2, 2))
        offsets = np.array([-1.0, 1.0, 0.5]) * spread * (1 + k)
        scores[:, 0, int(metric.training), int(metric.metric == "accuracy")] = level + offsets
        made[line.run] = [Trained(one, 1.0, np.zeros(1)) for one in scores]
    return Result(Figure("x", "", lines, lambda result: [], (metric,)), made, {}), lines


@pytest.mark.parametrize(
    "levels, grows, turns",
    [
        ((0.5, 0.6, 0.7), HOLDS, FAILS),
        ((0.7, 0.6, 0.5), FAILS, FAILS),
        ((0.5, 0.7, 0.6), FAILS, HOLDS),
        ((0.5, 0.4, 0.6), FAILS, FAILS),
        ((0.5, 0.5, 0.5), UNCLEAR, UNCLEAR),
        ((0.5, 0.6, 0.6), HOLDS, UNCLEAR),
    ],
)
def test_verdicts_follow_the_numbers(levels, grows, turns):
    result, lines = result_of(levels)
    improves = result.improves("Text", lines)
    assert (improves.statement, improves.outcome) == ("Text, sound", grows)
    assert improves.found.startswith(f"case 0 {levels[0]:.3f}")
    assert result.turns("Text", lines).outcome == turns


def test_of_losses_less_is_better():
    for measure in (LOSS, TRAINING_LOSS):
        result, lines = result_of((0.9, 0.4, 0.6), measure)
        assert result.turns("Text", lines, measure).outcome == HOLDS
        assert result.improves("Text", lines, measure).outcome == FAILS
        assert result.improves("Text", lines[:2], measure).outcome == HOLDS


def test_a_wide_spread_leaves_things_open():
    result, lines = result_of((0.5, 0.6, 0.7), spread=0.5)
    assert result.improves("Text", lines).outcome == UNCLEAR
    assert result.better("Text", [(lines[1], lines[0])]).outcome == UNCLEAR


def test_pairs_are_compared_run_by_run():
    """All runs share what makes a repetition hard, so that a small difference shows."""
    result, lines = result_of((0.5, 0.51), spread=0.003)
    better = result.better("Text", [(lines[1], lines[0])])
    assert better.outcome == HOLDS
    assert better.found.startswith("case 1, case 1 against case 0 +0.01")


def test_table_2_and_figure_7_are_the_same_runs():
    assert FIGURES[-1].lines is FIGURES[-2].lines
    assert PAPER_C.printed


# ---- the real ones ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"needs MNIST in {VARIABLE}")
def test_on_mnist_the_levels_are_those_of_an_independent_implementation():
    """It had .891 and .905 in two federations; 1 in 1000 of ours is outside .86 to .94."""
    world = MLP.world(MNIST.pictures(None), 0)
    trained = Run(MLP, SOUND, 2.0).go(world, 0, lambda: None)
    assert ACCURACY.of(trained.scores[-1]) == pytest.approx(0.9, abs=0.04)
    assert trained.epsilon <= 2.0
    assert world.tested(world.task.start, SOUND.personal_step)[1] < 0.45
