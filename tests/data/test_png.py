"""Grey pictures: all five ways to write a line, and what is no such picture."""

import sys

import numpy as np
import pytest

pytest.importorskip("PIL", reason="the extra `pictures` is not installed")
from copies import encoded
from silograph.core.errors import InputError
from silograph.data.png import read_grey_png


@pytest.fixture
def picture():
    return np.random.default_rng(0).integers(0, 256, (10, 7)).astype(np.uint8)


def test_every_kind_of_line(tmp_path, picture):
    (tmp_path / "x.png").write_bytes(encoded(picture, [0, 1, 2, 3, 4] * 2))
    np.testing.assert_array_equal(read_grey_png(tmp_path / "x.png"), picture)
    (tmp_path / "x.png").write_bytes(encoded(picture, [4, 3, 2, 1, 0] * 2))
    np.testing.assert_array_equal(read_grey_png(tmp_path / "x.png"), picture)


def test_what_is_no_such_picture(tmp_path, picture):
    kinds = [0] * 10
    cases = {
        "cannot be read": b"GIF89a",
        "a PNG picture": encoded(picture, kinds)[:20],
        "truncated": encoded(picture, kinds)[:-40],
        "mode RGB": encoded(picture, kinds, (8, 2, 0, 0, 0)),
        "7 x 9000000 pixels": encoded(picture, kinds, lines=9_000_000),
        "exceeds limit": encoded(picture, kinds, lines=1_000_000_000),
        "broken": encoded(picture, kinds, damage=b"\0\0"),
    }
    for words, content in cases.items():
        (tmp_path / "x.png").write_bytes(content)
        with pytest.raises(InputError, match=words):
            read_grey_png(tmp_path / "x.png")
    with pytest.raises(InputError, match="cannot be read"):
        read_grey_png(tmp_path / "none.png")


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(InputError, match=r"Pillow.*silograph\[pictures\]"):
        read_grey_png(tmp_path / "x.png")
