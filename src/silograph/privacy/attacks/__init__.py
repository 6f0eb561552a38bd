"""Attacks as a library: what an observer can learn, and how surely. Every promise is tested with them.

    bounds      from an attack's scores to a lower bound on epsilon, with its confidence
    one_run     the same from a single run with many canaries, by its privacy curve
    scores      the likelihood ratio of what was released, over all of a silo's rows
    sights      what a server saw of answers, refusals, numbers and times in two worlds, to lower bounds
    search      adversarial swaps of a record: how far a `Bounded` really moves
    graphs      a silo's statistics back from an uploaded graph, and what a graph's edges alone tell
    duals       a client's records back from ADMM steps without noise
    members     whose records a model was trained on
    channels    what is not in any message: timing, participation, counts, error texts

The un-mixing of homomorphic noise is in `privacy.unmixing`. `audit` runs these attacks on a plan.
"""
