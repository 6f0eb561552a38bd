"""Grey pictures: all five ways to write a line, and what is no such picture."""

import io
import struct
import zlib

import numpy as np
import pytest

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


def test_a_picture_that_another_program_wrote(tmp_path, picture):
    image = pytest.importorskip("PIL.Image", reason="Pillow writes the picture")
    smooth = np.add.outer(np.arange(64), 2 * np.arange(64)).astype(np.uint8)  # so that lines of all kinds pay
    for made in (picture, smooth):
        buffer = io.BytesIO()
        image.fromarray(made).save(buffer, "PNG")
        (tmp_path / "x.png").write_bytes(buffer.getvalue())
        np.testing.assert_array_equal(read_grey_png(tmp_path / "x.png"), made)


def test_what_is_no_such_picture(tmp_path, picture):
    good = encoded(picture, [0] * 10)
    cases = {
        "begin like one": b"GIF89a",
        "a PNG picture": good[:20],
        "too early": encoded(picture[:9], [0] * 9).replace(
            struct.pack(">II", 7, 9), struct.pack(">II", 7, 10)
        ),  # says it has a line more
        "colour type 2": encoded(picture, [0] * 10, (8, 2, 0, 0, 0)),
        "not interlaced": encoded(picture, [0] * 10, (8, 0, 0, 0, 1)),
        "damaged": good.replace(zlib.compress(b"")[:2], b"\0\0", 1),
    }
    for words, content in cases.items():
        (tmp_path / "x.png").write_bytes(content)
        with pytest.raises(InputError, match=words):
            read_grey_png(tmp_path / "x.png")
    with pytest.raises(InputError, match="cannot be read"):
        read_grey_png(tmp_path / "none.png")
