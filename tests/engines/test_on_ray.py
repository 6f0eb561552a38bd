"""Silos on a Ray cluster: every case of every family gives the bits and rows of one process, also where workers die."""

import os
import sys

import pytest

pytest.importorskip("ray", reason="the engine `ray` needs the extra `ray`")

import ray

from cases import door_of, every, run, same, skip_without_its_packages, with_the_page
from silograph import families
from silograph.core.errors import BudgetError, SilographError
from silograph.privacy.door import Budget


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    yield
    ray.shutdown()


class Dying:
    """A method whose worker dies in round 1: at the first mark that is missing."""

    def __init__(self, honest, marks):
        self.honest, self.marks = honest, marks

    def __getattr__(self, name):
        if name in ("honest", "__setstate__"):
            raise AttributeError(name)
        return getattr(self.honest, name)

    def local(self, carry, down, data, gate):
        answer = self.honest.local(carry, down, data, gate)
        missing = [mark for mark in self.marks if not os.path.exists(mark)]
        if gate.round == 1 and missing:
            open(missing[0], "w").close()
            os._exit(1)
        return answer


@every
def test_every_case_gives_the_bits_and_rows_of_one_process(case):
    skip_without_its_packages(case)
    with with_the_page():
        if not families.packages()[case.family].startswith("silograph."):
            pytest.skip("a cluster has what is installed; this family is written by the tests")
        same(case.straight, run(case.job, "ray"), case.rounding)


class Job:
    def __init__(self, job, method):
        self._job, self.method = job, method

    def __getattr__(self, name):
        return getattr(self._job, name)


CASE = "federation, agents' noise"


def test_a_worker_that_dies_is_made_anew_and_no_row_is_there_twice(tmp_path):
    case = private_case()
    marks = [str(tmp_path / "first"), str(tmp_path / "second")]
    door = door_of(case.job)
    found = run(Job(case.job, Dying(case.job.method, marks)), "ray", door=door)
    assert all(map(os.path.exists, marks))
    same(case.straight, found, case.rounding)
    places = [row.place for row in door.ledger.rows]
    assert len(set(places)) == len(places)


def private_case():
    from cases import every_case

    with with_the_page():
        return next(case for case in every_case() if case.private and case.family == "graph_federation")


def test_workers_that_die_again_and_again_end_the_run_in_words(tmp_path):
    case = private_case()
    marks = [str(tmp_path / str(k)) for k in range(10)]
    with pytest.raises(SilographError, match=r"worker with .*died 3 times.*memory"):
        run(Job(case.job, Dying(case.job.method, marks)), "ray")


def test_the_budget_is_held_here(tmp_path):
    case = private_case()
    doors = [door_of(case.job) for _ in range(2)]
    for door in doors:
        door.budget = Budget(door.budget.epsilon / 4.0, door.budget.delta, door.budget.trusted)
    said = []
    for engine, door in zip(("vector", "ray"), doors, strict=True):
        with pytest.raises(BudgetError) as caught:
            run(case.job, engine, door=door)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert doors[0].ledger.rows == doors[1].ledger.rows
