"""Sums of clipped gradients and curvatures: against torch's own derivatives, and records made to break the clip.

The fast way (`tasks.chain`) is held against the recordwise one, and that against a plain loop over records with
torch.autograd and whole Hessians. `move` is how far a sum moves when one record is not in the sample: what a release
from a sample costs rests on that, so it may not be more than the clip for the numbers as computed.
"""

import copy
import math
from dataclasses import dataclass

import numpy as np
import pytest

from silograph.core.errors import InputError

torch = pytest.importorskip("torch", reason="neural networks need the extra `neural`")

from torch import nn  # noqa: E402
from torch.func import functional_call  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from silograph.tasks import chain, layers, neural  # noqa: E402
from silograph.tasks.fixed import FixedFeatures  # noqa: E402
from silograph.tasks.networks import cnn, initialise, mlp, random_features, resnet18  # noqa: E402
from silograph.tasks.neural import Neural  # noqa: E402


def without_bias():
    parts = nn.Linear(6, 4, bias=False), nn.Tanh(), nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5, bias=False)
    return nn.Sequential(*parts)


def strided():
    """Sides, strides and padding that differ by axis; the last column of the picture is never seen."""
    first = nn.Conv2d(2, 3, (3, 2), stride=(2, 3), padding=(0, 1), bias=False)
    return nn.Sequential(first, nn.Tanh(), nn.Conv2d(3, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 3 * 2, 5))


def on_an_extractor():
    """Of pictures, with batch norm in use; a hidden layer above it."""
    kept = nn.BatchNorm2d(3)
    kept.running_mean.copy_(torch.tensor([0.3, -0.2, 0.1]))
    features = FixedFeatures(initialise(nn.Sequential(nn.Conv2d(2, 3, 3)), 7).append(kept).append(nn.ReLU()))
    return nn.Sequential(features, nn.Linear(18, 4), nn.Tanh(), nn.Linear(4, 5))


#: Module, shape of a record, outputs, loss.
NETS = {
    "linear": (lambda: mlp(6, 5, ()), (6,), 5, "cross-entropy"),
    "one hidden": (lambda: mlp(6, 5, (8,)), (6,), 5, "cross-entropy"),
    "two hidden": (lambda: mlp(6, 5, (8, 7)), (2, 3), 5, "cross-entropy"),
    "three hidden": (lambda: mlp(6, 5, (7, 6, 5)), (6,), 5, "cross-entropy"),
    "tanh, no bias": (without_bias, (6,), 5, "cross-entropy"),
    "regression": (lambda: mlp(6, 1, (8,)), (6,), 1, "squared"),
    "cnn": (lambda: cnn((2, 9, 8), 5, (3, 4), (6,)), (2, 9, 8), 5, "cross-entropy"),
    "strided cnn": (strided, (2, 9, 8), 5, "cross-entropy"),
    "cnn, regression": (lambda: cnn((1, 5, 5), 1, (2,), (3,)), (1, 5, 5), 1, "squared"),
    "random features": (lambda: random_features(6, 5, 9), (2, 3), 5, "cross-entropy"),
    "layers on an extractor": (on_an_extractor, (2, 5, 4), 5, "cross-entropy"),
}

#: Those that begin with features which nothing moves.
FIXED = ("random features", "layers on an extractor")

every_net = pytest.mark.parametrize("name", NETS)


class Problem:
    """Records of a few clients, some of them chosen, at models that are not the start."""

    def __init__(self, name, clients=3, records=7):
        make, shape, outputs, loss = NETS[name]
        rng, size = np.random.default_rng(0), (clients, records)
        self.name, self.clients, self.records = name, clients, records
        self.module = initialise(make(), 1)
        start = nn.utils.parameters_to_vector(self.module.parameters()).detach().double().numpy()
        self.models = start + 0.3 * rng.standard_normal((clients, len(start)))
        self.x = rng.standard_normal((*size, *shape))
        self.y = rng.standard_normal(size) if loss == "squared" else rng.integers(0, outputs, size)
        self.chosen = rng.random(size) < 0.7
        self.direction = rng.standard_normal(self.models.shape)

    def task(self, **options):
        return Neural(self.module, *NETS[self.name][1:], **options)

    def sums(self, clip, task=None, x=None, y=None, chosen=None):
        """The gradient's and the curvature's, in one array."""
        task = self.task(precise=True) if task is None else task
        passes = task.at(
            self.models,
            self.x if x is None else x,
            self.y if y is None else y,
            self.chosen if chosen is None else chosen,
        )
        return np.stack([passes.gradient(clip), passes.curvature(self.direction, clip)])

    def typical(self):
        """A clip that some records reach and others do not."""
        lengths = [np.linalg.norm(one.gradient) for one in by_autograd(self, hessians=False).values()]
        return float(np.median(lengths))


