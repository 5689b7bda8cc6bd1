"""suite.toml, beside a stack.toml: the configurations that tests run in, and the lists that they read."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from cairn import datafile, files, web
from cairn.errors import NetworkError, UsageError
from cairn.output import Progress, silent, wording
from cairn.retry import RetryPolicy, retrying
from cairn.testing.skips import conditions
from cairn.testing.testing_options import Choice
from cairn.wheels.wheelset import WheelSet

FILE = "suite.toml"
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")

Gpus = Literal["one", "all"]
ListFormat = Literal["condensed", "times"]


class Group(datafile.Value):
    """Modules that run with the same variables.

    Attributes:
        modules: paths below the folder of tests without `.py`, or patterns: `*` stands for any part of a
            name, `**` for any folders. One that names no module is an error, so that a typo loses no test.
        exclude: likewise, of those that the patterns find.
        environment: further variables.
    """

    modules: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}


class Config(datafile.Value):
    """A named choice of modules.

    Attributes:
        groups: what it runs; a module is in one of them at most.
        about: what it is for.
        shards: how many machines share it by default.
        gpus: whether its tests see one GPU of the machine, or all.
        floor: fewest tests that must run, all shards together, where the nightly runs it.
        device_floor: fewest that must have passed on a GPU, likewise.
        flaky_ceiling: most tests that may be flaky, all shards together, where that is less than what
            `verdict.judge` allows.
        network: its tests may use the network; others get none but a loopback of their own where the machine
            can do that.
    """

    groups: tuple[Group, ...]
    about: str = ""
    shards: int = 1
    gpus: Gpus = "one"
    floor: int = 1
    device_floor: int = 1
    flaky_ceiling: int | None = None
    network: bool = False


class TestList(datafile.Value):
    """A list of tests that the tests themselves read, to skip some of them.

    Attributes:
        format: `condensed` is a JSON object of a test to the number of an issue, its address and the
            platforms that it is about; the tests get it without the numbers. `times` is one of a test to its
            seconds.
        url: where a night fetches it, once, when it is frozen. Outside of a night the variable is not set.
        path: of a file below the folder of tests, in place of `url`.
    """

    __test__ = False  # pytest would collect the name
    format: ListFormat
    url: str = ""
    path: str = ""


class Suite(datafile.Value, tag_field="schema", tag="cairn.suite/1"):
    """A project's test suite.

    Attributes:
        project: of the stack.
        tests: the folder of tests in the project's sources.
        config_file: pytest's configuration file in the sources; empty for none.
        version_module: a module in the installed wheel that has `git_version`, the commit it was built from,
            and `__version__`; it is executed by itself, and must import nothing.
        version_file: the file with the version in the sources, to compare where there is no commit.
        configs: by name; `default` runs unless another is named.
        requires: what the tests need besides the wheel, installed where nothing else is. pytest's plugins
            among it are loaded.
        requires_for: further requirements by a range of the project's versions, such as `"<2.8"`. Versions
            are compared by their release alone, as in skip-tests.
        plugins: further plugins of pytest that the tests need, by their entry points (`pytest11`), such as
            `timeout`. No others are loaded.
        plugins_off: those that the tests do not need, likewise.
        uncollected: classes such as `test_a.py::TestB` that pytest does not collect, since they have an
            `__init__`, and whose tests may be missing.
        hooks: hooks of pytest that the tests have and that decide which of them run or how they end,
            functions of pytest that they replace, and plugins of pytest that they turn off, as records name
            them: `conftest.py: pytest_runtest_setup`, `-p no:warnings`. With any other a run has not passed.
        environment: variables of every run.
        gpu_environment: those of a run for GPUs besides; `{scratch}` is a folder for the run.
        lists: lists of tests that the tests read, by the variable that has the path of the file.
    """

    project: str
    tests: str
    configs: Mapping[str, Config]
    version_module: str
    version_file: str
    config_file: str = ""
    requires: tuple[str, ...] = ()
    requires_for: Mapping[str, tuple[str, ...]] = {}
    plugins: tuple[str, ...] = ()
    plugins_off: tuple[str, ...] = ()
    uncollected: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    gpu_environment: Mapping[str, str] = {}
    lists: Mapping[str, TestList] = {}

    def requires_of(self, version: str) -> tuple[str, ...]:
        """Return all requirements of the tests of a version of the project; those of any for an empty one.

        Raises:
            UsageError: it is not a version.
        """
        more = [
            requirements
            for versions, requirements in self.requires_for.items()
            if not version or conditions.contains(versions, version)
        ]
        return tuple(itertools.chain(self.requires, *more))

    def requires_with(self, wheel_set: WheelSet) -> tuple[str, ...]:
        """Return all requirements of the tests of a set's wheel of the project."""
        versions = (wheel.version for wheel in wheel_set.wheels if wheel.distribution == self.project)
        return self.requires_of(next(versions, ""))

    def config(self, name: str) -> Config:
        """The configuration called `name`.

        Raises:
            UsageError: there is none.
        """
        if name in self.configs:
            return self.configs[name]
        tip = wording.did_you_mean(name, list(self.configs), what="the configurations are")
        raise UsageError(f"the suite has no configuration {name!r}", tip=tip)


