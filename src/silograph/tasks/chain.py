"""Sums of clipped gradients and curvatures of a chain of layers, without a gradient for every record.

A dense layer's gradient for a record is the outer product of delta, the slope at its output, and a, its input. Its
length is |delta| |a|, so it is known before any gradient is made, and the clipped sum over records is one matrix
product. The same holds for the curvature along a direction v, H v: by Pearlmutter's R-operator it is the sum of outer
products Rdelta a' + delta Ra', of rank two. All clients go through dense layers at once, each with its own weights.

A convolution is a dense layer at every position; a record's gradient is the sum of their outer products, made for a few
records at a time and forgotten again. Memory grows with clients times parameters and with clients times records times
width, never with all three.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from silograph.kernels.dense_gradients import LEAST_FACTOR, RELU, STRAIGHT, TANH, add_gradients
from silograph.tasks.layers import Convolution, Dense, Input, Layer, ReLU, Tanh, squares

#: The most numbers in memory at once for records being processed.
_ROOM = {"cpu": 1 << 27, "cuda": 1 << 30}
_LEAST_SLACK, _MOST_SLACK = 1e-9, 1e-2


@dataclass
class _Tape:
    """One pass forward and back for some records, with the values kept on the way."""

    layers: Sequence[Layer]
    parts: Sequence[slice]
    models: Tensor
    rounding: Rounding
    kept: list[Any] = field(default_factory=list)
    deltas: list[Tensor] = field(default_factory=list)  # at the outputs
    chance: Tensor | None = None  # of every class

    def record(self, x: Input, y: Tensor, loss: str) -> None:
        a = x.value
        for layer, part in zip(self.layers, self.parts, strict=True):
            a, kept = layer.forward(a, self.models[:, part])
            self.kept.append(kept)
        if isinstance(self.layers[0], Dense):
            self.kept[0] = x  # whose lengths are known from the round before
        if loss == "cross-entropy":
            # The softmax; torch's own takes five times as long for so few classes.
            odds = (a - a.amax(-1, keepdim=True)).exp_()
            self.chance = odds.div_(odds.sum(-1, keepdim=True))
            delta = self.chance.scatter_add(-1, y[..., None], a.new_full((1, 1, 1), -1.0).expand(*y.shape, 1))
        else:
            delta = a - y
        self.deltas = [delta] * len(self.layers)
        for i in range(len(self.layers) - 1, self._first, -1):
            self.deltas[i - 1] = self.layers[i].back(self.deltas[i], self.kept[i], self.models[:, self.parts[i]])

    @property
    def _first(self) -> int:
        """The first layer with parameters: no values before it are needed."""
        return next(i for i, layer in enumerate(self.layers) if layer.size)

    def clipped(self, mask: Tensor, clip: float | None, out: Tensor, doubtful: bool) -> None:
        """Add the sum of clipped gradients to `out`."""
        nothing: list[Tensor | None] = [None] * len(self.layers)
        self._add(mask, clip, nothing, nothing, out, doubtful)

    def curved(self, v: Tensor, mask: Tensor, clip: float | None, out: Tensor, doubtful: bool) -> None:
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
        self._add(mask, clip, moved, turned, out, doubtful)

    def _add(
        self,
        mask: Tensor,
        clip: float | None,
        moved: Sequence[Tensor | None],
        turned: Sequence[Tensor | None],
        out: Tensor,
        doubtful: bool,
    ) -> None:
        known: dict[int, Any] = {}  # of each layer: its records' gradients, or their factors
        lengths = []
        for i, layer in enumerate(self.layers):
            if isinstance(layer, Convolution):
                known[i] = layer.each(self.kept[i], self.deltas[i], moved[i], turned[i])[None]
                lengths.append(squares(known[i], torch.float64))
            elif isinstance(layer, Dense):
                known[i] = (self.kept[i], self.deltas[i], moved[i], turned[i])
                lengths.append(layer.lengths(*known[i]))
        squared = sum(lengths[1:], lengths[0])
        c = mask.double() if clip is None else shrink(squared, clip, self.rounding.slack) * mask
        if clip is not None and doubtful:
            # NaN has no length either: such a record counts as 0 under a clip.
            known = {i: _without(~torch.isfinite(squared), value) for i, value in known.items()}
        c = c.to(self.rounding.kind)
        for i, value in known.items():
            layer, part = self.layers[i], out[:, self.parts[i]]
            if isinstance(layer, Dense):
                a, delta, ra, rdelta = value
                layer.add(c, a, delta, ra, rdelta, self.rounding.kind, part)
            else:
                part += torch.bmm(c[:, None], value.to(c.dtype))[:, 0]


def _without(bad: Tensor, value: Any) -> Any:
    """The same with zeros for the records that are `bad`."""
    if isinstance(value, tuple):
        return tuple(_without(bad, part) for part in value)
    if isinstance(value, Input):
        return Input(_without(bad, value.value))
    return None if value is None else value.masked_fill(bad.reshape(*bad.shape, *[1] * (value.dim() - 2)), 0.0)


@dataclass(frozen=True)
class Rounding:
    """The share of clips that is left for rounding, and the precision in which products are summed."""

    slack: float
    kind: torch.dtype

    @classmethod
    def of(cls, kind: torch.dtype, widest: int, tile: int, places: int) -> Rounding:
        """Rounding of sums over at most all `places`, tile by tile.

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
    """The factors for records of these squared lengths, so that none is longer than the clip less the slack: a bound
    must hold for the numbers as computed."""
    inner = inner_clip(clip, slack)
    factor = inner / squared.sqrt().clamp(min=inner)
    return factor.where(factor > LEAST_FACTOR, 0.0)  # nor is what has no length, or an infinite one


