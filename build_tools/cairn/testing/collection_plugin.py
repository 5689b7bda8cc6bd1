"""A pytest plugin that counts the collected tests, and the deselected ones by who deselected them.

This file is copied beside the tests and imported by the interpreter that is tested, which need not have
Cairn: it imports only the standard library and pytest.

Tests are counted one by one as pytest finds them, before any hook can select among them, and compared with
those that are left to run. An ignored file counts as one test, and so does a function that is named like a
test but not collected; a class that pytest cannot make counts as many as it has. For each group of missing
tests, the answer has `by`, the plugin or option that deselected them, `tests`, their number, and `origin`:

    ours            skip-tests, or the shard
    tests           a conftest.py or a plugin beside the tests, or the pytest.ini that they came with
    command line    an option that pytest was started with
    elsewhere       a variable, a plugin of the environment, or an unknown one

`hooks` are what else decides which tests run and how they end: hooks that are neither pytest's own nor of a
plugin that pytest was started with, functions of pytest that were replaced, and plugins of pytest that are
off. Each is named as `conftest.py: pytest_pyfunc_call`.

`CAIRN_COLLECTION` names the file that the answer is written to, as JSON. A suite's worker calls `answer`
itself.
"""

from __future__ import annotations

import fnmatch
import functools
import inspect
import itertools
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from unittest import SkipTest

import pluggy
import pytest
from _pytest import legacypath
from _pytest.config import default_plugins
from _pytest.unittest import UnitTestCase

VARIABLE = "CAIRN_COLLECTION"
EARLY = frozenset(sys.modules)  # what pytest and its plugins import before any test
NAME = "cairn-collection"

_By = tuple[str, str]  # who, and of which origin

_OURS = {"cairn-skips": "skip-tests", "cairn-suite-worker": "shard"}
# Plugins of pytest itself that deselect tests by options: an option's destination, and how it is written.
_OPTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "_pytest.mark": (("keyword", r"-[a-zA-Z]*k.*"), ("markexpr", r"-[a-zA-Z]*m.*")),
    "_pytest.main": (
        ("deselect", r"--des.*"),
        ("ignore", r"--ignore(=.*)?"),
        ("ignore_glob", r"--ignore-.*"),
    ),
    "_pytest.cacheprovider": (("lf", r"--lf|--last-f.*"),),
    "_pytest.stepwise": (("stepwise", r"--sw.*|--stepw.*"),),
}
_WRITTEN = {"keyword": "-k", "markexpr": "-m", "lf": "--last-failed", "ignore_glob": "--ignore-glob"}
_PREFIXES = {"python_functions": "test", "python_classes": "Test"}  # what pytest collects by default
TOLD = frozenset(  # by _pytest/hookspec.py
    f"pytest_{name}"
    for name in (
        *("addhooks", "plugin_registered", "addoption", "configure", "unconfigure", "sessionstart"),
        *("report_header", "report_collectionfinish", "report_teststatus", "terminal_summary", "deselected"),
        *("runtest_logstart", "runtest_logfinish", "fixture_post_finalizer", "make_parametrize_id"),
        *("assertrepr_compare", "assertion_pass", "warning_recorded", "internalerror", "keyboard_interrupt"),
        *("exception_interact", "enter_pdb", "leave_pdb"),
    )
)
"""Hooks that are told what happens, and decide neither which tests there are nor how they end."""
# Plugins of pytest without which every test ends as with them.
_OPTIONAL = frozenset(
    ("cacheprovider", "debugging", "faulthandler", "helpconfig", "logging", "pastebin", "stepwise")
)
_OWN_PLACES = 3  # of pytest, _pytest and pluggy
_METHODS = (FunctionType, classmethod, staticmethod, property)


def _functions() -> dict[tuple[Any, str], Any]:
    """Return the functions that run tests, by the module or class that has them and their names there."""
    names = [name for name in sys.modules if name.partition(".")[0] in ("_pytest", "pluggy")]
    holders: list[Any] = [sys.modules[name] for name in (*names, "unittest.case")]
    holders += [
        value
        for module in holders
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]
    return {
        (holder, name): value
        for holder in holders
        for name, value in vars(holder).items()
        if isinstance(value, _METHODS)
    }


_FUNCTIONS = _functions()  # before any conftest.py


def pytest_configure(config: pytest.Config) -> None:
    """Register the counter."""
    config.pluginmanager.register(Counter(config), NAME)


