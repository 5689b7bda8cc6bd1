"""`pytest --torchdevice`: tests that say "cuda" run on the device there is.

With `--torchdevice-strict`, mistakes about devices are told apart from other failures: listed at the end,
each by the line of the project that made it, and on GitHub shown beside that line.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

_MARK = "torchdevice_off"
_KEPT = "torchdevice"  # in a report's properties, which pytest-xdist carries to where reports are read


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--torchdevice`, and `--torchdevice-to` for another device than the best there is."""
    group = parser.getgroup("torchdevice")
    group.addoption(
        "--torchdevice", action="store_true", help='have tests that say "cuda" run on what there is'
    )
    group.addoption(
        "--torchdevice-to",
        metavar="DEVICE",
        choices=("cuda", "mps", "cpu"),
        help="the same, on cuda, mps or cpu",
    )
    group.addoption(
        "--torchdevice-strict",
        action="store_true",
        help="the same, where tensors say cuda:0 and mixed devices are PyTorch's errors",
    )
    group.addoption(
        "--torchdevice-baseline",
        metavar="FILE",
        type=Path,
        help="mistakes that are known: lines of a test and a rule, as the summary shows them. They are "
        "expected to fail, new ones fail the run, and what is fixed is named",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Name the marker, and read the baseline."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(reason): run the test without torchdevice; the reason is shown, and must be given",
    )
    if _asked(config.option):
        config.pluginmanager.register(_Mistakes(config), "torchdevice-mistakes")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a marker without a reason."""
    for item in items:
        mark = item.get_closest_marker(_MARK)
        if mark is not None and not mark.kwargs.get("reason"):
            raise pytest.UsageError(f'{item.nodeid}: write {_MARK}(reason="...")')


class _Mistakes:
    """What `strict` finds in tests, against what the baseline has."""

    def __init__(self, config: pytest.Config) -> None:
        path = config.option.torchdevice_baseline
        try:
            lines = path.read_text(encoding="utf-8").splitlines() if path else ()
        except OSError as error:
            raise pytest.UsageError(f"--torchdevice-baseline={path}: {error.strerror}") from None
        self.root = config.rootpath
        self.known = {line.strip() for line in lines if line.strip() and not line.startswith("#")}
        self.passed: set[str] = set()
        self.kept = 0
        self.new: list[tuple[str, str, str, int, str]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        """Run a test without torchdevice where it is marked so."""
        import torchdevice

        route = torchdevice.status() if item.get_closest_marker(_MARK) else None
        if route is None:
            return (yield)
        while not torchdevice.disable():
            pass
        try:
            return (yield)
        finally:
            torchdevice.enable(route.target, count=route.count, strict=route.strict, features=route.features)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, Any]:
        """Keep a mistake and its line; one that is known is an expected failure."""
        from torchdevice import errors

        report = yield
        error = errors.mistake_in(call.excinfo.value) if call.excinfo and report.failed else None
        if error is not None:
            rule = errors.rule_of(error)
            path, line = self._line(item, error)
            message = str(error).partition("\n")[0]
            report.user_properties.append((_KEPT, [item.nodeid, rule, path, line, message]))
            if f"{item.nodeid} {rule}" in self.known:
                report.outcome, report.wasxfail = "skipped", f"in the baseline of torchdevice: {rule}"
        return report

    def _line(self, item: pytest.Item, error: BaseException) -> tuple[str, int]:
        """The innermost line of the project: not in an environment, and not outside its folder."""
        for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(self.root) and not {"site-packages", "torchdevice"} & set(path.parts):
                return path.relative_to(self.root).as_posix(), line
        return item.location[0], (item.location[1] or 0) + 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what workers have kept, too."""
        mistakes: list[Any] = [value for name, value in report.user_properties if name == _KEPT]
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)
        for nodeid, rule, path, line, message in mistakes:
            if report.outcome == "skipped":
                self.kept += 1
            else:
                self.new.append((nodeid, rule, path, line, message))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """List them, as annotations on GitHub."""
        fixed = sorted(line for line in self.known if line.rpartition(" ")[0] in self.passed)
        if not (self.new or self.kept or fixed):
            return
        write = terminalreporter.write_line
        terminalreporter.section("mistakes about devices")
        for nodeid, rule, path, line, message in self.new:
            write(f"{path}:{line}: {message}")
            write(f"    {nodeid} {rule}")
            if os.environ.get("GITHUB_ACTIONS") == "true":
                file = _escaped(
                    os.path.relpath(self.root / path, os.environ.get("GITHUB_WORKSPACE", self.root))
                )
                write(
                    f"::error file={file},line={line},title=torchdevice {rule}::{message.replace('%', '%25')}"
                )
        for line in fixed:
            write(f"fixed, to be taken out of the baseline: {line}")
        write(f"{len(self.new)} new, {self.kept} in the baseline, {len(fixed)} fixed")


def _escaped(value: str) -> str:
    """A property of a command of GitHub's, by its toolkit's rules."""
    for character, code in (("%", "%25"), (":", "%3A"), (",", "%2C")):
        value = value.replace(character, code)
    return value


def _asked(options: Any) -> bool:
    return bool(options.torchdevice or options.torchdevice_to or options.torchdevice_strict)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before any conftest.py imports torch's functions by name."""
    options = early_config.known_args_namespace
    if _asked(options):
        import torchdevice

        torchdevice.enable(options.torchdevice_to, strict=options.torchdevice_strict or None)
        early_config.add_cleanup(_disable)


def _disable() -> None:
    import torchdevice

    torchdevice.disable()


def pytest_report_header(config: pytest.Config) -> str | None:
    """What was translated is no evidence about a GPU, and every log says so."""
    if not _asked(config.option):
        return None
    import torchdevice

    route = torchdevice.status()
    if route is None or route.native:
        return "torchdevice: off, CUDA is native here"
    strictly = ", strictly" if route.strict else ""
    return f'torchdevice: "cuda" is translated to {route.target}{strictly}'
