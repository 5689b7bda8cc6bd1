"""What a host wheel says when it is imported where the code for the GPU is not installed."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from cairn.targets import generic_targets
from cairn.wheels.split.device_wheel import Terms
from cairn.wheels.split.join import join, write_variant
from cairn.wheels.split.split import split
from cairn.wheels.verify import Expectation, verify
from helpers.formats import make_bundle, make_code_object
from helpers.hip_library import make_hip_library
from helpers.wheels import LINUX, build_wheel, cairn_wheel, members_of, unpack

TARGETS = ("gfx90a:xnack+", "gfx90a:xnack-", "gfx942", "gfx11-generic")
ARCHIVES = ("demo/.kpack/demo_@GFXARCH@.kpack",)
# As torch does it, and as `cairn build` writes the module.
PACKAGE = b"from . import _rocm_init\n_rocm_init.initialize()\ndel _rocm_init\nprint('imported')\n"
LOADER = b"def initialize():\n    print('loaded')\n"
# What rocm-bootstrap has under these names, of which it asks the variable alone.
BOOTSTRAP = """
import os
from types import SimpleNamespace as Value
def detect_gpus():
    names = os.environ["ROCM_BOOTSTRAP_FORCE_GFX_ARCH"].split(",")
    return [Value(target=Value(name=name), node_id=at) for at, name in enumerate(names)]
"""
VERSIONS = {"cpu": 0, "gfx90a": 90010, "gfx942": 90402, "gfx1036": 100306, "gfx1100": 110000}
HIDES = " (CAIRN_DEVICE_HINT=0 hides this line)\n"


def told(gpus: str, *words: str, who: str = "demo", what: str = "", fails: str = "will") -> str:
    requirements = " ".join(f'"{word}"' for word in words)
    return (
        f"{who}: {what or f'no code for {gpus} is installed'}, and kernels {fails} fail there; "
        f"add it from the same index: pip install {requirements}{HIDES}"
    )


def whole(
    folder: Path,
    loader: bytes = LOADER,
    name: str = "demo",
    targets: tuple[str, ...] = TARGETS,
    seed: bytes = b"code",
) -> Path:
    codes = {target: make_code_object(target, seed * 99) for target in targets}
    files = {
        f"{name}/__init__.py": PACKAGE,
        f"{name}/_rocm_init.py": loader,
        f"{name}/lib/libx.so": make_hip_library([make_bundle(codes, 2, 1)]),
    }
    return build_wheel(folder, name=name, files=files, tags=LINUX, requires=())


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    folder = tmp_path_factory.mktemp("parts")
    return split(whole(folder), folder / "parts")


def device(parts: tuple[Path, ...], processor: str) -> Path:
    (found,) = (path for path in parts if f"_device_{processor}-" in path.name)
    return found


def imported(site: Path, gpus: str, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Import the package where `rocm-bootstrap` is installed and says that these GPUs are there."""
    (site / "rocm_bootstrap.py").write_text(BOOTSTRAP)
    env = {name: value for name, value in os.environ.items() if "VISIBLE_DEVICES" not in name}
    env.pop("LOCAL_RANK", None)
    env |= {"PYTHONPATH": str(site), "ROCM_BOOTSTRAP_FORCE_GFX_ARCH": gpus, **variables}
    # pip compiles what it installs. Here, a module that is replaced within a second would stay as compiled.
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [sys.executable, *flags, "-c", "import demo"]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_an_import_names_the_line_that_installs_what_is_lacking(
    parts: tuple[Path, ...], tmp_path: Path
) -> None:
    site = unpack(tmp_path / "site", parts[0])
    done = imported(site, "gfx942", "-W", "error")
    assert (done.returncode, done.stdout) == (0, "loaded\nimported\n")
    assert done.stderr == told("gfx942", "demo[device-gfx942]==1.0")
    # The extra that the metadata has, also where that is for several processors.
    several = imported(site, "gfx942,gfx1100,gfx942")
    assert several.stderr == told("gfx942 and gfx1100", "demo[device-gfx942,device-gfx11-generic]==1.0")
    unpack(site, device(parts, "gfx942"))
    assert imported(site, "gfx942").stderr == ""
    assert imported(site, "gfx1100").stderr == told("gfx1100", "demo[device-gfx11-generic]==1.0")
    assert imported(site, "gfx1100", CAIRN_DEVICE_HINT="0").stderr == ""
    assert imported(site, "gfx1100", ROCM_KPACK_PATH="/elsewhere").stderr == ""
    unpack(site, device(parts, "gfx11_generic"))
    assert imported(site, "gfx1100").stderr == ""


