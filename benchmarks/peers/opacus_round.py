"""CPU and wall time of a round of first-order private meta-learning with Opacus and with torch alone, run by the python
of its own environment on a problem that `benchmarks.meta_round` wrote:

    .benchmarks/opacus/.venv/bin/python benchmarks/peers/opacus_round.py PROBLEM.npz --path ghost [--json]

Client by client: the clipped and noised sum of the query records' gradients at w gives theta, the same sum over the
support records at theta moves w, and the round ends with the mean over the clients. Four ways to a sum:

hooks     Opacus: GradSampleModule and DPOptimizer, what PrivacyEngine makes by default; a gradient for every record.
ghost     Opacus: what PrivacyEngine makes for grad_sample_mode="ghost"; lengths in closed form, two passes back.
func      torch.func alone: vmap of grad over the records of a client.
autograd  no privacy, for comparison: the meta-gradient of second order, by torch.autograd with create_graph.

Everything that can be made once is made before the first round: one module, one wrapper and one optimiser serve all
clients, parameters are copied into them in place, data are tensors already, losses are summed so that nothing is scaled
twice. Where records' gradients are large, a few records at a time are quicker (fresh memory is slow): hooks and func go
through a client's records in pieces then. Noise is torch's own (not Opacus' secure mode, which draws four times as
much); there is no accountant, no ledger and no sampling. `differences` are those of the sums without noise from what is
in the problem, relative to its length.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

AT_ONCE = 1 << 22  # numbers of records' gradients: a client of the small net, a quarter of one of the large

Model = list[Tensor]  # a network's parameters
Total = Callable[[Model, Tensor, Tensor], Model]  # the clipped and noised sum of records' gradients at a model


def network(sizes: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += nn.Linear(inputs, outputs), nn.ReLU()
    return nn.Sequential(*layers[:-1])


def pieces(x: Tensor, y: Tensor, model: Model) -> list[tuple[Tensor, Tensor]]:
    count = math.ceil(len(y) * sum(values.numel() for values in model) / AT_ONCE)
    return list(zip(x.chunk(count), y.chunk(count), strict=True))


def opacus_total(module: nn.Module, clip: float, noise: float, ghost: bool) -> Total:
    kind = GradSampleModuleFastGradientClipping if ghost else GradSampleModule
    wrapped = kind(module, loss_reduction="sum", **({"max_grad_norm": clip} if ghost else {}))
    parameters = list(wrapped.parameters())
    optimizer = (DPOptimizerFastGradientClipping if ghost else DPOptimizer)(
        torch.optim.SGD(parameters, lr=1.0),
        noise_multiplier=noise,
        max_grad_norm=clip,
        expected_batch_size=None,
        loss_reduction="sum",
    )
    loss: Any = nn.CrossEntropyLoss(reduction="sum")
    if ghost:
        loss = DPLossFastGradientClipping(wrapped, optimizer, loss, "sum")

    def total(model: Model, x: Tensor, y: Tensor) -> Model:
        with torch.no_grad():
            for parameter, values in zip(parameters, model, strict=True):
                parameter.copy_(values)
        parts = [(x, y)] if ghost else pieces(x, y, model)
        for left, (some_x, some_y) in enumerate(parts, 1 - len(parts)):
            optimizer.signal_skip_step(left < 0)  # Opacus' virtual steps: noise is added to the last piece
            optimizer.zero_grad(set_to_none=True)
            loss(wrapped(some_x), some_y).backward()
            optimizer.pre_step()  # clips and adds noise; the step itself is the caller's
        return [parameter.grad for parameter in parameters]

    return total


def func_total(module: nn.Module, clip: float, noise: float) -> Total:
    names = [name for name, _ in module.named_parameters()]

    def value(model: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(module, model, (x[None],)), y[None])

    each = vmap(grad(value), in_dims=(None, 0, 0))

    def total(model: Model, x: Tensor, y: Tensor) -> Model:
        out = [noise * clip * torch.randn(values.shape) for values in model]
        for some_x, some_y in pieces(x, y, model):
            gradients = list(each(dict(zip(names, model, strict=True)), some_x, some_y).values())
            lengths = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
            factors = (clip / lengths).clamp(max=1.0)
            out = [total + torch.tensordot(factors, g, 1) for total, g in zip(out, gradients, strict=True)]
        return out

    return total


class Problem:
    def __init__(self, path: str) -> None:
        held = np.load(path)
        self.query = [torch.from_numpy(held[name]) for name in ("query_x", "query_y")]
        self.support = [torch.from_numpy(held[name]) for name in ("support_x", "support_y")]
        self.sizes = held["sizes"].tolist()
        self.inner_step, self.outer_step, self.clip, self.noise = held["parameters"].tolist()
        self.found = {name: held[name] for name in ("inner", "outer", "meta")}  # what ours are without noise
        shapes = [parameter.shape for parameter in network(self.sizes).parameters()]
        parts = torch.from_numpy(held["start"]).float().split([shape.numel() for shape in shapes])
        self.start = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def clients(self) -> zip[tuple[Tensor, ...]]:
        return zip(*self.query, *self.support, strict=True)


def moved(model: Model, by: float, along: Model) -> Model:
    return [values - by * slope for values, slope in zip(model, along, strict=True)]


def first_order(problem: Problem, total: Total, w: Model) -> Model:
    outer = [torch.zeros_like(values) for values in w]
    count = 0
    for query_x, query_y, support_x, support_y in problem.clients():
        theta = moved(w, problem.inner_step / len(query_y), total(w, query_x, query_y))
        outer = moved(outer, -1.0 / len(support_y), total(theta, support_x, support_y))
        count += 1
    return moved(w, problem.outer_step / count, outer)


def meta_gradient(problem: Problem, module: nn.Module, w: Model, client: tuple[Tensor, ...]) -> Model:
    query_x, query_y, support_x, support_y = client
    names = [name for name, _ in module.named_parameters()]
    leaves = [values.detach().requires_grad_() for values in w]

    def value(model: Model, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(module, dict(zip(names, model, strict=True)), (x,)), y)

    inner = torch.autograd.grad(value(leaves, query_x, query_y), leaves, create_graph=True)
    theta = moved(leaves, problem.inner_step, list(inner))
    return list(torch.autograd.grad(value(theta, support_x, support_y), leaves))


def second_order(problem: Problem, module: nn.Module, w: Model) -> Model:
    outer = [torch.zeros_like(values) for values in w]
    for client in problem.clients():
        outer = moved(outer, -1.0, meta_gradient(problem, module, w, client))
    return moved(w, problem.outer_step / len(problem.query[0]), outer)


def total_of(problem: Problem, path: str, noise: float) -> Total:
    module = network(problem.sizes)
    return (
        func_total(module, problem.clip, noise)
        if path == "func"
        else opacus_total(module, problem.clip, noise, path == "ghost")
    )


def differences(problem: Problem, path: str) -> dict[str, float]:
    """The most that a client's sums are from ours, relative to their length, all without noise."""

    def most(ours: str, theirs: list[Model]) -> float:
        flat = np.array([np.concatenate([part.numpy().ravel() for part in model]) for model in theirs])
        wrong = np.linalg.norm(flat - problem.found[ours], axis=1) / np.linalg.norm(problem.found[ours], axis=1)
        return float(wrong.max())

    if path == "autograd":
        module = network(problem.sizes)
        return {"meta": most("meta", [meta_gradient(problem, module, problem.start, c) for c in problem.clients()])}
    total = total_of(problem, path, 0.0)
    inner, outer = [], []
    for query_x, query_y, support_x, support_y in problem.clients():
        inner.append(total(problem.start, query_x, query_y))
        theta = moved(problem.start, problem.inner_step / len(query_y), inner[-1])
        outer.append(total(theta, support_x, support_y))
    return {"inner": most("inner", inner), "outer": most("outer", outer)}


