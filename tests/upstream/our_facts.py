"""What our files say of upstream, in the shape that `upstream_files` reads upstream's in.

Each function takes upstream's facts: what is ours by another name is looked up for those.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import import_skips
from upstream_files import Facts, shown_default

from cairn import requirements, targets
from cairn.cli.upstream import build_prod_wheels, checkouts, pytorch_tests
from cairn.cli.upstream import scripts as upstream_scripts
from cairn.options import KEY, Option
from cairn.rocm.fetch import choose, runs
from cairn.rocm.packages_toml import COMPONENTS
from cairn.sources.git import repository
from cairn.testing.skips import skip_files

ROOT = Path(__file__).parents[2]
STACK, MATRIX = "external-builds/pytorch/stack.toml", "external-builds/pytorch/matrix.toml"
SDK, FAT = "build_tools/cairn/rocm/therock.toml", "build_tools/cairn/wheels/fat/recipe.toml"
SUITE = "external-builds/pytorch/suite.toml"
FLAGS, SKIPS = "tests/upstream/flags.toml", "tests/upstream/skip_names.toml"
_NOISE = {"amd", "radeon", "rx", "pro", "igpu", "cdna", "gpu", "instinct", "laptop"}


@functools.cache
def _toml(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text(encoding="utf-8"))


def gpu_targets(theirs: Facts) -> Facts:
    """The families of each target; a product of theirs, where its words are in names of ours, and ours in it.

    The names are all that a target's GPUs have; the words that theirs must have are of those in targets.toml.
    """
    families, table = targets.families(), _toml("build_tools/cairn/targets.toml")["targets"]
    facts: Facts = {
        f"{name} families": frozenset(f for f, members in families.items() if name in members and "-" in f)
        - set(_toml("build_tools/cairn/targets.toml")["families"])
        for name in targets.known_targets()
    }
    for name, text in theirs.items():
        target, _, kind = name.partition(" ")
        if kind == "product" and target in targets.known_targets():
            unknown = _words(str(text)) - _words(" ".join(targets.product_names(target)))
            more = _words(table.get(target, {}).get("product", "")) - _words(str(text))
            words = [f"without {' '.join(sorted(unknown))}"] if unknown else []
            words += [f"with {' '.join(sorted(more))}"] if more else []
            facts[name] = ", ".join(words) or text
    return facts


def _words(text: str) -> set[str]:
    return {word for word in re.findall("[a-z]+|[0-9]+", text.casefold()) if word not in _NOISE}


def index_families(_theirs: Facts) -> Facts:
    """The families that indexes and packages are named after."""
    return dict.fromkeys(targets.index_families(), True)


def indexes(_theirs: Facts) -> Facts:
    """AMD's indexes by stream."""
    return dict(targets.upstream_streams())


def matrix(_theirs: Facts) -> Facts:
    """The rows of matrix.toml."""
    data = _toml(MATRIX)
    facts: Facts = {
        f"{family} trigger": trigger
        for trigger, each in data["triggers"].items()
        for family in each["families"]
    }
    for family, platforms in data["families"].items():
        for platform, entry in platforms.items():
            facts[f"{family} {platform} test"] = " ".join(entry.get("test", ()))
            facts[f"{family} {platform} multi_gpu"] = " ".join(entry.get("multi_gpu", ()))
            facts[f"{family} {platform} bypass_tests"] = entry.get("bypass_tests", False)
    return facts | {f"{name} build": each["build"] for name, each in data["platforms"].items()}


def lines(_theirs: Facts) -> Facts:
    """The lines and Pythons of the stack, those of changes, and the families left out of a line."""
    stack, matrix = _toml(STACK), _toml(MATRIX)
    families = matrix["families"]
    facts: Facts = {"pythons": stack["pythons"]}
    facts |= {
        f"{trigger} {platform} {what}": frozenset(matrix["triggers"][trigger][what])
        for trigger in ("presubmit", "postsubmit")
        for platform in stack["platforms"]
        for what in ("pythons", "lines")
    }
    for line in stack["lines"]:
        for platform in stack["platforms"]:
            facts[f"{line} {platform} without"] = frozenset(
                family
                for family, entry in families.items()
                if line in entry.get(platform, {}).get("except_lines", ())
            )
    return facts


def preloads(_theirs: Facts) -> Facts:
    """The preloads of the stack."""
    sdk = _toml(STACK)["sdk"]
    return {
        f"{platform} {name}": True
        for platform, key in (("linux", "preload"), ("windows", "preload_windows"))
        for name in sdk[key]
    }


def libraries(_theirs: Facts) -> Facts:
    """The libraries of the SDK by name."""
    return dict(_toml(SDK)["preload"])


