"""Networks: the paper's against plain numpy and closed forms, the check against home-made layers that mix records."""

import copy
import hashlib
import json
import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats
from scipy.signal import correlate2d

from silograph.core.errors import DamageError, InputError

torch = pytest.importorskip("torch", reason="neural networks need the extra `neural`")
torch.manual_seed(0)  # some modules below are made while this file is read

from torch import nn  # noqa: E402
from torch.func import functional_call, grad, jvp, vmap  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from silograph.tasks import networks  # noqa: E402
from silograph.tasks.fixed import FixedFeatures, random_cosines  # noqa: E402
from silograph.tasks.networks import (  # noqa: E402
    check_module,
    cnn,
    flatten,
    initialise,
    load_model,
    mlp,
    random_features,
    resnet18,
    save_model,
    unflatten,
)

MODELS = {
    "mlp": ((1, 14, 14), lambda: mlp(196, 10)),
    "random features": ((1, 14, 14), lambda: random_features(196, 10, 32)),
    "cnn": ((1, 14, 14), lambda: cnn((1, 14, 14), 10)),
    "resnet18": ((3, 16, 16), lambda: resnet18((3, 16, 16), 10, width=8)),
}


@pytest.fixture(params=MODELS)
def model(request):
    shape, make = MODELS[request.param]
    return initialise(make(), 3), shape


def records(shape, count=3, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(count, *shape)))


def size(module):
    return sum(parameter.numel() for parameter in module.parameters())


# ---- the paper's networks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [(), (5,), (7, 3)])
def test_mlp_is_dense_layers_with_relu_between(hidden):
    module = initialise(mlp(12, 4, hidden), 0).double()
    x = records((3, 2, 2))
    out, numbers = x.reshape(3, 12).numpy(), [p.detach().numpy() for p in module.parameters()]
    for k in range(0, len(numbers), 2):
        out = (np.maximum(out, 0.0) if k else out) @ numbers[k].T + numbers[k + 1]
    np.testing.assert_allclose(module(x).detach().numpy(), out, rtol=1e-12, atol=1e-13)
    assert size(module) == sum((a + 1) * b for a, b in pairwise((12, *hidden, 4)))


def test_random_features_are_the_cosines_they_say_and_everybodys():
    """Their inner products are those of the kernel but for some 1 / sqrt(features); another process draws the same."""
    features = 4000
    x = np.random.default_rng(0).uniform(-1.0, 1.0, (20, 6))
    layer = random_cosines(6, features)
    _, dense, _ = layer.extractor
    weight, shift = dense.weight.double().numpy(), dense.bias.double().numpy()
    out = layer(torch.from_numpy(x.reshape(20, 2, 3)).float()).numpy()
    np.testing.assert_allclose(out, np.sqrt(2 / features) * np.cos(x @ weight.T + shift), atol=1e-6)
    kernel = np.exp(-2.0 * ((x[:, None] - x) ** 2).sum(2) / 6)
    np.testing.assert_allclose(out @ out.T, kernel, atol=5.0 / math.sqrt(features))
    np.testing.assert_array_equal(random_cosines(6, features).extractor[1].weight, dense.weight)
    assert hashlib.sha256(np.round(weight[:5], 4).tobytes()).hexdigest()[:8] == "2ed465aa"
    head = initialise(random_features(6, 3, 5), 1)
    assert [name for name, _ in head.named_parameters()] == ["1.weight", "1.bias"]
    with pytest.raises(InputError, match="random_features: expected sizes from 1"):
        random_features(6, 3, 0)


def test_an_extractor_is_copied_frozen_and_stays_in_use():
    extractor = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    before = copy.deepcopy(extractor.state_dict())
    head = on_features(extractor)
    initialise(head.train(), 3)
    x = records((6,), 5).float()
    with torch.no_grad():
        expected = head[1](extractor.eval()(x))
    torch.testing.assert_close(head(x), expected)
    head(x).sum().backward()
    assert [name for name, _ in head.named_parameters()] == ["1.weight", "1.bias"]
    assert all(torch.equal(before[name], value) for name, value in extractor.state_dict().items())
    assert all(parameter.grad is None for parameter in extractor.parameters())


