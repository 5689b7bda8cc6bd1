"""A conftest.py that decides which tests run or how they end: its hooks and what it replaces are named."""

import dataclasses
from pathlib import Path

import pytest
from msgspec import structs

from cairn.testing import record
from cairn.testing.report import results
from helpers.suites import WHEEL, by_test, request_of, run_and_judge, suite_of

CONFTEST = """
import unittest
from unittest import mock

import pytest
from _pytest import runner
from _pytest.runner import CallInfo
from _pytest.unittest import TestCaseFunction

class Plugin:
    def pytest_pyfunc_call(self):
        return True

def pytest_configure(config):
    config.pluginmanager.register(Plugin())

@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        yield
    except AssertionError:
        pass

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    item.runtest

@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc):
    metafunc._calls = metafunc._calls[:1]

def pytest_report_header():
    return "this decides nothing"

def call(cls, *values, **more):
    result = from_call(cls, *values, **more)
    result.excinfo = None
    return result

def collect(self):
    return [node for node in collect_all(self) if node.name != "test_hidden"]

@pytest.fixture(autouse=True)
def other(request):
    if request.node.name == "test_row[0]":
        request.node.obj = lambda number: None

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    items[0].setup = lambda: None

def pytest_sessionstart(session):
    session.perform_collect = mock.Mock(wraps=session.perform_collect)

pytest_runtest_setup = runner.pytest_runtest_setup  # borrowed
unittest.TestCase.tearDown = unittest.TestCase.setUp
from_call, collect_all = CallInfo.from_call.__func__, pytest.Module.collect
CallInfo.from_call = classmethod(call)
pytest.Module.collect = collect
pytest.Function.runtest = TestCaseFunction.runtest = lambda self: None
pytest.Function.__getattribute__ = lambda self, name: object.__getattribute__(self, name)
unittest.TestCase.addTypeEqualityFunc = mock.Mock()
"""
TESTS = """
import unittest
from unittest import mock

import pytest

def test_bad():
    assert 0

class TestUnit(unittest.TestCase):
    def test_unit(self):
        assert 0

@pytest.mark.parametrize("number", [0, 1])
def test_row(number):
    assert not number

def test_hidden():
    assert 0

def setup_module():
    pytest.Item.__bases__[0].add_marker = mock.Mock()
"""
HOOKS = (
    "-p no:warnings",
    "conftest.py: _pytest.python.Function.__getattribute__",
    "conftest.py: _pytest.python.Function.obj",
    "conftest.py: _pytest.python.Function.runtest",
    "conftest.py: _pytest.python.Function.setup",
    "conftest.py: _pytest.python.Module.collect",
    "conftest.py: _pytest.runner.CallInfo.from_call",
    "conftest.py: _pytest.unittest.TestCaseFunction.runtest",
    "conftest.py: pytest_collection_modifyitems",
    "conftest.py: pytest_generate_tests",
    "conftest.py: pytest_pyfunc_call",
    "conftest.py: pytest_runtest_call",
    "conftest.py: pytest_runtest_protocol",
    "conftest.py: pytest_runtest_setup",
    "unittest.case: unittest.case.TestCase.tearDown",
    "unknown: _pytest.main.Session.perform_collect",
    "unknown: _pytest.nodes.Node.add_marker",
    "unknown: unittest.case.TestCase.addTypeEqualityFunc",
)


@pytest.mark.every_pytest
def test_what_a_conftest_decides_is_named_and_needs_the_word_of_the_suite(
    tmp_path: Path, python: Path
) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "pytest.ini").write_text("[pytest]\naddopts = -p no:warnings\n")
    request = request_of(tmp_path, {"conftest.py": CONFTEST, "test_it.py": TESTS}, python=python)
    request = dataclasses.replace(request, tested=structs.replace(request.tested, wheels=(WHEEL,)))
    for hooks, verdict in (((), "failed"), (HOOKS, "passed")):
        suite = suite_of(config_file="pytest.ini", hooks=hooks)
        merged = run_and_judge(dataclasses.replace(request, suite=suite))
        assert by_test(merged).keys() == {"test_bad", "test_unit", "test_row[0]"}
        assert record.read(request.work_dir / record.FILE).hooks == HOOKS
        assert merged.judgement.verdict == verdict, merged.judgement
        named = "-p no:warnings, conftest.py: _pytest.python.Function.__getattribute__"
        assert f"{'with' if hooks else 'how they end:'} {named}" in merged.judgement.reason
        assert named in results.read(request.work_dir).reason
