"""Sums of clipped gradients and curvatures of a chain of layers, without a gradient for every record.

A dense layer's gradient for a record is the outer product of delta, what comes back to its output, and a, what went
into it. Its length is |delta| |a|, so it is known before any gradient is made, and the clipped sum over records is one
matrix product. The same holds for the curvature along a direction v, H v: by Pearlmutter's R-operator it is the sum of
outer products Rdelta a' + delta Ra', of rank two. All clients go through dense layers at once, each with its own
weights.

A convolution is a dense layer at every position; a record's gradient is the sum of their outer products, made for a few
records at a time and forgotten again. Memory grows with clients times parameters and with clients times records times
width, never with all three.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: What may be held at once by records that are being worked on, in numbers.
_ROOM = {"cpu": 1 << 27, "cuda": 1 << 30}
_LEAST_SLACK, _MOST_SLACK, _CANCELLED = 1e-9, 1e-2, 1e-9
_LEAST_FACTOR = 2.0**-100  # below, single precision is no precision


class _Layer(Protocol):
    """One step of the chain: (K, B, ...) in and out. `w` are its own parameters, `v` the same part of a direction."""

    @property
    def size(self) -> int: ...

    def forward(self, a: Tensor, w: Tensor) -> tuple[Tensor, Any]:
        """The output, and what the other passes need to know of the input."""
        ...

    def along(self, ra: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor | None:
        """How the output moves when the input moves by `ra` (None: not at all) and the parameters by `v`."""
        ...

    def back(self, delta: Tensor, kept: Any, w: Tensor) -> Tensor:
        """From the loss's slope in the output to that in the input."""
        ...

    def back_along(self, rdelta: Tensor, delta: Tensor, rz: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor:
        """How `back` moves; `rz` is how the output moved."""
        ...


@dataclass(frozen=True)
class _Flat:
    size: int = 0

    def forward(self, a: Tensor, w: Tensor) -> tuple[Tensor, Any]:
        return a.flatten(2), a.shape

    def along(self, ra: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor | None:
        return None if ra is None else ra.flatten(2)

    def back(self, delta: Tensor, kept: Any, w: Tensor) -> Tensor:
        return delta.reshape(kept)

    def back_along(self, rdelta: Tensor, delta: Tensor, rz: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor:
        return rdelta.reshape(kept)


@dataclass(frozen=True)
class _ReLU:
    size: int = 0

    def forward(self, a: Tensor, w: Tensor) -> tuple[Tensor, Any]:
        out = a.relu()
        return out, out

    def along(self, ra: Tensor | None, kept: Tensor, w: Tensor, v: Tensor) -> Tensor | None:
        return None if ra is None else self.back(ra, kept, w)

    def back(self, delta: Tensor, kept: Tensor, w: Tensor) -> Tensor:
        out: Tensor = torch.ops.aten.threshold_backward(delta, kept, 0.0)  # where what came out is above 0
        return out

    def back_along(
        self, rdelta: Tensor, delta: Tensor, rz: Tensor | None, kept: Tensor, w: Tensor, v: Tensor
    ) -> Tensor:
        return self.back(rdelta, kept, w)


@dataclass(frozen=True)
class _Tanh:
    size: int = 0

    def forward(self, a: Tensor, w: Tensor) -> tuple[Tensor, Any]:
        out = a.tanh()
        return out, out

    def along(self, ra: Tensor | None, kept: Tensor, w: Tensor, v: Tensor) -> Tensor | None:
        return None if ra is None else ra * (1.0 - kept**2)

    def back(self, delta: Tensor, kept: Tensor, w: Tensor) -> Tensor:
        return delta * (1.0 - kept**2)

    def back_along(
        self, rdelta: Tensor, delta: Tensor, rz: Tensor | None, kept: Tensor, w: Tensor, v: Tensor
    ) -> Tensor:
        straight = rdelta * (1.0 - kept**2)
        return straight if rz is None else straight - 2.0 * delta * kept * rz


@dataclass(frozen=True)
class _MaxPool:
    side: int
    size: int = 0

    def forward(self, a: Tensor, w: Tensor) -> tuple[Tensor, Any]:
        out, index = F.max_pool2d(a.flatten(0, 2), self.side, return_indices=True)
        return out.reshape(*a.shape[:3], *out.shape[1:]), (index.reshape(*a.shape[:3], -1), a.shape)

    def along(self, ra: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor | None:
        if ra is None:
            return None
        index, shape = kept
        return ra.flatten(3).gather(3, index).reshape(*shape[:3], shape[3] // self.side, shape[4] // self.side)

    def back(self, delta: Tensor, kept: Any, w: Tensor) -> Tensor:
        index, shape = kept
        out = delta.new_zeros(*shape[:3], shape[3] * shape[4])
        return out.scatter_(3, index, delta.flatten(3)).reshape(shape)

    def back_along(self, rdelta: Tensor, delta: Tensor, rz: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor:
        return self.back(rdelta, kept, w)


class _Input:
    """What went into a dense layer; its lengths are measured once, for gradients and curvatures."""

    def __init__(self, a: Tensor) -> None:
        self.value = a

    @cached_property
    def squares(self) -> Tensor:
        return _squares(self.value)


@dataclass(frozen=True)
class _Dense:
    inputs: int
    outputs: int
    bias: bool

    @property
    def size(self) -> int:
        return self.outputs * (self.inputs + self.bias)

    def weight(self, w: Tensor) -> Tensor:
        return w[:, : self.outputs * self.inputs].reshape(-1, self.outputs, self.inputs)

    def shift(self, w: Tensor) -> Tensor:
        return w[:, None, self.outputs * self.inputs :]

    def _apply(self, a: Tensor, w: Tensor) -> Tensor:
        weight = self.weight(w).mT
        return torch.baddbmm(self.shift(w), a, weight) if self.bias else torch.bmm(a, weight)

    def forward(self, a: Tensor, w: Tensor) -> tuple[Tensor, Any]:
        return self._apply(a, w), _Input(a)

    def along(self, ra: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor | None:
        moved = self._apply(kept.value, v)
        return moved if ra is None else torch.baddbmm(moved, ra, self.weight(w).mT)

    def back(self, delta: Tensor, kept: Any, w: Tensor) -> Tensor:
        return torch.bmm(delta, self.weight(w))

    def back_along(self, rdelta: Tensor, delta: Tensor, rz: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor:
        return torch.baddbmm(torch.bmm(rdelta, self.weight(w)), delta, self.weight(v))

    def lengths(self, a: _Input, delta: Tensor, ra: Tensor | None, rdelta: Tensor | None) -> Tensor:
        """(K, B): squared lengths of the records' gradients, or of their curvatures."""
        if rdelta is None:
            return (a.squares + self.bias) * _squares(delta)
        if ra is None:
            return (a.squares + self.bias) * _squares(rdelta)
        before, delta, ra, rdelta = a.value.double(), delta.double(), ra.double(), rdelta.double()
        straight, bent = (_squares(before) + self.bias) * _squares(rdelta), _squares(delta) * _squares(ra)
        # Where the two nearly cancel, rounding is a share of them and not of what is left.
        return straight + bent + 2.0 * _dots(rdelta, delta) * _dots(before, ra) + _CANCELLED * (straight + bent)

    def add(
        self,
        c: Tensor,
        a: _Input,
        delta: Tensor,
        ra: Tensor | None,
        rdelta: Tensor | None,
        kind: torch.dtype,
        out: Tensor,
    ) -> None:
        """Add the sum over records, each times its c, to `out` (K, size); `kind` is the precision of products."""
        if rdelta is not None and ra is not None:
            # The two parts may be far longer than what is left of them: no single precision here.
            kind, c = torch.float64, c.double()
        scaled = (delta if rdelta is None else rdelta).to(kind) * c[..., None]
        weight = torch.bmm(scaled.mT, a.value.to(kind))
        if rdelta is not None and ra is not None:
            weight.baddbmm_((delta.to(kind) * c[..., None]).mT, ra.to(kind))
        out[:, : self.outputs * self.inputs] += weight.flatten(1).to(out.dtype)
        if self.bias:
            out[:, self.outputs * self.inputs :] += scaled.sum(1).to(out.dtype)


@dataclass(frozen=True)
class _Convolution:
    """For one client at a time: K is 1."""

    channels: int
    filters: int
    side: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    bias: bool

    @property
    def size(self) -> int:
        return self.filters * (self.channels * self.side[0] * self.side[1] + self.bias)

    def _weight(self, w: Tensor) -> Tensor:
        count = self.size - self.filters * self.bias
        return w[0, :count].reshape(self.filters, self.channels, *self.side)

    def _shift(self, w: Tensor) -> Tensor | None:
        return w[0, self.size - self.filters :] if self.bias else None

    def _apply(self, a: Tensor, weight: Tensor, shift: Tensor | None) -> Tensor:
        return F.conv2d(a[0], weight, shift, self.stride, self.padding)[None]

    def _turn(self, delta: Tensor, weight: Tensor, shape: Sequence[int]) -> Tensor:
        ends = zip(shape[-2:], delta.shape[-2:], self.side, self.stride, self.padding, strict=True)
        rest = [inner - (outer - 1) * stride + 2 * pad - side for inner, outer, side, stride, pad in ends]
        return F.conv_transpose2d(delta[0], weight, None, self.stride, self.padding, rest)[None]

    def forward(self, a: Tensor, w: Tensor) -> tuple[Tensor, Any]:
        return self._apply(a, self._weight(w), self._shift(w)), a

    def along(self, ra: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor | None:
        moved = self._apply(kept, self._weight(v), self._shift(v))
        return moved if ra is None else moved + self._apply(ra, self._weight(w), None)

    def back(self, delta: Tensor, kept: Any, w: Tensor) -> Tensor:
        return self._turn(delta, self._weight(w), kept.shape)

    def back_along(self, rdelta: Tensor, delta: Tensor, rz: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor:
        return self._turn(rdelta, self._weight(w), kept.shape) + self._turn(delta, self._weight(v), kept.shape)

    def _patches(self, a: Tensor) -> Tensor:
        """(B, channels * side * side, positions): what every position sees. torch's own unfold goes one by one."""
        (down, across), (high, wide) = self.padding, self.side
        padded = F.pad(a, (across, across, down, down))
        seen = padded.unfold(2, high, self.stride[0]).unfold(3, wide, self.stride[1])
        return seen.permute(0, 1, 4, 5, 2, 3).reshape(len(a), self.channels * high * wide, -1)

    def each(self, a: Tensor, delta: Tensor, ra: Tensor | None, rdelta: Tensor | None) -> Tensor:
        """(B, size): every record's gradient, or curvature."""
        patches = self._patches(a[0])
        out = delta[0].flatten(2)
        if rdelta is not None:
            rout = rdelta[0].flatten(2)
            weight = torch.bmm(rout, patches.mT)
            if ra is not None:
                weight = torch.baddbmm(weight, out, self._patches(ra[0]).mT)
            out = rout
        else:
            weight = torch.bmm(out, patches.mT)
        return torch.cat([weight.flatten(1), out.sum(2)], 1) if self.bias else weight.flatten(1)


def _squares(x: Tensor) -> Tensor:
    """Squared lengths in float64, measured in the vectors' own precision; what may underflow there is added."""
    lost = x.shape[-1] * torch.finfo(x.dtype).smallest_normal * torch.finfo(x.dtype).eps
    return torch.square(torch.linalg.vector_norm(x, dim=-1).double()) + lost


def _dots(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-1)


# ---- from a module ---------------------------------------------------------------------------------------------------


def layers_of(module: nn.Module, axes: int) -> tuple[_Layer, ...] | None:
    """The chain that a module is for records of so many axes, with its parameters in their order; None if it is none
    that is known here."""
    layers = _layers(module)
    for layer in layers or ():
        if (isinstance(layer, _Dense) and axes != 1) or (isinstance(layer, _Convolution | _MaxPool) and axes != 3):
            return None
        axes = 1 if isinstance(layer, _Flat) else axes
    return layers


def _layers(module: nn.Module) -> tuple[_Layer, ...] | None:
    if type(module) is not nn.Sequential:
        return _layer(module)
    found: list[_Layer] = []
    for part in module:
        inner = _layers(part)
        if inner is None:
            return None
        found.extend(inner)
    return tuple(found)


def _layer(module: nn.Module) -> tuple[_Layer, ...] | None:
    if type(module) is nn.Identity:
        return ()
    if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
        return (_Flat(),)
    if type(module) is nn.ReLU:
        return (_ReLU(),)
    if type(module) is nn.Tanh:
        return (_Tanh(),)
    if type(module) is nn.Linear:
        return (_Dense(module.in_features, module.out_features, module.bias is not None),)
    if type(module) is nn.MaxPool2d:
        plain = (module.stride, module.padding, module.dilation, module.ceil_mode) == (module.kernel_size, 0, 1, False)
        return (_MaxPool(module.kernel_size),) if plain and isinstance(module.kernel_size, int) else None
    if type(module) is nn.Conv2d and not isinstance(module.padding, str):
        plain = (module.groups, module.dilation, module.padding_mode) == (1, (1, 1), "zeros")
        (a, b), (c, d), (e, f) = module.kernel_size, module.stride, module.padding
        layer = _Convolution(module.in_channels, module.out_channels, (a, b), (c, d), (e, f), module.bias is not None)
        return (layer,) if plain else None
    return None


# ---- passes ----------------------------------------------------------------------------------------------------------


@dataclass
class _Tape:
    """One pass forward and back for some records, and what it kept on the way."""

    layers: Sequence[_Layer]
    parts: Sequence[slice]
    models: Tensor
    rounding: Rounding
    kept: list[Any] = field(default_factory=list)
    deltas: list[Tensor] = field(default_factory=list)  # at the outputs
    chance: Tensor | None = None  # of every class

    def record(self, x: Tensor, y: Tensor, loss: str) -> None:
        a = x
        for layer, part in zip(self.layers, self.parts, strict=True):
            a, kept = layer.forward(a, self.models[:, part])
            self.kept.append(kept)
        if loss == "cross-entropy":
            # The softmax; torch's own takes five times as long for so few classes.
            odds = (a - a.amax(-1, keepdim=True)).exp_()
            self.chance = delta = odds / torch.matmul(odds, odds.new_ones(a.shape[-1], 1))
            delta = delta.scatter_add(-1, y[..., None], delta.new_full((1, 1, 1), -1.0).expand(*y.shape, 1))
        else:
            delta = a - y
        self.deltas = [delta] * len(self.layers)
        for i in range(len(self.layers) - 1, self._first, -1):
            self.deltas[i - 1] = self.layers[i].back(self.deltas[i], self.kept[i], self.models[:, self.parts[i]])

    @property
    def _first(self) -> int:
        """The first layer with parameters: nothing before it needs to be known."""
        return next(i for i, layer in enumerate(self.layers) if layer.size)

    def clipped(self, mask: Tensor, clip: float | None, out: Tensor) -> None:
        """Add the sum of clipped gradients to `out`."""
        nothing: list[Tensor | None] = [None] * len(self.layers)
        self._add(mask, clip, nothing, nothing, out)

    def curved(self, v: Tensor, mask: Tensor, clip: float | None, out: Tensor) -> None:
        """Add the sum of clipped curvatures along `v` to `out`."""
        last, first = len(self.layers) - 1, self._first
        moved: list[Tensor | None] = []  # at the inputs
        ra: Tensor | None = None
        for layer, part, kept in zip(self.layers, self.parts, self.kept, strict=True):
            moved.append(ra)
            ra = layer.along(ra, kept, self.models[:, part], v[:, part])
        assert ra is not None, "there is a layer with parameters"
        p = self.chance
        rdelta = ra if p is None else p * (ra - (p * ra).sum(-1, keepdim=True))
        turned: list[Tensor | None] = [None] * len(self.layers)
        turned[last] = rdelta
        outputs = [*moved[1:], ra]
        for i in range(last, first, -1):
            part = self.parts[i]
            rdelta = self.layers[i].back_along(
                rdelta, self.deltas[i], outputs[i], self.kept[i], self.models[:, part], v[:, part]
            )
            turned[i - 1] = rdelta
        self._add(mask, clip, moved, turned, out)

    def _add(
        self,
        mask: Tensor,
        clip: float | None,
        moved: Sequence[Tensor | None],
        turned: Sequence[Tensor | None],
        out: Tensor,
    ) -> None:
        known: dict[int, Any] = {}  # of each layer: its records' gradients, or what they are made of
        squared = torch.zeros(mask.shape, dtype=torch.float64, device=mask.device)
        for i, layer in enumerate(self.layers):
            if isinstance(layer, _Convolution):
                known[i] = layer.each(self.kept[i], self.deltas[i], moved[i], turned[i])[None].double()
                squared += _squares(known[i])
            elif isinstance(layer, _Dense):
                known[i] = (self.kept[i], self.deltas[i], moved[i], turned[i])
                squared += layer.lengths(*known[i])
        c = mask.double() if clip is None else shrink(squared, clip, self.rounding.slack) * mask
        if clip is not None and not bool(torch.isfinite(squared).all()):
            # What is no number has no length either: such a record counts as nothing under a clip.
            known = {i: _without(~torch.isfinite(squared), value) for i, value in known.items()}
        for i, value in known.items():
            layer, part = self.layers[i], out[:, self.parts[i]]
            if isinstance(layer, _Dense):
                a, delta, ra, rdelta = value
                layer.add(c.to(self.rounding.kind), a, delta, ra, rdelta, self.rounding.kind, part)
            else:
                part += torch.bmm(c[:, None], value)[:, 0].to(part.dtype)


def _without(bad: Tensor, value: Any) -> Any:
    """The same with zeros for the records that are `bad`."""
    if isinstance(value, tuple):
        return tuple(_without(bad, part) for part in value)
    if isinstance(value, _Input):
        return _Input(_without(bad, value.value))
    return None if value is None else value.masked_fill(bad.reshape(*bad.shape, *[1] * (value.dim() - 2)), 0.0)


@dataclass(frozen=True)
class Rounding:
    """What clips leave for rounding, as a share, and the precision in which products are summed."""

    slack: float
    kind: torch.dtype

    @classmethod
    def of(cls, kind: torch.dtype, widest: int, tile: int, places: int) -> Rounding:
        """Of sums over all `places` at most, tile by tile.

        With unit roundoff u, the sum over a tile of R records, none longer than C, is off by at most (R + 2) u R C, and
        adding up T of them by another T u N C: by (R + T + 2) u N C in all, and so is the sum without one record.
        Lengths are off by a share of `widest` u. Where single precision would take too much, sums are in double.
        """
        u, terms = torch.finfo(kind).eps / 2.0, tile + places / tile + 3.0
        lengths, slack = widest * u, 2.0 * terms * u * places
        if slack > _MOST_SLACK:
            slack, kind = 2.0 * terms * torch.finfo(torch.float64).eps * places, torch.float64
        return cls(slack + lengths + _LEAST_SLACK, kind)


def shrink(squared: Tensor, clip: float, slack: float) -> Tensor:
    """What records of these squared lengths are multiplied by, so that none is longer than the clip less the slack: a
    bound has to hold for the numbers as computed."""
    inner = clip * (1.0 - slack)
    factor = inner / squared.sqrt().clamp(min=inner)
    return torch.where(torch.isfinite(squared) & (factor > _LEAST_FACTOR), factor, 0.0)


class ChainPasses:
    """The records `mask` of some clients, at their models: (K, P), (K, B, ...), (K, B), (K, B)."""

    def __init__(
        self,
        layers: Sequence[_Layer],
        loss: str,
        models: Tensor,
        x: Tensor,
        y: Tensor,
        mask: Tensor,
        rounding: Rounding,
    ) -> None:
        self._layers, self._loss, self._models, self._x, self._y, self._mask = layers, loss, models, x, y, mask
        self._rounding = rounding
        ends = accumulate((layer.size for layer in layers), initial=0)
        self._parts = [slice(begin, end) for begin, end in pairwise(ends)]
        self._tape: _Tape | None = None

    def _pieces(self) -> Iterator[tuple[slice, slice]]:
        """Clients and records that are worked on at once."""
        clients, records = self._mask.shape
        alone = any(isinstance(layer, _Convolution) for layer in self._layers)
        # A convolution's gradients, and its patches, which are some nine times its input.
        each = 1 if not alone else sum(layer.size for layer in self._layers) + 64 * self._x[0, 0].numel()
        step = max(1, min(records, _ROOM[self._x.device.type] // each)) if alone else max(1, records)
        for client in range(clients) if alone else [None]:
            rows = slice(None) if client is None else slice(client, client + 1)
            for begin in range(0, records, step):
                yield rows, slice(begin, begin + step)

    def _tapes(self) -> Iterator[tuple[_Tape, slice, slice]]:
        """One tape for each piece; a single one is kept, so that one pass forward serves both sums."""
        pieces = list(self._pieces())
        for rows, span in pieces:
            if self._tape is not None:
                yield self._tape, rows, span
                continue
            tape = _Tape(self._layers, self._parts, self._models[rows], self._rounding)
            tape.record(self._x[rows, span], self._y[rows, span], self._loss)
            if len(pieces) == 1:
                self._tape = tape
            yield tape, rows, span

    def gradient(self, clip: float | None, out: Tensor) -> None:
        for tape, rows, span in self._tapes():
            tape.clipped(self._mask[rows, span], clip, out[rows])

    def curvature(self, direction: Tensor, clip: float | None, out: Tensor) -> None:
        for tape, rows, span in self._tapes():
            tape.curved(direction[rows], self._mask[rows, span], clip, out[rows])
