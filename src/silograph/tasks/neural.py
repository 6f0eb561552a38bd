"""Any neural network as a task: what one silo minimises, and sums over its records that no record can move far.

A chain of dense and convolution layers takes the fast way (`tasks.chain`), every other module torch's own vectorised
gradients, record by record; the second is also what the first is tested against.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vmap

from silograph.core.errors import InputError
from silograph.core.types import Array, BoolArray
from silograph.tasks.chain import ChainPasses, layers_of, shrink
from silograph.tasks.networks import Layout, check_module, flatten, unflatten

Loss = Literal["cross-entropy", "squared"]

UNIT = "one record"

_ROOM = 1 << 25  # numbers that the gradients of single records may take at once


class Passes(Protocol):
    """The chosen records of some clients, at their models. Sums are over records, in float64; axis 0 is the client."""

    def gradient(self, clip: float | None) -> Tensor:
        """Of the loss; each record's no longer than `clip`."""
        ...

    def curvature(self, direction: Tensor, clip: float | None) -> Tensor:
        """The Hessian times a direction; each record's no longer than `clip`."""
        ...


@dataclass(frozen=True, eq=False)
class RecordwisePasses:
    """A gradient for every record: slow, and for any module."""

    module: nn.Module
    layout: Layout
    loss: Loss
    models: Tensor
    x: Tensor
    y: Tensor
    mask: Tensor

    def gradient(self, clip: float | None) -> Tensor:
        return self._sum(vmap(grad(self._value), (None, 0, 0)), None, clip)

    def curvature(self, direction: Tensor, clip: float | None) -> Tensor:
        def product(model: Tensor, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return jvp(lambda w: grad(self._value)(w, x, y), (model,), (v,))[1]  # type: ignore[no-any-return]

        return self._sum(vmap(product, (None, None, 0, 0)), direction, clip)

    def _value(self, model: Tensor, x: Tensor, y: Tensor) -> Tensor:
        out = functional_call(self.module, unflatten(model, self.layout), (x[None],))[0]
        return record_loss(out, y, self.loss)

    def _sum(self, each: Any, direction: Tensor | None, clip: float | None) -> Tensor:
        out = torch.zeros_like(self.models, dtype=torch.float64)
        for k, model in enumerate(self.models):
            at = (model,) if direction is None else (model, direction[k])
            chosen = self.mask[k].nonzero()[:, 0]
            for part in torch.split(chosen, max(1, _ROOM // len(model))):
                parts = each(*at, self.x[k, part], self.y[k, part]).double()
                squared = parts.square().sum(-1)
                c = torch.ones_like(squared) if clip is None else shrink(squared, clip)
                if clip is not None:
                    parts = torch.where(torch.isfinite(squared)[:, None], parts, 0.0)
                out[k] += c @ parts
        return out


def record_loss(out: Tensor, y: Tensor, loss: Loss) -> Tensor:
    """Of one record: cross-entropy, or half the squared error."""
    return F.cross_entropy(out, y) if loss == "cross-entropy" else 0.5 * (out - y).square().sum()


@dataclass(frozen=True, eq=False)
class Neural:
    """A network for records of `shape`. Models are vectors of all its parameters; its own are the start.

    Sums over records are taken on `device`; what comes in and goes out is numpy.
    """

    module: nn.Module
    shape: tuple[int, ...]
    outputs: int
    loss: Loss = "cross-entropy"
    device: str = "cpu"
    recordwise: bool = False
    precise: bool = False  # float64 throughout, for comparing

    def __post_init__(self) -> None:
        check_module(self.module, self.shape, self.outputs)
        self._on_device  # noqa: B018 (refuses a device that is not there)

    @cached_property
    def _on_device(self) -> torch.device:
        try:
            device = torch.device(self.device)
        except RuntimeError:
            raise InputError("device", "cpu or cuda", f"{self.device!r} came") from None
        if device.type == "cuda" and not torch.cuda.is_available():
            came = "torch finds none here" if torch.version.cuda else "this build of torch knows none"
            raise InputError("device", "a CUDA device", came, 'Say device = "cpu", or install torch for CUDA.')
        if device.type not in ("cpu", "cuda"):
            raise InputError("device", "cpu or cuda", f"{self.device!r} came")
        return device

    @cached_property
    def _flat(self) -> tuple[Array, Layout]:
        return flatten(self.module)

    @property
    def start(self) -> Array:
        return self._flat[0]

    @property
    def layout(self) -> Layout:
        return self._flat[1]

    @property
    def size(self) -> int:
        return len(self.start)

    @cached_property
    def _layers(self) -> Any:
        layers = layers_of(self.module)
        # A module that is used twice has its parameters once.
        is_chain = layers is not None and sum(layer.size for layer in layers) == self.size
        return layers if is_chain and not self.recordwise else None

    @cached_property
    def _skeleton(self) -> nn.Module:
        """The module where the models are; what it holds itself is never used."""
        return copy.deepcopy(self.module).to(self._on_device, self._dtype)

    @property
    def _dtype(self) -> torch.dtype:
        return torch.float64 if self.precise else torch.float32

    def at(self, models: Array, x: NDArray[Any], y: NDArray[Any], chosen: BoolArray) -> Sums:
        """The chosen records (K, B) of clients with their models (K, P)."""
        x, y, mask = gathered(x, y, chosen)
        tensors = self._tensor(models), self._tensor(x), self._answers(y), self._tensor(mask)
        if self._layers is not None:
            return Sums(ChainPasses(self._layers, self.loss, *tensors), self)
        return Sums(RecordwisePasses(self._skeleton, self.layout, self.loss, *tensors), self)

    def _tensor(self, x: NDArray[Any]) -> Tensor:
        kind = np.float64 if self.precise else np.float32
        return torch.from_numpy(np.require(x, kind, ["C", "W"])).to(self._on_device)

    def _answers(self, y: NDArray[Any]) -> Tensor:
        if self.loss == "squared":
            return self._tensor(y)[..., None]
        return torch.from_numpy(np.require(y, np.int64, ["C", "W"])).to(self._on_device)

    def predict(self, model: Array, x: NDArray[Any]) -> NDArray[np.float32]:
        """(N, outputs) of one model: scores of the classes, or numbers."""
        parts = [out.cpu().numpy() for out in self._outputs(model, x)]
        return np.concatenate(parts).astype(np.float32) if parts else np.empty((0, self.outputs), np.float32)

    def measure(self, model: Array, x: NDArray[Any], y: NDArray[Any]) -> tuple[float, float]:
        """Mean loss and, of classes, the share that is right; of numbers, the mean squared error."""
        out = torch.from_numpy(self.predict(model, x))
        if self.loss == "squared":
            error = float((out[:, 0] - torch.from_numpy(np.asarray(y, dtype=np.float32))).square().mean())
            return 0.5 * error, error
        labels = torch.from_numpy(np.asarray(y, dtype=np.int64))
        return float(F.cross_entropy(out, labels)), float((out.argmax(1) == labels).double().mean())

    def _outputs(self, model: Array, x: NDArray[Any]) -> Iterator[Tensor]:
        weights = unflatten(self._tensor(model), self.layout)
        with torch.no_grad():
            for begin in range(0, len(x), 1024):
                yield functional_call(self._skeleton, weights, (self._tensor(x[begin : begin + 1024]),))


@dataclass(frozen=True, eq=False)
class Sums:
    """`Passes` in numpy."""

    passes: Passes
    task: Neural

    def gradient(self, clip: float | None) -> Array:
        with torch.no_grad():
            return _numpy(self.passes.gradient(clip))

    def curvature(self, direction: Array, clip: float | None) -> Array:
        with torch.no_grad():
            return _numpy(self.passes.curvature(self.task._tensor(direction), clip))


def _numpy(x: Tensor) -> Array:
    return np.asarray(x.cpu().numpy(), dtype=np.float64)


def gathered(x: NDArray[Any], y: NDArray[Any], chosen: BoolArray) -> tuple[NDArray[Any], NDArray[Any], BoolArray]:
    """The chosen records of each client in front, as many columns as the largest choice, and which are meant."""
    width = chosen.shape[1]
    if chosen.all():
        return x[:, :width], y[:, :width], chosen
    sizes = chosen.sum(1)
    most = max(int(sizes.max(initial=0)), 1)
    order = np.argsort(~chosen, axis=1, kind="stable")[:, :most]
    rows = np.arange(len(chosen))[:, None]
    return x[rows, order], y[rows, order], np.arange(most) < sizes[:, None]
