"""What `cairn install` says and prints, to the letter, on machines that are described by files."""

import io
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from cairn import datafile, venv
from cairn.output import console
from cairn.pipeline.install import MAKE_ONE
from cairn.release.pages import targets_file
from cairn.wheels.metadata.tag_words import platform_words
from helpers.hardware import kernel_nodes
from helpers.pages import NO_GPU, PLATFORM, PYTHON, channel, family, one_set
from helpers.program import Cairn, Shown

PROGRAM = Path(sys.prefix, "bin", "python")
HERE = f"Python {PYTHON}, {platform_words(PLATFORM)}"
OWN = (
    f"Python {PYTHON}: {PROGRAM} (the active environment, Cairn's own)\n"
    f"an installation needs an environment other than Cairn's own; {MAKE_ONE}\n"
)
# What the kernel calls each processor: major * 10000 + minor * 100 + step.
VERSIONS = {
    "gfx803": 80003,
    "gfx942": 90402,
    "gfx1036": 100306,
    "gfx1100": 110000,
    "gfx1201": 120001,
}


@pytest.fixture(autouse=True)
def active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)


@pytest.fixture
def index(tmp_path: Path) -> str:
    """The address of a channel with a family beside it."""
    found = targets_file.make("release", (channel(), family()))
    datafile.write(tmp_path / "store" / "release" / "targets.json", found)
    return (tmp_path / "store" / "release" / "simple").as_uri() + "/"


Install = Callable[..., Shown]


@pytest.fixture
def install(cairn: Cairn, index: str, tmp_path: Path) -> Install:
    """`cairn install` from `index`, or from another one `at` an address, where the kernel describes `gpus`.

    Its output has BASE for the store's address, and no line about its Python.
    """

    def run(*words: object, gpus: str | None = None, at: str = "", code: int = 0) -> Shown:
        if gpus is not None:
            nodes = kernel_nodes(tmp_path / f"with {gpus}", *(VERSIONS[name] for name in gpus.split()))
            words = (*words, "--topology-dir", nodes)
        out, err = cairn("install", "--dry-run", "--index-url", at or index, *words, code=code)
        base = (at or index).removesuffix("/release/simple/")
        err = err.removeprefix(OWN)
        return Shown(out.replace(base, "BASE"), err.replace(base, "BASE"))

    return run


def both(url: str, words: str) -> str:
    return f"pip install --index-url {url} {words}\nuv pip install --index-url {url} {words}\n"


NAMES = "torch==2.9.0+rocm7.10.0 torchvision==0.24.0+rocm7.10.0 torchaudio==2.9.0+rocm7.10.0"
NAMES_942 = "torch==2.10.0+rocm7.11.0 torchvision==0.25.0+rocm7.11.0 torchaudio==2.10.0+rocm7.11.0"
RX = "gfx1100 (RX 7900 XTX, RX 7900 XT, RX 7900 GRE and 2 more)"
FAMILY = "BASE/release/gfx110X-all/simple/"
CHANNEL = "BASE/release/simple/"
OF_1100 = (
    "for gfx1100: torch 2.9.0+rocm7.10.0, line release/2.9, of 2026-11-20 on release/gfx110X-all, tested\n"
)
OF_942 = "for gfx942: torch 2.10.0+rocm7.11.0, line release/2.10, of 2026-11-21 on release, tested\n"


def test_no_gpu(install: Install) -> None:
    out, err = install(gpus="")
    # The newest version of the channel is not for the CPU, so that the versions must be named.
    assert out == both(CHANNEL, "torch==2.9.0+cpu torchvision==0.24.0+cpu torchaudio==2.9.0+cpu")
    assert err == (
        "for cpu: torch 2.9.0+cpu, line release/2.9, of 2026-11-20 on release, tested\n"
        "warning: no GPU was found: this is the build for the CPU\n"
    )


def test_one_gpu(install: Install) -> None:
    out, err = install(gpus="gfx1100")
    assert out == both(FAMILY, NAMES)
    assert err == f"GPU: {RX}\n{OF_1100}"


def test_two_different_gpus_that_no_set_serves(install: Install) -> None:
    out, err = install(gpus="gfx1100 gfx942")
    assert out == both(FAMILY, NAMES) + both(CHANNEL, NAMES_942)
    assert err == (
        f"GPUs: {RX}, gfx942 (MI300A, MI300X, MI325X)\n{OF_1100}{OF_942}"
        "warning: no set is for gfx1100 and gfx942 at once: install each into an environment of its own\n"
    )


def test_two_different_gpus_that_one_set_serves(install: Install) -> None:
    out, err = install(gpus="gfx942 gfx1201")
    assert out == both(CHANNEL, NAMES)
    assert err == (
        "GPUs: gfx942 (MI300A, MI300X, MI325X), gfx1201 (RX 9070, RX 9070 XT, RX 9070 GRE and 1 more)\n"
        "for gfx942 and gfx1201: torch 2.9.0+rocm7.10.0, line release/2.9, of 2026-11-20 on release, tested\n"
    )


