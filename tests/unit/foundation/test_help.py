import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cairn.cli import build_prod_wheels, main, options, repo_scripts, smoke_script, wheel_fat


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield parser
    for group in groups:
        for child in group.choices.values():
            yield from leaves(child)


PARSERS = (
    main.make_parser(),
    build_prod_wheels._parser(Path("build_prod_wheels.py")),
    smoke_script._parser(Path("run_pytorch_smoke_tests.py")),
    *(repo_scripts._parser(name, Path(f"pytorch_{name}_repo.py")) for name in ("torch", "vision", "triton")),
    *(
        wheel_fat._parser(Path(n), windows=w)
        for n, w in (("patch_fat_wheel.py", False), ("windows.py", True))
    ),
)


@pytest.mark.parametrize("command", [c for p in PARSERS for c in leaves(p)], ids=lambda c: c.prog)
def test_every_command_has_help_with_an_example(command: argparse.ArgumentParser) -> None:
    assert command.epilog is not None
    assert "example: " in command.epilog
    assert "SUPPRESS" not in command.format_help()


@pytest.mark.parametrize("command", [c for p in PARSERS for c in leaves(p)], ids=lambda c: c.prog)
def test_no_command_takes_an_abbreviation(command: argparse.ArgumentParser) -> None:
    assert not command.allow_abbrev


@pytest.mark.parametrize("group", main._GROUPS)
def test_a_group_has_the_same_commands_alone(group: str) -> None:
    alone = [c.prog for c in leaves(main.make_parser((group,))) if c.prog.startswith(f"cairn {group}")]
    assert alone == [c.prog for c in leaves(PARSERS[0]) if c.prog.startswith(f"cairn {group}")]


def test_looking_at_a_wheel_does_not_load_what_builds(tmp_path: Path) -> None:
    (tmp_path / "bad.whl").touch()
    code = """
import sys
from cairn.cli import main
assert main.main(["--quiet", "wheel", "show", sys.argv[1]]) == 7
print([name for name in sys.modules if name.startswith(("cairn.build", "cairn.sources", "cairn.release"))])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "bad.whl"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_links_before_and_after_the_command_are_all_kept() -> None:
    parser = build_prod_wheels._parser(Path("build_prod_wheels.py"))
    given = ["--find-links", "a", "build", "--find-links", "b", "--find-links", "c", "--output-dir", "out"]
    assert options.wanted_sdk(parser.parse_args(given)).source.find_links == ("a", "b", "c")
    assert options.wanted_sdk(parser.parse_args(given[2:3] + given[-2:])).source.find_links == ()


@pytest.mark.parametrize("written", ["7.10.0", "==7.10.0"])
def test_the_version_of_the_sdk_may_have_upstreams_comparison_before_it(written: str) -> None:
    parser = build_prod_wheels._parser(Path("build_prod_wheels.py"))
    given = parser.parse_args(["build", "--rocm-sdk-version", written, "--output-dir", "out"])
    assert options.wanted_sdk(given).version == "7.10.0"


@pytest.mark.parametrize("kind", ["ci", "dev", "dev-bkc", "nightly", "nightly-bkc", "prerelease", "stable"])
def test_upstreams_release_types_are_taken(kind: str) -> None:
    parser = build_prod_wheels._parser(Path("build_prod_wheels.py"))
    assert parser.parse_args(["build", "--release-type", kind, "--output-dir", "out"]).release_type == kind