def test_cnn_is_convolutions_pooling_and_relu():
    """On pictures with odd sides, where pooling drops the last row and column."""
    module = initialise(cnn((2, 6, 7), 3, filters=(4, 5), dense=(6,)), 1).double()
    x = records((2, 6, 7), 2)
    numbers = [p.detach().numpy() for p in module.parameters()]
    for picture, answer in zip(x.numpy(), module(x).detach().numpy(), strict=True):
        out = picture
        for weight, bias in (numbers[0:2], numbers[2:4]):
            out = np.stack([sum(map(partial(correlate2d, mode="same"), out, w)) for w in weight]) + bias[:, None, None]
            h, w = out.shape[1] // 2, out.shape[2] // 2
            out = np.maximum(out[:, : 2 * h, : 2 * w].reshape(-1, h, 2, w, 2).max((2, 4)), 0.0)
        hidden = np.maximum(numbers[4] @ out.ravel() + numbers[5], 0.0)
        np.testing.assert_allclose(answer, numbers[6] @ hidden + numbers[7], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("shape", "left"), [((1, 28, 28), 9), ((3, 32, 32), 16), ((1, 14, 14), 1), ((3, 16, 16), 4)])
def test_cnn_of_the_paper(shape, left):
    module = cnn(shape, 10)
    kernels = 9 * (shape[0] * 64 + 64 * 128 + 128 * 256) + 64 + 128 + 256
    dense = (256 * left + 1) * 128 + 129 * 256 + 257 * 10
    assert size(module) == kernels + dense
    assert module(torch.zeros(2, *shape)).shape == (2, 10)


def resnet_size(channels, outputs, width):
    total = 9 * channels * width + 2 * width
    for before, filters in ((width, width), *pairwise(width * 2**stage for stage in range(4))):
        shortcut = 0 if before == filters else before * filters + 2 * filters
        total += 9 * before * filters + 3 * 9 * filters**2 + 4 * 2 * filters + shortcut
    return total + (8 * width + 1) * outputs


@pytest.mark.parametrize(("shape", "outputs", "width"), [((3, 32, 32), 10, 64), ((1, 28, 28), 7, 16)])
def test_resnet_has_seventeen_convolutions_and_eleven_million_parameters(shape, outputs, width):
    module = resnet18(shape, outputs, width)
    sides = [layer.kernel_size for layer in module.modules() if isinstance(layer, nn.Conv2d)]
    assert (sides.count((3, 3)), sides.count((1, 1)), len(sides)) == (17, 3, 20)
    assert size(module) == resnet_size(shape[0], outputs, width)
    assert resnet_size(3, 10, 64) == 11_173_962  # what ResNet-18 for 32x32 pictures is known to have


def test_resnet_against_its_definition():
    module = initialise(resnet18((3, 17, 16), 5, width=8, groups=4), 2).double()
    with torch.no_grad():
        for parameter in module.parameters():  # norms that are not 1 and 0
            parameter += 0.1 * torch.from_numpy(np.random.default_rng(parameter.numel()).normal(size=parameter.shape))
    numbers, x = iter([p.detach() for p in module.parameters()]), records((3, 17, 16))

    def normed(x, stride=1):
        kernel, weight, bias = next(numbers), next(numbers), next(numbers)
        x = F.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)
        parts = x.reshape(len(x), 4, -1)
        parts = (parts - parts.mean(-1, keepdim=True)) / (parts.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        return parts.reshape(x.shape) * weight[:, None, None] + bias[:, None, None]

    out = normed(x).clamp(min=0.0)
    for stage in range(4):
        for first in (True, False):
            stride = 2 if first and stage else 1
            body = normed(normed(out, stride).clamp(min=0.0))
            out = (body + (normed(out, stride) if stride == 2 else out)).clamp(min=0.0)
    expected = out.mean((2, 3)) @ next(numbers).T + next(numbers)
    torch.testing.assert_close(module(x).detach(), expected, rtol=1e-10, atol=1e-10)
    assert next(numbers, None) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mlp(0, 10), "mlp: expected sizes from 1, but found 0"),
        (lambda: mlp(5, 10, (3, -1)), "sizes from 1, but found -1"),
        (lambda: cnn((1, 7, 28), 10), "sides from 8.*3 times, but found .1, 7, 28.*fewer filters"),
        (lambda: cnn((28, 28), 10), "channels, height, width"),
        (lambda: cnn((1, 28, 28), 10, filters=(4, 0)), "sizes from 1"),
        (lambda: resnet18((3, 32, 4), 10), "sides from 8"),
        (lambda: resnet18((3, 32, 32), 10, width=12), "a divisor of the width 12, but found 8"),
    ],
)
def test_impossible_networks_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


