"""What libraries do under TorchDevice: runs a program of each, and writes the page of the results.

    python measure.py [--page FILE] [NAME …]

Each program of `programs` is written as the library's own examples are, and prints what it computed. It runs
on the CPU without TorchDevice, then as code that says "cuda" in `redirect` and in `strict`, in this
interpreter; the values are to be the same. `requirements.txt` has the versions. timm brings a torchvision.
Where that is not the one for this torch, half of the libraries cannot be imported: uninstall it, and name a
folder with it for timm alone as TORCHVISION (`pip install --no-deps --target FOLDER torchvision`).
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
# By the program: the distribution, and what a reader should know.
LIBRARIES = {
    "lightning": ("lightning", ""),
    "accelerate": ("accelerate", ""),
    "transformers": ("transformers", ""),
    "diffusers": ("diffusers", ""),
    "timm": ("timm", "with a torchvision whose operators are missing; the program declares two"),
    "pyg": ("torch-geometric", ""),
    "torchrl": ("torchrl", ""),
    "torchtune": ("torchtune", "with torchao 0.14.1: it imports what later ones no longer have"),
    "ignite": ("pytorch-ignite", ""),
    "ray": ("ray", "its `worker_process_setup_hook` enables TorchDevice; `num_gpus=1` tells it of a GPU"),
    "xdist": ("pytest-xdist", "by the plugin's options, which its workers are given"),
    "hydra": ("hydra-core", ""),
}
PAGE = """# Libraries under TorchDevice

Made by `tree/tests/ecosystem/measure.py`: a small program of each library, in the manner of the library's
examples, prints the same values as on the CPU without TorchDevice, or the table says what happened.
Python {python}, torch {torch}, without a GPU.

| library | version | `redirect` | `strict` | to know |
| --- | --- | --- | --- | --- |
{rows}

A program is no proof that all of a library works: it trains, saves, loads and predicts with what most people
use first.
"""


def values(name: str, mode: str) -> str:
    """What a program prints, or the last line of its error."""
    by = [sys.executable, "-W", "ignore"]
    if mode != "off":
        by += ["-m", "torchdevice", "--to=cpu", *(["--strict"] if mode == "strict" else [])]
    paths = [str(SOURCE)] + ([os.environ["TORCHVISION"]] if name == "timm" else [])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    environment["RAY_worker_niceness"] = "0"  # or its workers hardly run beside anything else
    program = HERE / "programs" / f"with_{name}.py"
    done = subprocess.run(
        [*by, program, "cpu" if mode == "off" else "cuda", mode],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("VALUE ")]
    return "\n".join(found) or (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]


def row(name: str) -> str:
    """The table's line of a library."""
    distribution, note = LIBRARIES[name]
    expected = values(name, "off")
    cells = []
    for mode in ("redirect", "strict"):
        found = values(name, mode) if expected.startswith("VALUE ") else f"on the CPU: {expected}"
        cells.append("same" if found == expected else found.replace("|", "\\|"))
    line = [name, importlib.metadata.version(distribution), *cells, note]
    print(*line, sep=" | ", flush=True)
    return f"| {' | '.join(line)} |"


def main() -> int:
    """Measure, and write the page where one is named; 1 where a library's values differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *LIBRARIES], metavar="NAME")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    with ThreadPoolExecutor(os.cpu_count()) as programs:
        rows = list(programs.map(row, options.names or LIBRARIES))
    if options.page:
        python, torch = sys.version.split()[0], importlib.metadata.version("torch")
        text = PAGE.format(python=python, torch=torch, rows="\n".join(rows))
        options.page.write_text(text, encoding="utf-8")
    return int(any(row.count("| same ") != 2 for row in rows))


if __name__ == "__main__":
    sys.exit(main())
