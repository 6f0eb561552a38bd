"""One entry in its own process: python -m silograph.reproduce.own_process '{"name": ..., "seeds": ..., ...}'

It writes lines of JSON to standard output: its progress, and at last the table or the reason why there is none. It ends
when its reader is gone, so that nothing is left running when the gallery is killed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from silograph.core.errors import SilographError
from silograph.core.types import Json
from silograph.reproduce.runner import find

_PAUSE = 0.2  # seconds between two reports of progress


def made(name: str, seeds: int, short: bool, data: str | None) -> Json:
    """The table and the time it took, or the failure in words."""
    told = 0.0

    def progress(share: float, _: str) -> None:
        nonlocal told
        if time.monotonic() - told > _PAUSE:
            told = time.monotonic()
            print(json.dumps({"share": share}), flush=True)

    begun = time.monotonic(), time.process_time()
    try:
        table = find(name).run(seeds, None if data is None else Path(data), progress, short).to_json()
        json.dumps(table, allow_nan=False)
    except BrokenPipeError:
        raise
    except SilographError as error:
        return {"failure": str(error), "input": error.exit_code == 2}
    except Exception as error:  # the others go on after any error of one entry
        return {"failure": f"{type(error).__name__}: {error}", "input": False}
    took = {"wall": time.monotonic() - begun[0], "cpu": time.process_time() - begun[1]}
    return {"table": table, "seconds": {clock: round(value, 1) for clock, value in took.items()}}


def main() -> None:
    try:
        print(json.dumps(made(**json.loads(sys.argv[1]))), flush=True)
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)


if __name__ == "__main__":
    main()
