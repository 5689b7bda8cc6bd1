"""Signing and trusting: the options of the commands that do it, and `cairn release key`."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.cli import arguments
from cairn.cli.parser import Subparsers, add_command, add_commands
from cairn.errors import PrerequisiteError
from cairn.output import console

if TYPE_CHECKING:
    from cairn.release.provenance.attest import Attester
    from cairn.release.provenance.signing_key import Signer
    from cairn.release.provenance.trust import Trust

_EXAMPLE = "cairn release key create --output-dir ~/.config/cairn"


def add_key(commands: Subparsers) -> None:
    """Add `key create`."""
    group = commands.add_parser("key", help="keys to sign with")
    create = add_command(
        add_commands(group, description="Keys to sign with.", example=_EXAMPLE),
        "create",
        _create,
        about="make a key to sign releases and test records with",
        more="The private half stays with you; users get the public one from where they know it is yours.",
        example=_EXAMPLE,
    )
    arguments.add_output_dir(create)
    arguments.add_json(create)


def add_sign_key(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """`--sign-key`."""
    parser.add_argument(
        "--sign-key",
        type=arguments.file,
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


def _create(options: argparse.Namespace) -> int:
    from cairn.release.provenance import signing_key

    key = signing_key.create(options.output_dir)
    private, public = (
        options.output_dir / name for name in (signing_key.PRIVATE_NAME, signing_key.PUBLIC_NAME)
    )
    screen = console.current()
    if options.json:
        screen.json({"key_id": key.key_id, "private_key": str(private), "public_key": str(public)})
        return 0
    screen.out(key.key_id)
    screen.info(f"{private} signs: keep it to yourself, and a copy where nobody else can read it")
    screen.info(f"{public} checks: give it to those who are to trust you")
    return 0