@dataclass(frozen=True)
class One:
    """Of one record."""

    gradient: np.ndarray
    curvature: np.ndarray | None


def by_autograd(problem, hessians=True):
    """The oracle: every chosen record alone, with torch.autograd and the whole Hessian."""
    module, loss = copy.deepcopy(problem.module).double(), NETS[problem.name][3]
    shapes = [(name, parameter.shape) for name, parameter in module.named_parameters()]

    def value(w, x, y):
        parameters, begin = {}, 0
        for name, shape in shapes:
            parameters[name] = w[begin : begin + shape.numel()].reshape(shape)
            begin += shape.numel()
        out = functional_call(module, parameters, (x[None],))[0]
        return 0.5 * (out[0] - y) ** 2 if loss == "squared" else -out.log_softmax(0)[y]

    found = {}
    for k, b in zip(*problem.chosen.nonzero(), strict=True):
        w = torch.from_numpy(problem.models[k]).requires_grad_()
        x, y = torch.from_numpy(problem.x[k, b]), problem.y[k, b]
        (gradient,) = torch.autograd.grad(value(w, x, y), w)
        curvature = None
        if hessians:
            hessian = torch.autograd.functional.hessian(lambda w, x=x, y=y: value(w, x, y), w, vectorize=True)
            curvature = hessian.detach().numpy() @ problem.direction[k]
        found[k, b] = One(gradient.numpy(), curvature)
    return found


def added(records, clip, clients):
    """The oracle's sums."""

    def clipped(vector):
        return vector if clip is None else vector * min(1.0, clip / np.linalg.norm(vector))

    size = next(iter(records.values())).gradient.size
    out = np.zeros((2, clients, size))
    for (k, _), one in records.items():
        out[0, k] += clipped(one.gradient)
        out[1, k] += clipped(one.curvature)
    return out


def distance(one, other):
    """Of each sum, relative; the larger of gradient and curvature."""
    apart = np.linalg.norm(one - other, axis=(1, 2)) / np.linalg.norm(other, axis=(1, 2))
    return apart.max()


# ---- the same sums ---------------------------------------------------------------------------------------------------


@every_net
def test_recordwise_is_torch_autograd_record_by_record(name):
    problem = Problem(name, records=3)
    records = by_autograd(problem)
    slow = problem.task(precise=True, recordwise=True)
    for clip in (None, problem.typical(), 1e3):
        assert distance(problem.sums(clip, slow), added(records, clip, 3)) < 2e-9  # a clip keeps 1e-9 of itself back


@every_net
def test_the_fast_way_is_the_recordwise_one(name):
    problem = Problem(name)
    fast, slow = problem.task(precise=True), problem.task(precise=True, recordwise=True)
    assert fast._layers is not None
    assert slow._layers is None
    for clip in (None, 1e-3, problem.typical(), 1e3):
        assert distance(problem.sums(clip, fast), problem.sums(clip, slow)) < 1e-9


@every_net
def test_float32_agrees_to_its_rounding(name):
    """Single precision leaves a public share of the clip for its rounding; apart from that it is the same."""
    problem = Problem(name)
    exact, single, slow = problem.task(precise=True, recordwise=True), problem.task(), problem.task(recordwise=True)
    assert distance(problem.sums(None, single), problem.sums(None, exact)) < 1e-6
    clip = problem.typical()
    assert distance(problem.sums(clip, single), problem.sums(clip, slow)) < 1e-6
    widest = max(max(shape[0], math.prod(shape[1:])) for _, shape in single.layout)
    size = neural.tile_size(problem.records, 1.0, 128)
    slack = chain.Rounding.of(torch.float32, widest, size, problem.records).slack
    assert 0.0 < slack < 1e-3
    assert distance(problem.sums(clip, single), problem.sums(clip * (1.0 - slack), exact)) < 1e-6


