"""The parsers of `cairn` and of every script, with all of their commands."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from cairn import stack
from cairn.cli import main
from cairn.cli.upstream import build_prod_wheels, checkouts, pytorch_tests, rocm, wheels

_PYTORCH = Path(__file__).resolve().parents[2] / "external-builds" / "pytorch"


def below(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser, and those of all commands in it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from below(child)


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Those of its commands that have none in them."""
    return (child for child in below(parser) if len([*below(child)]) == 1)


def all_parsers() -> tuple[argparse.ArgumentParser, ...]:
    """Make them anew."""
    return (
        main.make_parser(whole=True),
        build_prod_wheels._parser(Path("build_prod_wheels.py"), stack.load(_PYTORCH).projects),
        pytorch_tests.run_pytorch_smoke_tests(Path("run_pytorch_smoke_tests.py")),
        pytorch_tests.run_pytorch_tests(Path("run_pytorch_tests.py")),
        *(
            checkouts.pytorch_repo(name, Path(f"pytorch_{name}_repo.py"))
            for name in ("torch", "vision", "triton")
        ),
        checkouts.checkout_from_manifest(Path("checkout_from_manifest.py")),
        *(
            wheels.patch_fat_wheel(Path(n), windows=w)
            for n, w in (("patch_fat_wheel.py", False), ("windows.py", True))
        ),
        wheels.sanity_check_wheel(Path("sanity_check_wheel.py")),
        rocm.fetch_artifacts(Path("fetch_artifacts.py")),
        rocm.build_python_packages(Path("build_python_packages.py")),
    )