def test_a_wheel_variant_has_the_code_itself(parts: tuple[Path, ...], tmp_path: Path) -> None:
    site = unpack(tmp_path / "site", write_variant(parts[0], device(parts, "gfx942"), tmp_path))
    assert imported(site, "gfx942").stderr == ""
    said = "demo 1.0 has no code for gfx1100, only for gfx942"
    assert imported(site, "gfx1100").stderr == f"{said}{HIDES}"


def test_a_program_without_stderr_and_a_broken_check_import(parts: tuple[Path, ...], tmp_path: Path) -> None:
    site = unpack(tmp_path / "site", parts[0])
    code = "import sys; sys.stderr = None; import demo"
    env = os.environ | {"PYTHONPATH": str(site), "ROCM_BOOTSTRAP_FORCE_GFX_ARCH": "gfx942"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "loaded\nimported\n", "")
    check = site / "demo" / "_rocm_device_check.py"
    for content in ("raise RuntimeError\n", "this is not Python\n", "def check():\n    pass\n"):
        check.write_text(content)
        assert imported(site, "gfx942").stdout == "loaded\nimported\n"
    check.unlink()
    done = imported(site, "gfx942")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_a_program_say_nothing(parts: tuple[Path, ...], tmp_path: Path, method: str) -> None:
    site = unpack(tmp_path / "site", parts[0])
    (site / "rocm_bootstrap.py").write_text(BOOTSTRAP)
    (site / "work.py").write_text("import demo\ndef work(_):\n    return 1\n")
    program = (
        "import multiprocessing, sys, work\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:\n"
        "        pool.map(work.work, range(4))\n"
        "        pool.close()\n"
        "        pool.join()\n"
    )
    (site / "main.py").write_text(program)
    env = os.environ | {"PYTHONPATH": str(site), "ROCM_BOOTSTRAP_FORCE_GFX_ARCH": "gfx942"}
    command = [sys.executable, str(site / "main.py"), method]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stderr == told("gfx942", "demo[device-gfx942]==1.0")


def test_one_rank_of_a_machine_says_it(parts: tuple[Path, ...], tmp_path: Path) -> None:
    site = unpack(tmp_path / "site", parts[0])
    said = [imported(site, "gfx942", LOCAL_RANK=rank).stderr for rank in ("0", "1")]
    assert said == [told("gfx942", "demo[device-gfx942]==1.0"), ""]


