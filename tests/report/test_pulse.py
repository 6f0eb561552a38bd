"""What a monitor is told: in the format that Prometheus reads, at this machine alone."""

import json
import re
import urllib.error
import urllib.request

import pytest

from silograph.core.errors import InputError
from silograph.report.local_page import JSON, METRICS, LocalPages
from silograph.report.pulse import Pulse
from silograph.report.watch import Spent

ODD = 'hill "east"\\north\nwest'
#: A line of the text format, as prometheus.io/docs/instrumenting/exposition_formats has it.
COMMENT = re.compile(r"# (HELP [a-z_]+ .+|TYPE [a-z_]+ (counter|gauge))")
SAMPLE = re.compile(r'([a-z_]+)(\{([a-z_]+="([^"\\\n]|\\["\\n])*",?)*\})? (\+Inf|-?[0-9.e+-]+)')


def pulse(**changes):
    told = {
        "rounds": 3,
        "seconds": 0.2,
        "asked": 2,
        "answered": 1,
        "down": 10,
        "up": 20,
        "waiting": frozenset([ODD]),
        "connected": {"mill": True, ODD: False},
        "spent": (Spent("mill", 3, float("inf"), 0.75), Spent(ODD, 2, 0.5, 0.5)),
        "budget": 2.0,
        "expiry": {"tls.crt": 1.8e9},
    }
    return Pulse("server", "d" * 64, True, "under way", **{**told, **changes})


def test_metrics_are_in_the_format_of_prometheus_and_say_what_is_so():
    lines = pulse().metrics().splitlines()
    samples = {}
    for line in lines:
        if line.startswith("#"):
            assert COMMENT.fullmatch(line), line
        else:
            assert SAMPLE.fullmatch(line), line
            name, _, value = line.rpartition(" ")
            assert name not in samples
            samples[name] = float(value)
    escaped = 'hill \\"east\\"\\\\north\\nwest'
    assert samples['silograph_waiting{organisation="mill"}'] == 0.0
    assert samples[f'silograph_waiting{{organisation="{escaped}"}}'] == 1.0
    assert samples['silograph_bytes_total{direction="up"}'] == 20.0
    assert samples["silograph_epsilon_left"] == 1.25  # its own server is trusted; others saw 0.75
    declared = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {re.split(r"[{ ]", name)[0] for name in samples} == declared
    assert "epsilon_left" not in pulse(budget=None).metrics()


def fetched(port, page, host=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{page}", headers={} if host is None else {"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_pages_are_for_this_machine_and_by_its_own_name_alone():
    now = pulse()
    pages = {
        "/health": lambda: (200, JSON, json.dumps(now.health())),
        "/metrics": lambda: (200, METRICS, now.metrics()),
    }
    with LocalPages(0, pages) as local:
        status, text = fetched(local.port, "/health")
        assert (status, json.loads(text)["waiting"]) == (200, [ODD])
        assert fetched(local.port, "/metrics") == (200, now.metrics())
        assert fetched(local.port, "/../etc/passwd")[0] == 404
        assert fetched(local.port, "/health", f"evil.example:{local.port}")[0] == 421
        with pytest.raises(InputError, match="a free port of this machine"):
            LocalPages(local.port, pages)