# ---- its start -------------------------------------------------------------------------------------------------------


def test_a_start_depends_on_the_seed_alone():
    """Pinned: every machine, and every number of threads, gives these very numbers; torch's generator stays still."""
    module, state, threads = resnet18((3, 8, 8), 4, width=8), torch.get_rng_state(), torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            vector, _ = flatten(initialise(module, 11))
            assert hashlib.sha256(vector.astype("<f8").tobytes()).hexdigest()[:16] == "a88bbac814e42c12"
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), state)
    assert not np.array_equal(flatten(initialise(module, 12))[0], vector)


def test_a_start_is_torchs_usual_one():
    """Kolmogorov and Smirnov's test of each parameter of 16 layers; false alarms at most 16 x 1e-4, the seed fixed."""
    module = initialise(nn.Sequential(cnn((3, 16, 16), 10, (8, 16), (32,)), resnet18((3, 16, 16), 10, 8)), 5)
    usual = nn.Sequential(cnn((3, 16, 16), 10, (8, 16), (32,)), resnet18((3, 16, 16), 10, 8))
    norms = {f"{name}." for name, layer in module.named_modules() if isinstance(layer, nn.GroupNorm)}
    for (name, ours), torchs in zip(module.named_parameters(), usual.parameters(), strict=True):
        if name.removesuffix("weight").removesuffix("bias") in norms:
            assert torch.equal(ours, torchs)
        elif ours.numel() >= 500:
            values, bound = (
                ours.detach().numpy().ravel(),
                float(torchs.detach().abs().max()),
            )  # torch's own bound, from below
            assert stats.kstest(values, "uniform", (-bound, 2 * bound)).pvalue > 1e-4
            assert abs(values).max() == pytest.approx(bound, rel=0.02)
            assert abs(values).max() <= 1.0 / math.sqrt(ours[0].numel())


def test_layers_of_other_kinds_keep_their_own_start():
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.PReLU())
    with pytest.raises(InputError, match=r"start, layer 2 \(PReLU\).*start of your own"):
        initialise(module, 0)


# ---- the check of a network ------------------------------------------------------------------------------------------


class Wrapped(nn.Module):
    """A linear model of 6 numbers behind a function of the batch."""

    def __init__(self, function, outputs=3):
        super().__init__()
        self.function, self.last = function, nn.Linear(6, outputs)

    def forward(self, x):
        return self.last(self.function(x))


class Running(nn.Module):
    """Batch norm as one writes it oneself: a running mean, here not even used before the next batch."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        y = self.last(x - self.mean)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return y


class Remembering(nn.Module):
    """The same, hidden from the module's buffers."""

    def __init__(self):
        super().__init__()
        self.last, self.seen = nn.Linear(6, 3), 0.0

    def forward(self, x):
        self.seen, seen = float(x.detach().mean()), self.seen
        return self.last(x - seen)


class Tied(nn.Module):
    """One matrix used twice, and a buffer that stays as it is."""

    def __init__(self):
        super().__init__()
        self.code, self.back = nn.Linear(6, 3), nn.Linear(3, 6)
        self.back.weight = nn.Parameter(self.code.weight.detach().T.clone())
        self.again = nn.Linear(6, 3)
        self.again.weight = self.code.weight
        self.register_buffer("scale", torch.full((6,), 2.0))

    def forward(self, x):
        return self.again(torch.tanh(self.back(self.code(x * self.scale))))