@pytest.mark.parametrize("name", NETS)
def test_gradients_of_dense_networks_in_single_precision_are_the_chains(name, monkeypatch):
    """They have a pass of their own; all other networks, and all that is no number, take the chain's."""
    calls, one = [], chain.add_gradients
    monkeypatch.setattr(chain, "add_gradients", lambda *given: (calls.append(given), one(*given)))
    problem = Problem(name, records=40)
    weights = np.where(problem.chosen, np.float32(0.7), np.float32(0.0))
    task, clips = problem.task(), (None, 1e-3, problem.typical(), 1e3)
    for scale in (1.0, 1e3):  # of scores, so that some odds are beyond single precision
        problem.models *= scale
        for chosen in (problem.chosen, weights):
            quick = [problem.sums(clip, task, chosen=chosen)[0] for clip in clips]
            assert bool(calls) == (name not in ("cnn", "strided cnn", "cnn, regression", *FIXED))
            with monkeypatch.context() as patch:
                patch.setattr(chain, "dense_rows", lambda layers: None)
                slow = [problem.sums(clip, task, chosen=chosen)[0] for clip in clips]
            for here, there in zip(quick, slow, strict=True):
                assert np.abs(here - there).max() <= 1e-5 * np.abs(there).max()


def test_what_begins_or_ends_with_a_bend_is_right_too(monkeypatch):
    parts = nn.Tanh(), nn.Linear(6, 4), nn.ReLU(), nn.Tanh(), nn.Linear(4, 5), nn.Tanh()
    for module in (nn.Sequential(*parts), nn.Sequential(*parts[1:]), nn.Sequential(*parts[:-1])):
        monkeypatch.setitem(NETS, "bent", (lambda module=module: module, (6,), 5, "cross-entropy"))
        problem = Problem("bent", records=5)
        found, expected = problem.sums(None, problem.task()), added(by_autograd(problem), None, 3)
        assert distance(found, expected) < 1e-6


def test_any_module_is_right_by_the_recordwise_way():
    """A residual network with group norm, against the gradient and curvature of the batch's summed loss."""
    shape = (2, 8, 8)
    task = Neural(initialise(resnet18(shape, 3, width=4, groups=2), 1), shape, 3, precise=True)
    assert task._layers is None
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((1, 4, *shape)), rng.integers(0, 3, (1, 4))
    v = rng.standard_normal((1, task.size))
    passes = task.at(task.start[None], x, y, np.ones((1, 4), dtype=bool))

    w = torch.from_numpy(task.start).requires_grad_()
    names = dict(task.module.named_parameters())
    parts = torch.split(w, [p.numel() for p in names.values()])
    named = {name: part.reshape(p.shape) for (name, p), part in zip(names.items(), parts, strict=True)}
    out = functional_call(task.module.double(), named, (torch.from_numpy(x[0]),))
    loss = nn.functional.cross_entropy(out, torch.from_numpy(y[0]), reduction="sum")
    (gradient,) = torch.autograd.grad(loss, w, create_graph=True)
    (curvature,) = torch.autograd.grad(gradient @ torch.from_numpy(v[0]), w)
    np.testing.assert_allclose(passes.gradient(None)[0], gradient.detach(), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(passes.curvature(v, None)[0], curvature, rtol=1e-9, atol=1e-9)


class Doubled(nn.Sequential):
    """A chain with a forward of its own."""

    def forward(self, x):
        return 2.0 * super().forward(x) + 1.0


def used_twice():
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(6, 5))


def tied():
    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 5))
    module[2].weight = module[0].weight
    return module