def load(path: Path) -> Suite:
    """Read a suite.toml, or the one in a folder.

    Raises:
        UsageError: there is none, or it is wrong.
    """
    file = path / FILE if path.is_dir() else path
    suite = datafile.read(file, Suite, tip="name the suite.toml with --suite")
    try:
        for versions in suite.requires_for:
            conditions.check_range(versions)
        for text in itertools.chain(suite.requires, *suite.requires_for.values()):
            Requirement(text)
        for variable, test_list in suite.lists.items():
            _check_list(variable, test_list)
    except InvalidRequirement as error:
        raise UsageError(f"{file}: {text!r} is not a requirement", tip='write it like "pytest>=8"') from error
    except UsageError as error:
        raise UsageError(f"{file}: {error}", tip=error.tip) from error
    return suite


def _check_list(variable: str, test_list: TestList) -> None:
    path = PurePosixPath(test_list.path)
    if not _VARIABLE.fullmatch(variable):
        raise UsageError(f"the list {variable!r} is not named like a variable", tip="name it like SLOW_TESTS")
    if bool(test_list.url) == bool(test_list.path):
        raise UsageError(f"the list {variable} needs a url or a path, and not both")
    if test_list.url and not test_list.url.startswith(("https://", "http://", "file://")):
        raise UsageError(f"the list {variable} has no address: {test_list.url!r}", tip="write https://…")
    if path.is_absolute() or ".." in path.parts:
        raise UsageError(f"the list {variable} is not below the folder of tests: {test_list.path!r}")


def choose(
    config: Config, tests: Path, choice: Choice, *, without: Iterable[str] = ()
) -> dict[str, Mapping[str, str]]:
    """The modules of a configuration that a folder of tests has, each with the variables of its group.

    Args:
        config: which modules there are to choose from.
        tests: the folder.
        choice: what the user wants of them.
        without: paths of modules that are not to run.

    Raises:
        UsageError: a name or pattern finds no module, a module is in two groups, none is left, or no node id
            can have its name.
    """
    environments: dict[str, Mapping[str, str]] = {}
    for group in config.groups:
        left_out = set(_matching(tests, group.exclude, must=False))
        for module in _matching(tests, group.modules, must=not choice.include):
            if module in left_out:
                continue
            if module in environments and environments[module] != group.environment:
                raise UsageError(f"{module} is in two groups of the configuration")
            environments[module] = group.environment
    if choice.include:
        environments = {module: environments.get(module, {}) for module in _matching(tests, choice.include)}
    for module in (*_matching(tests, choice.exclude), *without):
        environments.pop(module, None)
    if not environments:
        raise UsageError(f"no module of {tests} is left to run")
    _refuse_odd_names(environments)
    return environments


def _refuse_odd_names(modules: Iterable[str]) -> None:
    # A node id begins with the name, up to `::` or an argument's `[`, and lies in files that are UTF-8.
    odd = [name for name in modules if not name.isprintable() or "::" in name or "[" in name]
    if odd:
        raise UsageError(f"no test can be named after the file {odd[0]!a}", tip="rename it, or --exclude it")


