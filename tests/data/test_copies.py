"""The users' own copies: each form that is read gives the same, and errors say where the data can be had."""

import csv

import numpy as np
import pytest

from copies import GROUPS, encoded, write_abide, write_coil, write_traffic, write_weather
from silograph.core.errors import InputError
from silograph.data.brains import load_brains, read_packed
from silograph.data.sensors import load_brittany, load_traffic, load_weather
from silograph.data.views import draw_objects, load_views, view_signals


@pytest.fixture(autouse=True)
def nowhere_else(monkeypatch):
    monkeypatch.delenv("SILOGRAPH_DATA", raising=False)


# ---- objects from all sides ----


def test_packed_pictures_come_by_object_and_angle(tmp_path):
    images = write_coil(tmp_path)
    with np.load(tmp_path / "coil20/coil20_32.npz") as there:
        shuffled = np.random.default_rng(0).permutation(len(there["labels"]))
        np.savez(tmp_path / "coil20/coil20_32.npz", **{name: there[name][shuffled] for name in there.files})
    np.testing.assert_allclose(load_views(tmp_path), images.reshape(6, 36, 1024) / 4080)


def test_the_original_pictures_give_the_means_of_blocks(tmp_path):
    pytest.importorskip("PIL", reason="the extra `pictures` is not installed")
    rng = np.random.default_rng(5)
    (tmp_path / "coil-20-proc").mkdir()
    pictures = rng.integers(0, 256, (4, 36, 64, 64)).astype(np.uint8)
    for o in range(4):
        for a in range(36):
            (tmp_path / f"coil-20-proc/obj{o + 1}__{a}.png").write_bytes(encoded(pictures[o, a], [0] * 64))
    pixels = load_views(tmp_path)
    assert pixels.shape == (4, 36, 1024)
    assert pixels[2, 10, 0] == pytest.approx(pictures[2, 10, :2, :2].mean() / 255)  # angle 10 after 9, not after 1
    assert pixels[3, 35, 33] == pytest.approx(pictures[3, 35, 2:4, 2:4].mean() / 255)


def test_views_are_neighbouring_angles_of_four_objects(tmp_path):
    write_coil(tmp_path)
    pixels = load_views(tmp_path)
    chosen = draw_objects(len(pixels), 3)
    assert len(set(chosen)) == 4
    signals = view_signals(pixels, chosen)
    assert [x.shape for x in signals.values()] == [(1024, 48)] * 3
    for view, x in enumerate(signals.values()):
        np.testing.assert_allclose(x.mean(0), 0, atol=1e-12)
        np.testing.assert_allclose(x.std(0), 1)
        # node 17 is picture 5 of the second object's twelve
        assert np.corrcoef(x[:, 17], pixels[chosen[1], 12 * view + 5])[0, 1] == pytest.approx(1)


@pytest.mark.parametrize("broken", ["few", "uneven", "small"])
def test_pictures_that_cannot_be_views_are_refused(tmp_path, broken):
    write_coil(tmp_path, objects=3 if broken == "few" else 5)
    if broken != "few":
        with np.load(tmp_path / "coil20/coil20_32.npz") as there:
            arrays = {name: there[name][:-1] if broken == "uneven" else there[name] for name in there.files}
        if broken == "small":
            arrays["images"] = arrays["images"][:, ::2, ::2]
        np.savez(tmp_path / "coil20/coil20_32.npz", **arrays)
    with pytest.raises(InputError, match=r"the same number of angles|images \(N, 32, 32\)"):
        load_views(tmp_path)


# ---- brains ----


def write_series(folder, x, groups, broken=None):
    """As the download has it, with somebody who has no series, and a series of nobody in the phenotype file."""
    (folder / "abide/cpac/nofilt_noglobal").mkdir(parents=True)
    rows = [{"SUB_ID": "1", "FILE_ID": "no_filename", "DX_GROUP": "1", "func_mean_fd": "0.1"}]
    for k, (own, group) in enumerate(zip(x, groups, strict=True)):
        header = "#" + "\t#".join(str(2001 + r) for r in range(x.shape[2]))
        path = folder / f"abide/cpac/nofilt_noglobal/NYU_{50952 + k:07d}_rois_aal.1D"
        np.savetxt(path, own, delimiter="\t", header=header, comments="")
        rows.append(
            {"SUB_ID": str(k), "FILE_ID": path.name[:11], "DX_GROUP": str(group), "func_mean_fd": "" if k else "0.25"}
        )
    np.savetxt(folder / "abide/cpac/nofilt_noglobal/LOST_0000001_rois_aal.1D", x[0])
    with open(folder / "abide/Phenotypic_V1_0b_preprocessed1.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def test_both_forms_of_brains_are_the_same(tmp_path):
    x = write_abide(tmp_path / "packed", regions=6)
    write_series(tmp_path / "download", x.astype(np.float16).astype(float), GROUPS)
    packed, download = load_brains(tmp_path / "packed"), load_brains(tmp_path / "download")
    assert packed.autism.tolist() == download.autism.tolist() == (GROUPS == 1).tolist()
    np.testing.assert_allclose(packed.series, download.series)
    assert download.regions == tuple(f"region_{2001 + k}" for k in range(6))
    assert download.person[0] == "NYU_0050952"
    assert download.motion[0] == 0.25
    assert np.isnan(download.motion[1])
    assert packed.xyz.shape == (6, 3)


def test_regions_are_chosen_with_their_names_and_places(tmp_path):
    write_abide(tmp_path)
    brains = load_brains(tmp_path)
    some = brains.only([3, 1])
    assert some.regions == ("R3", "R1")
    np.testing.assert_array_equal(some.series[2], brains.series[2][:, [3, 1]])
    np.testing.assert_array_equal(some.xyz, brains.xyz[[3, 1]])


def test_only_the_cerebrum_of_aal_is_taken(tmp_path):
    write_abide(tmp_path, regions=100)
    path = tmp_path / "abide/abide_um_aal116.npz"
    assert len(load_brains(tmp_path).regions) == 90
    assert len(read_packed(path).regions) == 100


def test_persons_with_a_silent_region_are_left_out_and_counted(tmp_path):
    x = write_abide(tmp_path, regions=6)
    x[1, :, 2] = 0.5
    (tmp_path / "abide/abide_um_aal116.npz").unlink()
    (tmp_path / "abide").rmdir()
    write_series(tmp_path, x, GROUPS)
    brains = load_brains(tmp_path)
    assert (len(brains.series), brains.left_out) == (6, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.write_text("FILE_ID\nx\n"), "FILE_ID and DX_GROUP"),
        (lambda f: f.write_text("FILE_ID,DX_GROUP\nx,1\n"), "none of them is there"),
        (lambda f: f.write_text("FILE_ID,DX_GROUP\nNYU_0050952,3\n"), "row 1: expected DX_GROUP 1"),
        (lambda f: f.write_text("FILE_ID,DX_GROUP\nNYU_0050952,1\n"), "group 1 .* and group 2"),
        (lambda f: f.unlink(), "it has no phenotype file"),
        (lambda f: next(f.parent.rglob("NYU*52_rois*")).write_text("#1 #2\nx y\n"), "cannot be read"),
        (lambda f: next(f.parent.rglob("NYU*53_rois*")).write_text("#1 #2\n1 2\n3 4\n"), "expected the regions"),
    ],
)
def test_a_download_that_is_not_whole(tmp_path, change, words):
    write_series(tmp_path, np.random.default_rng(0).normal(size=(7, 9, 4)), GROUPS)
    change(tmp_path / "abide/Phenotypic_V1_0b_preprocessed1.csv")
    with pytest.raises(InputError, match=words):
        load_brains(tmp_path)


