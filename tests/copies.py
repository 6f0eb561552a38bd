"""Stand-ins for the data sets a user downloads: the same files and arrays, smaller, from a seeded generator."""

import struct
import zlib

import numpy as np

GROUPS = np.array([1, 1, 1, 2, 2, 2, 2])  # 1 autism, 2 control


def write_coil(folder, objects=6, angles=36):
    """Blots that turn slowly: pictures of one object are alike, the nearer the angle the more."""
    rng = np.random.default_rng(1)
    y, x = np.mgrid[:32, :32]
    images = np.zeros((objects, angles, 32, 32))
    for o in range(objects):
        for centre, radius, phase in zip(
            rng.uniform(10, 22, (3, 2)), rng.uniform(2, 8, 3), rng.uniform(0, 6, 3), strict=True
        ):
            for a in range(angles):
                at = centre + radius * np.array([np.sin(phase + a / 12), np.cos(phase + a / 12)])
                images[o, a] += np.exp(-((y - at[0]) ** 2 + (x - at[1]) ** 2) / 12)
    images += 0.02 * rng.random(images.shape)
    whole = np.round(4080 * images / images.max()).astype(np.uint16).reshape(-1, 32, 32)
    (folder / "coil20").mkdir(parents=True)
    np.savez(
        folder / "coil20/coil20_32.npz",
        images=whole,
        labels=np.repeat(np.arange(objects), angles).astype(np.uint8),
        view=np.tile(np.arange(angles), objects).astype(np.uint8),
    )
    return whole.reshape(objects, angles, 32, 32)


def brain_series(persons, regions, times=200, seed=2):
    """Signals that neighbours on a ring share, and that persons of both groups have in common."""
    rng = np.random.default_rng(seed)
    away = np.abs(np.subtract.outer(np.arange(regions), np.arange(regions)))
    covariance = np.exp(-np.minimum(away, regions - away) / 3.0)
    return rng.multivariate_normal(np.zeros(regions), covariance, (persons, times))


def write_abide(folder, regions=40, groups=GROUPS):
    x = brain_series(len(groups), regions)
    (folder / "abide").mkdir(parents=True)
    np.savez(
        folder / "abide/abide_um_aal116.npz",
        X=x.astype(np.float16),
        dx_group=groups.astype(np.uint8),
        subject=50000 + np.arange(len(groups)),
        mean_fd=np.linspace(0.05, 0.2, len(groups)),
        roi_name90=np.array([f"R{k}" for k in range(regions)]),
        roi_xyz90=np.stack([50 * np.sin(np.arange(regions)), 60 * np.cos(np.arange(regions)), np.zeros(regions)], 1),
    )
    return x


def smooth_on_a_plane(rng, places, times):
    """Gaussian readings whose correlation falls with the distance."""
    apart = np.linalg.norm(places[:, None] - places, axis=-1)
    return rng.multivariate_normal(np.zeros(len(places)), np.exp(-apart), times), apart


def write_weather(folder, stations=20, years=3):
    rng = np.random.default_rng(3)
    places = rng.uniform(0, 3, (stations, 2))
    readings, _ = smooth_on_a_plane(rng, places, 365 * years)
    days = [f"{2017 + k // 365}-{1 + k % 365 // 31:02d}-{1 + k % 365 % 31:02d}" for k in range(365 * years)]
    season = 20 * np.cos(2 * np.pi * np.arange(365 * years) / 365)
    (folder / "us_stations").mkdir(parents=True)
    np.savez(
        folder / "us_stations/us_stations_daily_temp.npz",
        temp_f=(50 + season[:, None] + 5 * readings).astype(np.float32),
        date=np.array(days),
        name=np.array(["Springfield"] * 2 + [f"Town {k}" for k in range(2, stations)]),
        region=np.where(places[:, 0] < 1.5, "WE", "EA"),
        lat=places[:, 1],
        lon=places[:, 0],
        alt_m=np.zeros(stations),
    )
    (folder / "molene").mkdir()
    np.savez(
        folder / "molene/molene_temperature.npz",
        temp_k=280 + readings[:400].T,
        station=np.array([f"S{k}" for k in range(stations)]),
        coordinates=np.column_stack([1e5 * places, np.zeros(stations)]),
    )


def write_traffic(folder, sensors=15, days=7, steps=60):
    rng = np.random.default_rng(4)
    places = np.sort(rng.uniform(0, 6, (sensors, 1)), axis=0)
    readings, apart = smooth_on_a_plane(rng, places, days * steps)
    (folder / "metr_la_week").mkdir(parents=True)
    np.savez(
        folder / "metr_la_week/metr_la_week.npz",
        speed_mph=60 + 5 * readings,
        sensor_id=700000 + np.arange(sensors),
        adj=np.where(apart < 0.8, np.exp(-(apart**2)), 0.0),
    )


def _chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def encoded(picture, kinds, header=(8, 0, 0, 0, 0), lines=None, damage=b""):
    """A PNG whose line k is written in the way kinds[k], by the standard's formulas, and the data in two chunks.

    It may say that it has another number of `lines`, and its data may begin with `damage`.
    """
    height, width = picture.shape
    raw = bytearray()
    for k, kind in enumerate(kinds):
        raw.append(kind)
        for j in range(width):
            a = int(picture[k, j - 1]) if j else 0
            b = int(picture[k - 1, j]) if k else 0
            c = int(picture[k - 1, j - 1]) if j and k else 0
            p = a + b - c
            pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
            paeth = a if pa <= pb and pa <= pc else b if pb <= pc else c
            raw.append((int(picture[k, j]) - (0, a, b, (a + b) // 2, paeth)[kind]) % 256)
    packed = damage + zlib.compress(bytes(raw))[len(damage) :]
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, lines or height, *header))
        + _chunk(b"tEXt", b"x")
        + _chunk(b"IDAT", packed[:7])
        + _chunk(b"IDAT", packed[7:])
        + _chunk(b"IEND", b"")
    )
