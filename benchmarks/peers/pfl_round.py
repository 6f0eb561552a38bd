"""CPU and wall time of one central iteration of Apple's pfl-research, run by the python of its own environment:

    .benchmarks/pfl/.venv/bin/python benchmarks/peers/pfl_round.py [--agents 1000] [--json]

One cohort of all agents; each does local SGD on a linear model with logistic loss (no intercept, no ridge), its update
is clipped in L2 and the sum gets Gaussian noise by pfl's GaussianMechanism, all driven by SimulatedBackend. Three ways:

torch     what pfl's documentation shows: PyTorchModel, FederatedAveraging, FederatedDataset with tensors ready made.
numpy     the cheapest its extension points allow: own Model, own simulate_one_user, own FederatedDatasetBase.
overhead  numpy with an update ready made instead of local training: no local training of any kind can beat this.

All leave out what a round can do without: evaluation, weighting, printing of metrics. The privacy accountant runs once,
before the first iteration, and is reported apart. An iteration is the time between two calls of after_central_iteration
(process_time, all threads; perf_counter); the median after warm-up counts. One thread; one process per way, because pfl
keeps one array framework per process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.context import CentralContext
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset, FederatedDatasetBase
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.base import Model
from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism, PLDPrivacyAccountant
from pfl.stats import MappedVectorStatistics

MU = 0.1  # local step
CLIP = 0.1  # clips most updates at first, fewer as the model settles; the last iteration's share is reported
SIGMA = 1.0  # noise in units of the clip, on the sum
WARMUP = 3
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
DEVICE = {"PFL_PYTORCH_DEVICE": "cpu"}  # or pfl asks torch at every conversion


def signed_records(agents: int, records: int, features: int) -> np.ndarray:
    """Label times features, all that a logistic loss needs: agents x records x features."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(agents, records, features))
    margin = x @ rng.normal(size=features)
    label = np.where(rng.random((agents, records)) < 1.0 / (1.0 + np.exp(-margin)), 1.0, -1.0)
    return (label[..., None] * x).astype(np.float32)


class Clock(TrainingProcessCallback):
    def __init__(self) -> None:
        self.marks: list[tuple[float, float]] = []
        self.metrics = Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Model, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.metrics = aggregate_metrics
        self.marks.append((time.process_time(), time.perf_counter()))
        return False, Metrics()


class NumpyModel(Model):
    def __init__(self, features: int) -> None:
        self.w = np.zeros(features, np.float32)

    def apply_model_update(self, statistics: MappedVectorStatistics) -> tuple[NumpyModel, Metrics]:
        self.w = self.w + statistics["w"].astype(np.float32)
        return self, Metrics()


class NumpyAveraging(FederatedAveraging):
    def simulate_one_user(
        self, model: NumpyModel, user_dataset: Dataset, central_context: CentralContext
    ) -> tuple[MappedVectorStatistics, Metrics]:
        how = central_context.model_train_params
        w = model.w
        for _ in range(how.local_num_epochs or 1):
            for index, (a,) in enumerate(user_dataset.iter(how.local_batch_size)):
                if index == how.local_num_steps:
                    break
                w = w + (how.local_learning_rate / len(a)) * ((1.0 / (1.0 + np.exp(a @ w))) @ a)
        return MappedVectorStatistics({"w": w - model.w}), Metrics()


class NoTraining(FederatedAveraging):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.update = MappedVectorStatistics({"w": np.full(features, 1e-3, np.float32)})

    def simulate_one_user(
        self, model: NumpyModel, user_dataset: Dataset, central_context: CentralContext
    ) -> tuple[MappedVectorStatistics, Metrics]:
        return self.update, Metrics()


class Cohort(FederatedDatasetBase):
    """Everyone, every time, in order: FederatedDataset would reseed numpy's generator once per agent."""

    def __init__(self, users: list[Dataset]) -> None:
        super().__init__()
        self.users = users

    def __next__(self) -> tuple[Dataset, int]:
        return self.users[0], 0

    def get_cohort(self, cohort_size: int) -> Iterator[tuple[Dataset, int]]:
        return zip(self.users, range(cohort_size), strict=False)


