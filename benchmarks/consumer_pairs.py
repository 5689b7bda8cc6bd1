"""Judge the judge of consumers: consecutive releases of PyPI's, each with a wheel that depends on them.

    python benchmarks/consumer_pairs.py

The wheels of `consumer_pairs.txt` are fetched by pip (about 500 MB), and each break is printed: one that
could not be defended before the authors of the newer release is a defect of ours.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from cairn.errors import CairnError
from cairn.release.publish.compatibility import Platform
from cairn.stack import Consumer
from cairn.wheels.consumers import breaks, fetch

LIST = Path(__file__).with_suffix(".txt")


def main() -> None:
    """Fetch, look up and print."""
    text = LIST.read_text(encoding="utf-8")
    lines = [line.split() for line in text.splitlines() if line[:1] not in ("", "#")]
    missing, broken = [], 0
    for *names, python in (line if line[3:] else [*line, "3.11"] for line in lines):
        place = Platform(python=python, tag="linux_x86_64")
        with tempfile.TemporaryDirectory() as folder:
            try:
                wheels = [fetched(name, Path(folder, name), place) for name in names]
            except CairnError as error:
                missing.append(f"{' '.join(names)}: {error}")
                continue
            began = time.process_time()
            found = breaks.judge(*wheels, markers=place.markers())
        took = time.process_time() - began
        print(f"{len(found.breaks):3} {took:6.2f} s  {names[0]} -> {names[1]}: {names[2]}", flush=True)
        for one in found.breaks:
            print(f"              {one}")
        broken += bool(found.breaks)
    print(f"{len(lines) - len(missing)} pairs, {broken} with breaks")
    if missing:
        raise SystemExit("\n".join(("not to be fetched:", *missing)))


def fetched(text: str, folder: Path, place: Platform) -> tuple[Path, ...]:
    """The wheel that pip fetches for a requirement."""
    consumer = Consumer(name=text.partition("=")[0], requirement=text)
    return fetch.wheels_of(consumer, folder, python=place.python, platform=place.tag)


if __name__ == "__main__":
    main()
