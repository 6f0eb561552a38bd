"""A private graph: what an epsilon buys.

Every site sends one thing, once: its second moment with noise, for which a signal is protected at the stated epsilon
and delta 1e-6, replace-one, against the server, other sites, the wire and the public. The graphs are computed from
that. Noise is seeded here so that the picture can be drawn again: a rehearsal, which protects nobody.

    python examples/gallery/private_graph.py picture.svg
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from silograph import ConsensusGraph
from silograph.data.synthetic import paper_graphs, smooth_signals
from silograph.kernels.edges import adjacency

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
truth = paper_graphs(seed=5, silos=5, keep=0.8)
sites = [smooth_signals(np.random.default_rng(k), w, 1000) for k, w in enumerate(truth.local)]
degree = 2 * np.count_nonzero(truth.local[0]) / 20


def f_score(graphs):
    """Mean over the sites; the true graphs are known because the signals were made from them."""
    scores = []
    for learned, true in zip(graphs, truth.local, strict=True):
        found, there = learned > 0, adjacency(true) > 0
        scores.append(2 * (found & there).sum() / (found.sum() + there.sum()))
    return np.mean(scores)


# All columns have one unit and vary around 0, which everybody knows: no scale has to be paid for.
models = {
    e: ConsensusGraph(degree=degree, epsilon=e, delta=1e-6, scale="none", random_state=1).fit(sites) for e in EPSILONS
}
exact = ConsensusGraph(degree=degree, learner="papers").fit(sites)
print("epsilon  F-score  accounted")
for epsilon, model in models.items():
    print(f"{epsilon:7g}  {f_score(model.graphs_):7.2f}  {model.privacy_['guarantees'][0]['epsilon']:.4f}")
print(f"   none  {f_score(exact.graphs_):7.2f}")

figure, axes = plt.subplots(1, 4, figsize=(11, 3), layout="constrained", width_ratios=(1, 1, 1, 1.4))
graphs = (("epsilon 0.5", models[0.5]), ("epsilon 8", models[8.0]))
order = np.argsort(np.linalg.eigh(np.diag(adjacency(truth.consensus).sum(0)) - adjacency(truth.consensus))[1][:, 1])
pictures = [(name, model.consensus_) for name, model in graphs] + [("true consensus", adjacency(truth.consensus))]
for axis, (name, weights) in zip(axes, pictures, strict=False):
    axis.imshow(weights[np.ix_(order, order)], cmap="Blues")
    axis.set(title=name, xticks=[], yticks=[])
axes[3].plot(EPSILONS, [f_score(model.graphs_) for model in models.values()], "o-", color="#2166a5", label="private")
axes[3].axhline(f_score(exact.graphs_), color="#8a3ea8", linestyle="--", label="the papers' model, no privacy")
axes[3].set(xscale="log", xlabel="epsilon of every site", ylabel="F-score", title="Edges found", ylim=(0, 1.05))
axes[3].set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
axes[3].minorticks_off()
axes[3].legend(frameon=False, loc="lower right")
figure.savefig(sys.argv[1])
