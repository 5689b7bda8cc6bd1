"""Programs that others wrote for GPUs, run by TorchDevice as they are, print what they print on the CPU.

CAIRN_TEST_SCRIPTS names a folder with a clone of each repository that `scripts.toml` pins, as `owner/name`,
and CAIRN_TEST_TORCH_PYTHON an interpreter with torch, numpy and scipy.
"""

import itertools
import os
import random
import re
import subprocess
import sys
import tarfile
import tomllib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SOURCE = Path(__file__).parents[3] / "external-builds/torchdevice/tree/src"
SCRIPTS = tomllib.loads((HERE / "scripts.toml").read_text(encoding="utf-8"))["scripts"]


def test_there_are_enough_and_each_is_pinned() -> None:
    assert len(SCRIPTS) >= 10
    assert all(re.fullmatch("[0-9a-f]{40}", script["commit"]) for script in SCRIPTS)
    assert len({script["name"] for script in SCRIPTS}) == len(SCRIPTS)


def numbers(generator: random.Random) -> bytes:
    """Of 16 bits, so small that any vocabulary has them."""
    return b"".join(generator.randrange(256).to_bytes(2, "little") for _ in range(4096))


def words(generator: random.Random) -> bytes:
    lines = ([generator.choice("abcd") for _ in range(12)] for _ in range(300))
    return "\n".join(map(" ".join, lines)).encode()


def nodes(generator: random.Random) -> bytes:
    rows = ([str(n), *(generator.choice("01") for _ in range(30)), f"class{n % 7}"] for n in range(1600))
    return "\n".join(map("\t".join, rows)).encode()


def edges(generator: random.Random) -> bytes:
    return "\n".join(f"{generator.randrange(1600)}\t{n}" for n in range(1600)).encode()


DATA = {"{random}": numbers, "{words}": words, "{nodes}": nodes, "{edges}": edges}
# Some seed nothing, or PyTorch and not NumPy.
SEEDED = "import random, numpy, torch\nrandom.seed(0)\nnumpy.random.seed(0)\ntorch.manual_seed(0)\n"


def unpacked(script: dict[str, Any], folder: Path) -> Path:
    clone = Path(os.environ["CAIRN_TEST_SCRIPTS"]) / script["repository"]
    packed = subprocess.run(
        ["git", "-C", clone, "archive", script["commit"], *script.get("take", [])],
        check=True,
        capture_output=True,
    )
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    inside = folder / script.get("folder", ".")
    for name, kind in script.get("files", {}).items():
        file = inside / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(DATA[kind](random.Random(0)))  # noqa: S311
    return inside


def output(script: dict[str, Any], folder: Path, *, translated: bool) -> str:
    inside = unpacked(script, folder)
    python = os.environ.get("CAIRN_TEST_TORCH_PYTHON", sys.executable)
    arguments = list(script["run"])
    for argument in [] if translated else script.get("on_cpu", []):
        if argument.startswith("!"):
            arguments.remove(argument[1:])
        else:
            arguments.append(argument)
    (folder / "sitecustomize.py").write_text(SEEDED)
    paths = [
        str(folder),
        str(SOURCE),
        *(str((inside / path).resolve()) for path in script.get("python_path", [])),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    environment["PYTHONHASHSEED"] = "0"
    environment["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # for programs older than that rule
    by = [python, "-W", "ignore", *(["-m", "torchdevice", "--to", "cpu"] if translated else [])]
    done = subprocess.run(
        [*by, *arguments], cwd=inside, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout + done.stderr


@pytest.mark.by_hand
@pytest.mark.skipif("CAIRN_TEST_SCRIPTS" not in os.environ, reason="CAIRN_TEST_SCRIPTS names no folder")
@pytest.mark.parametrize("script", SCRIPTS, ids=[script["name"] for script in SCRIPTS])
def test_a_program_prints_what_it_prints_on_the_cpu(script: dict[str, Any], tmp_path: Path) -> None:
    found = [
        re.findall(script["values"], output(script, tmp_path / str(translated), translated=translated))
        for translated in (True, False)
    ]
    assert found[0], "nothing to compare"
    different = [pair for pair in itertools.zip_longest(*found) if pair[0] != pair[1]]
    assert different == []
