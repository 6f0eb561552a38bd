"""Contracts are played with a family of another package in the registry."""

import os

import pytest

from cases import skip_without_its_packages, with_the_page


@pytest.fixture(autouse=True)
def _registry(request):
    with with_the_page():
        case = getattr(request.node, "callspec", None) and request.node.callspec.params.get("case")
        if case is not None:
            skip_without_its_packages(case)
        yield


@pytest.fixture(autouse=True)
def _no_power_cuts(monkeypatch):
    """What was written survives a kill; waiting for the disk is for machines that lose their power."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