def _matching(tests: Path, names: Iterable[str], *, must: bool = True) -> list[str]:
    modules: list[str] = []
    for name in names:
        plain = name.removesuffix(".py")
        if Path(plain).is_absolute() or ".." in Path(plain).parts:
            raise UsageError(f"{name} is not a module below the folder of tests")
        # Only as a whole part may `**` be before Python 3.13; in a name it is `*`, as since then.
        pattern = "/".join(part if part == "**" else re.sub(r"\*+", "*", part) for part in plain.split("/"))
        # `x/**` is all below x; a pattern that ends in `**` finds folders only.
        pattern = f"{pattern}/*" if pattern.endswith("**") else pattern
        paths = sorted(path for path in tests.glob(f"{pattern}.py") if path.is_file())
        if must and not paths:
            existing = [
                path.relative_to(tests).with_suffix("").as_posix() for path in tests.rglob("test_*.py")
            ]
            close = wording.nearest(plain, existing)
            tip = f"did you mean {' or '.join(close)}?" if close else "name it as a path below that folder"
            raise UsageError(f"{tests} has no module {name}", tip=tip)
        modules += [path.relative_to(tests).as_posix() for path in paths]
    return list(dict.fromkeys(modules))


_MOST = 1 << 24  # bytes; PyTorch's has some 200,000
_SECONDS = 60.0
_TIP = "name a copy of it in suite.toml (`url`, which may be a file:// one), or take the list out there"
_FORMS: Mapping[ListFormat, Any] = {
    "condensed": dict[str, tuple[str | int, str, tuple[str, ...]]],
    "times": dict[str, float],
}


def fetch(suite: Suite, *, say: Progress = silent) -> dict[str, bytes]:
    """Fetch the lists of a suite that have an address; return the bytes by address.

    Raises:
        NetworkError: there is no list at an address, no answer, or too long a one.
        UsageError: it is not of its format.
    """
    fetched: dict[str, bytes] = {}
    for variable, test_list in suite.lists.items():
        if url := test_list.url:
            say(f"fetching {web.shown(url)}")
            read = functools.partial(web.whole, url, most=_MOST, timeout=_SECONDS, tip=_TIP)
            data = retrying(read, retry=RetryPolicy(), say=say)
            if data is None:
                raise NetworkError(f"there is no list {variable} at {web.shown(url)}", tip=_TIP)
            _as_read(data, test_list.format, name=f"the list {variable}, {web.shown(url)},")
            fetched[url] = data
    return fetched


def placed(
    suite: Suite,
    fetched: Mapping[str, bytes] | None,
    tests: Path,
    folder: Path,
    without: Mapping[str, str],
    say: Progress = silent,
) -> tuple[dict[str, str], dict[str, str]]:
    """Write lists into a folder; by variable, return their paths and the sha256 of what each was made from.

    Args:
        suite: which lists there are.
        fetched: those with an address; None outside of a night, where these are left out.
        tests: the folder of tests.
        folder: receives the files.
        without: variables that are set already, whose lists are left out.
        say: called with what is left out.

    Raises:
        UsageError: a list is missing, or is not of its format.
    """
    paths: dict[str, str] = {}
    digests: dict[str, str] = {}
    for variable, test_list in suite.lists.items():
        if variable in without:
            continue
        if test_list.url and fetched is None:
            say(f"no {variable}: nights fetch that list; --test-env {variable}=FILE names one")
            continue
        place = test_list.url or str(tests / test_list.path)
        if fetched is None or not test_list.url:
            data = datafile.bytes_of(Path(place), tip=f"correct lists.{variable} of suite.toml")
        elif place in fetched:
            data = fetched[place]
        else:
            raise UsageError(f"the night has frozen no list {variable}", tip="begin another night")
        read = _as_read(data, test_list.format, name=f"the list {variable}, {web.shown(place)},")
        paths[variable] = str(folder / f"{variable}.json")
        files.write_text(Path(paths[variable]), json.dumps(read))
        digests[variable] = hashlib.sha256(data).hexdigest()
    return paths, digests


def _as_read(data: bytes, form: ListFormat, *, name: str) -> dict[str, Any]:
    """Return a list as the tests read it."""
    try:
        tests: dict[str, Any] = datafile.decode(data, _FORMS[form])
    except msgspec.DecodeError as error:
        raise UsageError(f"{name} is not of the format {form}: {error}", tip=_TIP) from error
    return {test: why[1:] for test, why in tests.items()} if form == "condensed" else tests