def test_a_graphics_card_beside_the_graphics_of_a_processor(install: Install) -> None:
    out, err = install(gpus="gfx1036 gfx1100")
    assert out == both(FAMILY, NAMES)
    assert err == (
        f"GPUs: gfx1036 (Raphael iGPU), {RX}\n{OF_1100}"
        f"warning: release has nothing for gfx1036 (Raphael iGPU) on {HERE}: "
        "hide it from programs with ROCR_VISIBLE_DEVICES=1\n"
    )


def test_an_unsupported_gpu(install: Install) -> None:
    out, err = install(gpus="gfx803", code=3)
    assert out == ""
    assert err == (
        "error: release has nothing for gfx803 (R9 Nano, R9 Fury, R9 Fury X and 3 more)\n"
        "  what to do: for this Python and platform it has gfx942, gfx1100, gfx1101, gfx1102, gfx1103, "
        "gfx1201; and a build for the CPU: --gpu cpu\n"
    )


@pytest.fixture
def split_index(tmp_path: Path) -> str:
    """The address of a channel with one set for three targets, whose wheels were split."""
    one = one_set(9, "2.13.0+rocm7.14.0", ("gfx942", "gfx950", "gfx1100"), line="release/2.13")
    devices = {f"torch-device-{name}": "2.13.0+rocm7.14.0" for name in ("gfx942", "gfx950", "gfx1100")}
    vision = {f"torchvision-device-{name}": "0.28.0+rocm7.14.0" for name in ("gfx942", "gfx1100")}
    one = msgspec.structs.replace(one, projects={**one.projects, **devices, **vision})
    alone = msgspec.structs.replace(channel(), sets=(one,))
    store = tmp_path / "split" / "release"
    datafile.write(store / "targets.json", targets_file.make("release", (alone,)))
    return (store / "simple").as_uri() + "/"


def test_the_code_of_the_gpu_comes_by_an_extra(split_index: str, install: Install) -> None:
    out, _ = install(gpus="gfx1100", at=split_index)
    exact = (
        '"torch[{0}]==2.13.0+rocm7.14.0" "torchvision[{0}]==0.28.0+rocm7.14.0" torchaudio==2.13.0+rocm7.14.0'
    )
    extras = exact.format("device-gfx1100")
    assert out == both(CHANNEL, extras)
    # Two kinds of GPU in one machine, which one environment serves.
    out, _ = install(gpus="gfx1100 gfx942", at=split_index)
    extras = exact.format("device-gfx1100,device-gfx942")
    assert out == both(CHANNEL, extras)


@pytest.mark.parametrize("gpu", ["gfx950", "gfx1036"])
def test_a_gpu_whose_code_the_index_does_not_have(split_index: str, install: Install, gpu: str) -> None:
    """pip takes an extra that does not exist for a warning, and installs wheels without kernels."""
    out, err = install("--gpu", gpu, at=split_index, code=3)
    assert out == ""
    assert err.startswith(f"error: release has nothing for {gpu} (")
    assert err.endswith("  what to do: for this Python and platform it has gfx942, gfx1100\n")


def test_a_product_whose_target_was_not_tested(install: Install) -> None:
    out, err = install("--gpu", "Radeon RX 7800 XT")
    assert out == both(FAMILY, NAMES)
    assert err == (
        "GPU: gfx1101 (RX 7800 XT, RX 7700, RX 7700 XT and 1 more)\n"
        "for gfx1101: torch 2.9.0+rocm7.10.0, line release/2.9, of 2026-11-20 on release/gfx110X-all, "
        "UNTESTED\n"
        f"warning: {NO_GPU}\n"
    )


def test_a_target_and_a_line_by_name(install: Install) -> None:
    pinned = "torch==2.9.0+rocm7.10.0 torchvision==0.24.0+rocm7.10.0 torchaudio==2.9.0+rocm7.10.0"
    assert install("--gpu", "gfx942:xnack-", "--line", "release/2.9")[0] == both(CHANNEL, pinned)
    out, err = install("--gpu", "gfx942", "--line", "release/2.7", code=3)
    assert out == ""
    assert "it has Python" in err
    assert "release/2.10, release/2.9" in err


@pytest.mark.parametrize(
    ("words", "problem", "tip"),
    [
        (("--gpu", "gfx1109"), "unknown GPU target 'gfx1109'", "did you mean gfx1100"),
        (("--gpu", "RTX 4090"), "is a GPU of NVIDIA", "without one, take the build for the CPU"),
        (("--gpu", "Ryzen 9 9950X3D"), "is not a product that is known", "name its target with --gpu"),
    ],
)
def test_a_gpu_that_is_not_known_is_never_taken_for_a_different_one(
    install: Install, words: Sequence[str], problem: str, tip: str
) -> None:
    out, err = install(*words, code=2)
    assert out == ""
    assert problem in err
    assert f"what to do: {tip}" in err


