"""What must hold for every method, engine and mechanism."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from silograph.core.errors import LeakError, SilenceError
from silograph.methods.base import begin, take
from silograph.methods.consensus_graph import ExactConsensus
from silograph.methods.private_graph import PATIENCE
from silograph.privacy.gate import Door, OpenGate, Released
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.run.loop import ENGINES, rounds
from silograph.run.store import RunFolder
from silograph.tasks.smooth_graph import SmoothGraph
from silograph.topology import star
from support import COUNTS, NODES, cases, federation, run, same

every = pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
private = pytest.mark.parametrize("case", [c for c in cases() if c.private], ids=lambda case: case.name)


@every
def test_engines_agree_bit_for_bit_noise_included(case):
    signals = federation()
    _, one, first = run(case, signals, "vector")
    _, other, second = run(case, signals, "silowise")
    same(one.arrays, other.arrays)
    assert one.facts == other.facts
    assert first.ledger.rows == second.ledger.rows


@every
def test_the_order_silos_are_named_in_does_not_matter(case):
    signals = federation()
    _, one, first = run(case, signals)
    _, other, second = run(case, dict(reversed(signals.items())))
    same(one.arrays, other.arrays)
    assert first.ledger.rows == second.ledger.rows


@every
def test_resuming_from_disk_after_any_round_equals_the_straight_run(case, tmp_path):
    signals = federation()
    states, straight, door = run(case, signals)
    topo = star(list(signals))
    for cut in sorted({0, len(states) // 2, len(states) - 2}):
        if not 0 <= cut < len(states) - 1:
            continue
        folder = RunFolder(tmp_path / f"run{cut}", "plan", [], 5)
        folder.save(states[cut], [])
        state, _ = folder.load()
        again = Door(5, Ledger(), case.mechanism, case.budget)
        again.ledger.append([row for row in door.ledger.rows if row.round <= cut])
        place = ENGINES["vector"]([case.task.prepare(signals[name]) for name in topo.silos], topo, again)
        for after in rounds(case.method, topo, place, again, state):
            state = after
        resumed = case.method.outcome(state.servers, place.deliver(case.method, state), topo)
        same(resumed.arrays, straight.arrays)
        assert again.ledger.rows == door.ledger.rows


@every
def test_absent_silos_keep_their_state_and_cost_nothing(case):
    """One silo away for rounds 1 and 2; it is neither waited for nor charged."""
    signals = federation()
    here = [name for name in signals if name != "bob"]
    states, outcome, door = run(case, signals, present=lambda t: here if t in (1, 2) else list(signals))
    assert np.isfinite(outcome.arrays["graph"]).all()
    assert not [row for row in door.ledger.rows if row.silo == "bob" and row.round in (1, 2)]
    bob = star(list(signals)).index(["bob"])
    for before, after in pairwise(states):
        if before.round in (1, 2):
            for name, value in take(before.carry, bob).items():
                old, new = (v.value if isinstance(v, Released) else v for v in (value, take(after.carry, bob)[name]))
                np.testing.assert_array_equal(old, new)


@every
def test_a_silo_that_never_comes_holds_nobody_up(case):
    signals = federation()
    here = [name for name in signals if name != "bob"]
    method = replace(case.method, rounds=60) if isinstance(case.method, ExactConsensus) else case.method
    states, outcome, door = run(replace(case, method=method), signals, present=lambda t: here)
    assert np.isfinite(outcome.arrays["graph"][[0, 2]]).all()
    assert "bob" not in {row.silo for row in door.ledger.rows if row.mechanism != "reveal"}
    assert len(states) <= max(60, PATIENCE)


@every
def test_nobody_present_is_an_empty_round_not_an_error(case):
    signals = federation()
    _, outcome, _ = run(case, signals, present=lambda t: [] if t == 0 else list(signals))
    assert np.isfinite(outcome.arrays["graph"]).all()


@every
def test_nobody_ever_present_ends_with_an_error(case):
    with pytest.raises(SilenceError, match="none did for 10 rounds"):
        run(case, federation(), present=lambda t: [])


@private
def test_the_ledger_adds_up_to_the_budget_and_no_more(case):
    _, _, door = run(case, federation())
    for silo in COUNTS:
        spent = door.spent(silo, case.budget.delta)
        assert spent.epsilon <= case.budget.epsilon
        assert spent.epsilon == pytest.approx(case.budget.epsilon, rel=1e-6)


@private
def test_another_seed_gives_other_noise_and_the_same_bill(case):
    signals = federation()
    _, one, first = run(case, signals, seed=1)
    _, other, second = run(case, signals, seed=2)
    assert not np.array_equal(one.arrays["graph"], other.arrays["graph"])
    # Theorem 2's sensitivity follows the public pulls, which differ; what it costs does not.
    bills = [[(r.silo, r.round, r.site, pytest.approx(r.noise / r.l2)) for r in d.ledger.rows] for d in (first, second)]
    assert bills[0] == bills[1]


class Recorder:
    """A gate that keeps what came to it; it passes the values on as they are, so runs on neighbours stay comparable."""

    def __init__(self):
        self.seen = []

    def rows(self, index):
        return self

    def release(self, bounded, site):
        self.seen.append(bounded)
        return OpenGate().reveal(bounded.value, site, "")

    def reveal(self, value, site, why):
        raise AssertionError("a private method revealed something")


def neighbours(signals, rng):
    """The silo's records with one replaced by an extreme one."""
    direction = rng.normal(size=NODES)
    for record in (1e6 * direction, -1e6 * direction, np.zeros(NODES), 1e3 * np.eye(NODES)[0], rng.normal(size=NODES)):
        other = signals.copy()
        other[rng.integers(len(other))] = record
        yield other


