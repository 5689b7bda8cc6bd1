"""Signing and trusting: the options of the commands that do it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import arguments
from cairn.errors import PrerequisiteError

if TYPE_CHECKING:
    from cairn.release.provenance.attest import Attester
    from cairn.release.provenance.signing_key import Signer
    from cairn.release.provenance.trust import Trust


def add_sign_key(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """`--sign-key`."""
    parser.add_argument(
        "--sign-key",
        type=converters.file,
        metavar="FILE",
        help="sign with this private key (default: that of CAIRN_SIGN_KEY, if it names one)",
    )


def add_attesting(parser: argparse.ArgumentParser) -> None:
    """What vouches for wheels: `--sign-key`, `--sign-as-workflow`."""
    one = parser.add_mutually_exclusive_group()
    add_sign_key(one)
    one.add_argument(
        "--sign-as-workflow",
        action="store_true",
        help="sign as the GitHub workflow that runs this (PEP 740); needs `id-token: write`, extra sign",
    )


def add_trust(parser: argparse.ArgumentParser, *, what: str) -> None:
    """`--trust`; `what` says whose signatures count."""
    arguments.add_repeated(
        parser, "--trust", "KEY", f"{what}: a public key's file, or github:OWNER/NAME/WORKFLOW.yml"
    )


def signer(options: argparse.Namespace) -> Signer | None:
    """The key that the options or the environment name."""
    from cairn.release.provenance import signing_key

    return signing_key.chosen_signer(options.sign_key)


@contextlib.contextmanager
def attester(options: argparse.Namespace) -> Iterator[Attester | None]:
    """Yield who vouches for wheels; None where nobody was asked to."""
    if options.sign_as_workflow and options.dry_run:
        yield None
        return
    if options.sign_as_workflow:
        try:
            from cairn.release.provenance.pep740 import workflow_attester
        except ImportError as error:
            tip = "pip install 'cairn[sign]'"
            raise PrerequisiteError("--sign-as-workflow needs the extra sign", tip=tip) from error
        with workflow_attester() as found:
            yield found
        return
    from cairn.release.provenance.objects import KeyAttester

    key = signer(options)
    yield KeyAttester(key) if key else None


def trust(options: argparse.Namespace, *, testers: Sequence[Path] = ()) -> Trust:
    """Whose signatures count; those of `testers` for test records alone."""
    from cairn.release.provenance import trust as trusted

    return trusted.read(options.trust, testers)