def inner_clip(clip: float, slack: float) -> float:
    """The clip less what is left for rounding."""
    return clip * (1.0 - slack)


def dense_rows(layers: Sequence[Layer]) -> NDArray[np.int64] | None:
    """The layers as `add_gradients` takes them; None if it does not know them."""
    rows: list[list[int]] = []
    for layer in layers:
        if isinstance(layer, Dense):
            rows.append([layer.inputs, layer.outputs, layer.bias, STRAIGHT])
        elif rows and rows[-1][3] == STRAIGHT and isinstance(layer, ReLU | Tanh):
            rows[-1][3] = RELU if isinstance(layer, ReLU) else TANH
        else:
            return None
    return np.array(rows) if rows[-1][3] == STRAIGHT else None


class ChainPasses:
    """The records `mask` of some clients, at their models: (K, P), (K, B, ...), (K, B), (K, B)."""

    def __init__(
        self,
        layers: Sequence[Layer],
        loss: str,
        models: Tensor,
        x: Input,
        y: Tensor,
        mask: Tensor,
        rounding: Rounding,
    ) -> None:
        self._layers, self._loss, self._models, self._x, self._y, self._mask = layers, loss, models, x, y, mask
        self._rounding = rounding
        single = mask.device.type == "cpu" and models.dtype == rounding.kind == torch.float32
        self._dense = dense_rows(layers) if single else None
        ends = accumulate((layer.size for layer in layers), initial=0)
        self._parts = [slice(begin, end) for begin, end in pairwise(ends)]
        self._tape: _Tape | None = None

    def _pieces(self) -> Iterator[tuple[slice, slice]]:
        """Clients and records that are processed at once."""
        clients, records = self._mask.shape
        alone = any(isinstance(layer, Convolution) for layer in self._layers)
        # A convolution's gradients, and its patches, about nine times its input.
        each = 1 if not alone else sum(layer.size for layer in self._layers) + 64 * self._x.value[0, 0].numel()
        step = max(1, min(records, _ROOM[self._mask.device.type] // each)) if alone else max(1, records)
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
            x = self._x if len(pieces) == 1 else Input(self._x.value[rows, span])
            tape.record(x, self._y[rows, span], self._loss)
            if len(pieces) == 1:
                self._tape = tape
            yield tape, rows, span

    def gradient(self, clip: float | None, out: Tensor, doubtful: bool) -> None:
        if self._dense is not None and not doubtful:
            longest = math.inf if clip is None else inner_clip(clip, self._rounding.slack)
            x, squares = self._x.value.numpy(), self._x.squares.numpy()
            y, classes = self._y.reshape(self._mask.shape).numpy(), self._loss == "cross-entropy"
            models, mask = self._models.numpy(), self._mask.numpy()
            add_gradients(models, self._dense, x, squares, y, classes, mask, longest, out.numpy())
            return
        for tape, rows, span in self._tapes():
            tape.clipped(self._mask[rows, span], clip, out[rows], doubtful)

    def curvature(self, direction: Tensor, clip: float | None, out: Tensor, doubtful: bool) -> None:
        for tape, rows, span in self._tapes():
            tape.curved(direction[rows], self._mask[rows, span], clip, out[rows], doubtful)
