"""What one types most often: shown below the help of each command."""

from __future__ import annotations

EXAMPLES = {
    "sample": ("silograph sample sites", "silograph sample clinics --clinics"),
    "check": ("silograph check sites/*.csv", "silograph check hill --data hill.csv"),
    "learn": (
        "silograph learn sites/*.csv",
        "silograph learn sites -o private --epsilon 2",
        "silograph learn visits.xlsx --site-column ward --drop id",
        "silograph learn persons -o private --unit-column person --epsilon 4",
    ),
    "run": ("silograph run clinics/plan.toml -o models",),
    "personalise": ("silograph personalise start sensors/new/device-25.csv -o mine.npz",),
    "people": ("silograph people nyu -o nyu.parquet",),
    "predict": ("silograph predict models table.csv -o answers.csv",),
    "report": ("silograph report out",),
    "privacy": ("silograph privacy plan.toml", "silograph privacy out"),
    "compare": ("silograph compare out private -o compare.html",),
    "audit": ("silograph audit out --one-run", "silograph audit plan.toml --runs 20000", "silograph audit deployment"),
    "facts": ("silograph facts plan.toml hill.csv -o hill.facts.json",),
    "deploy": ("silograph deploy plan.toml -o deployment --address silo.example.org:8765 --minimum 3",),
    "enrol": ("silograph enrol hill --data hill.csv",),
    "drop": ("silograph drop north south",),
    "renew": ("silograph renew hill",),
    "join": ("silograph join hill",),
    "serve": ("silograph serve deployment/server -o out",),
    "watch": ("silograph watch out",),
    "reproduce": ("silograph reproduce s3-table1", "silograph reproduce all -o papers"),
}