class Counter:
    """Counts the tests of this pytest process until the first of them runs."""

    early = EARLY

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        # Not `config.hook`: before pytest 9 that is a proxy whose hooks that take paths are plain functions.
        self._hooks = config.pluginmanager.hook
        self._top = os.path.realpath(config.rootpath)
        self._collected: dict[int, pytest.Item] = {}  # held, so that no other object gets an id of theirs
        self._taken: dict[int, _By] = {}
        self._unseen: dict[_By, int] = {}  # what did not become an item
        self._items: list[pytest.Item] = []
        self._watched: dict[int, tuple[Any, Callable[..., Any]]] = {}  # hooks, as they were
        self._path = config.rootpath
        self._running: pytest.Item | None = None
        self._raised: dict[tuple[str, str], str] = {}
        self._function: object = None  # of the test that runs
        self._replaced: set[str] = set()  # while tests ran

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Count a test as soon as pytest has collected it."""
        self._collected[id(item)] = item

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, Any, Any]:
        """Compare the list of tests before and after each plugin that may change it."""
        self._items = items
        self._watch("pytest_collection_modifyitems", self._choosing)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> Generator[None, Any, Any]:
        """Note which plugins have pytest ignore a file."""
        self._path = collection_path
        self._watch("pytest_ignore_collect", self._ignoring)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_pycollect_makeitem(self, name: str, obj: object) -> Generator[None, Any, Any]:
        """Count an object that is named like a test but that a plugin keeps from being collected."""
        items = yield
        if isinstance(items, pytest.Class) and (lost := _lost_tests(items)):
            why = "it has an __init__ or a __new__; `uncollected` in suite.toml or __test__ = False allow it"
            self._unseen[f"{items.nodeid} ({why})", "elsewhere"] = lost
        setting = "python_classes" if inspect.isclass(obj) else "python_functions"
        if items or not name.startswith(_PREFIXES[setting]):
            return items
        if inspect.isclass(obj) or inspect.isfunction(obj):
            chosen = self._config.getini(setting)
            if items is None and chosen != [_PREFIXES[setting]]:
                by = (f"{setting} = {' '.join(chosen)}", self._origin_of_setting(setting))
            else:
                by = self._whoever(("pytest_pycollect_makeitem",))
            self._unseen[by] = self._unseen.get(by, 0) + 1
        return items

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write the answer, if `CAIRN_COLLECTION` names a file for it."""
        if path := os.environ.get(VARIABLE):
            answer = {"pytest": pytest.__version__, **self.answer(session.items)}
            Path(path).write_text(json.dumps(answer), encoding="utf-8")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Record in its JUnit XML that a test is rerun, as some plugins do until it passes."""
        if item is self._running:
            item.user_properties.append(("flaky", "a plugin ran it again"))
        self._running = item
        self._function = _function_of(item)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, Any]:
        """Note an exception of a test that another hook may call passed."""
        raised = call.excinfo
        if call.when == "call":
            self._replaced.update(self._shadows(item))
            if (function := _function_of(item)) is not self._function and not self._is_accepted(function):
                self._replaced.add(f"{self._writer(function)}: {_name(type(item))}.obj")
        report = yield
        raised = call.excinfo or raised  # pytest keeps those of unittest until now
        self._raised.pop((item.nodeid, report.when), None)
        if raised is not None and not isinstance(raised.value, (pytest.skip.Exception, SkipTest)):
            text = f"it raised {raised.exconly()}, and was called {report.outcome}"
            self._raised[item.nodeid, report.when] = text
        if text := self.overruled(report):
            item.user_properties.append(("overruled", text))
        return report

    def overruled(self, report: pytest.TestReport) -> str:
        """Return what a phase of a test raised, if it was called passed or skipped; else an empty text."""
        if report.failed or hasattr(report, "wasxfail"):
            return ""
        return self._raised.get((report.nodeid, report.when), "")

    def answer(self, items: Iterable[pytest.Item]) -> dict[str, Any]:
        """Return the number of collected tests, and of deselected ones by plugin or option.

        Args:
            items: the tests that are left to run.
        """
        gone = dict(self._unseen)
        left = {id(item) for item in items}
        nameless: _By | None = None
        for item in self._collected:
            if item not in left:
                by = self._taken.get(item)
                if by is None:
                    hooks = ("pytest_collection_modifyitems", "pytest_collection", "pytest_collection_finish")
                    by = nameless = nameless or self._whoever(hooks)
                gone[by] = gone.get(by, 0) + 1
        return {
            "collected": len({item.nodeid for item in self._collected.values()}) + sum(self._unseen.values()),
            "gone": [{"by": by, "origin": origin, "tests": n} for (by, origin), n in gone.items()],
            "hooks": self.hooks(),
        }

    def hooks(self) -> list[str]:
        """Return what else decides which tests run and how they end, as of now; see the top of this file."""
        hooks = list(self._replaced)
        for name, caller in vars(self._hooks).items():
            for plugin in caller.get_hookimpls() if name not in TOLD else ():
                # Its own, that which `_watch` has wrapped, and what it belongs to: a hook may be borrowed.
                functions = [plugin.function, self._watched.get(id(plugin), (plugin, plugin.function))[1]]
                strange = [function for function in functions if not self._is_accepted(function)]
                if strange or not _file_of_module(_module_of(plugin)).startswith(self._accepted):
                    hooks.append(f"{self._writer(strange[0]) if strange else self._by(plugin)[0]}: {name}")
        now, holders = _functions(), {holder for holder, _ in _FUNCTIONS}
        for holder, name in _FUNCTIONS.keys() | now.keys():
            function = vars(holder).get(name)
            before = _FUNCTIONS.get((holder, name))
            # A function of pytest in the place of another is no better than a stranger's.
            accepted = _file_of(function).startswith(self._accepted[_OWN_PLACES if before else 0 :])
            if holder in holders and function is not before and not accepted:
                hooks.append(f"{self._writer(function)}: {_name(holder)}.{name}")
        manager = self._config.pluginmanager
        for instance in (self._config, manager, manager.get_plugin("session"), *self._collected.values()):
            hooks += self._shadows(instance)
        off = [name for name in default_plugins if not self._config.pluginmanager.has_plugin(name)]
        requested = {word.removeprefix("no:") for word in self._plugin_options()}
        return sorted({*hooks, *(f"-p no:{name}" for name in off if name not in requested | _OPTIONAL)})

    def _shadows(self, instance: object) -> Iterator[str]:
        """Yield the methods of an object of pytest in whose place it has an attribute."""
        kind: Any = type(instance)
        for name in vars(instance).keys() & _methods_of(kind):
            if not self._is_accepted(value := vars(instance)[name]):
                yield f"{self._writer(value)}: {_name(kind)}.{name}"

    def _plugin_options(self) -> list[str]:
        words = list(map(str, self._config.invocation_params.args))
        after = [word for option, word in itertools.pairwise(words) if option == "-p"]
        return after + [word[2:] for word in words if re.match("-p[^ ]", word)]

    @functools.cached_property
    def _accepted(self) -> tuple[str, ...]:
        """The files and folders of pytest, and then of the plugins that it was started with."""
        manager = self._config.pluginmanager
        plugins = filter(None, map(manager.get_plugin, self._plugin_options()))
        places = []
        for module in (pytest, sys.modules["_pytest"], pluggy, *plugins):
            top = sys.modules.get(getattr(module, "__name__", "").partition(".")[0])
            path = _file_of_module(top) or _file_of_module(module) or "\0"
            places.append(path.removesuffix("__init__.py"))
        # The part of pytest that replaces functions of it comes behind those that do not.
        return (*places[:_OWN_PLACES], _file_of_module(legacypath), *places[_OWN_PLACES:])

    def _is_accepted(self, function: object) -> bool:
        return _file_of(function).startswith(self._accepted)

    def _writer(self, function: object) -> str:
        """Return the file of the tests that has a function, or its module; `unknown` for other objects."""
        file = _file_of(function)
        if file.startswith(self._top + os.sep):
            return os.path.relpath(file, self._top).replace(os.sep, "/")
        return str(getattr(function, "__module__", "")) if file else "unknown"

    def _watch(self, hook: str, look: Callable[[Any], Callable[..., Any]]) -> None:
        for plugin in getattr(self._hooks, hook).get_hookimpls():
            # What a wrapper does lies on both sides of all others, so that it cannot be told from theirs.
            if id(plugin) not in self._watched and not (plugin.hookwrapper or plugin.wrapper):
                self._watched[id(plugin)] = plugin, plugin.function
                plugin.function = look(plugin)

    def _choosing(self, plugin: Any) -> Callable[..., Any]:  # noqa: ANN401 - pluggy's HookImpl, as below
        function = plugin.function

        @functools.wraps(function)
        def call(*values: object) -> object:
            before = [id(item) for item in self._items]
            try:
                return function(*values)
            finally:
                after = {id(item) for item in self._items}
                if gone := [item for item in before if item not in after]:
                    self._taken |= dict.fromkeys(gone, self._by(plugin))

        return call

    def _ignoring(self, plugin: Any) -> Callable[..., Any]:  # noqa: ANN401
        function = plugin.function

        @functools.wraps(function)
        def call(*values: object) -> object:
            ignored = function(*values)
            if ignored and (files := self._files_of_tests(self._path)):
                who, origin = self._by(plugin)
                if who == "_pytest.main":  # without an option
                    who, origin = "collect_ignore or norecursedirs", "tests"
                by = (f"{who} (files)", origin)
                self._unseen[by] = self._unseen.get(by, 0) + files
            return ignored

        return call

    def _files_of_tests(self, path: Path) -> int:
        if path.name == "__pycache__" or path.name.startswith("."):
            return 0
        paths = path.rglob("*.py") if path.is_dir() else [path]
        patterns = self._config.getini("python_files")
        return sum(any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns) for path in paths)

    def _by(self, plugin: Any) -> _By:  # noqa: ANN401
        """Return a plugin's name and origin."""
        if plugin.plugin_name in _OURS:
            return _OURS[plugin.plugin_name], "ours"
        module = _module_of(plugin)
        if module is None:
            return str(plugin.plugin_name), "elsewhere"
        options = [option for option in _OPTIONS.get(module.__name__, ()) if self._value_of(option[0])]
        if options:
            as_written = (
                f"{_WRITTEN.get(name, f'--{name}')} {_plain(self._value_of(name))}".strip()
                for name, _ in options
            )
            origins = {self._from_options(pattern) or "elsewhere" for _, pattern in options}
            return ", ".join(as_written), "elsewhere" if "elsewhere" in origins else origins.pop()
        file = os.path.realpath(getattr(module, "__file__", None) or "")
        if file.startswith(self._top + os.sep):
            return os.path.relpath(file, self._top).replace(os.sep, "/"), "tests"
        is_of_pytest = module.__name__.startswith("_pytest.")
        return module.__name__, "tests" if is_of_pytest else "elsewhere"

    def _whoever(self, hooks: Iterable[str]) -> _By:
        """Return all plugins that may have deselected tests, if it cannot be told which one did."""
        plugins = [plugin for hook in hooks for plugin in getattr(self._hooks, hook).get_hookimpls()]
        unknown = [
            plugin for plugin in plugins if id(plugin) not in self._watched and plugin.plugin is not self
        ]
        origins = [
            by
            for by in dict.fromkeys(map(self._by, unknown))
            if by[1] != "ours" and not by[0].startswith(("_pytest.", "-"))
        ]
        if not origins:
            return "an unknown plugin", "elsewhere"
        origin = "tests" if all(origin == "tests" for _, origin in origins) else "elsewhere"
        return " or ".join(name for name, _ in origins), origin

    def _value_of(self, option: str) -> Any:  # noqa: ANN401
        return getattr(self._config.option, option, None)

    def _from_options(self, pattern: str) -> str | None:
        """Return where an option was given, or None if it was set in another way."""

        def has(words: Iterable[object]) -> bool:
            return any(re.fullmatch(pattern, str(word), re.DOTALL) for word in words)

        if has(self._config.invocation_params.args):
            return "command line"
        if has(shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))):
            return "elsewhere"
        return "tests" if has(self._config.getini("addopts")) else None

    def _origin_of_setting(self, setting: str) -> str:
        origin = self._from_options(rf"(-o|--override-ini=)?{setting}=.*")
        return origin or ("tests" if setting in self._config.inicfg else "elsewhere")


