"""Graph federation: servers that mix their models over a graph.

Ten regions of thirty agents learn a linear model over 150 rounds. Homomorphic noise cancels in the mean of all regions
and stays in every region's own model; it is obfuscation, with no epsilon. The private mode clips every agent's update
and adds noise for the clip: epsilon 4 at delta 1e-6 for every agent, all its records together, replace-one, against
everybody but its own server, which is trusted. The distance to the true optimum is known to a simulation only, and the
seed makes this a rehearsal.

    python examples/gallery/graph_federation.py picture.svg
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from silograph.data.federation import regression
from silograph.methods.graph_federation import GraphFederation
from silograph.privacy.accounting import gaussian_multiplier
from silograph.privacy.door import Budget, Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.mechanisms import Gaussian
from silograph.privacy.observers import OWN_SERVER
from silograph.run.loop import ENGINES, rounds
from silograph.tasks.linear import Linear
from silograph.topology import regions, server_graph

ROUNDS, REGIONS, AGENTS, EPSILON, DELTA = 150, 10, 30, 4.0, 1e-6
records, _ = regression(seed=1, regions=REGIONS, agents=AGENTS)
task = Linear(features=2, most=100, rho=0.1)
topo = regions(server_graph("ring", REGIONS), AGENTS)
data = task.prepare_all(records)
optimum = task.optimum(data, np.full(REGIONS * AGENTS, 1.0 / AGENTS))


def run(perturbation, mechanism=None, budget=None):
    """Squared distances to the optimum after every round: of the centroid, and the mean of the regions'."""
    clip = 0.2 if mechanism else None
    method = GraphFederation(task, 0.5, ROUNDS, epochs=(2, 2), perturbation=perturbation, variance=0.05, clip=clip)
    door = Door(7, Ledger(), mechanism, budget)
    errors = []
    for state in rounds(method, topo, ENGINES["vector"](data, topo, door), door):
        models = state.servers["model"]
        errors.append((((models.mean(0) - optimum) ** 2).sum(), ((models - optimum) ** 2).sum(1).mean()))
    return 10 * np.log10(errors / (optimum**2).sum()), door


private = Gaussian(gaussian_multiplier(EPSILON, DELTA, ROUNDS)), Budget(EPSILON, DELTA, frozenset({OWN_SERVER}))
curves = {"no noise": run("none"), "homomorphic": run("homomorphic"), "private": run("private", *private)}
print("relative error after the last round, in dB")
print("             centroid  regions")
for name, (errors, _) in curves.items():
    print(f"{name:11}  {errors[-1, 0]:8.1f}  {errors[-1, 1]:5.1f}")
spent = curves["private"][1].spent(topo.servers[0], DELTA, "neighbour")
print(f"private: epsilon {spent.epsilon:.4g} at delta {DELTA:g} against a neighbour, read from the ledger")

figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", sharey=True)
for k, title in enumerate(("The mean of all regions' models", "The regions' own models")):
    for (name, (errors, _)), colour in zip(curves.items(), ("#2166a5", "#b4500a", "#0a7b6c"), strict=True):
        axes[k].plot(range(1, ROUNDS + 1), errors[:, k], color=colour, label=name)
    axes[k].set(title=title, xlabel="round")
axes[0].set_ylabel("relative squared error, dB")
axes[1].legend(frameon=False)
figure.savefig(sys.argv[1])
