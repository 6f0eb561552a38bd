"""Neural networks (S4, section V.A): the paper's three, a check for any network, and parameters as one vector.

Privacy needs one thing of a network: its output for a record depends on this record and on the parameters alone. Then
the gradient of a record's loss is that record's, and clipping it bounds what the record can change. Batch norm breaks
this, so the ResNet has group norm. The softmax at a network's end belongs to the loss.
"""

from __future__ import annotations

import copy
import io
import json
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from silograph.core.errors import DamageError, InputError
from silograph.core.files import write_atomically
from silograph.core.keys import stream
from silograph.core.types import Array, Json
from silograph.data.tables import shown
from silograph.tasks.fixed import FixedFeatures, random_cosines

#: Names and shapes of a network's parameters, in the order in which a vector holds them.
Layout = list[tuple[str, tuple[int, ...]]]

_STAGES = 4  # of a ResNet: each but the first halves the sides and doubles the filters
_RECORDS = 2  # on which a network is tried
_ROUNDING = 1e-9  # of the largest output, in float64
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_ALONE = "an output for each record that depends on this record alone"
_NO_MEMORY = "a network that does not remember the records it saw"
_NO_DICE = "a network that gives the same outputs for the same records"
_LESS_DICE = "Remove it, or set its probability to 0: the noise of privacy regularises already."
_HEAD, _PARAMETER = "model", "parameter/"  # names of the arrays in a file


# ---- the paper's networks --------------------------------------------------------------------------------------------


def mlp(inputs: int, outputs: int, hidden: Sequence[int] = (32,)) -> nn.Sequential:
    """Dense layers with ReLU between them; without hidden ones a linear model."""
    _check_sizes("mlp", (inputs, *hidden, outputs))
    return nn.Sequential(nn.Flatten(), *_dense((inputs, *hidden, outputs)))


def random_features(inputs: int, outputs: int, features: int) -> nn.Sequential:
    """A linear model of fixed random features: as many parameters as a linear model of so many inputs."""
    _check_sizes("random_features", (inputs, features, outputs))
    return nn.Sequential(random_cosines(inputs, features), nn.Linear(features, outputs))


def cnn(
    shape: tuple[int, int, int],
    outputs: int,
    filters: Sequence[int] = (64, 128, 256),
    dense: Sequence[int] = (128, 256),
) -> nn.Sequential:
    """3x3 convolutions, each with 2x2 max pooling and ReLU, then dense layers; of (channels, height, width)."""
    _check_picture("cnn", shape, len(filters), "Use fewer filters, or an mlp.")
    _check_sizes("cnn", (*shape, *filters, *dense, outputs))
    channels, height, width = shape
    layers: list[nn.Module] = []
    for a, b in pairwise((channels, *filters)):
        layers += nn.Conv2d(a, b, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()
        channels, height, width = b, height // 2, width // 2
    return nn.Sequential(*layers, nn.Flatten(), *_dense((channels * height * width, *dense, outputs)))


def resnet18(shape: tuple[int, int, int], outputs: int, width: int = 64, groups: int = 8) -> nn.Sequential:
    """ResNet-18 with group norm in place of batch norm; its first convolution is 3x3, for pictures of about 32x32."""
    _check_picture("resnet18", shape, _STAGES - 1, "Use a cnn or an mlp.")
    _check_sizes("resnet18", (*shape, width, groups, outputs))
    if width % groups:
        raise InputError("resnet18, groups", f"a divisor of the width {width}", f"found {groups}")
    blocks: list[nn.Module] = []
    before = width
    for stage in range(_STAGES):
        filters = width * 2**stage
        blocks += _Block(before, filters, groups), _Block(filters, filters, groups)
        before = filters
    start = nn.Sequential(*_convolution(shape[0], width, groups), nn.ReLU())
    return nn.Sequential(start, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, outputs))


