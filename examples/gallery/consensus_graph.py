"""A consensus graph, and a graph for every site.

Five sites measure the same twenty variables; most edges of their graphs are common, some are a site's own. Learned
together, sites borrow from each other. The true graphs are known because the signals were made from them: only a
simulation can draw the right-hand picture, here as the mean over four such federations.

    python examples/gallery/consensus_graph.py picture.svg
"""

import sys

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from silograph import ConsensusGraph
from silograph.data.synthetic import paper_graphs, smooth_signals
from silograph.kernels.edges import adjacency

COUNTS = (25, 50, 100, 200, 400)
THRESHOLD = 0.2


def f_score(learned, true):
    """The harmonic mean of the share of learned edges that are true and of true edges that were learned."""
    learned, true = learned > THRESHOLD, adjacency(true) > 0
    return 2 * (learned & true).sum() / (learned.sum() + true.sum())


scores = []
for seed in range(4):
    truth = paper_graphs(seed, silos=len(COUNTS), keep=0.9).local
    rng = np.random.default_rng(seed)
    sites = [smooth_signals(rng, graph, count) for graph, count in zip(truth, COUNTS, strict=True)]
    together = ConsensusGraph(degree=8, learner="papers").fit(sites)
    alone = [ConsensusGraph(degree=8, learner="papers").fit(table).graphs_[0] for table in sites]
    scores.append([[f_score(g, w) for g, w in zip(graphs, truth, strict=True)] for graphs in (alone, together.graphs_)])
alone, shared = np.mean(scores, axis=0)
print(f"{together.n_iter_} rounds, certified gap {together.gap_:.1e}")
print("signals  alone  together  (F-score against the true graph)")
for count, one, other in zip(COUNTS, alone, shared, strict=True):
    print(f"{count:7}  {one:5.2f}  {other:8.2f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
consensus, site = (
    nx.from_numpy_array(np.where(weights > THRESHOLD, weights, 0.0))
    for weights in (together.consensus_, together.graphs_[0])
)
place = nx.kamada_kawai_layout(consensus)
own = [edge for edge in site.edges if not consensus.has_edge(*edge)]
nx.draw_networkx_edges(site, place, edgelist=own, edge_color="#b4500a", width=1.5, ax=left)
nx.draw_networkx_edges(consensus, place, edge_color="#2166a5", width=1.5, ax=left)
nx.draw_networkx_nodes(consensus, place, node_size=40, node_color="#243447", ax=left)
left.set_title("All sites (blue), and what the smallest adds (orange)")
left.set_axis_off()
right.plot(COUNTS, alone, "o--", color="#8a3ea8", label="each site alone")
right.plot(COUNTS, shared, "o-", color="#2166a5", label="together")
right.set(xscale="log", xlabel="signals of the site", ylabel="F-score", title="Edges found")
right.set_xticks(COUNTS, [str(count) for count in COUNTS])
right.minorticks_off()
right.legend(frameon=False)
figure.savefig(sys.argv[1])
