"""Who is awaited is said when it changes, and again as time goes on; nothing else is."""

from __future__ import annotations

from silograph.cli.attendance import Attendance, Seen

NAMES = ("ada", "bob", "region/east")


def said(attendance: Attendance, start: float, end: float, seen: Seen) -> list[tuple[float, str]]:
    """The lines of looks every half second."""
    times = [start + k / 2 for k in range(int(2 * (end - start)))]
    lines = [(now, attendance.look(seen, now)) for now in times]
    return [(now, line.text) for now, line in lines if line is not None]


def test_who_is_missing_is_named_with_how_long_when_it_changes_and_then_ever_more_rarely() -> None:
    attendance = Attendance()
    everybody = Seen(NAMES, {"bob"}, {"ada", "bob", "region/east"}, False)
    assert said(attendance, 0.0, 9.0, everybody) == [
        (0.5, "1 of 3 are connected. Waiting for ada (0 s) and region east (0 s) to connect.")
    ]
    two = Seen(NAMES, {"ada", "bob"}, {"region/east"}, False)
    assert said(attendance, 9.0, 100.0, two) == [
        (9.5, "2 of 3 are connected. Waiting for region east (10 s) to connect."),
        (24.5, "2 of 3 are connected. Waiting for region east (24 s) to connect."),
        (54.5, "2 of 3 are connected. Waiting for region east (54 s) to connect."),
    ]
    assert said(attendance, 100.0, 900.0, Seen(NAMES, set(NAMES), set(), False)) == [(100.5, "All 3 are connected.")]


def test_who_is_there_and_does_not_answer_is_named_after_ten_seconds() -> None:
    attendance = Attendance()
    assert said(attendance, 0.0, 12.0, Seen(NAMES, set(NAMES), {"bob"}, False)) == [
        (0.0 + 10.5, "3 of 3 are connected. Waiting for an answer of bob (10 s).")
    ]
    both = Seen(NAMES, {"bob", "region/east"}, {"ada", "bob"}, False)
    told = "2 of 3 are connected. Waiting for ada (0 s) to connect, and for an answer of bob (12 s)."
    assert said(attendance, 12.0, 13.0, both) == [(12.5, told)]


def test_short_absences_and_quick_answers_are_no_line() -> None:
    """As in rounds of milliseconds, which are seen at any moment."""
    attendance = Attendance()
    for k in range(200):
        there = set(NAMES) - ({"ada"} if k % 2 else set())
        assert attendance.look(Seen(NAMES, there, there if k % 3 else set(), False), k / 2) is None


def test_one_who_comes_and_goes_does_not_hide_whom_the_server_waits_for() -> None:
    attendance, lines = Attendance(), []
    for k in range(60):
        there = {"bob"} | ({"ada"} if k % 2 else set())
        lines.append(attendance.look(Seen(NAMES, there, set(NAMES), False), k / 2))
    told = [line.text for line in lines if line is not None]
    assert told[0] == "2 of 3 are connected. Waiting for region east (0 s) to connect."
    assert all("ada" not in text for text in told)
    assert len(told) == 3  # then bob is slow; then the line again


def test_after_the_end_only_those_who_have_not_heard_of_it_count() -> None:
    attendance = Attendance()
    assert said(attendance, 0.0, 5.0, Seen(NAMES, {"ada"}, set(), True)) == []
    assert said(attendance, 5.0, 10.0, Seen(NAMES, set(), {"bob"}, True)) == [
        (5.5, "The run is over. Waiting for bob (0 s) to connect.")
    ]
    assert said(attendance, 10.0, 60.0, Seen(NAMES, set(), set(), True)) == []


def test_a_log_for_machines_has_the_same_in_fields() -> None:
    attendance, seen = Attendance(), Seen(NAMES, {"bob"}, {"ada"}, False)
    assert attendance.look(seen, 0.0) is None
    line = attendance.look(seen, 1.0)
    assert line is not None
    seconds = {"ada": 1, "region/east": 1}
    assert line.fields == {"missing": ["ada", "region/east"], "slow": [], "seconds": seconds, "connected": 1}
