"""Fixed features for a head that is learned: from a module with its own weights, or random ones.

A fixed layer has no parameters, so it has no noise and costs no budget. Its weights are public: a module that was
trained on records reveals them, unless they are public too.
"""

from __future__ import annotations

import copy
import math
from typing import Self

import torch
from torch import Tensor, nn

from silograph.core.keys import stream


class FixedFeatures(nn.Module):
    """The output of a copy of a module for a record, as one row; its weights are buffers, and it is always in eval
    mode.

    So batch norm in it uses its stored means, and a record's features depend on that record alone.
    """

    def __init__(self, extractor: nn.Module) -> None:
        super().__init__()
        self.extractor = copy.deepcopy(extractor)
        for layer in self.extractor.modules():
            for name, parameter in list(layer.named_parameters(recurse=False)):
                delattr(layer, name)
                layer.register_buffer(name, parameter.detach())
        self.train()

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.extractor.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.extractor(x)
        return out.flatten(1)


class Cosine(nn.Module):
    """cos, times sqrt(2 / inputs): about as long as 1 in all, as a clip of 1 wants it."""

    def forward(self, x: Tensor) -> Tensor:
        return x.cos() * math.sqrt(2.0 / x.shape[-1])


def random_cosines(inputs: int, features: int) -> FixedFeatures:
    """cos(W x + b), with inner products near the kernel exp(-2 |x - x'|^2 / inputs): for inputs from -1 to 1.

    W is normal with variance 4 / inputs, b uniform from 0 to 2 pi, both from a public stream: the same for everybody.
    """
    draws = stream(0, "", 0, f"{features} random features of {inputs} inputs")
    dense = nn.Linear(inputs, features)
    with torch.no_grad():
        dense.weight.copy_(torch.from_numpy(draws.standard_normal((features, inputs)) * math.sqrt(4.0 / inputs)))
        dense.bias.copy_(torch.from_numpy(draws.random(features) * 2.0 * math.pi))
    return FixedFeatures(nn.Sequential(nn.Flatten(), dense, Cosine()))