class Here:
    """The check as it is installed, on a machine that is described by files."""

    def __init__(self, site: Path, host: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        spec = importlib.util.spec_from_file_location("check", site / "demo" / "_rocm_device_check.py")
        assert spec
        assert spec.loader
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        (build,) = re.findall(rb"@([0-9a-f]{16})", members_of(host)["demo/lib/libx.so"])
        self.build = build.decode()
        self.nodes = folder / "nodes"
        self._device = folder / "kfd"
        self._device.write_bytes(b"")
        vars(self.module).update(_DEVICE=self._device, _NODES=self.nodes)
        self._capsys = capsys

    def gpus(self, *names: str) -> None:
        for number, name in enumerate(("cpu", *names)):
            node = self.nodes / str(number)
            node.mkdir(parents=True, exist_ok=True)
            node.joinpath("properties").write_text(f"simd_count 4\ngfx_target_version {VERSIONS[name]}\n")

    def says(self) -> str:
        self._capsys.readouterr()
        self.module.check("demo", self.build, ARCHIVES, generic_targets())
        out, err = self._capsys.readouterr()
        assert not out
        return err


@pytest.fixture
def here(
    parts: tuple[Path, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Here:
    for name in list(os.environ):
        if "VISIBLE_DEVICES" in name or name.startswith(("ROCM_", "HSA_", "LOCAL_RANK")):
            monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "rocm_bootstrap", None)  # not installed
    return Here(unpack(tmp_path / "site", parts[0]), parts[0], tmp_path, capsys)


def test_code_beside_links_is_out_of_reach(
    parts: tuple[Path, ...], tmp_path: Path, here: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `uv pip install --link-mode symlink` leaves them: AMD's loader finds no archive there."""
    wheels = [parts[0], device(parts, "gfx942"), device(parts, "gfx90a")]
    folders = [unpack(tmp_path / "cache" / str(number), wheel) for number, wheel in enumerate(wheels)]
    site = tmp_path / "linked"
    for folder in folders:
        for file in (path for path in folder.rglob("*") if path.is_file()):
            place = site / file.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(file)
    linked = Here(site, parts[0], tmp_path, capsys)
    here.gpus("gfx942")
    what = "the installed code for gfx942 is out of reach behind the installer's links"
    expected = told("", "demo[device-gfx942]==1.0", what=what)
    assert linked.says() == expected.replace("pip install ", "pip install --force-reinstall ")
    # A link to the whole environment changes nothing.
    unpack(tmp_path / "site", wheels[1])
    (tmp_path / "other").symlink_to(tmp_path / "site")
    assert Here(tmp_path / "other", parts[0], tmp_path, capsys).says() == ""


def test_the_kernel_says_which_gpus_there_are(here: Here) -> None:
    assert here.says() == ""
    here.gpus()
    assert here.says() == ""
    here.gpus("gfx90a", "gfx90a")
    assert here.says() == told("gfx90a", "demo[device-gfx90a]==1.0")
    # A container sees the nodes of all GPUs, and can open the driver's device only where it was given one.
    vars(here.module).update(_DEVICE=here.nodes / "none")
    assert here.says() == ""


def test_gpus_are_counted_as_the_kernel_counts_them(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    here.gpus(*["gfx90a"] * 9, "gfx942")
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "9")
    assert here.says() == told("gfx942", "demo[device-gfx942]==1.0")


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({"ROCR_VISIBLE_DEVICES": "1"}, "gfx942"),
        ({"ROCR_VISIBLE_DEVICES": "1,0", "HIP_VISIBLE_DEVICES": "0"}, "gfx942"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, "gfx942"),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, "gfx90a"),
        ({"ROCR_VISIBLE_DEVICES": "1,7,0"}, "gfx942"),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0123456789abcdef"}, "gfx90a and gfx942"),
        ({"CUDA_VISIBLE_DEVICES": ""}, ""),
        ({"HIP_VISIBLE_DEVICES": "-1"}, ""),
    ],
)
def test_gpus_that_are_hidden_from_programs_do_not_count(
    here: Here, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], gpus: str
) -> None:
    here.gpus("gfx90a", "gfx942")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    extras = ",".join(f"device-{name}" for name in gpus.split(" and "))
    assert here.says() == (told(gpus, f"demo[{extras}]==1.0") if gpus else "")


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({"HSA_OVERRIDE_GFX_VERSION": "9.4.2"}, ("gfx942",)),
        ({"HSA_OVERRIDE_GFX_VERSION_1": "9.4.2"}, ("gfx942", "gfx1036")),
        ({"HSA_OVERRIDE_GFX_VERSION_2": "9.0.10", "HSA_OVERRIDE_GFX_VERSION": "9.4.2"}, ("gfx942", "gfx90a")),
        ({"HSA_OVERRIDE_GFX_VERSION": "gfx942"}, ("gfx1036",)),
    ],
)
def test_a_gpu_may_pass_for_a_similar_one(
    here: Here, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], gpus: tuple[str, ...]
) -> None:
    """Owners of a Radeon that nothing is compiled for do so: the runtime looks for the code of the other."""
    here.gpus("gfx1036", "gfx1036")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    extras = ",".join(f"device-{name}" for name in gpus if name != "gfx1036")
    lacking = " and ".join(name for name in gpus if name != "gfx1036")
    line = "demo 1.0 has no code for gfx1036, only for gfx90a, gfx942 and gfx11-generic" + HIDES
    said = here.says()
    assert said == (told(lacking, f"demo[{extras}]==1.0") if extras else line)
    bootstrap(monkeypatch, lambda: detected(1, "gfx1036", "gfx1036"))
    assert here.says() == said


def test_an_archive_of_any_features_of_the_processor_is_enough(
    here: Here, tmp_path: Path, parts: tuple[Path, ...]
) -> None:
    here.gpus("gfx90a")
    site = unpack(tmp_path / "site", device(parts, "gfx942"))
    folder = site / "demo" / ".kpack"
    (folder / "demo_gfx942.kpack").rename(folder / "demo_gfx90.kpack")
    assert here.says() == told("gfx90a", "demo[device-gfx90a]==1.0")
    unpack(site, device(parts, "gfx90a"))
    (folder / "demo_gfx90a:xnack-.kpack").unlink()
    assert here.says() == ""


def upgraded(folder: Path, *wheels: Path, to: str = "2.0") -> dict[str, Path]:
    """Wheels of a later version, by their projects."""
    assert not cairn_wheel("set-version", "--version", to, "--output-dir", folder, *wheels)
    return {path.name.partition("-")[0]: path for path in folder.iterdir()}


def uninstall(site: Path, *projects: str) -> None:
    for project in projects:
        shutil.rmtree(next(site.glob(f"{project}-*.dist-info")))


DIFFERENT = "the installed code for gfx942 is of a different version"