#: What looks like a chain that is known, and is none.
LOOKALIKES = {
    "a module used twice": (used_twice, (6,)),
    "tied weights": (tied, (6,)),
    "a forward of its own": (lambda: Doubled(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 5)), (6,)),
    "a dense layer along the last axis": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Flatten(), nn.Linear(8, 5)),
        (2, 3),
    ),
    "features that are not the first": (
        lambda: nn.Sequential(nn.Linear(6, 4), FixedFeatures(nn.Tanh()), nn.Linear(4, 5)),
        (6,),
    ),
    "overlapping pools": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 2), nn.MaxPool2d(3, 2), nn.Flatten(), nn.Linear(8, 5)),
        (1, 6, 6),
    ),
    "dilation": (lambda: nn.Sequential(nn.Conv2d(1, 2, 2, dilation=2), nn.Flatten(), nn.Linear(32, 5)), (1, 6, 6)),
    "groups": (lambda: nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), nn.Flatten(), nn.Linear(32, 5)), (2, 6, 6)),
    "padding by name": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten(), nn.Linear(32, 5)),
        (1, 4, 4),
    ),
}


@pytest.mark.parametrize("name", LOOKALIKES)
def test_what_only_looks_like_a_chain_is_right_too(name, monkeypatch):
    make, shape = LOOKALIKES[name]
    monkeypatch.setitem(NETS, name, (make, shape, 5, "cross-entropy"))
    problem = Problem(name, records=3)
    for clip in (None, 0.5):
        assert distance(problem.sums(clip), added(by_autograd(problem), clip, 3)) < 2e-9


