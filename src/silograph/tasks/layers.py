"""Layers of a chain, each with its four passes: forward, back, and how both move along a direction (Pearlmutter's
R-operator)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from silograph.kernels.products import add_products
from silograph.tasks.fixed import FixedFeatures

_CANCELLED = 1e-9


class Layer(ABC):
    """One step of the chain: (K, B, ...) in and out. `w` are its own parameters, `v` the same part of a direction."""

    @property
    def size(self) -> int:
        """How many parameters it has."""
        return 0

    @abstractmethod
    def forward(self, a: Tensor, w: Tensor) -> tuple[Tensor, Any]:
        """The output, and what the other passes need to know of the input."""

    @abstractmethod
    def along(self, ra: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor | None:
        """How the output moves when the input moves by `ra` (None: not at all) and the parameters by `v`."""

    @abstractmethod
    def back(self, delta: Tensor, kept: Any, w: Tensor) -> Tensor:
        """From the loss's slope in the output to that in the input."""

    def back_along(self, rdelta: Tensor, delta: Tensor, rz: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor:
        """How `back` moves; `rz` is how the output moved. As here where neither parameters nor bends matter."""
        return self.back(rdelta, kept, w)


class Flat(Layer):
    def forward(self, a: Tensor, w: Tensor) -> tuple[Tensor, Any]:
        return a.flatten(2), a.shape

    def along(self, ra: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor | None:
        return None if ra is None else ra.flatten(2)

    def back(self, delta: Tensor, kept: Any, w: Tensor) -> Tensor:
        return delta.reshape(kept)


class _Bent(Layer):
    """A function of every number by itself."""

    def along(self, ra: Tensor | None, kept: Tensor, w: Tensor, v: Tensor) -> Tensor | None:
        return None if ra is None else self.back(ra, kept, w)


@dataclass(frozen=True)
class Fixed(Layer):
    """Features of the records themselves, which nothing moves; nothing has to come back through it.

    One client after the other, in memory that torch takes itself: a product's rounding may not depend on who else there
    is, nor on where records lie.
    """

    features: nn.Module

    def forward(self, a: Tensor, w: Tensor) -> tuple[Tensor, Any]:
        return torch.stack([self.features(records.clone()) for records in a]), None

    def along(self, ra: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor | None:
        return None

    def back(self, delta: Tensor, kept: Any, w: Tensor) -> Tensor:
        raise AssertionError("a fixed layer is the first one")


class ReLU(_Bent):
    def forward(self, a: Tensor, w: Tensor) -> tuple[Tensor, Any]:
        out = a.relu()
        return out, out

    def back(self, delta: Tensor, kept: Tensor, w: Tensor) -> Tensor:
        out: Tensor = torch.ops.aten.threshold_backward(delta, kept, 0.0)  # where what came out is above 0
        return out


class Tanh(_Bent):
    def forward(self, a: Tensor, w: Tensor) -> tuple[Tensor, Any]:
        out = a.tanh()
        return out, out

    def back(self, delta: Tensor, kept: Tensor, w: Tensor) -> Tensor:
        return delta * (1.0 - kept**2)

    def back_along(self, rdelta: Tensor, delta: Tensor, rz: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor:
        straight = self.back(rdelta, kept, w)
        return straight if rz is None else straight - 2.0 * delta * kept * rz


@dataclass(frozen=True)
class MaxPool(Layer):
    side: int

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


class Input:
    """What went into a dense layer; its lengths are measured once, for gradients and curvatures."""

    def __init__(self, a: Tensor) -> None:
        self.value = a

    @cached_property
    def squares(self) -> Tensor:
        return squares(self.value)


@dataclass(frozen=True)
class Dense(Layer):
    inputs: int
    outputs: int
    bias: bool

    @property
    def size(self) -> int:
        return self.outputs * (self.inputs + self.bias)

    def weight(self, w: Tensor) -> Tensor:
        return w[:, : self.outputs * self.inputs].view(-1, self.outputs, self.inputs)

    def shift(self, w: Tensor) -> Tensor:
        return w[:, None, self.outputs * self.inputs :]

    def _apply(self, a: Tensor, w: Tensor) -> Tensor:
        shift = self.shift(w) if self.bias else w.new_zeros(len(w), 1, self.outputs)
        return add_product(shift.repeat(1, a.shape[1], 1), a, self.weight(w).mT)

    def forward(self, a: Tensor, w: Tensor) -> tuple[Tensor, Any]:
        return self._apply(a, w), Input(a)

    def along(self, ra: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor | None:
        moved = self._apply(kept.value, v)
        return moved if ra is None else add_product(moved, ra, self.weight(w).mT)

    def back(self, delta: Tensor, kept: Any, w: Tensor) -> Tensor:
        return add_product(delta.new_zeros(*delta.shape[:2], self.inputs), delta, self.weight(w))

    def back_along(self, rdelta: Tensor, delta: Tensor, rz: Tensor | None, kept: Any, w: Tensor, v: Tensor) -> Tensor:
        return add_product(self.back(rdelta, kept, w), delta, self.weight(v))

    def lengths(self, a: Input, delta: Tensor, ra: Tensor | None, rdelta: Tensor | None) -> Tensor:
        """(K, B): squared lengths of the records' gradients, or of their curvatures."""
        if rdelta is None:
            return (a.squares + self.bias) * squares(delta)
        if ra is None:
            return (a.squares + self.bias) * squares(rdelta)
        before, delta, ra, rdelta = a.value.double(), delta.double(), ra.double(), rdelta.double()
        straight, bent = (squares(before) + self.bias) * squares(rdelta), squares(delta) * squares(ra)
        # Where the two nearly cancel, rounding is a share of them and not of what is left.
        return straight + bent + 2.0 * _dots(rdelta, delta) * _dots(before, ra) + _CANCELLED * (straight + bent)

    def add(
        self,
        c: Tensor,
        a: Input,
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
        weight = self.weight(out)
        if rdelta is not None and ra is not None:
            bent = torch.bmm((delta.to(kind) * c[..., None]).mT, ra.to(kind))
            weight += bent.baddbmm_(scaled.mT, a.value.to(kind))
        else:
            add_product(weight, scaled.mT, a.value)
        if self.bias:
            out[:, self.outputs * self.inputs :] += scaled.sum(1)


@dataclass(frozen=True)
class Convolution(Layer):
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


def squares(x: Tensor, kind: torch.dtype | None = None) -> Tensor:
    """Squared lengths in float64, measured in the vectors' own precision or another; what may underflow is added."""
    least = torch.finfo(kind or x.dtype)
    lost = x.shape[-1] * least.smallest_normal * least.eps
    lengths: Tensor = torch.linalg.vector_norm(x, dim=-1, dtype=kind)
    return lengths.double().square_().add_(lost)


def add_product(onto: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`onto` plus the products a @ b of every client, written there."""
    if onto.is_cuda or onto.dtype == torch.float64:
        return onto.baddbmm_(a.to(onto.dtype), b.to(onto.dtype))
    add_products(a.numpy(), b.numpy(), onto.numpy())
    return onto


def _dots(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-1)


# ---- from a module ---------------------------------------------------------------------------------------------------


def layers_of(module: nn.Module, axes: int) -> tuple[Layer, ...] | None:
    """The chain that a module is for records of so many axes, with its parameters in their order; None if it is none
    that is known here. A dense layer that is the first takes records flat."""
    layers = _layers(module)
    if layers is not None and len(layers) > 1 and isinstance(layers[0], Flat) and isinstance(layers[1], Dense):
        layers, axes = layers[1:], 1
    for place, layer in enumerate(layers or ()):
        if isinstance(layer, Fixed) and place:
            return None
        if (isinstance(layer, Dense) and axes != 1) or (isinstance(layer, Convolution | MaxPool) and axes != 3):
            return None
        axes = 1 if isinstance(layer, Flat | Fixed) else axes
    return layers


def _layers(module: nn.Module) -> tuple[Layer, ...] | None:
    if type(module) is not nn.Sequential:
        return _layer(module)
    found: list[Layer] = []
    for part in module:
        inner = _layers(part)
        if inner is None:
            return None
        found.extend(inner)
    return tuple(found)


def _layer(module: nn.Module) -> tuple[Layer, ...] | None:
    if type(module) is nn.Identity:
        return ()
    if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
        return (Flat(),)
    if type(module) is FixedFeatures:
        return (Fixed(module),)
    if type(module) is nn.ReLU:
        return (ReLU(),)
    if type(module) is nn.Tanh:
        return (Tanh(),)
    if type(module) is nn.Linear:
        return (Dense(module.in_features, module.out_features, module.bias is not None),)
    if type(module) is nn.MaxPool2d:
        plain = (module.stride, module.padding, module.dilation, module.ceil_mode) == (module.kernel_size, 0, 1, False)
        return (MaxPool(module.kernel_size),) if plain and isinstance(module.kernel_size, int) else None
    if type(module) is nn.Conv2d and not isinstance(module.padding, str):
        plain = (module.groups, module.dilation, module.padding_mode) == (1, (1, 1), "zeros")
        (a, b), (c, d), (e, f) = module.kernel_size, module.stride, module.padding
        layer = Convolution(module.in_channels, module.out_channels, (a, b), (c, d), (e, f), module.bias is not None)
        return (layer,) if plain else None
    return None