class Sequence(nn.Module):
    """Attention over 5 tokens of 4 numbers."""

    def __init__(self, batch_first):
        super().__init__()
        self.attend = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=batch_first)
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.attend(x).mean(1))


def leaking_gradient(x):
    """Every value is that of x, and every gradient has the others in it."""
    mean = x.mean(0)
    return x + (mean - mean.detach())


def blind(module):
    """With a last layer that starts at zero, and so shows nothing of what comes before it."""
    nn.init.zeros_(module.last.weight)
    return module


def hooked(register):
    module = mlp(6, 3)
    register(module)
    return module


def normed(norm, channels=4):
    return nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, channels, 3), norm, nn.Flatten(), nn.Linear(16, 3))


def test_the_papers_networks_pass(model):
    module, shape = model
    check_module(module, shape, 10)


def on_features(*extractor):
    return nn.Sequential(FixedFeatures(nn.Sequential(*extractor)), nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (Tied(), (6,)),
        (Sequence(batch_first=True), (5, 4)),
        (normed(nn.InstanceNorm1d(4, affine=True)), (6,)),
        (normed(nn.GroupNorm(2, 4)), (6,)),
        (nn.Sequential(nn.Linear(6, 3), nn.LayerNorm(3), nn.Dropout(0.0)), (6,)),
        (blind(Wrapped(torch.tanh)), (6,)),
        (mlp(6, 3).double().eval(), (6,)),
        (on_features(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)), (6,)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_networks_of_all_kinds_pass(module, shape):
    check_module(module, shape, 3)


BATCH_NORMS = [
    nn.BatchNorm1d(4),
    nn.BatchNorm2d(4),
    nn.BatchNorm3d(4),
    nn.SyncBatchNorm(4),
    nn.LazyBatchNorm1d(),
    nn.BatchNorm1d(4, track_running_stats=False),
    nn.BatchNorm1d(4).eval(),
]


@pytest.mark.parametrize("norm", BATCH_NORMS, ids=lambda norm: type(norm).__name__)
def test_batch_norm_is_refused_with_the_reason_and_the_replacement(norm):
    expected = rf"network, layer 2 \({type(norm).__name__}\).*others in its batch.*bounds nothing.*nn\.GroupNorm"
    with pytest.raises(InputError, match=expected):
        check_module(normed(norm), (6,), 3)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (normed(nn.InstanceNorm1d(4, track_running_stats=True)), "layer 2.*no noise protects.*track_running_stats"),
        (nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.1)), "layer 1.*dropout draws.*Remove it"),
        (nn.Sequential(nn.Linear(6, 3), nn.AlphaDropout(0.1)).eval(), "layer 1.*dropout draws"),
        (hooked(lambda m: m[1].register_forward_hook(lambda *_: None)), r"layer 1 \(Linear\).*hook"),
        (hooked(lambda m: m[1].register_forward_pre_hook(lambda *_: None)), "layer 1.*hook"),
        (hooked(lambda m: m.register_full_backward_hook(lambda *_: None)), "network, Sequential.*hook"),
        (hooked(lambda m: m[3].weight.register_hook(lambda g: g)), "parameter 3.weight.*hook"),
        (hooked(lambda m: nn.utils.parametrizations.spectral_norm(m[1])), "layer 1.*parametrization.*spectral"),
        (nn.Sequential(nn.LazyLinear(3)), "parameter 0.weight.*lazy"),
        (nn.Flatten(), "parameters to learn, but there are none"),
        (hooked(lambda m: m[1].bias.requires_grad_(False)), "parameter 1.bias.*frozen.*buffer"),
        (mlp(6, 3).half(), "parameter 1.weight.*float16"),
        (on_features(nn.BatchNorm1d(6), nn.Linear(6, 4)).append(nn.BatchNorm1d(3)), "layer 2.*others in its batch"),
        (on_features(nn.Linear(6, 4), nn.BatchNorm1d(4, track_running_stats=False)), "others in its batch"),
        (on_features(hooked(lambda m: m[1].register_forward_hook(lambda *_: None))), "layer 0.extractor.*hook"),
        (FixedFeatures(nn.Linear(6, 3)), "parameters to learn, but there are none"),
    ],
)
def test_layers_and_parameters_that_will_not_do_are_refused_by_name(module, message):
    with pytest.raises(InputError, match=message):
        check_module(module, (6,), 3)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Wrapped(lambda x: x - x.mean(0)), "another output than alone.*nn.GroupNorm"),
        (Wrapped(lambda x: x - x.mean(0).detach()), "another output than alone"),
        (Wrapped(lambda x: x + 1e-6 * x.mean(0)), "another output than alone"),
        (Wrapped(lambda x: x.cumsum(0)), "another output than alone"),  # only later records see earlier ones
        (Wrapped(lambda x: x.sort(0).values), "another output than alone"),
        (Wrapped(lambda x: x / x.std(0)), "another output than alone"),  # nan alone
        (blind(Wrapped(lambda x: x - x.mean(0))), "another output than alone"),
        (Wrapped(leaking_gradient), "gradient in another record"),
        (blind(Wrapped(leaking_gradient)), "gradient in another record"),
        (Running(), "a batch changes its buffer mean"),
        (Running().eval(), "a batch changes its buffer mean"),
        (Remembering(), "remembers what it saw"),
        (Wrapped(lambda x: F.dropout(x, 0.2)), "draws at random"),
        (nn.Sequential(nn.Linear(6, 3), nn.RReLU()), "draws at random"),
        (Wrapped(lambda x: x if x.sum().item() > 0 else -x), "torch.func differentiates record by record"),
        (nn.Sequential(nn.Linear(6, 3), Wrapped(lambda x: x, 3)), r"records of shape \(6,\), but a batch of shape"),
        (Wrapped(lambda x: x / 0.0), "finite outputs"),
        (Wrapped(lambda x: x.squeeze()), r"outputs of shape \(1, 3\) from a batch of shape \(1, 6\), but found \(3,\)"),
    ],
)
def test_what_is_home_made_is_found_by_running_it(module, message):
    with pytest.raises(InputError, match=message):
        check_module(module, (6,), 3)


