"""The simulated rounds of 1,000 organisations, against what can be computed by hand for a few."""

import math

import networkx as nx
import numpy as np
import pytest

scale = pytest.importorskip("benchmarks.scale", reason="it is not part of the package")
pytest.importorskip("nats", reason="deployments need the extra `deploy`")

SAME = scale.World(latency=0.02, line=1e6, computing=0.05, spread=0.0)
SIZE, SENDING = 10_000, 0.01


def test_a_round_of_a_star_is_as_long_as_its_hub_s_line_is_busy():
    found = scale.star_seconds(7, SIZE, SAME, 3)
    # the last of seven is asked after seven messages, answers with one, and is taken with one
    assert found == pytest.approx(7 * SENDING + 0.02 + 0.05 + SENDING + 0.02 + SENDING)


@pytest.mark.parametrize("count", [6, 60])
def test_a_round_of_a_ring_is_one_question_and_one_answer_however_long_it_is(count):
    found = scale.graph_seconds(nx.cycle_graph(count), SIZE, SAME, 5)
    assert found == pytest.approx(0.05 + 2 * (2 * SENDING + 0.02))


@pytest.mark.parametrize("graph", [nx.cycle_graph(9), nx.random_regular_graph(4, 20, seed=1)])
def test_rounds_to_agree_are_those_after_which_differences_are_a_hundredth(graph):
    mixing = scale.metropolis(nx.to_numpy_array(graph, nodelist=range(len(graph))) > 0)
    average = np.full(mixing.shape, 1.0 / len(graph))
    left = [np.linalg.norm(np.linalg.matrix_power(mixing, t) - average, 2) for t in range(200)]
    assert scale.agreeing(graph) == next(t for t, value in enumerate(left) if value <= 0.01)


def test_a_message_is_its_numbers_and_less_than_a_kilobyte_for_each_frame():
    for numbers in (10, 1_000, 400_000):
        frames = math.ceil(8 * numbers / 2**20)
        assert 8 * numbers < scale.message(numbers) < 8 * numbers + 1_000 * frames
