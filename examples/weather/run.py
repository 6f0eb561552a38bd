"""Weather stations that are alike: a graph for every season, one for the year, and what geography says of it."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))
from worked import NOT_INDEPENDENT, draw, matrix, options, play, read_edges, silograph, tell, write_places, write_table

from silograph.core.errors import InputError
from silograph.data.sensors import load_brittany, load_weather

NEIGHBOURS = 6
DEGREES = (0.77, 1.0, 1.0)  # a degree of longitude is shorter than one of latitude, so far north
SEASONS = {"winter": (12, 1, 2), "spring": (3, 4, 5), "summer": (6, 7, 8), "autumn": (9, 10, 11)}


def by_season(weather):
    """Each season's days, as the difference from that calendar day's mean over the years."""
    days = [time[5:] for time in weather.times]
    anomaly = weather.readings.copy()
    for day in set(days):
        rows = [k for k, other in enumerate(days) if other == day]
        anomaly[rows] -= anomaly[rows].mean(0)
    month = np.array([int(day[:2]) for day in days])
    return {season: anomaly[np.isin(month, months)] for season, months in SEASONS.items()}


def by_week(weather):
    weeks = np.array_split(weather.readings, 4)
    return {f"week_{k + 1}": rows for k, rows in enumerate(weeks)}


def great_circle(places):
    """Kilometres between places given by longitude and latitude in degrees."""
    lon, lat = np.radians(places[:, :2].T)
    across = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], 1)
    return 6371.0 * np.arccos(np.clip(across @ across.T, -1.0, 1.0))


def straight(places):
    """Kilometres between places given in metres."""
    return np.linalg.norm(places[:, None, :2] - places[:, :2], axis=-1) / 1000.0


def check(edges, names, apart, group):
    """How far apart the ends of edges are, how many are among the nearest neighbours, or in the same state."""
    there = np.triu(matrix(edges, names) > 0, 1)
    order = np.argsort(apart, axis=1)[:, 1 : NEIGHBOURS + 1]
    near = np.zeros_like(there)
    np.put_along_axis(near, order, True, axis=1)
    near |= near.T
    pairs = np.triu(np.ones_like(there), 1)
    numbers = {
        "edges": int(there.sum()),
        "median km": float(np.median(apart[there])),
        "median km of all pairs": float(np.median(apart[pairs])),
        "share among nearest": float(near[there].mean()),
        "share among nearest, all pairs": float(near[pairs].mean()),
    }
    if group is not None:
        same = np.array(group)[:, None] == np.array(group)
        numbers |= {"share in one state": float(same[there].mean()), "all pairs": float(same[pairs].mean())}
    return numbers


def learn(out, weather, silos, distance, squeeze=1.0):
    """Tables, the run, and what the map says of its graphs."""
    tables = [write_table(out / "tables" / f"{name}.csv", weather.names, rows) for name, rows in silos.items()]
    words = (
        []
        if weather.places is None
        else ["--coordinates", write_places(out / "places.csv", weather.names, weather.places)]
    )
    silograph("learn", *tables, "-o", out / "run", *NOT_INDEPENDENT, *words)
    if weather.places is None:
        return {}
    consensus = read_edges(out / "run/consensus.csv")
    draw(out / "map.svg", weather.names, weather.places * squeeze, consensus, "Stations that are alike")
    graphs = {"consensus": consensus} | {name: read_edges(out / f"run/sites/{name}.csv") for name in silos}
    apart = distance(weather.places)
    return {
        f"{graph}, {name}": value
        for graph, edges in graphs.items()
        for name, value in check(edges, weather.names, apart, weather.group).items()
    }


def main():
    data, out = options(__doc__)
    weather = load_weather(data)
    numbers = {
        f"seasons, {k}": v
        for k, v in learn(out / "seasons", weather, by_season(weather), great_circle, DEGREES).items()
    }
    try:
        brittany = load_brittany(data)
    except InputError as problem:
        print(f"\nno second example: {problem}")
    else:
        weeks = learn(out / "brittany", brittany, by_week(brittany), straight)
        numbers |= {f"brittany, {name}": value for name, value in weeks.items()}
    tell(out, numbers)


if __name__ == "__main__":
    play(main)
