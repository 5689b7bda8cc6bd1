"""Device wheels that others have split are judged by their bytes, as ROCm's runtime looks for code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cairn.formats import kpack
from cairn.wheels.split.split import split
from cairn.wheels.verify import Expectation, judge_alone, judge_together
from helpers.formats import make_bundle, make_code_object
from helpers.hip_library import make_hip_library
from helpers.wheels import LINUX, MakeWheel, altered, build_wheel, cairn_wheel, members_of

BODY = bytes(range(1, 200))
V = "1.0"
BASE, SPECIFIC = "demo/.kpack/demo_gfx90a.kpack", "demo/.kpack/demo_gfx90a:xnack-.kpack"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """A host library of three wrappers, as a split leaves it, and its name in archives."""
    folder = tmp_path_factory.mktemp("library")
    bundles = [make_bundle({"gfx90a": make_code_object("gfx90a", BODY * number)}) for number in (1, 2, 3)]
    whole = build_wheel(folder, files={"demo/lib/libx.so": make_hip_library(bundles, [0, 1, 2])}, tags=LINUX)
    host = members_of(split(whole, folder / "split")[0])["demo/lib/libx.so"]
    start = host.index(b"lib/libx.so@")
    return host, host[start : start + len("lib/libx.so@") + 16].decode()


def device(make_wheel: MakeWheel, folder: Path, name: str, archives: Mapping[str, Sequence[int]]) -> Path:
    """A device wheel with archives that have code for these wrappers of a library."""
    files = {}
    for path, ordinals in archives.items():
        target = path.rpartition("_")[2].removesuffix(kpack.SUFFIX)
        with kpack.writing(folder / "made", group="demo", family="gfx90a", targets=[target]) as made:
            for ordinal in ordinals:
                code = make_code_object(target, BODY)
                made.name(name, ordinal, target, made.add([code], len(code)))
        files[path] = (folder / "made").read_bytes()
    return make_wheel(
        name="amd_demo_device_gfx90a", version=V, tags=LINUX, files=files, requires=(f"demo=={V}",)
    )


@pytest.mark.parametrize(
    ("archives", "problem"),
    [
        ({BASE: [0, 1, 2]}, ""),
        ({BASE: [0, 1, 2], SPECIFIC: [0, 1, 2]}, ""),
        ({BASE: [2], SPECIFIC: [0, 1, 2]}, ""),
        ({BASE: [0, 1, 2], SPECIFIC: [2]}, "it lacks 2 of the keys for gfx90a"),
        ({BASE: [0, 1, 2], SPECIFIC: []}, "it has no code at all"),
        ({BASE: []}, "it has no code at all"),
        ({BASE: [1, 2, 3]}, "it has code for wrapper 3"),
    ],
)
def test_archives_have_what_the_runtime_looks_for(
    make_wheel: MakeWheel,
    tmp_path: Path,
    library: tuple[bytes, str],
    archives: Mapping[str, Sequence[int]],
    problem: str,
) -> None:
    content, name = library
    host = make_wheel(name="demo", version=V, tags=LINUX, files={"demo/lib/libx.so": content}, requires=())
    parts = device(make_wheel, tmp_path, name, archives), host
    alone = {path: judge_alone(path, Expectation()) for path in parts}
    findings = judge_together(alone, {parts[0]: (host,)})[parts[0]].findings
    assert [finding.code for finding in findings if problem in finding.reason] == ["kpack-incomplete"] * bool(
        problem
    )
    assert problem or not findings


def test_a_host_wheel_has_no_code_and_the_wheels_of_its_extras_beside_it(
    make_wheel: MakeWheel, tmp_path: Path, library: tuple[bytes, str], capsys: pytest.CaptureFixture[str]
) -> None:
    content, name = library
    extra = 'extra == "device-gfx90a"'
    requires = [f"amd-demo-device-{of}=={V} ; {extra}" for of in ("gfx90a", "gfx9x")]
    whole = make_hip_library([make_bundle({"gfx942": make_code_object("gfx942", BODY)})])
    files = {"demo/lib/libx.so": content, "demo/lib/whole.so": whole}
    host = make_wheel(name="demo", version=V, tags=LINUX, files=files, requires=requires)
    text = members_of(host)["demo-1.0.dist-info/METADATA"].replace(b"Extra: fast", b"Extra: device-gfx90a")
    host = altered(host, {"demo-1.0.dist-info/METADATA": text}, record=True)
    parts = host, device(make_wheel, tmp_path, name, {BASE: [0, 1, 2]})
    assert cairn_wheel("verify", *parts) == 7
    printed = capsys.readouterr().out
    assert "demo/lib/whole.so: it has code for gfx942, which the extras of the wheel bring" in printed
    assert f"its extra device-gfx90a names amd-demo-device-gfx9x=={V}, which is not there" in printed
    assert cairn_wheel("verify", host) == 7  # of the code alone
    assert "not checked: the wheels that its extras name: device-gfx90a" in capsys.readouterr().out