def test_an_upgrade_of_the_host_wheel_alone(parts: tuple[Path, ...], tmp_path: Path) -> None:
    """`pip install --upgrade torch` leaves the code of last night beside the libraries of tonight."""
    site = unpack(tmp_path / "site", parts[0], device(parts, "gfx942"))
    assert imported(site, "gfx942").stderr == ""
    tonight = split(whole(tmp_path, seed=b"tonight"), tmp_path / "tonight")
    later = upgraded(tmp_path / "later", *tonight)
    uninstall(site, "demo")
    unpack(site, later["demo"])
    line = "demo[device-gfx942]==2.0"
    assert imported(site, "gfx942").stderr == told("", line, what=DIFFERENT)
    both = imported(site, "gfx942,gfx1100").stderr
    what = "the code for gfx942 and gfx1100 is not installed or of a different version"
    assert both == told("", "demo[device-gfx942,device-gfx11-generic]==2.0", what=what)
    uninstall(site, "demo_device_gfx942")
    unpack(site, later["demo_device_gfx942"])
    assert imported(site, "gfx942").stderr == ""
    # Built again under the same version, as developers do: pip would not replace what is installed.
    again = split(whole(tmp_path, seed=b"again"), tmp_path / "again")
    unpack(site, upgraded(tmp_path / "rebuilt", *again)["demo"])
    said = imported(site, "gfx942").stderr
    what = "the installed code for gfx942 is of a different build"
    assert said == told("", line, what=what).replace("pip install", "pip install --force-reinstall")


def test_libraries_that_did_not_change_run_the_code_that_is_there(
    parts: tuple[Path, ...], tmp_path: Path
) -> None:
    site = unpack(tmp_path / "site", parts[0], device(parts, "gfx942"))
    uninstall(site, "demo")
    unpack(site, upgraded(tmp_path / "later", *parts)["demo"])
    assert imported(site, "gfx942").stderr == ""


def test_old_code_of_the_gpu_hides_what_a_generic_target_brings_now(tmp_path: Path) -> None:
    old = split(whole(tmp_path, targets=("gfx1100",)), tmp_path / "old")
    new = upgraded(tmp_path / "later", *split(whole(tmp_path, targets=("gfx11-generic",)), tmp_path / "new"))
    site = unpack(tmp_path / "site", device(old, "gfx1100"), *new.values())
    what = "the installed code for gfx1100 is of a different version"
    line = told("", "demo[device-gfx11-generic]==2.0", what=what)
    remove = "pip uninstall demo-device-gfx1100 && pip install"
    assert imported(site, "gfx1100").stderr == line.replace("pip install", remove)
    uninstall(site, "demo_device_gfx1100")
    (site / "demo" / ".kpack" / "demo_gfx1100.kpack").unlink()
    assert imported(site, "gfx1100").stderr == ""


def test_a_gpu_that_nothing_was_compiled_for(here: Here, tmp_path: Path, parts: tuple[Path, ...]) -> None:
    here.gpus("gfx1036")
    line = "demo 1.0 has no code for gfx1036, only for gfx90a, gfx942 and gfx11-generic"
    assert here.says() == line + HIDES
    # Beside one that can be used it is mostly the GPU inside a processor: nothing can be done, or need be.
    here.gpus("gfx1036", "gfx1100")
    assert here.says() == told("gfx1100", "demo[device-gfx11-generic]==1.0")
    unpack(tmp_path / "site", device(parts, "gfx11_generic"))
    assert here.says() == ""


def test_host_wheels_beside_it_are_named_too(here: Here, tmp_path: Path, parts: tuple[Path, ...]) -> None:
    """torchvision has no module that loads ROCm, so that torch speaks for it."""
    others = {
        name: split(whole(tmp_path, name=name), tmp_path / name) for name in ("demovision", "demo_audio")
    }
    site = unpack(tmp_path / "site", *(made[0] for made in others.values()))
    here.gpus("gfx942")
    words = ("demo[device-gfx942]==1.0", "demo_audio[device-gfx942]==1.0", "demovision[device-gfx942]==1.0")
    assert here.says() == told("gfx942", *words, who="demo, demo_audio and demovision")
    unpack(site, device(parts, "gfx942"), device(others["demo_audio"], "gfx942"))
    assert here.says() == told("gfx942", words[2], who="demovision")
    unpack(site, device(others["demovision"], "gfx942"))
    assert here.says() == ""
    uninstall(site, "demovision")
    unpack(site, upgraded(tmp_path / "later", *others["demovision"])["demovision"])
    line = "demovision[device-gfx942]==2.0"
    assert here.says() == told("", line, who="demovision", what=DIFFERENT, fails="may")


