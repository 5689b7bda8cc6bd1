"""Copy the tests from the sources that a wheel was built from to a folder without the rest of the sources.

Tests of another commit may fail or pass for reasons that have nothing to do with the wheel, and a test that
runs inside a source tree imports the tree, not the wheel.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from cairn import datafile, files, process
from cairn.errors import PrerequisiteError, ProcessError, UsageError
from cairn.output import wording
from cairn.output.wording import short_id
from cairn.testing.install_set import Tested
from cairn.testing.suite.suite_toml import Suite

_ASK_TIMEOUT = 60.0  # seconds
_CODE = (".py", ".ini", ".cfg", ".toml", ".json")
_CONFIGURATION = ("conftest.py", "pytest.ini", "sitecustomize.py")  # which a later process reads by itself

# Finding a module does not import it: importing torch takes seconds, and makes it look at the GPUs.
_ASK = """
import importlib.metadata, importlib.util, json, runpy, sys
package, _, rest = sys.argv[1].partition("/")
found = importlib.util.find_spec(package)
if found is None or not found.submodule_search_locations:
    sys.exit(f"{package} is not installed")
values = runpy.run_path(list(found.submodule_search_locations)[0] + "/" + rest)
version, commit = values.get("__version__"), values.get("git_version")
python = ".".join(map(str, sys.version_info[:3]))
platform = "windows" if sys.platform == "win32" else sys.platform
said = {"version": version, "commit": commit, "python": python, "platform": platform}
said = {name: str(value or "") for name, value in said.items()}
sys.path += json.loads(sys.argv[2])
beside = {}
for name in sys.argv[3:]:
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        if name in ("pip", "pytest") and importlib.util.find_spec(name) is not None:  # a copy of it
            beside[name] = "", []
        continue
    plugins = [entry.name for entry in distribution.entry_points if entry.group == "pytest11"]
    beside[name] = distribution.version, plugins
entries, requires = {}, {}
for distribution in importlib.metadata.distributions():
    requires[distribution.metadata["Name"] or ""] = distribution.requires or []
    for entry in distribution.entry_points:
        if entry.group == "pytest11":
            entries[entry.name] = distribution.metadata["Name"], entry.value.partition(":")[0]
print(json.dumps({**said, "beside": beside, "entries": entries, "requires": requires}))
"""


class WheelVersion(msgspec.Struct, frozen=True, kw_only=True):
    """An installed wheel, and what the interpreter that has it has beside.

    Attributes:
        version: of the wheel; empty if it does not say.
        commit: that it was built from, likewise.
        python: the version of the interpreter.
        platform: `linux`, `windows`, or what Python calls it.
        beside: of pip, pytest and the packages that the suite requires, the version of each that is
            installed, and the names of its plugins for pytest. A copy without metadata has no version.
        entries: all plugins for pytest that are installed, by name: the distribution, and the module.
        requires: what each installed distribution requires.
    """

    version: str
    commit: str
    python: str
    platform: str
    beside: Mapping[str, tuple[str, Sequence[str]]] = msgspec.field(default_factory=dict)
    entries: Mapping[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    requires: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)


def installed(tested: Tested, suite: Suite) -> WheelVersion:
    """Ask the tested interpreter for the version of its installed wheel, and for what the suite requires.

    Raises:
        PrerequisiteError: it has no such wheel.
    """
    required = (Requirement(text).name for text in suite.requires_of(""))
    python, names = tested.python, dict.fromkeys(["pip", "pytest", *required])
    try:
        # -I: not what lies in our working folder, which may be the source tree.
        completed = process.run(
            [
                python,
                "-I",
                "-c",
                _ASK,
                suite.version_module,
                json.dumps(list(map(str, tested.tools))),
                *names,
            ],
            env=tested.variables,
            timeout=_ASK_TIMEOUT,
            separate_stderr=True,
        )
        return WheelVersion(**datafile.parse_json(completed.output, name="its answer"))
    except (ProcessError, UsageError, TypeError) as error:
        why = error.output.strip().splitlines()[-1:] if isinstance(error, ProcessError) else [str(error)]
        raise PrerequisiteError(
            f"{python} has no {suite.project} to test: {''.join(why) or error}",
            tip="install the wheel, or name the interpreter that has it with --python",
        ) from error


def unmet(suite: Suite, wheel: WheelVersion) -> list[Requirement]:
    """Return the requirements of the tests that are not installed, and pytest where it is not here at all."""
    missing: list[Requirement] = []
    for requirement in map(Requirement, suite.requires_of(wheel.version)):
        version, _ = wheel.beside.get(requirement.name, ("", ()))
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and not (version and requirement.specifier.contains(version, prereleases=True)):
            missing.append(requirement)
    if "pytest" not in wheel.beside and all(requirement.name != "pytest" for requirement in missing):
        missing.append(Requirement("pytest"))
    return missing


def choose_plugins(suite: Suite, wheel: WheelVersion) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the plugins of pytest that the tests run with, and the top modules of those in neither list.

    Raises:
        PrerequisiteError: one that the suite names is not installed.
        UsageError: what the suite requires brought one that the suite neither names nor refuses.
    """
    if missing := [name for name in suite.plugins if name not in wheel.entries]:
        raise PrerequisiteError(
            f"pytest's plugin {missing[0]}, which the tests of {suite.project} need, is not installed",
            tip="install the package that has it, or take it out of `plugins` in suite.toml",
        )
    of_requires = (name for _, names in wheel.beside.values() for name in names)
    chosen = [name for name in dict.fromkeys([*of_requires, *suite.plugins]) if name not in suite.plugins_off]
    decided, brought = (
        {*chosen, *suite.plugins_off},
        _closure(wheel.requires, suite.requires_of(wheel.version)),
    )
    undecided = {name: entry for name, entry in wheel.entries.items() if name not in decided}
    for name, (distribution, _) in undecided.items():
        if canonicalize_name(distribution) in brought:
            raise UsageError(
                f"what the suite requires brought pytest's plugin {name} of {distribution}, which is off",
                tip=f'add `plugins = ["{name}"]` to suite.toml, or `plugins_off = ["{name}"]` if its tests '
                "do not need it",
            )
    return tuple(chosen), {name: module.partition(".")[0] for name, (_, module) in undecided.items()}