class _Block(nn.Module):
    """Two convolutions beside a shortcut; where the filters double, both halve the sides."""

    def __init__(self, before: int, filters: int, groups: int) -> None:
        super().__init__()
        same = before == filters
        stride = 1 if same else 2
        first, second = _convolution(before, filters, groups, stride), _convolution(filters, filters, groups)
        self.body = nn.Sequential(*first, nn.ReLU(), *second)
        self.shortcut = nn.Sequential(*([] if same else _convolution(before, filters, groups, stride, side=1)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def _convolution(before: int, filters: int, groups: int, stride: int = 1, side: int = 3) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(before, filters, side, stride, padding=side // 2, bias=False), nn.GroupNorm(groups, filters)


def _dense(sizes: Sequence[int]) -> Iterator[nn.Module]:
    for a, b in pairwise(sizes[:-1]):
        yield nn.Linear(a, b)
        yield nn.ReLU()
    yield nn.Linear(sizes[-2], sizes[-1])


def _check_sizes(where: str, sizes: Sequence[int]) -> None:
    if min(sizes) < 1:
        raise InputError(where, "sizes from 1", f"found {min(sizes)}")


def _check_picture(where: str, shape: tuple[int, ...], halvings: int, todo: str) -> None:
    if len(shape) != 3 or min(shape[1:]) < 2**halvings:
        expected = f"(channels, height, width) with sides from {2**halvings}, to halve them {halvings} times"
        raise InputError(f"{where}, shape", expected, f"found {shape}", todo)


# ---- its start -------------------------------------------------------------------------------------------------------


def initialise(module: nn.Module, seed: int) -> nn.Module:
    """The module with torch's usual random start, written into it: the same numbers for a seed wherever it runs.

    Weights and biases are uniform within 1/sqrt(inputs of a unit), norms begin with 1 and 0. Every parameter has a
    stream of its own; torch's generators, whose numbers depend on the processor, are neither used nor moved.
    """
    for name, layer in module.named_modules():
        own = dict(layer.named_parameters(name, recurse=False))
        if not own:
            continue
        if isinstance(layer, nn.Linear | _ConvNd):
            bound = 1.0 / math.sqrt(math.prod(layer.weight.shape[1:]))
            for full, parameter in own.items():
                draws = stream(seed, "", 0, f"start of {full}").random(parameter.shape)
                _write(parameter, (2.0 * draws - 1.0) * bound)
        elif isinstance(layer, nn.GroupNorm | nn.LayerNorm | _InstanceNorm):
            layer.reset_parameters()
        else:
            expected = "dense, convolution and norm layers"
            todo = "Give the module a start of your own, and leave this one out."
            raise InputError(f"start, {_called(name, layer)}", expected, "this has parameters of another kind", todo)
    return module


def _write(parameter: Tensor, values: Array) -> None:
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(values))


# ---- the check of a network ------------------------------------------------------------------------------------------


def check_module(module: nn.Module, shape: tuple[int, ...], outputs: int) -> None:
    """Refuse a network without separate gradients for records, with the reason and what to use instead.

    Known layers are refused by name; others are found by running a copy on random records of `shape`.
    """
    if not isinstance(module, nn.Module):
        raise InputError("network", "a torch.nn.Module", f"found a {type(module).__name__}", "Give the module itself.")
    _check_layers(module)
    _check_parameters(module)
    _check_hooks(module)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        _check_behaviour(module, shape, outputs)


def _called(name: str, layer: nn.Module) -> str:
    return f"layer {name} ({type(layer).__name__})" if name else type(layer).__name__


def _check_layers(module: nn.Module) -> None:
    fixed = {part for layer in module.modules() if isinstance(layer, FixedFeatures) for part in layer.modules()}
    for name, layer in module.named_modules():
        if layer in fixed and not (isinstance(layer, _BatchNorm) and layer.running_mean is None):
            continue  # with stored means batch norm treats records one by one, and so does dropout
        where = f"network, {_called(name, layer)}"
        if isinstance(layer, _BatchNorm):
            found = (
                "by batch norm a record's output depends on the others in its batch, so clipping a record's gradient"
            )
            todo = "Replace it by nn.GroupNorm or nn.LayerNorm."
            raise InputError(where, _ALONE, f"{found} bounds nothing", todo)
        if isinstance(layer, _InstanceNorm) and layer.track_running_stats:
            todo = "Leave out track_running_stats, or use nn.GroupNorm."
            raise InputError(where, _NO_MEMORY, "it keeps means of the records it saw, which no noise protects", todo)
        if isinstance(layer, _DropoutNd) and layer.p > 0.0:
            raise InputError(where, _NO_DICE, "dropout draws at random", _LESS_DICE)


def _check_parameters(module: nn.Module) -> None:
    named = dict(module.named_parameters())
    if not named:
        raise InputError("network", "parameters to learn", "there are none")
    for name, parameter in named.items():
        where = f"network, parameter {name}"
        if is_lazy(parameter):
            todo = "Run the module once on a record, or give the layer's size."
            raise InputError(where, "a shape", "it is lazy and has none yet", todo)
        if parameter.dtype not in (torch.float32, torch.float64):
            raise InputError(where, "float32 or float64", f"it has {parameter.dtype}", "Call module.float().")
        if not parameter.requires_grad:
            todo = "Make what must not change a buffer (register_buffer), or unfreeze it (requires_grad_)."
            raise InputError(where, "parameters that are all learned", "it is frozen", todo)


def _check_hooks(module: nn.Module) -> None:
    """Of layers and of parameters; torch lists them in private attributes alone."""
    expected = "all that a network does in the forward of its layers"
    todo = "Remove it (spectral and weight norm are such, too), or do its work in forward."
    for name, layer in module.named_modules():
        if any(getattr(layer, hooks) for hooks in _HOOKS) or is_parametrized(layer):
            found = "a hook or a parametrization is registered on it"
            raise InputError(f"network, {_called(name, layer)}", expected, found, todo)
    for name, parameter in module.named_parameters():
        if parameter._backward_hooks:
            raise InputError(f"network, parameter {name}", expected, "a hook is registered on it", todo)


def _check_behaviour(module: nn.Module, shape: tuple[int, ...], outputs: int) -> None:
    draws = stream(0, "", 0, "records to try a network on")
    trial = copy.deepcopy(module).to("cpu", torch.float64).train()
    for parameter in trial.parameters():
        # Factors of zero, possible at a start, would hide terms from every test below.
        noise = draws.standard_normal(parameter.shape) / math.sqrt(math.prod(parameter.shape[1:]))
        _write(parameter, np.where(parameter.detach().numpy() == 0.0, noise, parameter.detach().numpy()))
    x = torch.from_numpy(draws.standard_normal((_RECORDS, *shape))).requires_grad_()
    direction = torch.from_numpy(draws.standard_normal(outputs))
    before = {name: buffer.clone() for name, buffer in trial.named_buffers()}

    y = _outputs(trial, x, outputs)
    after = dict(trial.named_buffers())
    changed = [name for name in after if name not in before or not torch.equal(before[name], after[name])]
    if changed:
        todo = "Leave it out, or compute it within one record, as nn.GroupNorm and nn.LayerNorm do."
        raise InputError("network", _NO_MEMORY, f"a batch changes its buffer {changed[0]}", todo)
    if not y.isfinite().all():
        raise InputError("network", "finite outputs", "it gives others for random records", "Check its start.")
    if not _agree(y, _outputs(trial, x, outputs)):
        raise InputError("network", _NO_DICE, "it draws at random, or remembers what it saw", _LESS_DICE)

    todo = "Replace what is computed across the batch (axis 0) by the same within a record, as nn.GroupNorm does."
    if not _agree(y, torch.cat([_outputs(trial, record, outputs) for record in x[:, None]])):
        raise InputError("network", _ALONE, "a record in a batch gives another output than alone", todo)
    if not y.requires_grad:
        raise InputError("network", "outputs with a gradient", "they have none", "Leave out detach and no_grad.")
    for i in range(_RECORDS):
        (slope,) = torch.autograd.grad(direction @ y[i], x, retain_graph=True, materialize_grads=True)
        slope[i] = 0.0
        if slope.any():
            raise InputError("network", _ALONE, "a record's output has a gradient in another record", todo)
    _check_gradients(trial, x.detach(), direction)


def _check_gradients(trial: nn.Module, x: Tensor, direction: Tensor) -> None:
    """Check that each record's own gradient can be computed."""

    def along(parameters: dict[str, Tensor], record: Tensor) -> Tensor:
        y: Tensor = functional_call(trial, parameters, (record[None],))
        return y[0] @ direction

    try:
        vmap(grad(along), in_dims=(None, 0))(dict(trial.named_parameters()), x)
    except Exception as problem:  # torch.func has no common one for what it cannot do
        expected = "a network that torch.func differentiates record by record"
        todo = "Leave out changes in place, and decisions that look at values (if, .item())."
        raise InputError("network", expected, f"it fails ({_first_line(problem)})", todo) from None


def _outputs(trial: nn.Module, x: Tensor, outputs: int) -> Tensor:
    batch, expected = tuple(x.shape), (len(x), outputs)
    try:
        y = trial(x)
    except Exception as problem:  # a forward pass may raise any error
        found = f"a batch of shape {batch} in float64 fails ({_first_line(problem)})"
        todo = "Give the shape of one record, without the batch; make constants buffers, which follow the type."
        raise InputError("network", f"one that takes records of shape {batch[1:]}", found, todo) from None
    if not isinstance(y, Tensor) or y.shape != expected:
        found = str(tuple(y.shape)) if isinstance(y, Tensor) else type(y).__name__
        todo = "Its last layer must have one output for each class, or each number to predict."
        raise InputError(
            "network", f"outputs of shape {expected} from a batch of shape {batch}", f"found {found}", todo
        )
    return y


def _agree(a: Tensor, b: Tensor) -> bool:
    return bool(((a - b).abs() <= _ROUNDING * a.abs().max()).all())


def _first_line(problem: Exception) -> str:
    return str(problem).partition("\n")[0] or type(problem).__name__


# ---- its parameters as one vector ------------------------------------------------------------------------------------


def flatten(module: nn.Module) -> tuple[Array, Layout]:
    """All parameters one after the other, as `named_parameters` has them: shared ones once."""
    named = [(name, parameter.detach().cpu().double().numpy()) for name, parameter in module.named_parameters()]
    layout = [(name, values.shape) for name, values in named]
    return np.concatenate([values.ravel() for _, values in named]), layout


def unflatten(vector: Tensor, layout: Layout) -> dict[str, Tensor]:
    """The parameters of each vector (..., P), as views of shape (..., *shape), for `torch.func.functional_call`."""
    sizes = [math.prod(shape) for _, shape in layout]
    assert vector.shape[-1] == sum(sizes), "a vector has what its layout says"
    parts = zip(layout, torch.split(vector, sizes, -1), strict=True)
    return {name: part.view(*vector.shape[:-1], *shape) for (name, shape), part in parts}


# ---- its file --------------------------------------------------------------------------------------------------------


def save_model(path: str | Path, module_spec: Json, layout: Layout, vector: Array) -> None:
    """An NPZ file with an array for every parameter and what the network is, as JSON; all of it or nothing."""
    parts = np.split(vector, np.cumsum([math.prod(shape) for _, shape in layout])[:-1])
    head = {"format": 1, "network": module_spec, "parameters": [name for name, _ in layout]}
    arrays: dict[str, Any] = {_HEAD: np.array(json.dumps(head, allow_nan=False))}
    for (name, shape), part in zip(layout, parts, strict=True):
        arrays[_PARAMETER + name] = np.asarray(part, dtype=np.float64).reshape(shape)
    path = Path(path)
    if path.is_dir():
        raise InputError(shown(path), "a file to write", "it is a folder", "Name a file in it, such as model.npz.")
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_atomically(path, buffer.getvalue())


def load_model(path: str | Path) -> tuple[Json, Layout, Array]:
    """Return the input of `save_model`, to the last bit."""
    where, expected = shown(Path(path)), "a model that silograph wrote"
    try:
        content = Path(path).read_bytes()
    except OSError as problem:
        raise InputError(where, expected, f"it cannot be read ({problem.strerror})", "Check the path.") from None
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            head = json.loads(str(archive[_HEAD]))
            values = [archive[_PARAMETER + name] for name in head["parameters"]]
        layout = [(name, array.shape) for name, array in zip(head["parameters"], values, strict=True)]
        vector = np.concatenate([array.ravel() for array in values], dtype=np.float64, casting="no")
        network, written = head["network"], head["format"]
    except Exception:  # a damaged file may raise any error
        raise DamageError(where, expected, "it is damaged, or something else", "Restore the file.") from None
    if written != 1:
        raise InputError(where, "format 1", f"it says format {written}", "Use the silograph that wrote it.")
    return network, layout, vector