def measure(problem: Problem, path: str, repeat: int) -> dict[str, Any]:
    if path == "autograd":
        module = network(problem.sizes)

        def turn(w: Model) -> Model:
            return second_order(problem, module, w)
    else:
        total = total_of(problem, path, problem.noise)

        def turn(w: Model) -> Model:
            return first_order(problem, total, w)

    w = turn(problem.start)
    cpu, wall = [], []
    for _ in range(repeat):
        begun = time.process_time(), time.perf_counter()
        w = turn(w)
        cpu.append(time.process_time() - begun[0])
        wall.append(time.perf_counter() - begun[1])
    return {
        "path": path,
        "cpu_s": statistics.median(cpu),
        "wall_s": statistics.median(wall),
        "differences": differences(problem, path),
        "versions": {name: version(name) for name in ("opacus", "torch")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of a round of private meta-learning with Opacus or torch alone")
    parser.add_argument("problem", help="an NPZ file of benchmarks.meta_round")
    parser.add_argument("--path", choices=("hooks", "ghost", "func", "autograd"), required=True)
    parser.add_argument("--repeat", type=int, default=5, help="rounds timed, after one that is not")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # Opacus says that its noise is not for production, and torch that hooks are slow
    found = measure(Problem(options.problem), options.path, options.repeat)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{found['path']:>8}  {1e3 * found['cpu_s']:.1f} ms CPU  {1e3 * found['wall_s']:.1f} ms wall"
          f"  {found['differences']}")  # fmt: skip


if __name__ == "__main__":
    main()