def _closure(requires: Mapping[str, Sequence[str]], texts: Sequence[str]) -> set[str]:
    """Return the canonical names of all that these requirements bring, without extras."""
    by_name = {canonicalize_name(name): of_name for name, of_name in requires.items()}
    names, waiting = set[str](), list(texts)
    while waiting:
        with contextlib.suppress(InvalidRequirement):  # of metadata that no installer minded
            requirement = Requirement(waiting.pop())
            name = canonicalize_name(requirement.name)
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if applies and name not in names:
                names.add(name)
                waiting += by_name.get(name, ())
    return names


def mismatch(
    checkout: Path, commits: Sequence[str], suite: Suite, wheel: WheelVersion, *, edits: Sequence[str] = ()
) -> str | None:
    """Return why the tests are not those of the wheel, or None if they are.

    The commit decides: the wheel's must be the one that is checked out, or that commit before hipify, and the
    tests must be unmodified. If either commit is unknown, nothing shows that they are the same.

    Args:
        checkout: the sources.
        commits: what is checked out there, and what that was before hipify; empty where that is not known.
        suite: where they have their version.
        wheel: what is installed.
        edits: files that are not as the commit has them; those that are no tests do not matter.
    """
    if commits and wheel.commit:
        if wheel.commit in commits:
            edited = [
                name for name in edits if name == suite.config_file or name.startswith(f"{suite.tests}/")
            ]
            return f"the tests have local edits: {wording.some(edited)}" if edited else None
        checked_out, built = short_id(commits[0]), short_id(wheel.commit)
        return f"the tests are of commit {checked_out}, the wheel ({wheel.version}) of {built}"
    missing = "the wheel does not say" if commits else f"{checkout} is not a git checkout that says"
    source = _source_version(checkout / suite.version_file)
    try:
        same = source is not None and source.release[:2] == Version(wheel.version).release[:2]
    except InvalidVersion:
        same = False
    beside = f"the versions are {source or 'unknown'} and {wheel.version or 'unknown'}"
    return f"{missing} which commit it is of; {beside}" + (", which agree as far as they go" if same else "")


def tests_of(checkout: Path, suite: Suite) -> Path:
    """Return the folder of tests in the sources.

    Raises:
        UsageError: there is none.
    """
    folder = checkout / suite.tests
    if not folder.is_dir():
        raise UsageError(
            f"{checkout} has no folder {suite.tests}: it is no checkout of {suite.project}",
            tip=f"check out {suite.project}, or name the folder of its sources",
        )
    return folder


def copy_tests(checkout: Path, suite: Suite, target: Path) -> None:
    """Copy the tests and pytest's configuration unchanged.

    Raises:
        UsageError: the sources have no such tests.
    """
    ignored = shutil.ignore_patterns("__pycache__", ".git", ".pytest_cache")
    shutil.copytree(
        tests_of(checkout, suite), target / suite.tests, ignore=ignored, ignore_dangling_symlinks=True
    )
    if suite.config_file and (checkout / suite.config_file).is_file():
        (target / suite.config_file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkout / suite.config_file, target / suite.config_file)


def configuration(target: Path, suite: Suite) -> Path:
    """Return pytest's configuration in the copy; an empty one if the tests came without."""
    config = target / (suite.config_file or "pytest.ini")
    if not config.is_file():
        files.write_text(config, "[pytest]\n")  # so that none further up is found
    return config


def hash_code(folders: Sequence[Path]) -> dict[Path, str]:
    """Return the sha256 of each file below these folders that decides which tests run, and how."""
    paths = (path for folder in folders for path in folder.rglob("*") if path.suffix in _CODE)
    return {path: files.sha256_of(path) for path in paths if path.is_file()}


def changed_code(before: Mapping[Path, str], folders: Sequence[Path]) -> list[str]:
    """Return the names of files that were changed or removed since `hash_code`, and of new configuration."""
    now = hash_code(folders)
    changed = [path for path, sha256 in before.items() if now.get(path) != sha256]
    changed += [path for path in now.keys() - before.keys() if path.name in _CONFIGURATION]
    return sorted(path.name for path in changed)


def _source_version(path: Path) -> Version | None:
    try:
        return Version(path.read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        return None
