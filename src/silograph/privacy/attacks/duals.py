"""Recover a client's records from its ADMM steps, if they leave it without noise (S2, (4), (5), (8)).

A client sends s = w - phi/rho. Its server knows phi, since (5) computes it from what was sent. So it knows w and, from
the optimality of (4), the gradient of the client's mean loss there:

    grad f(w) = rho (what - w) + phi.

For the squared loss f is a parabola with the gradient A w - c, A = X'X/D and c = X'y/D: the differences of M + 1 steps
give all of it, to rounding. A client with one record has A = x x', and that record is then known.
"""

from __future__ import annotations

import numpy as np

from silograph.core.types import Array


def gradients_of_steps(sent: Array, asked: Array, answers: Array, rho: float) -> tuple[Array, Array]:
    """Recover models and gradients (T, M) of one client, from what it sent in T rounds without noise.

    Parameters
    ----------
    sent : What the client sent (T, M): s = w - phi/rho.
    asked : The models that it was asked with (T, M).
    answers : What it received at the end of the round before (T, M).
    rho : The penalty of the method, above 0.

    >>> sent, asked = np.array([[1 / 3], [8 / 9]]), np.array([[0.0], [1.0]])  # of a loss with gradient 2 w - 1
    >>> models, gradients = gradients_of_steps(sent, asked, np.zeros((2, 1)), rho=1.0)
    >>> models.ravel().round(3), (2.0 * models - 1.0).ravel().round(3), gradients.ravel().round(3)
    (array([0.333, 0.556]), array([-0.333,  0.111]), array([-0.333,  0.111]))
    """
    before = np.concatenate([np.zeros((1, sent.shape[1])), sent[:-1]])
    phi = rho * (answers - before)  # (5)
    w = sent + phi / rho
    return w, np.asarray(rho * (asked - w) + phi)


def parabola(models: Array, gradients: Array, ridge: float = 0.0) -> tuple[Array, Array]:
    """Fit A and c of a mean squared loss with gradient (A + ridge) w - c, by least squares over symmetric matrices.

    Parameters
    ----------
    models : Models w (T, M), M + 1 or more of them.
    gradients : The gradients there (T, M).
    ridge : The weight of a ridge term in the loss.

    >>> matrix, c = parabola(np.array([[0.0], [1.0]]), np.array([[-1.0], [1.0]]))
    >>> matrix.round(9), c.round(9)  # the gradient is 2 w - 1
    (array([[2.]]), array([1.]))
    """
    rounds, size = models.shape
    a, b = np.triu_indices(size)
    design = np.zeros((rounds, size, len(a) + size))
    for k, (i, j) in enumerate(zip(a, b, strict=True)):
        design[:, i, k] += models[:, j]
        if i != j:
            design[:, j, k] += models[:, i]
    design[:, np.arange(size), len(a) + np.arange(size)] = -1.0
    flat = (gradients - ridge * models).ravel()
    found = np.linalg.lstsq(design.reshape(rounds * size, -1), flat, rcond=None)[0]
    matrix = np.zeros((size, size))
    matrix[a, b] = matrix[b, a] = found[: len(a)]
    return matrix, np.asarray(found[len(a) :])


def only_record(matrix: Array, c: Array) -> tuple[Array, float]:
    """Recover the record of a client that has only one: x up to its sign, and y with it. A = x x', c = y x.

    Parameters
    ----------
    matrix : A, (M, M).
    c : c, (M,).

    >>> x, y = only_record(np.array([[1.0, -2.0], [-2.0, 4.0]]), np.array([3.0, -6.0]))  # x is 1, -2 and y is 3
    >>> x.round(6), round(y, 6)
    (array([-1.,  2.]), -3.0)
    """
    values, axes = np.linalg.eigh(matrix)
    x = np.sqrt(max(float(values[-1]), 0.0)) * axes[:, -1]
    y = float(c @ x / max(float(x @ x), np.finfo(float).tiny))
    return (x, y) if x[np.abs(x).argmax()] > 0.0 else (-x, -y)