def torch_parts(signed: np.ndarray) -> tuple[Any, FederatedAveraging, FederatedDatasetBase]:
    import torch
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.model.pytorch import PyTorchModel

    torch.set_num_threads(1)

    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(signed.shape[-1]))

        def loss(self, a: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.softplus(-(a @ self.w)).mean()

        def metrics(self, a: torch.Tensor) -> dict[str, Weighted]:
            return {"loss": Weighted(self.loss(a).item() * len(a), len(a))}

    module = Linear()
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    users = [PyTorchTensorDataset((a,)) for a in torch.from_numpy(signed)]
    sampler = get_user_sampler("minimize_reuse", range(len(users)))
    return model, FederatedAveraging(), FederatedDataset(users.__getitem__, sampler)


def numpy_parts(signed: np.ndarray, train: bool) -> tuple[Any, FederatedAveraging, FederatedDatasetBase]:
    features = signed.shape[-1]
    algorithm = NumpyAveraging() if train else NoTraining(features)
    return NumpyModel(features), algorithm, Cohort([Dataset((a,)) for a in signed])


def measure(path: str, options: argparse.Namespace) -> dict[str, Any]:
    np.random.seed(0)  # noqa: NPY002 -- pfl draws its seeds from it
    signed = signed_records(options.agents, options.records, options.features)
    model, algorithm, users = torch_parts(signed) if path == "torch" else numpy_parts(signed, path == "numpy")
    rounds = WARMUP + options.repeat
    begun = time.process_time()
    accountant = PLDPrivacyAccountant(
        num_compositions=rounds, sampling_probability=1.0, mechanism="gaussian", noise_parameter=SIGMA, delta=1e-6
    )
    accounting = time.process_time() - begun
    mechanism = GaussianMechanism.from_privacy_accountant(accountant, CLIP)
    backend = SimulatedBackend(users, users, postprocessors=[CentrallyAppliedPrivacyMechanism(mechanism)])
    per_epoch = -(-options.records // options.batch)
    epochs = options.steps // per_epoch if options.steps > per_epoch else None
    clock = Clock()
    model = algorithm.run(
        NNAlgorithmParams(  # pfl evaluates iteration 0 whatever the frequency: it is part of the warm-up
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            train_cohort_size=options.agents,
            val_cohort_size=0,
        ),
        backend,
        model,
        NNTrainHyperParams(
            local_num_epochs=epochs,
            local_num_steps=None if epochs else options.steps,
            local_learning_rate=MU,
            local_batch_size=options.batch,
        ),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    cpu, wall = np.diff(clock.marks[WARMUP - 1 :], axis=0).T
    reported = {str(name): float(value) for name, value in clock.metrics.to_simple_dict().items()}
    w = model.pytorch_model.w.detach().numpy() if path == "torch" else model.w
    return {
        "path": path,
        "cpu_s": statistics.median(cpu),
        "wall_s": statistics.median(wall),
        "cpu_best_s": min(cpu),
        "accountant_cpu_s": accounting,
        "epsilon": float(accountant.epsilon),
        "clipped": next(value for name, value in reported.items() if "fraction of clipped norms" in name),
        "loss": float(np.logaddexp(0.0, -(signed @ w)).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of one central iteration of pfl-research's SimulatedBackend")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--records", type=int, default=20, help="per agent")
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--steps", type=int, default=4, help="local SGD steps; above one epoch: whole epochs only")
    parser.add_argument("--batch", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=10, help="iterations timed, after warm-up")
    parser.add_argument("--path", choices=("torch", "numpy", "overhead"), help="one way, in this process: used inside")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    per_epoch = -(-options.records // options.batch)
    if options.steps > per_epoch and options.steps % per_epoch:
        parser.error(f"--steps above {per_epoch} (one epoch) must be a multiple of it: pfl has no other way")
    if options.path:
        print(json.dumps(measure(options.path, options)))
        return
    rows = []
    for path in ("torch", "numpy", "overhead"):
        command = [sys.executable, "-W", "ignore", __file__, *sys.argv[1:], "--path", path]
        child = subprocess.run(
            command, env=os.environ | THREADS | DEVICE, check=True, stdout=subprocess.PIPE, text=True
        )
        rows.append(json.loads(child.stdout.splitlines()[-1]))
    if options.json:
        asked = {name: getattr(options, name) for name in ("agents", "records", "features", "steps", "batch", "repeat")}
        versions = {name: version(name) for name in ("pfl", "torch", "numpy")}
        print(json.dumps({"peer": "pfl-research SimulatedBackend", "versions": versions, **asked, "rows": rows}))
        return
    for row in rows:
        print(f"{row['path']:>8}  {1e3 * row['cpu_s']:.1f} ms CPU  {1e3 * row['wall_s']:.1f} ms wall"
              f"  clipped {row['clipped']:.2f}  loss {row['loss']:.4f}")  # fmt: skip


if __name__ == "__main__":
    main()