# ---- sensors ----


def test_packed_sensors(tmp_path):
    write_weather(tmp_path)
    write_traffic(tmp_path)
    weather, brittany, traffic = load_weather(tmp_path), load_brittany(tmp_path), load_traffic(tmp_path)
    assert weather.readings.shape == (1095, 20)
    assert weather.times[0] == "2017-01-01"
    assert len(set(weather.names)) == 20  # two stations of one name in one state, or told apart by it
    with np.load(tmp_path / "us_stations/us_stations_daily_temp.npz") as there:
        np.testing.assert_allclose(weather.readings * 1.8 + 32, there["temp_f"])
        np.testing.assert_allclose(weather.places[:, 0], there["lon"])
    assert brittany.readings.shape == (400, 20)
    assert brittany.places.shape == (20, 3)
    assert traffic.roads.shape == (15, 15)


def test_sensors_from_tables(tmp_path):
    (tmp_path / "us_stations").mkdir()
    (tmp_path / "us_stations/readings.csv").write_text("time,a,b\n2020-01-01,1,2\n2020-01-02,3,4\n")
    (tmp_path / "us_stations/coordinates.csv").write_text("node,x,y\nb,5,6\na,7,8\n")
    weather = load_weather(tmp_path)
    assert weather.times == ("2020-01-01", "2020-01-02")
    np.testing.assert_array_equal(weather.readings, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(weather.places, [[7, 8], [5, 6]])
    (tmp_path / "metr_la").mkdir()
    (tmp_path / "metr_la/los_speed.csv").write_text("773869,767541\n60.5,50\n61,51\n")
    (tmp_path / "metr_la/los_adj.csv").write_text("1,0.5\n0.5,1\n")
    traffic = load_traffic(tmp_path)
    assert traffic.names == ("sensor_773869", "sensor_767541")  # a header of numbers would read as data
    np.testing.assert_array_equal(traffic.roads, [[1, 0.5], [0.5, 1]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,x\n", "cannot be read"),
        ("a,b\n1,\n", "1 are missing"),
        ("a,b,c\n1,2,3\n", "roads between 3 sensors"),
    ],
)
def test_tables_that_are_no_readings(tmp_path, text, words):
    (tmp_path / "metr_la").mkdir()
    (tmp_path / "metr_la/los_speed.csv").write_text(text)
    (tmp_path / "metr_la/adjacency.csv").write_text("1,2\n3,4\n")
    with pytest.raises(InputError, match=words):
        load_traffic(tmp_path)


# ---- nothing there ----


@pytest.mark.parametrize(
    ("load", "source"),
    [
        (load_views, "Columbia University"),
        (load_brains, "Preprocessed Connectomes Project"),
        (load_weather, "NOAA"),
        (load_brittany, "Meteo-France"),
        (load_traffic, "T-GCN"),
    ],
)
def test_what_is_missing_is_said_with_where_to_get_it(tmp_path, load, source):
    with pytest.raises(InputError, match=source) as caught:
        load(tmp_path)
    assert "there is none" in str(caught.value)
    with pytest.raises(InputError, match=source) as caught:
        load(None)
    assert "--data or SILOGRAPH_DATA" in str(caught.value)
    with pytest.raises(InputError, match="a folder with data sets"):
        load(tmp_path / "gone")


def test_a_folder_with_nothing_in_it(tmp_path):
    for name in ("coil20", "abide", "us_stations", "molene", "metr_la"):
        (tmp_path / name).mkdir()
    for load in (load_views, load_brains, load_weather, load_brittany, load_traffic):
        with pytest.raises(InputError, match=r"there is none|it has no"):
            load(tmp_path)
