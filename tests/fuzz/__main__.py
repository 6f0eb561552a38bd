"""Fuzz every target, guided by coverage: python -m fuzz SECONDS [TARGET ...], in the folder of the tests.

Each target has a process of its own and an equal share of the time. Inputs that reach new code are kept in build/fuzz;
an input that crashes, hangs or takes memory is written there too, shown, and makes the exit code 1.
"""

from __future__ import annotations

import hashlib
import importlib
import random
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
KEPT = HERE.parent.parent / "build" / "fuzz"
SECONDS, MEMORY = 20, 3000  # of one input; MiB of the process


def one(name: str) -> None:
    """In a process of its own: atheris instruments what is imported after it, and never returns."""
    import atheris

    import silograph

    home = Path(silograph.__file__).parent
    for path in sorted(home.rglob("*.py")):
        if "@njit" in path.read_text(encoding="utf-8"):  # what numba compiles must stay as it is
            importlib.import_module(".".join(("silograph", *path.relative_to(home).with_suffix("").parts)))
    with atheris.instrument_imports(include=["silograph"]):
        from fuzz.mutations import mutated
        from fuzz.targets import LONGEST, try_one

    def change(data: bytes, longest: int, seed: int) -> bytes:
        dice = random.Random(seed)
        if dice.random() < 0.5:
            return bytes(atheris.Mutate(data, longest))
        return mutated(data, dice, min(longest, LONGEST))

    def watched(data: bytes) -> None:
        try:
            try_one(name, data)
        except Exception:
            (KEPT / f"{name}-error-{hashlib.sha256(data).hexdigest()[:12]}").write_bytes(data)
            raise

    atheris.Setup(sys.argv, watched, custom_mutator=change)
    atheris.Fuzz()


def main(seconds: int, names: list[str]) -> int:
    failed = []
    share = max(1, seconds // len(names))
    for name in names:
        kept = KEPT / name
        kept.mkdir(parents=True, exist_ok=True)
        options = [f"-max_total_time={share}", f"-timeout={SECONDS}", f"-rss_limit_mb={MEMORY}", "-max_len=65536"]
        options += [f"-artifact_prefix={KEPT}/{name}-", "-print_final_stats=1", str(kept), str(HERE / "corpus" / name)]
        print(f"{name}: {share} seconds", flush=True)
        if subprocess.run([sys.executable, "-m", "fuzz", "--one", name, *options], cwd=HERE.parent).returncode:
            failed.append(name)
    print(f"failed: {', '.join(failed)}; the inputs are in {KEPT}" if failed else "nothing found")
    return int(bool(failed))


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        name = sys.argv[2]
        del sys.argv[1:3]
        one(name)
    known = sorted(path.name for path in (HERE / "corpus").iterdir())
    sys.exit(main(int(sys.argv[1]), sys.argv[2:] or known))