def test_a_python_that_nothing_is_for(tmp_path: Path, install: Install) -> None:
    old = channel().sets[0]
    found = targets_file.make("release", (channel(),))
    other = [{**datafile.to_plain(offer), "python": "3.9"} for offer in found.entry(old.targets[0]).offers]
    plain = {"schema": "cairn.targets/1", "index": "release", "targets": [
        {"target": "gfx942", "products": [], "families": [], "offers": other}]}  # fmt: skip
    (tmp_path / "store" / "release" / "targets.json").write_text(json.dumps(plain))
    _, err = install("--gpu", "gfx942", code=3)
    assert err == (
        f"error: release has nothing for gfx942 on {HERE}\n"
        f"  what to do: it has Python 3.9 on {platform_words(PLATFORM)}\n"
    )


def test_an_environment_without_pip_gets_no_line_of_pip(tmp_path: Path, install: Install) -> None:
    """As uv makes them: `pip` there would be that of a different Python, or none."""
    bare = venv.create(tmp_path / "bare").python
    out, _ = install("--gpu", "gfx1100", "--python", bare)
    assert out == f"uv pip install --python {bare} --index-url {FAMILY} {NAMES}\n"
    (choice,) = json.loads(install("--gpu", "gfx1100", "--python", bare, "--json").out)["choices"]
    assert (choice["pip"], f"{choice['uv']}\n") == (None, out)


def test_the_answer_as_json(install: Install) -> None:
    out, err = install("--json", gpus="gfx1100")
    found = json.loads(out)
    assert (found["gpus"], found["python"], found["warnings"]) == (["gfx1100"], PYTHON, [])
    (choice,) = found["choices"]
    assert (choice["index"], choice["untested"]) == ("release/gfx110X-all", None)
    assert f"{choice['pip']}\n{choice['uv']}\n" == both(FAMILY, NAMES)
    assert err == ""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("index_url", "https://evil.example/simple/"),
        ("index_url", "//evil.example/simple/"),
        ("packages", ["torch", "--extra-index-url=https://evil.example"]),
        ("packages", [f"torch; {'(' * 3000}python_version > '3'{')' * 3000}"]),
        ("packages", ["torch @ https://evil.example/torch-9-py3-none-any.whl"]),
        ("packages", []),
        # Neither is looked up in what a promoter signed.
        ("set_id", ""),
        ("index_url", "../../staging/simple/"),
        ("index_url", "../staging/simple/"),
        ("index_url", "../other/release/simple/"),
    ],
)
def test_a_list_that_leads_elsewhere_is_refused(
    tmp_path: Path, install: Install, field: str, value: str | Sequence[str]
) -> None:
    path = tmp_path / "store" / "release" / "targets.json"
    plain = json.loads(path.read_text())
    offers = [offer for entry in plain["targets"] for offer in entry["offers"] if entry["target"] == "gfx942"]
    offers[0][field] = value
    path.write_text(json.dumps(plain))
    out, err = install("--gpu", "gfx942", code=9)
    assert out == ""
    assert "names something that is not of its own index" in err


def test_a_place_without_a_list(tmp_path: Path, cairn: Cairn) -> None:
    _, err = cairn("install", "--dry-run", "--index-url", tmp_path.as_uri(), "--gpu", "cpu", code=9)
    assert "name an index that Cairn publishes" in err
    _, err = cairn(
        "install", "--dry-run", "--index-url", "s3://bucket/release/simple/", "--gpu", "cpu", code=2
    )
    assert "pip and uv cannot install from s3://" in err


def test_a_store_on_this_machine(tmp_path: Path, index: str, cairn: Cairn) -> None:
    store = tmp_path / "store"
    out, _ = cairn("install", "--dry-run", "--store", store, "--gpu", "gfx1100")
    assert out.replace(index.removesuffix("/release/simple/"), "BASE") == both(FAMILY, NAMES)
    _, err = cairn("install", "--dry-run", "--store", store, "--index", "relase", "--gpu", "cpu", code=2)
    assert "did you mean release?" in err


def test_lines_and_streams_are_of_different_indexes(cairn: Cairn) -> None:
    assert "name it: --index-url" in cairn("install", "--dry-run", "--line", "release/2.9", code=2).err
    words = ("install", "--dry-run", "--stream", "rc", "--index-url", "https://example.org/simple/")
    assert "not allowed with" in cairn(*words, code=2).err


def test_who_sits_before_a_terminal_is_asked_for_an_environment(
    tmp_path: Path, index: str, cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV")
    words = ("install", "--index-url", index, "--gpu", "cpu")
    assert "there is no environment to install into: none is active" in cairn(*words, code=2).err
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console.Console, "can_ask", lambda _: True)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    # It is made, and then its installer finds no index of wheels in the folder.
    _, err = cairn(*words, code=1)
    assert "Folder of one, made if missing [torch-env]: made torch-env" in err
    assert (tmp_path / "torch-env" / "pyvenv.cfg").is_file()
