"""Released values out of plain arrays are for servers: a method that makes one in a silo is refused by name."""

import numpy as np
import pytest

from silograph.core.errors import LeakError
from silograph.engines.question import NEVER, Question
from silograph.engines.silo import Silo
from silograph.methods.base import Outcome, Start
from silograph.privacy.door import Door
from silograph.privacy.ledger import Ledger
from silograph.privacy.relay import OpenGate, relay
from silograph.run.loop import ENGINES, rounds
from silograph.topology import star

TOPO = star(["ada", "bob"])
DATA = {"x": np.arange(6.0).reshape(2, 3)}

WAYS = {
    "relay": lambda gate, value: relay(value),
    "an open gate": lambda gate, value: OpenGate().reveal(value, "x", ""),
    "the gate's relay": lambda gate, value: gate.relay(value),
}


class Mean:
    """The mean of what silos send; `local` and `deliver` send records by one of WAYS, or reveal them."""

    def __init__(self, local=None, deliver=None, server=WAYS["the gate's relay"]):
        self._local, self._deliver, self._server = local, deliver, server

    def start(self, topo):
        return Start({}, {"mean": np.zeros(3), "round": 0}, {}, {"last": np.zeros((len(topo.silos), 3))})

    def limits(self):
        return {}

    def asked(self, servers, topo):
        return None

    def _sent(self, way, data, gate):
        return gate.reveal(data["x"], "x", "on purpose") if way is None else way(gate, data["x"])

    def local(self, carry, down, data, gate):
        sent = self._sent(self._local, data, gate)
        return {"last": sent.map(np.add, carry["last"])}, {"x": sent}

    def gather(self, servers, up, topo, gate):
        mean = up.values["x"].mean(0)
        return {"mean": mean, "round": 1}, {"mean": self._server(gate, mean[None])}

    def settle(self, servers, across, topo):
        return servers, {}

    def done(self, servers):
        return bool(servers["round"])

    def trace(self, servers):
        return None

    def deliver(self, carry, data, gate):
        return {"x": self._sent(self._deliver, data, gate)}

    def outcome(self, servers, delivered, topo):
        return Outcome({"mean": servers["mean"], **delivered}, {})


def played(method, engine):
    door = Door(1, Ledger())
    place = ENGINES[engine](DATA, TOPO, door)
    (state,) = rounds(method, TOPO, place, door)
    return method.outcome(state.servers, place.deliver(method, state), TOPO)


@pytest.mark.parametrize("engine", ["vector", "silowise"])
@pytest.mark.parametrize("way", list(WAYS))
def test_a_server_may_relay_what_it_computed_from_released_values(way, engine):
    np.testing.assert_array_equal(played(Mean(server=WAYS[way]), engine).arrays["mean"], DATA["x"].mean(0))


@pytest.mark.parametrize("engine", ["vector", "silowise"])
@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("part", ["local", "deliver"])
def test_a_method_that_relays_in_a_silo_is_refused_by_name(part, way, engine):
    with pytest.raises(LeakError, match=rf"Mean\.{part}.*called in a silo"):
        played(Mean(**{part: WAYS[way]}), engine)
    relay(np.zeros(1))  # outside it is as before


@pytest.mark.parametrize("way", list(WAYS))
def test_an_organisation_of_a_deployment_sends_nothing_that_was_relayed(way, tmp_path):
    door = Door(1, Ledger(tmp_path / "ledger.jsonl"))
    silo = Silo(tmp_path, "d", "ada", ["ada"], Mean(WAYS[way]), TOPO, {"x": DATA["x"][:1]}, door, 1, 1)
    question = Question("d", "ada", "local", 0, NEVER, ("ada",), ("ada", "bob"), {})
    with pytest.raises(LeakError, match=r"Mean\.local.*called in a silo"):
        silo.answer(question.pack())
    silo.close()
    assert not door.ledger.rows