def packages(_theirs: Facts) -> Facts:
    """The packages of the SDK: those that we make, and whether a name is one of the SDK's."""
    made: dict[str, str] = {"core": "rocm-sdk-core", "devel": "rocm-sdk-devel", "profiler": "rocm-profiler"}
    made |= {"meta": "rocm", "device": "rocm-sdk-device-{target_family}"}
    made |= {name: f"rocm-sdk-{name}-{{target_family}}" for name in COMPONENTS if name not in made}
    return {name: text for name, text in made.items() if requirements.is_sdk(text)}


def scripts(_theirs: Facts) -> Facts:
    """The console scripts of the SDK."""
    sdk = _toml(SDK)
    return {
        f"{package} {name}": f"{path}, reports" if name in sdk[package].get("reports", ()) else path
        for package in ("core", "profiler")
        for name, path in sdk[package]["scripts"].items()
    }


def artifacts(theirs: Facts) -> Facts:
    """The artifacts of the SDK's packages; a pattern stands for those of theirs that it matches."""
    sdk = _toml(SDK)
    facts: Facts = {f"profiler file {pattern}": True for pattern in sdk["profiler"]["files"]}
    for package in ("core", "libraries", "profiler"):
        for name in sdk[package]["artifacts"]:
            matching = fnmatch.filter(theirs, f"{package} {name}") if "*" in name else [f"{package} {name}"]
            facts |= dict.fromkeys(matching or [f"{package} {name}"], True)
    # A target's device packages have what the libraries' artifacts have for it.
    facts |= {f"device {name}": True for name in sdk["libraries"]["artifacts"]}
    return facts


def buckets(_theirs: Facts) -> Facts:
    """Types of releases, and the buckets that are looked into."""
    facts: Facts = dict.fromkeys(choose.RELEASE_TYPES, "a release type")
    for repository_name in (choose.UPSTREAM, "somebody/fork"):
        for kind in choose.RELEASE_TYPES:
            run = choose.Run(id="1", platform="linux", repository=repository_name, release_type=kind)
            facts |= {place.split("/")[2]: "a bucket" for place in run.places()}
    return facts


def flags(_theirs: Facts) -> Facts:
    """The flags of their scripts that ours were made for; defaults and choices of those that ours take."""
    facts: Facts = {}
    for command, words in _toml(FLAGS)["flags"].items():
        facts |= {f"{command} {flag}": True for flag in words.split()}
        for flag, (field, how) in options(command).items():
            if flag in words.split():
                if default := shown_default(field.default):
                    facts[f"{command} {flag} default"] = default
                if how.choices is not None:
                    facts[f"{command} {flag} choices"] = frozenset(how.choices)
    return facts


_EXTERNAL = "external-builds/pytorch"
_REQUESTS: Mapping[str, type[Any]] = {
    f"{_EXTERNAL}/build_prod_wheels.py install-rocm": build_prod_wheels.Common,
    f"{_EXTERNAL}/build_prod_wheels.py build": build_prod_wheels.Build,
    f"{_EXTERNAL}/checkout_from_manifest.py": checkouts._FromManifest,
    f"{_EXTERNAL}/run_pytorch_smoke_tests.py": pytorch_tests.Smoke,
    f"{_EXTERNAL}/run_pytorch_tests.py": pytorch_tests.RunTests,
    f"{_EXTERNAL}/windows_patch_fat_wheel.py": upstream_scripts.PatchFatWheel,
    "build_tools/fetch_artifacts.py": upstream_scripts.FetchArtifacts,
    "build_tools/build_python_packages.py": upstream_scripts.BuildPythonPackages,
}


@functools.cache
def options(command: str) -> Mapping[str, tuple[dataclasses.Field[Any], Option]]:
    """The options of our script of that name, or of its command, by flag."""
    if command in _REQUESTS:
        return _options(_REQUESTS[command])
    return _options(checkouts._CheckOut if command.endswith(" checkout") else checkouts._Hipify)


def _options(request: type[Any]) -> dict[str, tuple[dataclasses.Field[Any], Option]]:
    options: dict[str, tuple[dataclasses.Field[Any], Option]] = {}
    for field in dataclasses.fields(request):
        declared = field.metadata.get(KEY)
        if isinstance(declared, type):
            options |= _options(declared)
        elif isinstance(declared, Option):
            names = declared.flags or (f"--{field.name.replace('_', '-')}",)
            options |= dict.fromkeys(names, (field, declared))
    return options


def takes_flag(name: str) -> bool:
    """Whether the command takes the flag at the end of its name."""
    command, _, flag = name.rpartition(" ")
    return command in _toml(FLAGS)["flags"] and flag in options(command)


def files(_theirs: Facts) -> Facts:
    """Their scripts, as the pages name them."""
    return {
        f"{folder}/{name}": True
        for folder, words in _toml(FLAGS)["scripts"].items()
        for name in words.split()
    }


