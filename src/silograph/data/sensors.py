"""Many sensors read at the same times: weather stations and road detectors, from a user's copy.

Read are NPZ files (see `WEATHER`, `BRITTANY`, `TRAFFIC`), and tables: `readings.csv`, a column for each sensor and, if
the first column is called `time`, when a row was read; beside it, if there are any, `coordinates.csv` (node,x,y[,z])
and, for roads, `los_adj.csv` or `adjacency.csv`, a square table of weights without header. T-GCN's `los_speed.csv` is
read instead of `readings.csv`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from silograph.core.errors import InputError
from silograph.core.types import Array
from silograph.data.collections import first_data, read_arrays, worded
from silograph.data.coordinates import read_coordinates
from silograph.data.tables import checked_names, shown

TABLES = "or a folder with readings.csv (a column for each sensor, times in a column time) and coordinates.csv."
WEATHER = ("us_stations/us_stations_daily_temp.npz", "us_stations")
BRITTANY = ("molene/molene_temperature.npz", "molene")
TRAFFIC = ("metr_la_week/metr_la_week.npz", "metr_la_week", "metr_la")
GET_WEATHER = (
    "Daily temperatures are NOAA NCEI's; an NPZ file with temp_f (days, stations), date, name, region, lat and lon, "
    + TABLES
)
GET_BRITTANY = (
    "Molene is Meteo-France's January 2014 in Brittany, packed by B. Girault; an NPZ file with temp_k (stations, "
    "hours), station and coordinates, " + TABLES
)
GET_TRAFFIC = (
    "METR-LA's loop detectors come with the T-GCN paper (los_speed.csv, los_adj.csv: put them in a folder metr_la) and "
    "with DCRNN (HDF, which is not read: write it as CSV); or an NPZ file with speed_mph (times, sensors), sensor_id "
    "and adj."
)


@dataclass(frozen=True, eq=False)
class Sensors:
    """`readings` is (times, sensors). What a copy does not say is None; `group` is a state, say."""

    names: tuple[str, ...]
    readings: Array
    times: tuple[str, ...] | None = None
    group: tuple[str, ...] | None = None
    places: Array | None = None  # (sensors, 2 or 3)
    roads: Array | None = None  # (sensors, sensors): how near by road


def load_weather(folder: Path | None) -> Sensors:
    """Days at stations of North America: degrees Celsius, longitude, latitude and height."""
    path = first_data(folder, WEATHER, GET_WEATHER)
    if path.is_dir():
        return read_tables(path, "readings.csv")
    there = read_arrays(path, ("temp_f", "date", "name", "region", "lat", "lon", "alt_m"))
    places = np.stack([there["lon"], there["lat"], there["alt_m"]], 1).astype(float)
    celsius = (there["temp_f"].astype(float) - 32.0) / 1.8
    days, states = (tuple(str(cell) for cell in there[name]) for name in ("date", "region"))
    return _checked(path, Sensors(_distinct(there["name"], states), celsius, days, states, places))


def load_brittany(folder: Path | None) -> Sensors:
    """Hours at stations of Brittany: degrees Celsius, and metres east, north and up."""
    path = first_data(folder, BRITTANY, GET_BRITTANY)
    if path.is_dir():
        return read_tables(path, "readings.csv")
    there = read_arrays(path, ("temp_k", "station", "coordinates"))
    names = tuple(str(name) for name in there["station"])
    return _checked(
        path, Sensors(names, there["temp_k"].T.astype(float) - 273.15, places=there["coordinates"].astype(float))
    )


def load_traffic(folder: Path | None) -> Sensors:
    """Speeds at road detectors, every five minutes."""
    path = first_data(folder, TRAFFIC, GET_TRAFFIC)
    if path.is_dir():
        return read_tables(path, "los_speed.csv" if (path / "los_speed.csv").is_file() else "readings.csv")
    there = read_arrays(path, ("speed_mph", "sensor_id", "adj"))
    names = worded(there["sensor_id"].tolist(), "sensor")
    return _checked(path, Sensors(names, there["speed_mph"].astype(float), roads=there["adj"].astype(float)))


def read_tables(folder: Path, name: str) -> Sensors:
    """The CSV files of a folder."""
    import pandas as pd

    path = folder / name
    try:
        table = pd.read_csv(path)
        times = tuple(str(cell) for cell in table.pop("time")) if "time" in table else None
        readings = table.to_numpy(float)
        square = [path.with_name(other) for other in ("los_adj.csv", "adjacency.csv")]
        roads = next((np.loadtxt(other, delimiter=",", ndmin=2) for other in square if other.is_file()), None)
    except FileNotFoundError:
        raise InputError(shown(folder), f"a file {name}", "there is none", TABLES.removeprefix("or ")) from None
    except (OSError, ValueError) as problem:
        raise InputError(shown(path), "numbers, a column for each sensor", f"it cannot be read ({problem})") from None
    names = checked_names(shown(path), [str(column) for column in table.columns], table.shape[1], "sensor")
    beside = folder / "coordinates.csv"
    places = read_coordinates(beside, names).places if beside.is_file() else None
    return _checked(path, Sensors(worded(names, "sensor"), readings, times, places=places, roads=roads))


def _checked(path: Path, sensors: Sensors) -> Sensors:
    count = len(sensors.names)
    if sensors.readings.ndim != 2 or sensors.readings.shape[1] != count:
        raise InputError(
            shown(path), f"readings of {count} sensors", f"they have the shape {sensors.readings.shape}", ""
        )
    if sensors.roads is not None and sensors.roads.shape != (count, count):
        raise InputError(shown(path), f"roads between {count} sensors", f"they have the shape {sensors.roads.shape}")
    if not np.isfinite(sensors.readings).all():
        number = int((~np.isfinite(sensors.readings)).sum())
        raise InputError(shown(path), "a number at every time", f"{number} are missing", "Fill the gaps.")
    return sensors


def _distinct(names: np.ndarray, states: tuple[str, ...]) -> tuple[str, ...]:
    """Names of places, with their state and then with a number where several have the same."""
    seen: dict[str, int] = {}
    told = []
    for name, state in zip(names, states, strict=True):
        full = f"{name}, {state}"
        seen[full] = seen.get(full, 0) + 1
        told.append(full if seen[full] == 1 else f"{full} {seen[full]}")
    return tuple(told)
