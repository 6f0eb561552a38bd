"""Bytes of strangers: what fuzzing kept, and thousands of cheap changes of it, end in an answer or a refusal.

`make fuzz` looks for more, guided by coverage; what it finds goes into `corpus`. A case that takes long, or much
memory, is a finding too.
"""

import os
import random
import resource
import time
from pathlib import Path

import pytest

from fuzz.mutations import mutated
from fuzz.targets import LONGEST, TARGETS, folder, try_one
from silograph.core.errors import InputError, SilographError
from silograph.core.files import LONGEST_CARD, LONGEST_FACTS, LONGEST_PLAN, LONGEST_RESULT
from silograph.core.results import read_result, read_text
from silograph.deploy.deployment import Deployment
from silograph.deploy.organisation import Approved
from silograph.deploy.public_facts import read_facts
from silograph.deploy.serve import read_cards
from silograph.engines import certificates, wire
from silograph.privacy.ledger import Ledger
from silograph.report.read import read_ledger as rows_of_page
from silograph.run.plan import load

CORPUS = Path(__file__).parent / "corpus"
MUTATIONS = 400  # of each target
SLOW, GROWN = 10.0, 256 << 10  # seconds of one case, KiB of all cases of a target


def seeds(name):
    return sorted((CORPUS / name).iterdir())


@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_of_a_stranger_do_harm(name):
    dice = random.Random(f"silograph {name}")
    known = [path.read_bytes() for path in seeds(name)]
    cases = [*known, b"", *(mutated(dice.choice(known), dice, LONGEST) for _ in range(MUTATIONS))]
    try_one(name, known[0])  # what is loaded with the first is nobody's memory
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for case in cases:
        begun = time.process_time()
        try:
            try_one(name, case)
        except Exception as error:
            raise AssertionError(f"{name} does not refuse {case[:2000]!r}") from error
        assert time.process_time() - begun < SLOW, case[:2000]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWN


@pytest.mark.parametrize("name", sorted(TARGETS.keys() - {"approved"}))  # which names a table by its place
def test_sound_seeds_are_read(name):
    """Else a target would prove nothing: at least one input gets past every refusal."""
    read = 0
    for path in seeds(name):
        try:
            TARGETS[name](path.read_bytes())
            read += 1
        except SilographError:
            continue
    assert read


def test_the_corpus_stays_small():
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 200_000


# ---- sizes -----------------------------------------------------------------------------------------------------------


def enormous(path, size):
    """A file of so many bytes that takes no room on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.truncate(path, size)
    return path


def in_folder(name, read):
    return name, lambda path: read(path.parent)


def cards(path):
    from types import SimpleNamespace

    agreed = SimpleNamespace(held_at=lambda region: {"north": ("north",)}, digest="")
    return read_cards(path.parent.parent, agreed)


def approved(path):
    (path.parent / "deployment.json").write_bytes((CORPUS / "deployment" / "sound.json").read_bytes())
    return Approved.open(path.parent)


READERS = {
    "a plan": ("plan.toml", load, LONGEST_PLAN),
    "facts": ("north.facts.json", read_facts, LONGEST_FACTS),
    "a deployment": (*in_folder("deployment.json", Deployment.read), LONGEST_FACTS),
    "an enrolment": ("nodes/north.enrolment.json", cards, LONGEST_CARD),
    "what was approved": ("north/approved.json", approved, LONGEST_CARD),
    "a key or certificate": ("node.pub", certificates.fingerprint, LONGEST_CARD),
    "a ledger": ("ledger.jsonl", lambda path: Ledger(path, mend=False), LONGEST_RESULT),
    "a ledger for the page": ("ledger.jsonl", rows_of_page, LONGEST_RESULT),
    "a result": (*in_folder("result.json", read_result), LONGEST_RESULT),
    "a file for the page": ("result.json", read_text, LONGEST_RESULT),
}


@pytest.mark.parametrize("what", READERS)
def test_what_is_too_large_is_refused_before_memory_is_taken(what, tmp_path):
    name, read, most = READERS[what]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=f"at most {most} bytes, but it has {most + 1}"):
        read(enormous(tmp_path / name, most + 1))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


@pytest.mark.parametrize("what", READERS)
def test_a_pipe_is_not_waited_for(what, tmp_path):
    name, read, _ = READERS[what]
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match="ordinary file"):
        read(tmp_path / name)


def test_a_message_is_refused_by_the_length_that_its_head_states():
    """Before any of it is parsed; and numbers that it does not bring are not made room for."""
    for blob in (b"SLG1" + (2**32 - 1).to_bytes(4, "little") + b"{}", b"SLG1\0\0\0\0", b"SLG1", b""):
        with pytest.raises(InputError):
            wire.unpack(blob)
    head = b'{"arrays":[["x","<f8",[1000000000,1000000]]],"facts":{}}'
    with pytest.raises(InputError):
        wire.unpack(b"SLG1" + len(head).to_bytes(4, "little") + head)


def test_files_of_targets_go_with_their_process():
    assert folder().is_dir()


@pytest.mark.parametrize("part", ["a", '"a"', "'a'", '"\\""', "a ", "a-b_1", '"."'])
def test_a_key_of_many_parts_keeps_nobody_busy(part, tmp_path):
    """The standard library takes the square of their number: a minute at a hundred thousand bytes."""
    for text in (".".join([part] * 200_000) + " = 1", f"[{'.'.join([part] * 200_000)}]"):
        (tmp_path / "plan.toml").write_text(text)
        begun = time.process_time()
        with pytest.raises(InputError, match="at most 32 parts"):
            load(tmp_path / "plan.toml")
        assert time.process_time() - begun < SLOW


def test_names_with_dots_are_no_keys(tmp_path):
    files = [f"a.b.{k}.csv" for k in range(200)]
    (tmp_path / "plan.toml").write_text(f"format = 1\n[data]\nfiles = {files}\n[method]\nname = 'consensus_graph'\n")
    assert load(tmp_path / "plan.toml").data.files == tuple(files)
