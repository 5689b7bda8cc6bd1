"""Programs that others wrote for GPUs, run by TorchDevice in both modes, print what they print on the CPU.

A mistake about devices that is planted in one of them (`mistakes.toml`) ends it under `strict`, at its line.

CAIRN_TEST_SCRIPTS names a folder with a clone of each repository that `scripts.toml` pins, as `owner/name`,
and CAIRN_TEST_TORCH_PYTHON an interpreter with what `requirements.txt` names.
"""

import os
import random
import re
import subprocess
import sys
import tarfile
import tomllib
from io import BytesIO
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

import pytest

HERE = Path(__file__).parent
SOURCE = Path(__file__).parents[3] / "external-builds/torchdevice/tree/src"
SCRIPTS = tomllib.loads((HERE / "scripts.toml").read_text(encoding="utf-8"))["scripts"]
MISTAKES = tomllib.loads((HERE / "mistakes.toml").read_text(encoding="utf-8"))["mistakes"]


def test_there_are_enough_and_each_is_pinned() -> None:
    assert len(SCRIPTS) >= 10
    assert all(re.fullmatch("[0-9a-f]{40}", script["commit"]) for script in SCRIPTS)
    assert len({script["name"] for script in SCRIPTS}) == len(SCRIPTS)
    assert len({mistake["name"] for mistake in MISTAKES}) == len(MISTAKES) >= 40


def matcher(script: dict[str, Any]) -> re.Pattern[str]:
    """What of a line is compared; a number that is none is compared as well, and ends a run as any other."""
    return re.compile(script["values"].replace("{number}", r"([+-]?(?:nan|inf|[\d.]+(?:e[+-]?\d+)?))"))


def test_no_pattern_passes_over_what_is_no_number() -> None:
    assert not [script["name"] for script in SCRIPTS if "." in script["values"]], "say {number}"
    for value in ("nan", "inf", "-inf", "1.5", "-2e-05", "3"):
        assert matcher({"values": "loss:? ?{number}"}).findall(f"step 7, loss: {value}, 2 s") == [value]


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


def series(generator: random.Random) -> bytes:
    """Of 20 days, an hour each."""
    lines = (
        f"2020-01-{1 + hour // 24:02} {hour % 24:02}:00:00,"
        + ",".join(f"{generator.random():.4f}" for _ in "abc")
        for hour in range(480)
    )
    return "\n".join(("date,a,b,OT", *lines)).encode()


DATA = {"{random}": numbers, "{words}": words, "{nodes}": nodes, "{edges}": edges, "{series}": series}
# Some seed nothing, or PyTorch and not NumPy. Some are older than NumPy 2.
SEEDED = """import random, numpy, torch
random.seed(0)
numpy.random.seed(0)
torch.manual_seed(0)
numpy.Inf = numpy.inf
class RandomState(numpy.random.RandomState):
    def __init__(self, seed=0):
        super().__init__(seed)
numpy.random.RandomState = RandomState
"""


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
    for name, line, old, new in script.get("edits", []):
        lines = (folder / name).read_text(encoding="utf-8").split("\n")
        assert lines[line - 1].count(old) == 1, lines[line - 1]
        lines[line - 1] = lines[line - 1].replace(old, new)
        (folder / name).write_text("\n".join(lines), encoding="utf-8")
    return inside


def values(script: dict[str, Any], folder: Path, mode: str) -> list[Any]:
    """What a program prints; `mode` is cpu, redirect or strict."""
    inside = unpacked(script, folder)
    python = os.environ.get("CAIRN_TEST_TORCH_PYTHON", sys.executable)
    arguments = list(script["run"])
    by = [python, "-W", "ignore"]
    if mode != "cpu":
        devices = str(script.get("devices", 1))
        by += [
            "-m",
            "torchdevice",
            "--to=cpu",
            "--devices",
            devices,
            *(["--strict"] if mode == "strict" else []),
        ]
    else:
        for argument in script.get("on_cpu", []):
            if argument.startswith("!"):
                arguments.remove(argument[1:])
            else:
                arguments.append(argument)
        program = inside / arguments[0]
        for pattern in script.get("cpu_edits", []):
            program.write_text(re.sub(pattern, "", program.read_text(encoding="utf-8")), encoding="utf-8")
    (folder / "sitecustomize.py").write_text(SEEDED)
    paths = [
        str(folder),
        str(SOURCE),
        *(str((inside / path).resolve()) for path in script.get("python_path", [])),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    environment |= {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", **script.get("environment", {})}
    environment |= script.get("cpu_environment", {}) if mode == "cpu" else {}
    environment["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # for programs older than that rule
    enough, matches = script.get("stop_after"), matcher(script)
    text, found = "", []
    with subprocess.Popen(
        [*by, *arguments],
        cwd=inside,
        env=environment,
        stdout=PIPE,
        stderr=STDOUT,
        text=True,
        errors="replace",
    ) as running:
        for line in running.stdout or ():
            text += line
            found += matches.findall(line.strip("\n"))
            if enough and len(found) >= enough:
                running.kill()
                return found[:enough]
    assert running.returncode == 0, text[-8000:]
    return found


@pytest.mark.by_hand
@pytest.mark.skipif("CAIRN_TEST_SCRIPTS" not in os.environ, reason="CAIRN_TEST_SCRIPTS names no folder")
@pytest.mark.parametrize("script", SCRIPTS, ids=[script["name"] for script in SCRIPTS])
def test_a_program_prints_what_it_prints_on_the_cpu(script: dict[str, Any], tmp_path: Path) -> None:
    expected = script.get("expected") or values(script, tmp_path / "cpu", "cpu")
    assert expected, "nothing to compare"
    assert not re.search(r"\b(nan|inf)\b", str(expected)), "what is the same for every mistake"
    for mode in (script["only"],) if "only" in script else ("redirect", "strict"):
        if mode == "strict" and "mistake" in script:
            with pytest.raises(AssertionError, match=re.escape(script["mistake"])):
                values(script, tmp_path / mode, mode)
        else:
            assert values(script, tmp_path / mode, mode) == expected, mode


@pytest.mark.by_hand
@pytest.mark.skipif("CAIRN_TEST_SCRIPTS" not in os.environ, reason="CAIRN_TEST_SCRIPTS names no folder")
@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake["name"] for mistake in MISTAKES])
def test_a_planted_mistake_is_found_at_its_line(mistake: dict[str, Any], tmp_path: Path) -> None:
    (script,) = (script for script in SCRIPTS if script["name"] == mistake["program"])
    with pytest.raises(AssertionError) as ended:
        values({**script, "edits": mistake["edits"]}, tmp_path, "strict")
    text = str(ended.value)
    inside = tmp_path / script.get("folder", ".")
    frames = re.findall(r'File "([^"<]+)", line (\d+)', text)
    paths = [((inside / file).resolve(), line) for file, line in frames]
    *_, found = (
        f"{path.relative_to(tmp_path)}:{line}" for path, line in paths if path.is_relative_to(tmp_path)
    )
    assert found == mistake["found"], text
    assert re.search(r"^ *(RuntimeError|TypeError): .*(device|cuda|memory|pin)", text, re.MULTILINE), text