@private
def test_one_record_never_moves_a_bounded_value_further_than_it_says(case):
    """Along the public history of a real run, with the silo's data swapped for a neighbour's."""
    signals, rng = federation(), np.random.default_rng(0)
    topo = star(list(signals))
    states, _, _ = run(case, signals)
    history = [begin(case.method, topo), *states[:-1]]
    worst = 0.0
    for state in history[:6]:
        carry, down = take(state.carry, [0]), {name: value.rows([0]) for name, value in state.down.items()}

        def bounded(table, carry=carry, down=down):
            data = {name: value[None] for name, value in case.task.prepare(table).items()}
            recorder = Recorder()
            case.method.local(carry, down, data, recorder)
            return recorder.seen

        base = bounded(signals["ada"])
        for other in neighbours(signals["ada"], rng):
            for a, b in zip(base, bounded(other), strict=True):
                moved = np.linalg.norm(a.value - b.value)
                assert moved <= a.l2[0]
                worst = max(worst, moved / a.l2[0])
    assert worst > 0.0


@pytest.mark.parametrize(
    "case", [c for c in cases() if c.private and c.name != "correlated"], ids=lambda case: case.name
)
def test_noise_matches_its_ledger_row(case):
    """What left minus what was inside, over all silos and rounds, has the row's law (KS, rate 1e-4) and no memory."""
    signals = federation()
    inside, outside = [], []

    class Tap(Door):
        def gate(self, silos, round, observer="server"):
            gate = super().gate(silos, round, observer)
            release = gate.release

            def tapped(bounded, site):
                out = release(bounded, site)
                inside.extend(bounded.value)
                outside.extend(out.value)
                return out

            gate.release = tapped
            gate.rows = lambda index: gate
            return gate

    topo = star(list(signals))
    door = Tap(5, Ledger(), case.mechanism, case.budget)
    place = ENGINES["vector"]([case.task.prepare(signals[name]) for name in topo.silos], topo, door)
    for _ in rounds(case.method, topo, place, door):
        pass
    law = stats.norm if case.mechanism.name == "gaussian" else stats.laplace
    standard = [(o - i) / row.noise for i, o, row in zip(inside, outside, door.ledger.rows, strict=True)]
    assert stats.kstest(np.concatenate(standard), law.cdf).pvalue > 1e-4
    # Independence across silos and rounds: 4.5 standard errors, rate 7e-6 a pair.
    correlation = np.corrcoef(np.array(standard)) - np.eye(len(standard))
    assert np.abs(correlation).max() < 4.5 / np.sqrt(standard[0].size)


def test_without_noise_the_papers_private_algorithm_is_the_plain_one():
    signals = federation()
    model = next(c for c in cases() if c.name == "per round, Corollary 1")
    roomy = SmoothGraph(NODES, "clipped-distances", 1e6)
    silent = replace(
        model, task=roomy, method=replace(model.method, release=roomy), mechanism=Gaussian(0.0), budget=None
    )
    plain = replace(
        model, task=SmoothGraph(NODES), method=replace(model.method, release=None), mechanism=None, budget=None
    )
    _, noisy, _ = run(silent, signals)
    _, exact, _ = run(plain, signals)
    # The grid is the only difference: 2^-20 of a sensitivity that the roomy clip makes 1e6 / N.
    np.testing.assert_allclose(noisy.arrays["graph"], exact.arrays["graph"], atol=1e-2)
    tight = SmoothGraph(NODES, "clipped-distances", 100.0)
    silent = replace(silent, task=tight, method=replace(model.method, release=tight))
    np.testing.assert_allclose(run(silent, signals)[1].arrays["graph"], exact.arrays["graph"], atol=1e-6)


def test_without_noise_one_release_of_one_silo_is_the_exact_graph():
    signals = {"ada": federation()["ada"]}
    case = next(c for c in cases() if c.name == "one release, clip")
    roomy = SmoothGraph(NODES, "moment", 50.0)
    method = replace(case.method, task=roomy, mechanism=Gaussian(0.0), counts=(COUNTS["ada"],))
    _, noisy, _ = run(replace(case, task=roomy, method=method, mechanism=Gaussian(0.0), budget=None), signals)
    _, exact, _ = run(replace(case, task=SmoothGraph(NODES), method=method.inner, mechanism=None, budget=None), signals)
    np.testing.assert_allclose(noisy.arrays["graph"], exact.arrays["graph"], atol=1e-4)


@dataclass(frozen=True)
class Leaky:
    """A method that sends one thing past the gate."""

    honest: ExactConsensus
    leak: str

    def __getattr__(self, name):
        return getattr(self.honest, name)

    def local(self, carry, down, data, gate):
        carry, message = self.honest.local(carry, down, data, gate)
        extra = {
            "array": data["zbar"],
            "count": float(len(data["zbar"])),
            "text": "silo ada failed at row 7",
            "mapped": None,
        }[self.leak]
        if self.leak == "mapped":
            zbar = data["zbar"]
            extra = message["vector"].map(lambda x: x * 0.0 + zbar)
        return carry, {**message, "extra": extra}


@pytest.mark.parametrize("leak", ["array", "count", "text", "mapped"])
@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_leaky_method_is_refused_by_name(leak, engine):
    case = cases()[0]
    with pytest.raises(LeakError, match=r"Leaky\.local|lambda"):
        run(replace(case, method=Leaky(case.method, leak)), federation(), engine)


def test_a_released_silo_that_is_asked_again_is_not_charged_again():
    """bob comes late, so ada and cyd are asked twice: one row each."""
    case = next(c for c in cases() if c.name == "one release")
    signals = federation()
    _, _, door = run(case, signals, present=lambda t: ["ada", "cyd"] if t == 0 else list(signals))
    assert sorted(row.silo for row in door.ledger.rows) == ["ada", "bob", "cyd"]