def test_device_wheels_may_have_other_names(here: Here, tmp_path: Path) -> None:
    """Those of the ROCm SDK, which share no part of their names with their host wheel; and upstream's."""
    libraries = split(whole(tmp_path, name="demo_libraries"), tmp_path / "sdk", Terms(stem="sdk-device"))
    vision = split(whole(tmp_path, name="vision"), tmp_path / "vision", Terms(prefix="amd"))
    site = unpack(tmp_path / "site", libraries[0], vision[0])
    (tmp_path / "site" / "demo-1.0.dist-info" / "cairn-split.json").unlink()
    here.gpus("gfx942")
    lines = ("demo_libraries[device-gfx942]==1.0", "vision[device-gfx942]==1.0")
    assert here.says() == told("gfx942", *lines, who="demo_libraries and vision")
    unpack(site, device(libraries, "gfx942"), device(vision, "gfx942"))
    assert here.says() == ""


def detected(first: int, *names: str) -> list[object]:
    """GPUs as `rocm-bootstrap` gives them, by their nodes."""
    return [SimpleNamespace(target=SimpleNamespace(name=n), node_id=i) for i, n in enumerate(names, first)]


def bootstrap(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], object]) -> list[int]:
    asked: list[int] = []

    def detect_gpus() -> object:
        asked.append(1)
        return answer()

    module = ModuleType("rocm_bootstrap")
    vars(module)["detect_gpus"] = detect_gpus
    monkeypatch.setitem(sys.modules, "rocm_bootstrap", module)
    return asked


def test_what_rocm_bootstrap_says_counts_and_it_is_asked_only_when_something_is_lacking(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, parts: tuple[Path, ...]
) -> None:
    asked = bootstrap(monkeypatch, lambda: detected(0, "gfx1100"))
    assert here.says() == ""  # no GPU: it would start a program to look for one
    assert not asked
    here.gpus("gfx942")
    assert here.says() == told("gfx1100", "demo[device-gfx11-generic]==1.0")
    bootstrap(monkeypatch, list)  # its detection is switched off
    assert here.says() == ""

    def fail() -> object:
        raise ValueError("a GPU that it does not know")

    bootstrap(monkeypatch, fail)
    assert here.says() == told("gfx942", "demo[device-gfx942]==1.0")
    asked = bootstrap(monkeypatch, fail)
    unpack(tmp_path / "site", device(parts, "gfx942"))
    assert here.says() == ""
    assert not asked


def test_the_check_runs_on_every_python_of_a_wheel(parts: tuple[Path, ...]) -> None:
    members = members_of(parts[0])
    for name in ("demo/_rocm_device_check.py", "demo/_rocm_init.py"):
        ast.parse(members[name], feature_version=(3, 10))


@pytest.mark.parametrize(
    "loader",
    [
        LOADER,
        LOADER.rstrip(),
        LOADER.replace(b"\n", b"\r\n"),
        b"# -*- coding: latin-1 -*-\n# \xe9\n" + LOADER,
    ],
)
def test_the_loader_comes_back_to_the_byte(tmp_path: Path, loader: bytes) -> None:
    wheel = whole(tmp_path, loader)
    parts = split(wheel, tmp_path / "parts")
    for part in parts:
        assert [f.code for f in verify(part, Expectation(targets=None))] == []
    site = unpack(tmp_path / "site", parts[0])
    done = imported(site, "gfx942")
    assert done.stdout == "loaded\nimported\n"
    assert done.stderr
    joined = join(parts[0], parts[1:], tmp_path / "joined").path
    before, after = members_of(wheel), members_of(joined)
    assert before.keys() == after.keys()
    assert after["demo/_rocm_init.py"] == before["demo/_rocm_init.py"] == loader


def test_a_host_wheel_of_a_different_version_names_that(parts: tuple[Path, ...], tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    assert not cairn_wheel("set-version", "--version", "2.0", "--output-dir", changed, *parts)
    site = unpack(tmp_path / "site", changed / parts[0].name.replace("-1.0-", "-2.0-"))
    assert imported(site, "gfx942").stderr == told("gfx942", "demo[device-gfx942]==2.0")


@pytest.mark.parametrize(
    "loader", [b"LIBRARIES = ()\n", b"def initialize(name):\n    pass\n", b"not Python\n"]
)
def test_a_module_without_initialize_is_left_alone(tmp_path: Path, loader: bytes) -> None:
    host = split(whole(tmp_path, loader), tmp_path / "parts")[0]
    members = members_of(host)
    assert members["demo/_rocm_init.py"] == loader
    assert "demo/_rocm_device_check.py" not in members
