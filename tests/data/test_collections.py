"""A data set is found where the user says, or where the environment says, or not at all."""

import pytest

from silograph.core.errors import InputError
from silograph.data.collections import find_data


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.delenv("SILOGRAPH_DATA", raising=False)
    (tmp_path / "clicks").mkdir()
    (tmp_path / "clicks" / "all.npz").write_bytes(b"x")
    return tmp_path


def test_in_the_folder_that_is_given(kept):
    assert find_data(kept, "clicks/all.npz") == kept / "clicks" / "all.npz"


def test_in_the_folder_that_the_environment_names(kept, monkeypatch):
    assert find_data(None, "clicks/all.npz") is None
    monkeypatch.setenv("SILOGRAPH_DATA", str(kept))
    assert find_data(None, "clicks/all.npz") == kept / "clicks" / "all.npz"


def test_a_given_folder_is_the_only_one_searched(kept, monkeypatch):
    monkeypatch.setenv("SILOGRAPH_DATA", str(kept))
    (kept / "other").mkdir()
    assert find_data(kept / "other", "clicks/all.npz") is None


def test_what_is_not_there(kept, monkeypatch):
    assert find_data(kept, "clicks/some.npz") is None
    assert find_data(kept, "clicks") is None  # a folder is no file
    monkeypatch.setenv("SILOGRAPH_DATA", str(kept / "gone"))
    assert find_data(None, "clicks/all.npz") is None
    monkeypatch.setenv("SILOGRAPH_DATA", "")
    monkeypatch.chdir(kept)
    assert find_data(None, "clicks/all.npz") is None  # empty is not the current folder


def test_a_given_folder_must_exist(kept):
    for folder in (kept / "gone", kept / "clicks" / "all.npz"):
        with pytest.raises(InputError, match="a folder with data sets") as caught:
            find_data(folder, "clicks/all.npz")
        assert str(folder) in caught.value.where
