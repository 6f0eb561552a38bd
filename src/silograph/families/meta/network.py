"""The network of a plan, or of a model file; torch is loaded here, once there is need for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, get_args

from silograph.core import wording
from silograph.core.errors import InputError
from silograph.core.types import Json
from silograph.data.clients import ClientTables
from silograph.families.meta.advice import Known, settled
from silograph.families.meta.plan import MetaPlan, Model

if TYPE_CHECKING:
    from silograph.tasks.neural import Neural


def load_networks() -> Any:
    """The module of networks; needs the extra `neural`."""
    try:
        from silograph.tasks import networks
    except ImportError:
        todo = "pip install 'silograph[neural]'"
        raise InputError("private meta-learning", "PyTorch", "it is not installed", todo) from None
    return networks


def network(plan: MetaPlan, tables: ClientTables, module: Any = None) -> Neural:
    """The plan's network for records like these, whose start follows from the seed; or a module, with its own."""
    outputs = 1 if plan.data.answers == "numbers" else len(tables.classes)
    chosen = settled(plan, Known.of(tables))
    spec = {"module": module, **{name: getattr(chosen, name) for name in ("model", "hidden", "width")}}
    return build_network(spec, tables.shape, outputs, plan.data.answers, plan.method.device, plan.seed or 0)


def build_network(spec: Json, shape: tuple[int, ...], outputs: int, answers: str, device: str, seed: int) -> Neural:
    """The network that `spec` names."""
    networks = load_networks()
    from silograph.tasks.neural import Neural

    loss: Literal["squared", "cross-entropy"] = "squared" if answers == "numbers" else "cross-entropy"
    if spec.get("module") is not None:
        return Neural(spec["module"], shape, outputs, loss, device)
    if spec["model"] == "module":
        raise InputError(
            "model", "the torch module it was learned with", "found none", "Load it in Python and give it."
        )
    if spec["model"] not in get_args(Model):
        raise InputError("model", f"one of {', '.join(get_args(Model))}, or a torch module", f"found {spec['model']!r}")
    if spec["model"] in ("linear", "mlp"):
        hidden = () if spec["model"] == "linear" else spec["hidden"]
        module = networks.mlp(math.prod(shape), outputs, hidden)
    elif spec["model"] == "random_features":
        module = networks.random_features(math.prod(shape), outputs, spec["width"])
    elif len(shape) != 3:
        raise InputError(
            wording.setting("model"), f"pictures for a {spec['model']}", f"found records of shape {shape}", "Use mlp."
        )
    elif spec["model"] == "cnn":
        module = networks.cnn((shape[0], shape[1], shape[2]), outputs)
    else:
        module = networks.resnet18((shape[0], shape[1], shape[2]), outputs, spec["width"])
    return Neural(networks.initialise(module, seed), shape, outputs, loss, device)