def _module_of(plugin: Any) -> ModuleType | None:  # noqa: ANN401 - pluggy's HookImpl
    itself = plugin.plugin
    return itself if isinstance(itself, ModuleType) else sys.modules.get(type(itself).__module__)


def _file_of_module(module: ModuleType | None) -> str:
    file = getattr(module, "__file__", None)
    return os.path.realpath(file) if file else ""


@functools.cache
def _methods_of(kind: type) -> frozenset[str]:
    return frozenset(name for name in dir(kind) if isinstance(getattr(kind, name, None), FunctionType))


def _function_of(item: pytest.Item) -> object:
    function = getattr(item, "obj", None)
    return getattr(function, "__func__", function)


def _name(holder: Any) -> str:  # noqa: ANN401 - a module or a class
    return f"{holder.__module__}.{holder.__qualname__}" if isinstance(holder, type) else str(holder.__name__)


def _file_of(function: Any) -> str:  # noqa: ANN401 - whatever stands in a function's place
    """Return the file that a function, method or property is written in; empty for other objects."""
    inner = getattr(function, "__func__", None) or getattr(function, "fget", None) or function
    code = getattr(inner, "__code__", None)
    return os.path.realpath(code.co_filename) if code is not None else ""


def _lost_tests(node: pytest.Class) -> int:
    """Return the number of tests of a class that pytest does not collect, since it could not make one."""
    made = node.obj.__init__ is not object.__init__ or node.obj.__new__ is not object.__new__
    if not made or isinstance(node, UnitTestCase) or type(node).collect is not pytest.Class.collect:
        return 0
    if not getattr(node.obj, "__test__", True):
        return 0
    names = [name for name in dir(node.obj) if node.funcnamefilter(name)]
    return sum(callable(getattr(node.obj, name, None)) for name in names)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return ""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
