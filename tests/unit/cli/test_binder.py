"""A request declares its options; its parser, and the request of a command line, follow from it."""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path

import pytest

from cairn import converters
from cairn.build.model import Job, SdkRequest
from cairn.cli import binder, common_options, patches, rocm
from cairn.cli.answer import Answer
from cairn.cli.build import run
from cairn.cli.parser import Parser
from cairn.cli.test import smoke, suite
from cairn.cli.upstream import build_prod_wheels, pytorch_tests
from cairn.cli.upstream import scripts as upstream_rocm
from cairn.cli.wheel import change, verify
from cairn.options import Exclusive, argument, fill, flag, option, part, repeated, switch
from cairn.rocm.fetch.fetch import FetchRequest
from cairn.rocm.install import InstallRequest
from cairn.rocm.package import PackageRequest
from cairn.sources.patches.apply import ApplyRequest
from cairn.sources.patches.audit import AuditRequest
from cairn.testing.compat.measure import CompatRequest
from cairn.testing.smoke import SmokeRequest
from cairn.testing.suite.run import SuiteRequest
from cairn.venv import PackageSource
from cairn.wheels.fat.build import FatRequest
from cairn.wheels.verify import Expectation

_ONE = Exclusive(required=True)


@dataclass(frozen=True, kw_only=True)
class How:
    depth: int | None = option("how deep", convert=converters.positive)
    submodules: bool = switch("them too", default=True)


@dataclass(frozen=True, kw_only=True)
class Request(common_options.StackOptions):
    names: tuple[str, ...] = argument("NAME", "what", nargs="+")
    kind: str = option("which", "--of-kind", default="a", choices=("a", "b"))
    output_dir: Path = common_options.output_dir()
    extra: tuple[str, ...] = repeated("more", metavar="WORD")
    force: bool = flag("anyway")
    low: str | None = option("low", group=_ONE)
    high: str | None = option("high", group=_ONE)
    how: How = part(How)
    folder: str = "unset"


@dataclass(frozen=True, kw_only=True)
class Copied:
    """What a library takes of such a request."""

    kind: str
    output_dir: str
    force: bool = False
    depth: int = 3


def made(*words: str) -> Request:
    parser = Parser(prog="program")
    requests: list[Request] = []
    binder.bind(parser, Request, lambda request: requests.append(request) or 0)
    parser.set_defaults(folder="known before")
    options = parser.parse_args(words)
    assert options.run(options) == 0
    return requests[0]


LEAST = ("x", "--stack", "s", "--output-dir", "o", "--low", "1")


def test_what_is_not_given_has_its_default() -> None:
    assert made(*LEAST) == Request(
        names=("x",), stack=Path("s"), output_dir=Path("o"), low="1", folder="known before"
    )