def workflows(_theirs: Facts) -> Facts:
    """The workflows whose runs are asked for."""
    return dict.fromkeys(workflow_names(), True)


def workflow_names() -> tuple[str, ...]:
    """The names of upstream's workflows whose runs are asked for."""
    wanted = [choose.Run(id="1", platform="linux", release_type=kind) for kind in choose.RELEASE_TYPES]
    return tuple(sorted({runs._workflow(run) for run in wanted}))


def scripts_with_flags() -> tuple[str, ...]:
    """Their scripts whose flags ours take."""
    return tuple(dict.fromkeys(command.split()[0] for command in _toml(FLAGS)["flags"]))


def folders_of_scripts() -> tuple[str, ...]:
    """The folders whose scripts are named."""
    return tuple(_toml(FLAGS)["scripts"])


def skip_lists() -> tuple[str, ...]:
    """The lists that names are from, but that of the modules."""
    return tuple(name for name in _toml(SKIPS) if not name.startswith("run_"))


def skip_tests() -> tuple[str, ...]:
    """The files of our exclusions, whose entries name the list that they are from."""
    return tuple(path.relative_to(ROOT).as_posix() for path in sorted(import_skips.SKIP_TESTS.glob("*.toml")))


def skips(_theirs: Facts) -> Facts:
    """The names of their skip lists that entries of ours leave out."""
    lists, listed = import_skips.read(), skip_files.read([import_skips.SKIP_TESTS])
    return {str(name): True for name in lists.names if import_skips.entries_of(name, lists, listed)}


_COMPUTED = "computed"
_SECTIONS = ("always", "{platform}", "rocm", "rocm_{platform}")


def variables(_theirs: Facts) -> Facts:
    """The variables of builds for ROCm, by project and platform."""
    stack = _toml(STACK)
    facts: Facts = {}
    for platform in ("linux", "windows"):
        for project in stack["projects"]:
            if project["name"] == "apex" and platform == "windows":
                continue
            values: dict[str, str] = {}
            for environment in (stack["environment"], project["environment"]):
                for section in _SECTIONS:
                    values |= environment.get(section.format(platform=platform), {})
            facts |= {f"{project['name']} {platform} {name}": _value(value) for name, value in values.items()}
    return facts


def _value(text: str) -> str:
    return _COMPUTED if "{" in text else text.strip()


def projects(_theirs: Facts) -> Facts:
    """The projects of the stack."""
    stack = _toml(STACK)
    facts: Facts = {"diff base": repository.UPSTREAM_TAG, "hipify diff base": repository.HIPIFY_TAG}
    for project in stack["projects"]:
        name = project["name"]
        facts[f"{name} folder"] = project["checkout_dir"]
        facts[f"{name} origin"] = project["origin"]["url"]
        if name != "triton":
            facts[f"{name} hashtag"] = project["hashtag"].replace("{line}", stack["line"])
        else:
            facts["triton windows origin"] = project["windows"]["origin"]["url"]
            facts["triton windows commit"] = project["windows"]["hashtag"]
            urls = {each["name"]: each["url"] for each in project["downloads"]}
            facts["triton windows llvm"] = urls["llvm-windows"].rpartition("/")[0]
        carried = [each["path"] for each in project.get("carries", ())]
        carried += [key.removeprefix("wheel.force-include.") for key in _carried(project)]
        facts |= {f"{name} carries {path}": True for path in carried}
    return facts | {"flash attention targets": frozenset(stack["features"]["flash_attention"]["targets"])}


def _carried(project: Mapping[str, Any]) -> list[str]:
    return [key for key in project.get("config_settings", {}) if key.startswith("wheel.force-include.")]


def fat_libraries(_theirs: Facts) -> Facts:
    """The libraries of fat wheels, and their data."""
    recipe = _toml(FAT)
    facts: Facts = {each["stem"]: True for each in recipe["linux"]["libraries"]}
    return facts | {f"data {each['to']}": True for each in recipe["data"]}


def test_files() -> tuple[str, ...]:
    """The modules of tests that configurations name without a pattern, and the lists that lie beside them."""
    suite = _toml(SUITE)
    groups = [group for config in suite["configs"].values() for group in config["groups"]]
    names = {f"{module}.py" for group in groups for module in group["modules"] if "*" not in module}
    return tuple(sorted(names | {each["path"] for each in suite["lists"].values() if "path" in each}))


def hooks(_theirs: Facts) -> Facts:
    """What the shipped suite accepts of the tests."""
    return dict.fromkeys(_toml(SUITE)["hooks"], True)


def pytorch_files(theirs: Facts) -> Facts:
    """All of them are there."""
    return dict.fromkeys(theirs, True)
