"""Pictures for clustered clients: who gets what, and how models are tested on them."""

from __future__ import annotations

import numpy as np
import pytest

from silograph.core.errors import InputError
from silograph.data.pictures import ClusteredPictures, accuracy, clustered_pictures, drawn_pictures, read_pictures

SIDES = (((1, 2, 3), (6, 7, 8)), ((1, 2, 3), (7, 8, 9)), ((4, 4, 4), (0, 0, 0)))


@pytest.fixture
def numbered():
    """Every pixel of a picture says its class, times ten."""

    class Numbered:
        label = test_label = np.repeat(np.arange(11), 20)
        x = test_x = np.repeat(10 * label[:, None], 5, 1).astype(np.uint8)

    return Numbered()


def test_classes_of_both_sides_take_turns(numbered):
    made = clustered_pictures(numbered, 1, SIDES, 4, (6, 12), servers=10)
    assert len(made.records) == len(made.clusters) == 40
    assert set(made.clusters) == {0, 1, 2}
    for (x, y), q in zip(made.records, made.clusters, strict=True):
        classes = np.rint(x[:, 0] * 25.5).astype(int)
        assert 6 <= len(y) <= 12
        assert np.array_equal(y, np.where(np.isin(classes, SIDES[q][0]), 1.0, -1.0))
        assert set(classes) == {*SIDES[q][0], *SIDES[q][1]}
        assert (y[1:] == -y[:-1]).all()
    for (x, y), sides in zip(made.tests, SIDES, strict=True):
        assert np.array_equal(y > 0, np.isin(np.rint(x[:, 0] * 25.5), sides[0]))
    again, other = (clustered_pictures(numbered, seed, SIDES, 4, (6, 12)) for seed in (1, 2))
    assert again.clusters == made.clusters != other.clusters


def test_accuracy_by_hand():
    x, y = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]), np.array([1.0, 1.0, -1.0])
    made = ClusteredPictures([], (0, 1, 0), [(x, y), (x, -y)])
    models = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
    assert accuracy(models, made) == pytest.approx((1.0 + 0.0 + 2 / 3) / 3)


def test_a_users_copy_is_read(tmp_path, numbered):
    path = tmp_path / "pictures.npz"
    pictures = numbered.x.reshape(-1, 5, 1)
    arrays = {"train_images": pictures, "train_labels": numbered.label[:, None], "test_images": pictures[:20]}
    np.savez(path, test_labels=numbered.label[:20], **arrays)
    read = read_pictures(path)
    assert np.array_equal(read.x, numbered.x)
    assert np.array_equal(read.label, numbered.label)
    assert read.test_x.shape == (20, 5)
    with pytest.raises(InputError, match=r"pictures: expected the classes .* but \[1, 2, 3, .* are not there"):
        clustered_pictures(read, 1, SIDES, 4, (6, 12))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"train_images": np.zeros((2, 3))}, "the arrays 'train_images', 'train_labels'"),
        (
            {
                "train_images": np.zeros((2, 3)),
                "train_labels": np.zeros(1),
                "test_images": np.zeros((2, 3)),
                "test_labels": np.zeros(2),
            },
            "a label for every picture",
        ),
    ],
)
def test_another_file_is_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "other.npz", **arrays)
    with pytest.raises(InputError, match=message):
        read_pictures(tmp_path / "other.npz")
    (tmp_path / "broken.npz").write_bytes(b"PK no more")
    with pytest.raises(InputError, match="an NPZ file"):
        read_pictures(tmp_path / "broken.npz")


def test_drawn_pictures_are_always_the_same_and_can_be_told_apart():
    drawn, again = drawn_pictures(), drawn_pictures()
    assert np.array_equal(drawn.x, again.x)
    centres = np.array([drawn.x[drawn.label == c].mean(0) for c in range(11)])
    nearest = ((drawn.test_x[:, None] - centres) ** 2).sum(-1).argmin(1)
    assert (nearest == drawn.test_label).mean() > 0.9
