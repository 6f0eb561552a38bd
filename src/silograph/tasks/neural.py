"""Any neural network as a task: the loss of one silo, and sums over its records that no record can move far.

A chain of dense and convolution layers uses fast sums (`tasks.chain`), every other module torch's own vectorised
gradients, record by record; tests compare the first with the second.

A clip bounds a record's part, but a bound on the sum also needs that no other part changes when a record is left out,
not even by rounding: a matrix product of another shape rounds other rows differently, and a malicious record turns that
into a whole clip. So records are processed in tiles of one shape, each always in the same slot.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from silograph.core.threads import in_parts
from silograph.core.types import Array, BoolArray
from silograph.tasks.chain import ChainPasses, Rounding, shrink
from silograph.tasks.layers import Dense, Flat, Input, layers_of
from silograph.tasks.networks import Layout, check_module, flatten, unflatten

Loss = Literal["cross-entropy", "squared"]

PROTECTED_UNIT = "one record"

_ROOM = 1 << 25  # numbers that the gradients of single records may take at once
_ALIGNMENT = 64  # bytes: the widest vectors of today's processors, and what torch's own memory has
_LEAST_TILE, _LARGEST_TILE = 16, {"cpu": 160, "cuda": 512}  # records: for the cache, or for few launches
_TABLES = 4  # that stay where sums are taken: two sets of records, and two of others


#: Records, answers, and their weights: 0 in empty slots.
Tile = tuple[Input, Tensor, Tensor]

#: Whether, or how much up to 1, each record counts.
Weights = BoolArray | NDArray[np.float32]


class Passes(Protocol):
    """A tile of records of some clients, at their models. Sums over records are added to `out`, (K, P).

    `doubtful`: under a clip leave out what is no number, which else comes through to the sum.
    """

    def gradient(self, clip: float | None, out: Tensor, doubtful: bool) -> None:
        """Add gradients of the loss, each record's no longer than `clip`."""
        ...

    def curvature(self, direction: Tensor, clip: float | None, out: Tensor, doubtful: bool) -> None:
        """Add the Hessian times a direction, each record's part no longer than `clip`."""
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
    rounding: Rounding

    def gradient(self, clip: float | None, out: Tensor, doubtful: bool) -> None:
        self._add(vmap(grad(self._value), (None, 0, 0)), None, clip, out, doubtful)

    def curvature(self, direction: Tensor, clip: float | None, out: Tensor, doubtful: bool) -> None:
        def product(model: Tensor, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return jvp(lambda w: grad(self._value)(w, x, y), (model,), (v,))[1]  # type: ignore[no-any-return]

        self._add(vmap(product, (None, None, 0, 0)), direction, clip, out, doubtful)

    def _value(self, model: Tensor, x: Tensor, y: Tensor) -> Tensor:
        out = functional_call(self.module, unflatten(model, self.layout), (x[None],))[0]
        return record_loss(out, y, self.loss)

    def _add(self, each: Any, direction: Tensor | None, clip: float | None, out: Tensor, doubtful: bool) -> None:
        for k, model in enumerate(self.models):
            at = (model,) if direction is None else (model, direction[k])
            step = max(1, _ROOM // len(model))
            for begin in range(0, self.mask.shape[1], step):
                part = slice(begin, begin + step)
                parts = each(*at, self.x[k, part], self.y[k, part]).double()
                squared = parts.square().sum(-1)
                c = self.mask[k, part].double()
                if clip is not None:
                    c = c * shrink(squared, clip, self.rounding.slack)
                if clip is not None and doubtful:
                    parts = torch.where(torch.isfinite(squared)[:, None], parts, 0.0)
                out[k] += (c @ parts).to(out.dtype)


def record_loss(out: Tensor, y: Tensor, loss: Loss) -> Tensor:
    """The loss of one record: cross-entropy, or half the squared error."""
    return F.cross_entropy(out, y) if loss == "cross-entropy" else 0.5 * (out - y).square().sum()


@dataclass(frozen=True, eq=False)
class Neural:
    """A network for records of `shape`. Models are vectors of all its parameters; its own are the start.

    Sums over records are taken on `device`; inputs and outputs are numpy arrays.
    """

    module: nn.Module
    shape: tuple[int, ...]
    outputs: int
    loss: Loss = "cross-entropy"
    device: str = "cpu"
    recordwise: bool = False
    precise: bool = False  # float64 throughout, for comparing

    def __post_init__(self) -> None:
        if self.loss == "squared" and self.outputs != 1:
            raise InputError("network", "one output for answers that are numbers", f"found {self.outputs}")
        check_module(self.module, self.shape, self.outputs)
        self._on_device  # noqa: B018 (refuses a device that is not there)

    @cached_property
    def _on_device(self) -> torch.device:
        try:
            device = torch.device(self.device)
        except RuntimeError:
            raise InputError("device", "cpu or cuda", f"found {self.device!r}") from None
        if device.type == "cuda" and not torch.cuda.is_available():
            found = "torch finds none here" if torch.version.cuda else "this build of torch knows none"
            raise InputError("device", "a CUDA device", found, 'Say device = "cpu", or install torch for CUDA.')
        if device.type not in ("cpu", "cuda"):
            raise InputError("device", "cpu or cuda", f"found {self.device!r}")
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
        layers = layers_of(self._skeleton, len(self.shape))
        # A module that is used twice has its parameters once.
        is_chain = layers is not None and sum(layer.size for layer in layers) == self.size
        return layers if is_chain and not self.recordwise else None

    @property
    def is_linear(self) -> bool:
        """Whether it is one dense layer with a constant, on the numbers of a record as they are."""
        layers = [layer for layer in self._layers or () if not isinstance(layer, Flat)]
        return len(layers) == 1 and isinstance(layers[0], Dense) and layers[0].bias

    @cached_property
    def _skeleton(self) -> nn.Module:
        """The module where the models are, as it was checked; what parameters it holds itself is never used."""
        return copy.deepcopy(self.module).train().to(self._on_device, self._dtype)

    @property
    def _dtype(self) -> torch.dtype:
        return torch.float64 if self.precise else torch.float32

    def at(self, models: Array, x: NDArray[Any], y: NDArray[Any], chosen: Weights, rate: float = 1.0) -> Sums:
        """The chosen records (K, B) of clients with their models (K, P); about a share `rate` of them is chosen. A
        chosen one may count for less than 1."""
        if x.shape[2:] != self.shape:
            raise InputError("records", f"shape {self.shape}, as the network takes", f"found {x.shape[2:]}")
        weights, places = self._tensor(models), chosen.shape[1]
        passes: list[Passes] = []
        size = tile_size(places, rate, _LARGEST_TILE[self._on_device.type])
        widest = max(max(shape[0], math.prod(shape[1:])) for _, shape in self.layout)
        rounding = Rounding.of(self._dtype, widest, size, places)
        for part in self._tiles(x, y, chosen, size):
            if self._layers is not None:
                passes.append(ChainPasses(self._layers, self.loss, weights, *part, rounding))
            else:
                given = weights, part[0].value, *part[1:], rounding
                passes.append(RecordwisePasses(self._skeleton, self.layout, self.loss, *given))
        return Sums(passes, self, models.shape, rounding.kind)

    def _tiles(self, x: NDArray[Any], y: NDArray[Any], chosen: Weights, size: int) -> Iterable[Tile]:
        """What `tiles` has, where sums are taken. Of whole tables that nobody can write to it stays there."""
        if x.flags.writeable or y.flags.writeable or not (chosen == 1).all():
            return map(self._tile, tiles(x, y, chosen, size))
        key = tuple((table.ctypes.data, table.shape, table.strides) for table in (x, y))
        if (key, size) not in self._kept:
            while len(self._kept) >= _TABLES:
                del self._kept[next(iter(self._kept))]
            # With the tables themselves: no other can come to lie where they do.
            self._kept[key, size] = (x, y, [self._tile(part) for part in tiles(x, y, chosen, size)])
        return self._kept[key, size][2]

    @cached_property
    def _kept(self) -> dict[Any, tuple[NDArray[Any], NDArray[Any], list[Tile]]]:
        return {}

    def _tile(self, part: tuple[NDArray[Any], NDArray[Any], Weights]) -> Tile:
        x, y, taken = part
        records = self._tensor(x)
        if self._layers is not None and isinstance(self._layers[0], Dense):
            records = records.flatten(2)
        return Input(records), self._answers(y), self._tensor(taken)

    def _tensor(self, x: NDArray[Any]) -> Tensor:
        return self._moved(x, np.float64 if self.precise else np.float32)

    def _moved(self, x: NDArray[Any], kind: type[np.generic]) -> Tensor:
        if self._on_device.type == "cpu":
            return torch.from_numpy(placed(x, kind))
        here = locked(x.shape, kind)
        _copy(x, here.numpy())
        return here.to(self._on_device, non_blocking=True)

    def _answers(self, y: NDArray[Any]) -> Tensor:
        if self.loss == "squared":
            return self._tensor(y)[..., None]
        return self._moved(y, np.int64)

    def predict(self, model: Array, x: NDArray[Any]) -> NDArray[np.float32]:
        """(N, outputs) of one model: scores of the classes, or numbers."""
        parts = [out.cpu().numpy() for out in self._outputs(model, x)]
        return np.concatenate(parts).astype(np.float32) if parts else np.empty((0, self.outputs), np.float32)

    def measure(self, model: Array, x: NDArray[Any], y: NDArray[Any]) -> tuple[float, float]:
        """Mean loss and, of classes, the share that is right; of numbers, the mean squared error."""
        loss = float(self.losses(model, x, y).mean())
        if self.loss == "squared":
            return loss, 2.0 * loss
        return loss, float((self.predict(model, x).argmax(1) == y).mean())

    def losses(self, model: Array, x: NDArray[Any], y: NDArray[Any]) -> Array:
        """The losses of every record."""
        out = torch.from_numpy(self.predict(model, x)).double()
        if self.loss == "squared":
            return np.asarray(0.5 * (out[:, 0].numpy() - np.asarray(y, dtype=np.float64)) ** 2)
        return F.cross_entropy(out, torch.from_numpy(np.asarray(y, dtype=np.int64)), reduction="none").numpy()

    def _outputs(self, model: Array, x: NDArray[Any]) -> Iterator[Tensor]:
        weights = unflatten(self._tensor(model), self.layout)
        with torch.no_grad():
            for begin in range(0, len(x), 1024):
                yield functional_call(self._skeleton, weights, (self._tensor(x[begin : begin + 1024]),))


def placed(x: NDArray[Any], kind: type[np.generic]) -> NDArray[Any]:
    """A copy in the one layout that torch gets to see: rows one after the other, from a multiple of 64 bytes on.

    On some processors a product in single precision rounds differently with the strides of an array and with where it
    lies. A model sent to all clients is one row read many times, the same model loaded from disk is many rows, and a
    table may begin anywhere; a run that was killed must still go on to the same bits.
    """
    room = np.empty(x.size * np.dtype(kind).itemsize + _ALIGNMENT, np.uint8)
    begin = -room.ctypes.data % _ALIGNMENT
    out = room[begin : begin + x.size * np.dtype(kind).itemsize].view(kind).reshape(x.shape)
    _copy(x, out)
    return out


def locked(shape: tuple[int, ...], kind: type[np.generic]) -> Tensor:
    """Memory that a GPU reads and writes by itself, ten times as fast as it does with any other; torch keeps it for
    the next who asks, once it is free."""
    return torch.empty(shape, dtype=torch.from_numpy(np.empty(0, kind)).dtype, pin_memory=True)


def _copy(x: NDArray[Any], out: NDArray[Any]) -> None:
    def copy(part: slice) -> None:
        out[part] = x[part]

    in_parts(copy, len(out), out[:1].size)


@dataclass(frozen=True, eq=False)
class Sums:
    """The passes of all tiles together, in numpy."""

    passes: Sequence[Passes]
    task: Neural
    shape: tuple[int, ...]
    kind: torch.dtype

    def gradient(self, clip: float | None) -> Array:
        return self._total(clip, lambda tile, out, doubtful: tile.gradient(clip, out, doubtful))

    def curvature(self, direction: Array, clip: float | None) -> Array:
        v = self.task._tensor(direction)
        return self._total(clip, lambda tile, out, doubtful: tile.curvature(v, clip, out, doubtful))

    def _total(self, clip: float | None, add: Callable[[Passes, Tensor, bool], None]) -> Array:
        with torch.no_grad():
            total = self._added(add, doubtful=False)
            if clip is not None and not math.isfinite(total.sum()):  # nor is a sum with NaN
                total = self._added(add, doubtful=True)
            if total.is_cuda:
                return np.asarray(locked(self.shape, np.float64).copy_(total).numpy())
            out = np.empty(self.shape)  # numpy's memory comes in large pages, torch's does not
            _copy(total.numpy(), out)
            return out

    def _added(self, add: Callable[[Passes, Tensor, bool], None], doubtful: bool) -> Tensor:
        total = torch.zeros(self.shape, dtype=self.kind, device=self.task._on_device)
        for tile in self.passes:
            add(tile, total, doubtful)
        return total


def tile_size(places: int, rate: float, largest: int) -> int:
    """Tiles of about half a sample are seldom needed more than thrice; where all are chosen, they are all filled."""
    wanted = np.clip(places if rate == 1.0 else 0.5 * rate * places, _LEAST_TILE, largest)
    return max(-(-places // math.ceil(places / float(wanted))), 1)


def tiles(
    x: NDArray[Any], y: NDArray[Any], chosen: Weights, size: int
) -> Iterator[tuple[NDArray[Any], NDArray[Any], Weights]]:
    """The chosen records, a tile of every client's at a time: (K, R, ...), (K, R), and how much each slot counts.

    Record k is always in slot k mod R of some tile, and empty slots are zeros: the numbers of a record do not depend on
    the other chosen ones. R follows from public numbers.
    """
    clients, places = chosen.shape
    if places % size == 0 and chosen.all():
        for begin in range(0, places, size):
            part = slice(begin, begin + size)
            yield x[:, part], y[:, part], chosen[:, part]
        return
    slots = np.zeros((clients, -(-places // size) * size), dtype=np.bool_)
    slots[:, :places] = chosen > 0
    slots = slots.reshape(clients, -1, size)
    tile = slots.cumsum(1) - 1  # of every record that is chosen
    count = int(tile.max(initial=-1)) + 1
    record = np.full((count, clients, size), -1)
    client, row, slot = np.nonzero(slots)
    record[tile[client, row, slot], client, slot] = row * size + slot
    everybody = np.arange(clients)[:, None]
    for which in record:
        taken = which >= 0
        part_x, part_y = x[everybody, which], y[everybody, which]
        part_x[~taken], part_y[~taken] = 0, 0
        yield part_x, part_y, np.where(taken, chosen[everybody, which], 0)