@pytest.mark.parametrize("name", ["two hidden", "cnn", "random features"])
def test_a_clients_sums_are_its_own(name):
    problem = Problem(name)
    task, clip = problem.task(precise=True), problem.typical()
    together = problem.sums(clip, task)
    for k in range(problem.clients):
        rows = slice(k, k + 1)
        alone = task.at(problem.models[rows], problem.x[rows], problem.y[rows], problem.chosen[rows])
        np.testing.assert_allclose(alone.gradient(clip)[0], together[0, k], rtol=1e-9, atol=1e-12)
        curvature = alone.curvature(problem.direction[rows], clip)[0]
        np.testing.assert_allclose(curvature, together[1, k], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("recordwise", [False, True])
def test_how_many_records_are_worked_on_at_once_does_not_matter(recordwise, monkeypatch):
    problem = Problem("cnn", records=9)
    task, clip = problem.task(precise=True, recordwise=recordwise), problem.typical()
    whole = problem.sums(clip, task)
    module = neural if recordwise else chain
    for room in (1, 3 * task.size, 25_000):  # one at a time, and a few
        monkeypatch.setattr(module, "_ROOM", {"cpu": room} if module is chain else room)
        with Largest() as seen:
            assert distance(problem.sums(clip, task), whole) < 1e-12
        assert seen.numel <= max(room, problem.x.size)


# ---- who counts ------------------------------------------------------------------------------------------------------

SPOILT = {"no number": np.nan, "infinite": np.inf, "minus infinite": -np.inf, "beyond float32": 1e300}

either_way = pytest.mark.parametrize("recordwise", [False, True], ids=["fast", "recordwise"])


@either_way
@pytest.mark.parametrize("name", ["one hidden", "cnn"])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_who_is_not_chosen_counts_for_nothing_whatever_it_holds(name, recordwise, clip):
    problem = Problem(name)
    task = problem.task(precise=True, recordwise=recordwise)
    expected = problem.sums(clip, task)
    for spoilt in (np.nan, np.inf, 1e30):
        x = np.where(problem.chosen.reshape(*problem.chosen.shape, *[1] * (problem.x.ndim - 2)), problem.x, spoilt)
        np.testing.assert_allclose(problem.sums(clip, task, x=x), expected, rtol=1e-12, atol=1e-14)


@either_way
def test_nobody_chosen_is_a_sum_of_nothing(recordwise):
    problem = Problem("one hidden")
    task = problem.task(recordwise=recordwise)
    assert not problem.sums(1.0, task, chosen=np.zeros_like(problem.chosen)).any()


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@either_way
@pytest.mark.parametrize("name", ["one hidden", "tanh, no bias", "cnn", "regression"])
@pytest.mark.parametrize("spoilt", SPOILT)
def test_under_a_clip_a_record_without_a_gradient_counts_as_nothing(name, recordwise, spoilt):
    problem = Problem(name)
    task, everybody = problem.task(recordwise=recordwise), np.ones_like(problem.chosen)
    x = problem.x.copy()
    x[1, 2].flat[0] = SPOILT[spoilt]  # one feature is enough
    without = everybody.copy()
    without[1, 2] = False
    sums = problem.sums(0.5, task, x=x, chosen=everybody)
    assert np.isfinite(sums).all()
    assert distance(sums, problem.sums(0.5, task, chosen=without)) < 1e-6


@either_way
def test_under_a_clip_an_answer_that_is_no_number_counts_as_nothing(recordwise):
    problem = Problem("regression")
    task, everybody = problem.task(recordwise=recordwise), np.ones_like(problem.chosen)
    y, without = problem.y.copy(), everybody.copy()
    y[1, 2], without[1, 2] = np.nan, False
    sums = problem.sums(0.5, task, y=y, chosen=everybody)
    assert distance(sums, problem.sums(0.5, task, chosen=without)) < 1e-6


@either_way
def test_without_a_clip_no_number_comes_through_to_its_client_alone(recordwise):
    problem = Problem("one hidden")
    task, everybody = problem.task(recordwise=recordwise), np.ones_like(problem.chosen)
    x = problem.x.copy()
    x[1, 2, 0] = np.nan
    sums = problem.sums(None, task, x=x, chosen=everybody)
    assert np.isnan(sums[:, 1]).any(-1).all()
    assert np.isfinite(sums[:, [0, 2]]).all()


# ---- how far one record moves a sum ----------------------------------------------------------------------------------

CLIP = 0.7


def move(released, x, y, places):
    """The farthest that leaving one of the places out of the sample moves what is released, in clips."""
    everybody = np.ones(y.shape, dtype=bool)
    whole, worst = released(x, y, everybody), 0.0
    for place in places:
        chosen = everybody.copy()
        chosen[place] = False
        worst = max(worst, float(np.linalg.norm(whole - released(x, y, chosen))) / CLIP)
    return worst


def longest(problem, task, curvature):
    """Records whose gradient, or curvature, gradient ascent made as long as it could: x, y."""
    loss = NETS[problem.name][3]
    rng = np.random.default_rng(5)
    x = torch.from_numpy(rng.standard_normal((8, *problem.x.shape[2:]))).requires_grad_()
    y = torch.from_numpy(problem.y[0, np.arange(8) % problem.records])
    w, v = torch.from_numpy(problem.models[0]), torch.from_numpy(problem.direction[0])
    passes = neural.RecordwisePasses(problem.module.double(), task.layout, loss, w[None], x, y, None, None)

    def length(record, answer):
        slope = torch.func.grad(passes._value)
        if not curvature:
            return slope(w, record, answer).norm()
        return torch.func.jvp(lambda w: slope(w, record, answer), (w,), (v,))[1].norm()

    for _ in range(15):
        (up,) = torch.autograd.grad(torch.func.vmap(length)(x, y).sum(), x)
        x = x + up / up.flatten(1).norm(dim=1).clamp(min=1e-30).reshape(-1, *[1] * (up.dim() - 1))
        x = x.detach().requires_grad_()
    return x.detach().numpy(), y.numpy()


def searched(problem, task, curvature, released):
    """The searcher: the most clips by which any of many tables' records moves what is released."""
    rng = np.random.default_rng(3)
    shape, (_, _, outputs, loss) = problem.x.shape[2:], NETS[problem.name]

    def answers(count):
        return rng.standard_normal(count) if loss == "squared" else rng.integers(0, outputs, count)

    scales = 10.0 ** np.array([-15, -6, -1, 0, 1, 4, 8, 12, 15])
    tables = [(scale * rng.standard_normal((40, *shape)), answers(40)) for scale in scales]
    tables.append((rng.standard_normal((600, *shape)), answers(600)))
    tables.append((np.repeat(rng.standard_normal((1, *shape)), 600, 0), np.repeat(answers(1), 600)))  # duplicates
    mixed = 10.0 ** rng.uniform(-15, 15, (40, *[1] * len(shape)))
    tables.append((mixed * rng.standard_normal((40, *shape)), answers(40)))
    x, y = longest(problem, task, curvature)
    tables.append((np.concatenate([x, np.zeros((32, *shape))]), np.concatenate([y, answers(32)])))
    tables.append((np.repeat(x, 5, 0), np.repeat(y, 5)))
    return max(move(released, x, y, (0, len(y) // 2, len(y) - 1)) for x, y in tables)


def release(problem, task, curvature, clip=CLIP):
    """What is released of the first client's records: `searched` attacks it."""

    def released(x, y, chosen):
        passes = task.at(problem.models[:1], x[None].astype(np.float32), y[None], chosen[None])
        return (passes.curvature(problem.direction[:1], clip) if curvature else passes.gradient(clip))[0]

    return released


sums_of = pytest.mark.parametrize("curvature", [False, True], ids=["gradient", "curvature"])


@sums_of
@pytest.mark.parametrize("name", ["linear", "one hidden", "tanh, no bias", "cnn", "random features"])
def test_no_record_moves_a_sum_by_more_than_the_clip(name, curvature):
    problem = Problem(name)
    task = problem.task()
    found = searched(problem, task, curvature, release(problem, task, curvature))
    assert 0.98 < found <= 1.0  # some come up to the clip less what is left for rounding, none beyond


@sums_of
def test_nor_by_the_recordwise_way(curvature):
    problem = Problem("one hidden")
    task = problem.task(recordwise=True)
    assert 0.98 < searched(problem, task, curvature, release(problem, task, curvature)) <= 1.0


@sums_of
def test_a_missing_clip_is_caught(curvature):
    problem = Problem("one hidden")
    task = problem.task()
    assert searched(problem, task, curvature, release(problem, task, curvature, clip=None)) > 100.0


@sums_of
def test_a_clipped_mean_is_caught(curvature):
    """S4's version: each record may count for C / N in a mean, and moves it by up to 2 C."""
    problem = Problem("one hidden")
    task = problem.task()
    plain = release(problem, task, curvature, clip=None)

    def released(x, y, chosen):
        mean = np.nan_to_num(plain(x, y, chosen)) / max(chosen.sum(), 1)
        return len(y) * mean * min(1.0, CLIP / max(float(np.linalg.norm(mean)), 1e-300))

    assert searched(problem, task, curvature, released) > 1.5


def test_lengths_that_forget_the_bias_are_caught(monkeypatch):
    problem = Problem("one hidden")
    task = problem.task()
    monkeypatch.setattr(layers.Dense, "lengths", lambda layer, a, delta, ra, rdelta: a.squares * layers.squares(delta))
    assert searched(problem, task, False, release(problem, task, False)) > 1.01


def test_curvatures_whose_two_parts_are_taken_for_orthogonal_are_caught(monkeypatch):
    problem = Problem("one hidden")
    task, right = problem.task(), layers.Dense.lengths

    def lengths(layer, a, delta, ra, rdelta):
        if ra is None:
            return right(layer, a, delta, ra, rdelta)
        straight = (a.squares + layer.bias) * layers.squares(rdelta)
        return straight + layers.squares(delta) * layers.squares(ra)

    monkeypatch.setattr(layers.Dense, "lengths", lengths)
    assert searched(problem, task, True, release(problem, task, True)) > 1.01


def test_curvatures_whose_parts_cancel_move_a_sum_by_no_more_than_the_clip():
    """Along v = (-s W1, 2 s W2) the second layer's Rdelta a' + delta Ra' is 0 for y = 0, and both parts are huge.

    What rounding leaves of hundreds of such records must stay below what the clip keeps back for it.
    """
    module = initialise(nn.Sequential(nn.Linear(4, 2, bias=False), nn.Linear(2, 1, bias=False)), 3)
    with torch.no_grad():
        module[1].weight.mul_(1e-8)  # the first layer's own curvature vanishes beside them
    task, s = Neural(module, (4,), 1, "squared"), 2.0**40
    v = np.concatenate([-s * task.start[:8], 2.0 * s * task.start[8:]])
    worst = 0.0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = (1e4 * np.abs(rng.standard_normal((601, 4)))).astype(np.float32)
        for place in (0, 300):
            y = np.zeros(601)
            y[place] = 1e10  # the one that is left out does not cancel

            def released(x, y, chosen):
                return task.at(task.start[None], x[None], y[None], chosen[None]).curvature(v[None], CLIP)[0]

            worst = max(worst, move(released, x, y, (place,)))
    assert worst <= 1.0


#: A network, and records so many that one fewer takes another way through many processors' matrix products.
TURNS = {
    "784-64-10": ((784, 64, 10), 16, {}),
    "196-32-10": ((196, 32, 10), 9, {}),
    "20-8-5": ((20, 8, 5), 3, {}),
    "300-1": ((300, 1), 601, {}),
    "recordwise": ((20, 8, 5), 2, {"recordwise": True}),
}


@sums_of
@pytest.mark.parametrize("name", TURNS)
def test_what_a_record_adds_does_not_depend_on_who_else_is_in_the_sample(name, curvature):
    """Features that the first layer nearly cancels: its output is nothing but rounding, and rounding may differ with
    the place in a batch and the batch's size. Then a record's absence changes what all others add."""
    (inputs, *hidden, outputs), count, options = TURNS[name]
    loss = "squared" if outputs == 1 else "cross-entropy"
    task = Neural(initialise(mlp(inputs, outputs, hidden), 1), (inputs,), outputs, loss, **options)
    first = (*hidden, outputs)[0]
    span, _ = np.linalg.qr(task.start[: inputs * first].reshape(first, inputs).T)
    worst = 0.0
    for seed, scale in enumerate((1e5, 1e7, 1e9, 1e11) * 3):
        rng = np.random.default_rng(seed)
        seen = rng.standard_normal((count, inputs))
        x = (scale * (seen - seen @ span @ span.T)).astype(np.float32)
        y = np.zeros(count) if outputs == 1 else rng.integers(0, outputs, count)
        v = rng.standard_normal((1, task.size))

        def released(x, y, chosen, v=v):
            passes = task.at(task.start[None], x[None], y[None], chosen[None])
            return (passes.curvature(v, CLIP) if curvature else passes.gradient(CLIP))[0]

        worst = max(worst, move(released, x, y, (0, count - 1)))
    assert worst <= 1.0


# ---- memory ----------------------------------------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """The largest tensor that any operation made."""

    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.numel = max(self.numel, leaf.numel())
        return out


def test_dense_layers_need_no_gradient_for_every_record():
    clients, records, width = 6, 50, 60
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((clients, records, width)), rng.integers(0, 10, (clients, records))
    everybody = np.ones((clients, records), dtype=bool)
    largest = {}
    for recordwise in (False, True):
        task = Neural(initialise(mlp(width, 10, (40, 30)), 1), (width,), 10, recordwise=recordwise)
        with Largest() as seen:
            passes = task.at(np.repeat(task.start[None], clients, 0), x, y, everybody)
            passes.curvature(passes.gradient(1.0), 1.0)
        largest[recordwise] = seen.numel
    assert largest[False] <= max(clients * task.size, clients * records * width)  # a fiftieth of all three
    assert largest[True] >= 32 * task.size  # a tile of them: the trick sees them where they are made


# ---- what is refused, and what is measured ---------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_cuda_device_that_is_not_there_is_refused(device):
    with pytest.raises(InputError, match="expected a CUDA device"):
        Neural(mlp(4, 3), (4,), 3, device=device)


@pytest.mark.parametrize("device", ["gpu", "mps", "meta", ""])
def test_an_unknown_device_is_refused(device):
    with pytest.raises(InputError, match="expected cpu or cuda"):
        Neural(mlp(4, 3), (4,), 3, device=device)


def test_a_network_for_other_records_is_refused():
    with pytest.raises(InputError, match=r"takes records of shape \(5,\)"):
        Neural(mlp(4, 3), (5,), 3)
    with pytest.raises(InputError, match="outputs of shape"):
        Neural(mlp(4, 3), (4,), 2)


def test_batch_norm_is_refused_with_the_reason():
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    with pytest.raises(InputError, match=r"depends on the others in its batch.*GroupNorm"):
        Neural(module, (4,), 3)


@pytest.mark.parametrize("name", ["two hidden", "cnn", "regression"])
def test_predictions_and_measures_are_plain_torch(name):
    problem = Problem(name, clients=1, records=1500)  # more than go through at once
    task, (x, y) = problem.task(), (problem.x[0], problem.y[0])
    model = problem.models[0]
    module = problem.module.double()
    nn.utils.vector_to_parameters(torch.from_numpy(model), module.parameters())
    out = module(torch.from_numpy(x)).detach()
    np.testing.assert_allclose(task.predict(model, x), out, rtol=1e-4, atol=1e-5)
    assert task.predict(model, x[:0]).shape == (0, task.outputs)
    first, second = task.measure(model, x, y)
    if name == "regression":
        error = float(((out[:, 0] - torch.from_numpy(y)) ** 2).mean())
        assert (first, second) == (pytest.approx(error / 2, rel=1e-5), pytest.approx(error, rel=1e-5))
    else:
        loss = nn.functional.cross_entropy(out, torch.from_numpy(y))
        assert first == pytest.approx(float(loss), rel=1e-5)
        assert second == pytest.approx(float((out.argmax(1).numpy() == y).mean()), abs=1e-12)
        assert math.isclose(second * 1500, round(second * 1500))


def test_the_module_given_is_never_changed():
    problem = Problem("one hidden")
    task = problem.task()
    before = [parameter.clone() for parameter in task.module.parameters()]
    problem.sums(1.0, task)
    task.measure(problem.models[0], problem.x[0], problem.y[0])
    for old, new in zip(before, task.module.parameters(), strict=True):
        assert torch.equal(old, new)
        assert new.grad is None


# ---- where an array lies ---------------------------------------------------------------------------------------------


def lying(array, offset):
    """The same numbers, from so many bytes after a multiple of 64 on; most such places are no place for their type."""
    room = np.zeros(array.nbytes + 128, np.uint8)
    begin = -room.ctypes.data % 64 + offset
    out = room[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    assert out.ctypes.data % 64 == offset
    return out


def spread(array):
    """The same numbers in every other place of a larger array, the first axis running fastest."""
    out = np.zeros([2 * n for n in array.shape], array.dtype, order="F")[
        tuple(slice(None, None, 2) for _ in array.shape)
    ]
    out[...] = array
    return out


@pytest.mark.parametrize("recordwise", [False, True])
@pytest.mark.parametrize("name", ["two hidden", "regression", "cnn", "random features"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_sums_are_the_same_bits_wherever_their_arrays_lie(name, kind, recordwise):
    """At every alignment and in every layout, with a sample and with all records: where a killed run is gone on with,
    arrays come from disk, and lie elsewhere."""
    problem = Problem(name, records=9)
    task = problem.task(recordwise=recordwise)
    arrays = [problem.models.astype(kind), problem.x.astype(kind), problem.y, problem.direction.astype(kind)]

    def sums(models, x, y, direction, chosen):
        passes = task.at(models, x, y, chosen)
        return np.stack([passes.gradient(0.5), passes.curvature(direction, 0.5)])

    places = [lambda array, k=k: lying(array, k) for k in range(64)] if not recordwise else []
    for chosen in (problem.chosen, np.ones_like(problem.chosen)):
        expected = sums(*arrays, chosen)
        for place in (*places, spread, np.asfortranarray):
            np.testing.assert_array_equal(sums(*map(place, arrays), chosen), expected)


def test_a_model_sent_to_all_gives_the_bits_of_as_many_copies():
    problem = Problem("one hidden")
    problem.models = np.broadcast_to(problem.models[0], problem.models.shape)
    sent = problem.sums(0.5, problem.task())
    problem.models = problem.models.copy()
    np.testing.assert_array_equal(problem.sums(0.5, problem.task()), sent)


@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_torch_sees_one_layout_in_memory_of_its_own(kind):
    """On processors where the layout changes nothing, too."""
    values = np.arange(60).reshape(3, 4, 5)
    for array in (*(lying(values.astype(kind), k) for k in range(64)), spread(values), values[:, ::2]):
        out = neural.placed(array, kind)
        assert out.ctypes.data % 64 == 0
        assert out.flags.c_contiguous
        assert out.flags.writeable
        assert not np.shares_memory(out, array)
        np.testing.assert_array_equal(out, array)
    assert neural.placed(values[:0], kind).shape == (0, 4, 5)
