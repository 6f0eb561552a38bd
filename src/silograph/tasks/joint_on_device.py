"""The problem of `kernels/joint_likelihood.py`, in the same notation, on a GPU: for thousands of nodes.

Proximal gradient steps; their length is Barzilai and Borwein's, halved until the likelihood is below its model:

    T <- prox_t(T - t nu (S - T^-1)),    prox_t: shrink by t lam, then an edge's vector over sites by t gam          (e)

A step costs a factor and an inverse of every site's matrix, which is what a GPU is best at; the edge-by-edge descent of
the compiled kernel needs fewer steps and is faster without one. The certificate is the same: W = T^-1, made feasible
edge by edge, gives (c). There is no ridge (beta) here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.kernels.joint_likelihood import Joint, Penalty

_STEPS, _HALVINGS, _BISECTIONS = 500, 60, 40
_LOOK = 5  # steps between two checks of the certificate, which costs as much as a step


def solve(
    moments: Array, weights: Array, penalty: Penalty, start: Array | None, tolerance: float, device: str
) -> Joint:
    """As `joint_likelihood.solve`, to a certified gap of `tolerance` nats per record and node, or as far as it gets."""
    problem = _Problem(moments, weights, penalty, device)
    theta = problem.diagonal_start() if start is None else problem.tensor(start)
    inverse, fit = problem.inverse(theta)
    if inverse is None:
        theta = problem.diagonal_start()
        inverse, fit = problem.inverse(theta)
    scale, length, gap, steps = float(weights.sum()) * moments.shape[1], 1.0, math.inf, 0
    for steps in range(_STEPS):
        objective = fit + problem.cost(theta)
        if steps % _LOOK == 0:
            gap = min(gap, max(0.0, objective - problem.dual(inverse)))
            if gap <= tolerance * scale:
                break
        gradient = problem.nu * (problem.s - inverse)
        for _ in range(_HALVINGS):
            trial = problem.prox(theta - length * gradient, length)  # (e)
            move = trial - theta
            fresh, trial_fit = problem.inverse(trial)
            model = fit + float((gradient * move).sum()) + float(move.square().sum()) / (2.0 * length)
            if fresh is not None and trial_fit <= model + 1e-12 * abs(fit):
                break
            length *= 0.5
        else:
            break  # at the end of double precision
        bend = float((move * (problem.nu * (inverse - fresh))).sum())
        length = float(move.square().sum()) / bend if bend > 0.0 else length
        theta, inverse, fit = trial, fresh, trial_fit
    objective = fit + problem.cost(theta)
    gap = min(gap, max(0.0, objective - problem.dual(inverse)))
    return Joint(theta.cpu().numpy(), inverse.cpu().numpy(), objective, gap, gap / scale, steps)


class _Problem:
    def __init__(self, moments: Array, weights: Array, penalty: Penalty, device: str) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            todo = "Take the device cpu, or a machine with a GPU that PyTorch can use."
            raise InputError("device", "a GPU for the device cuda", "PyTorch finds none", todo)
        if np.any(penalty.beta):
            raise ValueError("no ridge on a device")
        self.device = torch.device(device)
        self.s, self.nu = self.tensor(moments), self.tensor(weights)[:, None, None]
        self.lam, self.gam = self.tensor(np.asarray(penalty.lam)), self.tensor(np.asarray(penalty.gam))
        self.nonnegative = penalty.nonnegative
        self.diagonal = torch.eye(moments.shape[1], dtype=torch.bool, device=self.device)

    def tensor(self, values: Array) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(values, dtype=np.float64), device=self.device)

    def diagonal_start(self) -> Tensor:
        return torch.diag_embed(1.0 / torch.diagonal(self.s, dim1=1, dim2=2))

    def inverse(self, theta: Tensor) -> tuple[Any, float]:
        """T^-1 and the likelihood's part of (a); None if T is not positive definite."""
        found, fit = torch.empty_like(theta), 0.0
        for k in range(len(theta)):
            root, failed = torch.linalg.cholesky_ex(theta[k])
            if int(failed):
                return None, math.inf
            found[k] = torch.cholesky_inverse(root)
            trace = float((self.s[k] * theta[k]).sum())
            fit += float(self.nu[k]) * (trace - 2.0 * float(root.diagonal().log().sum()))
        return found, fit

    def soft(self, pulls: Tensor, lam: Tensor) -> Tensor:
        """Shrink pulls by lam, at most to 0; with `nonnegative` only pulls below 0 count."""
        left = (pulls.abs() - lam).clamp(min=0.0).copysign(pulls)
        return left.clamp(max=0.0) if self.nonnegative else left

    def prox(self, theta: Tensor, length: float) -> Tensor:
        left = self.soft(theta, length * self.lam)
        norm = left.square().sum(0).sqrt().clamp(min=1e-300)
        return torch.where(self.diagonal, theta, left * (1.0 - length * self.gam / norm).clamp(min=0.0))

    def cost(self, theta: Tensor) -> float:
        """2 sum_{a<b} P_ab, and so the sum over both halves."""
        off = theta.masked_fill(self.diagonal, 0.0)
        own = torch.where(off == 0.0, 0.0, self.lam * off.abs())  # an entry that no row saw has an infinite lam
        return float(own.sum() + (self.gam * off.square().sum(0).sqrt()).sum())

    def dual(self, inverse: Tensor) -> float:
        """(c) at W made feasible; minus infinity if it is then not positive definite."""
        pulls = self.nu * (inverse - self.s)
        low, high = torch.zeros_like(self.s[0]), torch.ones_like(self.s[0])
        for attempt in range(_BISECTIONS):
            middle = high if attempt == 0 else 0.5 * (low + high)
            inside = self.soft(middle * pulls, self.lam).square().sum(0) <= self.gam.square()
            low = torch.where(inside, middle, low)
            high = torch.where(inside, high, middle)
        mended = self.s + low.masked_fill(self.diagonal, 0.0) * pulls / self.nu
        value = 0.0
        for k in range(len(mended)):
            root, failed = torch.linalg.cholesky_ex(mended[k])
            if int(failed):
                return -math.inf
            value += float(self.nu[k]) * (2.0 * float(root.diagonal().log().sum()) + len(root))
        return value