def test_an_attention_that_takes_the_batch_for_the_sequence_is_refused():
    with pytest.raises(InputError, match="another output than alone"):
        check_module(Sequence(batch_first=False), (5, 4), 3)


def test_wrong_shapes_are_named():
    module = mlp(196, 10)
    with pytest.raises(
        InputError, match=r"records of shape \(1, 28, 28\), but a batch of .*784 and 196x32.*without the"
    ):
        check_module(module, (1, 28, 28), 10)
    with pytest.raises(InputError, match=r"outputs of shape \(2, 7\) from a batch of shape .*, but found \(2, 10\)"):
        check_module(module, (1, 14, 14), 7)
    with pytest.raises(InputError, match="but found tuple"):
        check_module(nn.LSTM(4, 3, batch_first=True), (5, 4), 3)


def test_outputs_without_a_gradient_are_refused():
    class Detached(Wrapped):
        def forward(self, x):
            return super().forward(x).detach()

    with pytest.raises(InputError, match="outputs with a gradient"):
        check_module(Detached(torch.tanh), (6,), 3)


def test_the_check_leaves_the_module_and_torch_as_they_were():
    module = nn.Sequential(Running(), blind(Wrapped(lambda x: torch.cat((x, x), 1), 3)), mlp(3, 3).eval())
    module.register_buffer("constant", torch.ones(2))
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    modes, state = [part.training for part in module.modules()], torch.get_rng_state()
    with torch.no_grad(), pytest.raises(InputError, match=r"buffer 0\.mean"):
        check_module(module, (6,), 3)
    with torch.no_grad():
        check_module(module[1:], (3,), 3)
    assert all(torch.equal(value, kept[name]) for name, value in module.state_dict().items())
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}
    assert all(parameter.grad is None for parameter in module.parameters())
    assert [part.training for part in module.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


def test_batch_norm_breaks_clipping_and_group_norm_does_not():
    """Why it is refused: a record that is replaced may move a sum of gradients clipped at 1 by 2, and moves it by more.

    Behind batch norm the gradients of the other records move, too.
    """
    first, last = (initialise(nn.Linear(*sizes), 1).double() for sizes in ((6, 8), (8, 3)))
    x, labels = records((6,), 8), torch.arange(8) % 3
    replaced = torch.cat((50.0 + x[:1], x[1:]))

    def clipped_sum(norm, x):
        losses = F.cross_entropy(last(norm(first(x))), labels, reduction="none")
        parts = [torch.autograd.grad(loss, last.weight, retain_graph=True)[0] for loss in losses]
        return sum(part / max(1.0, float(part.norm())) for part in parts)

    def moved(norm):
        return float((clipped_sum(norm, x) - clipped_sum(norm, replaced)).norm())

    assert moved(lambda x: F.group_norm(x, 2)) <= 2.0
    assert moved(lambda x: F.batch_norm(x, None, None, training=True)) > 2.0


# ---- its parameters as one vector ------------------------------------------------------------------------------------


def test_a_vector_holds_the_parameters_in_their_order(model):
    module, _ = model
    vector, layout = flatten(module)
    assert vector.dtype == np.float64
    assert [name for name, _ in layout] == [name for name, _ in module.named_parameters()]
    np.testing.assert_array_equal(vector, nn.utils.parameters_to_vector(module.parameters()).detach().numpy())
    for name, part in unflatten(torch.from_numpy(vector), layout).items():
        assert torch.equal(part, module.get_parameter(name).double())


def test_vectors_may_have_leading_axes_and_are_not_copied():
    vector, layout = flatten(nn.Sequential(nn.Linear(3, 2), nn.PReLU()))
    stacked = torch.from_numpy(np.stack([vector, 2.0 * vector, 3.0 * vector]))[:, None].expand(3, 4, -1)
    parts = unflatten(stacked, layout)
    assert [part.shape for part in parts.values()] == [(3, 4, 2, 3), (3, 4, 2), (3, 4, 1)]
    assert all(part.untyped_storage().data_ptr() == stacked.untyped_storage().data_ptr() for part in parts.values())
    one = unflatten(stacked[2, 1], layout)
    assert all(torch.equal(parts[name][2, 1], one[name]) for name in one)


def test_a_shared_parameter_counts_once_and_moves_everywhere():
    module = Tied().double()
    vector, layout = flatten(module)
    assert len(vector) == 2 * 18 + 3 + 6 + 3
    x, other = records((6,)), np.random.default_rng(1).normal(size=len(vector))
    ours = functional_call(module, unflatten(torch.from_numpy(other), layout), (x,))
    nn.utils.vector_to_parameters(torch.from_numpy(other), module.parameters())
    assert module.again.weight is module.code.weight
    torch.testing.assert_close(ours, module(x))


def test_gradients_and_curvature_of_every_record(model):
    """vmap, grad and jvp of the functional call against torch's usual gradients, one record at a time."""
    module, shape = model[0].double(), model[1]
    vector, layout = flatten(module)
    w, x, labels = torch.from_numpy(vector), records(shape), torch.tensor([3, 0, 9])
    v = torch.from_numpy(np.random.default_rng(4).normal(size=len(vector)))

    def loss(w, record, label):
        y = functional_call(module, unflatten(w, layout), (record[None],))
        return F.cross_entropy(y, label[None])

    def turned(w, record, label):
        return jvp(lambda w: grad(loss)(w, record, label), (w,), (v,))

    ours, products = vmap(turned, in_dims=(None, 0, 0))(w, x, labels)
    torch.testing.assert_close(vmap(grad(loss), in_dims=(None, 0, 0))(w, x, labels), ours)
    parameters = list(module.parameters())
    for k in range(3):
        value = F.cross_entropy(module(x[k : k + 1]), labels[k : k + 1])
        slope = nn.utils.parameters_to_vector(torch.autograd.grad(value, parameters, create_graph=True))
        curvature = torch.autograd.grad(slope @ v, parameters, materialize_grads=True)
        torch.testing.assert_close(ours[k], slope.detach(), rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(
            products[k], torch.cat([part.reshape(-1) for part in curvature]), rtol=1e-8, atol=1e-9
        )


# ---- its file --------------------------------------------------------------------------------------------------------


SPEC = {"kind": "mlp", "inputs": 3, "hidden": [2], "name": "Übung"}


@pytest.fixture
def saved(tmp_path):
    """A vector of awkward numbers, and where it lies."""
    layout = [("file", (2, 3)), ("0.weight", ()), ("empty", (0, 4)), ("model", (5,))]
    vector = np.array([0.1, -0.0, 5e-324, math.pi, -1e308, math.inf, 1 / 3, *np.random.default_rng(0).normal(size=5)])
    save_model(tmp_path / "net", SPEC, layout, vector)
    return tmp_path / "net", layout, vector


def test_a_model_comes_back_to_the_last_bit(saved):
    path, layout, vector = saved
    spec, came, again = load_model(path)
    assert (spec, came) == (SPEC, layout)
    assert again.tobytes() == vector.tobytes()
    assert [file.name for file in path.parent.iterdir()] == ["net"]
    with np.load(path, allow_pickle=False) as archive:  # anybody can read it
        np.testing.assert_array_equal(archive["parameter/file"], vector[:6].reshape(2, 3))


def test_a_network_comes_back(tmp_path, model):
    module, shape = model
    vector, layout = flatten(module)
    save_model(tmp_path / "net.npz", {}, layout, vector)
    _, layout, vector = load_model(str(tmp_path / "net.npz"))
    parameters = unflatten(torch.from_numpy(vector).float(), layout)
    x = records(shape).float()
    assert torch.equal(functional_call(module, parameters, (x,)), module(x))


def test_a_damaged_file_never_gives_other_numbers(saved):
    path, layout, vector = saved
    content, found = path.read_bytes(), 0
    for k in range(0, len(content), 3):
        changed = bytearray(content)
        changed[k] ^= 1 << k % 8
        path.write_bytes(changed)
        try:
            spec, came, again = load_model(path)
            assert (spec, came, again.tobytes()) == (SPEC, layout, vector.tobytes())
        except DamageError:
            found += 1
    assert found > len(content) / 6
    for length in range(0, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(DamageError, match="net: expected a model that silograph wrote"):
            load_model(path)


def head(**changes):
    return np.array(json.dumps({"format": 1, "network": {}, "parameters": ["w"], **changes}))


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": np.ones(3)},
        {"model": np.array({"format": 1}, dtype=object), "parameter/w": np.ones(3)},  # would be a pickle
        {"model": head(), "parameter/w": np.ones(3, dtype=np.float32)},
        {"model": head(parameters=["v"]), "parameter/w": np.ones(3)},
        {"model": head(parameters=[]), "parameter/w": np.ones(3)},
        {"model": np.array("[1]"), "parameter/w": np.ones(3)},
    ],
)
def test_foreign_files_are_refused(tmp_path, arrays):
    np.savez(tmp_path / "other.npz", **arrays)
    with pytest.raises(DamageError, match="something else"):
        load_model(tmp_path / "other.npz")


def test_missing_and_later_files_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"No such file.*Check the path"):
        load_model(tmp_path / "nowhere")
    np.savez(tmp_path / "later.npz", model=head(format=2), **{"parameter/w": np.ones(3)})
    with pytest.raises(InputError, match="format 1, but it says format 2"):
        load_model(tmp_path / "later.npz")


def test_a_write_that_is_cut_off_leaves_the_old_model(saved, monkeypatch):
    path, layout, vector = saved

    def cut_off(file, **arrays):
        file.write(b"PK")
        raise OSError("no space left")

    monkeypatch.setattr(networks.np, "savez", cut_off)
    with pytest.raises(OSError, match="no space"):
        save_model(path, {"kind": "other"}, layout, -vector)
    assert load_model(path)[0] == SPEC
