"""Shell completion: what bash is told, by the protocol and by bash itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SILOGRAPH = Path(sys.executable).with_name("silograph")
COMMANDS = {
    "learn",
    "run",
    "check",
    "privacy",
    "report",
    "reproduce",
    "sample",
    "audit",
    "deploy",
    "personalise",
    "predict",
}

pytestmark = pytest.mark.skipif(not SILOGRAPH.exists(), reason="silograph is not installed as a command")


def completed(*words):
    """What may stand instead of the last word."""
    asked = {
        "_SILOGRAPH_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("silograph", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run([SILOGRAPH], env=os.environ | asked, capture_output=True, text=True, timeout=60)
    return done.stdout.split()


def test_commands_are_listed():
    assert set(completed("")) >= COMMANDS
    assert completed("rep") == ["report", "reproduce"]


def test_options_and_their_values_are_listed():
    assert {"--epsilon", "--delta", "--degree", "--track", "--json"} <= set(completed("learn", "--"))
    assert completed("learn", "--engine", "") == ["vector", "silowise", "ray"]
    assert completed("reproduce", "--f") == ["--full"]
    assert completed("reproduce", "s3-table1") == ["s3-table1"]
    assert "all" in completed("reproduce", "a")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_what_is_installed_works_in_bash(tmp_path):
    """In a home of its own: install, then ask bash to complete a line."""
    named = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    env = os.environ | named | {"PATH": f"{SILOGRAPH.parent}{os.pathsep}{os.environ['PATH']}"}
    installed = subprocess.run(
        [SILOGRAPH, "--install-completion", "bash"], env=env, capture_output=True, text=True, timeout=60
    )
    assert installed.returncode == 0, installed.stderr
    assert "silograph" in (tmp_path / ".bashrc").read_text()
    script = (
        'source "$HOME/.bashrc"; COMP_WORDS=(silograph rep); COMP_CWORD=1; _silograph_completion silograph; '
        'echo "${COMPREPLY[@]}"'
    )
    told = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=60)
    assert told.stdout.split() == ["report", "reproduce"], told.stderr