def test_what_is_given_is_converted_and_lists_are_tuples() -> None:
    request = made(
        *("x", "y", "--stack=s", "--line", "main", "--output-dir", "o", "--high", "2", "--force"),
        *("--of-kind", "b", "--extra", "p", "--extra", "q", "--depth", "3", "--no-submodules"),
    )
    assert (request.names, request.extra, request.kind) == (("x", "y"), ("p", "q"), "b")
    assert (request.line, request.force, request.high) == ("main", True, "2")
    assert request.how == How(depth=3, submodules=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (LEAST[1:], "NAME"),
        (LEAST[:3], "--output-dir"),
        (LEAST[:5], "--low --high is required"),
        ((*LEAST, "--high", "2"), "not allowed with argument --low"),
        ((*LEAST, "--depth", "0"), "'0' is not a positive number"),
        ((*LEAST, "--of-kind", "c"), "the choices are: a, b"),
        ((*LEAST, "--stack", ""), "--stack"),
    ],
)
def test_what_is_wrong_is_named(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        made(*words)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_an_option_of_the_parser_above_stays_where_the_command_is_not_given_it() -> None:
    parser = Parser(prog="program")
    binder.add_options(parser, How)
    below = parser.add_subparsers().add_parser("command")
    binder.add_options(below, How, inherited={"depth", "submodules"})
    below.set_defaults(run=lambda options: binder.make(How, options))

    def run(*words: str) -> object:
        options: argparse.Namespace = parser.parse_args(words)
        return options.run(options)

    assert run("--depth", "2", "--no-submodules", "command") == How(depth=2, submodules=False)
    assert run("--depth", "2", "command", "--depth", "5") == How(depth=5)
    assert run("command") == How()


def test_a_value_takes_the_options_that_have_the_names_of_its_fields() -> None:
    request = Request(stack=Path("s"), names=("a",), kind="b", output_dir=Path("out"), force=True)
    assert fill(Copied, request, output_dir="other") == Copied(kind="b", output_dir="other", force=True)


def test_a_value_is_not_made_without_what_no_option_says() -> None:
    with pytest.raises(TypeError, match="kind"):
        fill(Copied, How(), output_dir="other")


@pytest.mark.parametrize(
    ("request_", "value", "names", "given"),
    [
        (
            run.Run,
            Job,
            "build_env clean env_dir install_rocm jobs line run split targets version_suffix",
            {"stack", "checkouts", "output_dir", "sdk", "compiler_cache"},
        ),
        (
            build_prod_wheels.Build,
            Job,
            "build_env build_number clean install_rocm line output_dir version_suffix",
            {"stack", "sdk", "targets", "checkouts"},
        ),
        (common_options.SdkOptions, SdkRequest, "extras version", set()),
        (common_options.SdkOptions, PackageSource, "cache_dir find_links index_url offline pre", set()),
        (rocm.Install, InstallRequest, "extras family python version", set()),
        (
            rocm.Package,
            PackageRequest,
            "debs description family libraries_for_all output_dir trim version",
            {"targets"},
        ),
        (rocm.Fetch, FetchRequest, "jobs layout output_dir", {"jobs"}),
        (upstream_rocm.FetchArtifacts, FetchRequest, "jobs output_dir unpack_jobs", set()),
        (change.Fat, FatRequest, "libraries output_dir provided rocm strict version wheel", {"targets"}),
        (verify.Verify, Expectation, "python", {"targets"}),
        (smoke.Smoke, SmokeRequest, "find_links floor index_url pytest_args python timeout translate", set()),
        (suite.RunSuite, SuiteRequest, "choice limits retries shard", {"suite", "times", "pytest_args"}),
        (suite.Retry, SuiteRequest, "limits", {"suite"}),
        (
            pytorch_tests.RunTests,
            SuiteRequest,
            "choice limits only_skipped retries shard",
            {"suite", "times", "pytest_args"},
        ),
        (smoke.Compat, CompatRequest, "timeout translate", {"python"}),
        (patches.AuditCheckout, AuditRequest, "checkout python", {"project"}),
        (patches.Apply, ApplyRequest, "checkout dry_run folder python", {"project"}),
    ],
)
def test_an_option_reaches_the_field_of_its_name_which_takes_its_type(
    request_: type, value: type, names: str, given: set[str]
) -> None:
    """`fill` passes over a field that only one side has: under another name, it would be lost unseen.

    Where a command says nothing else of a field (`given`), its option has the same type.
    """
    options = {field.name: field.type for field in dataclasses.fields(request_)}
    fields = {
        name: hint for kind in value.__mro__ for name, hint in vars(kind).get("__annotations__", {}).items()
    }
    assert set(names.split()) <= options.keys() & fields.keys()
    shared = (options.keys() & fields.keys()) - given
    assert {name: options[name] for name in shared} == {name: fields[name] for name in shared}


def test_the_worst_exit_code_of_several_answers_is_that_of_the_command() -> None:
    answers = [Answer({}, exit_code=0), Answer({}, exit_code=7), "a line", Answer({}, exit_code=0)]
    assert binder.carry_out(object(), lambda _request: answers) == 7
