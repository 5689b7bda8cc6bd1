"""`cairn release key`: a key to sign with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn.cli import common_options as common
from cairn.cli.answer import Answer, Note
from cairn.cli.binder import command


@dataclass(frozen=True, kw_only=True)
class CreateKey:
    """Options of `cairn release key create`.

    The private half stays with you; users get the public one from where they know it is yours.

        cairn release key create --output-dir ~/.config/cairn
    """

    output_dir: Path = common.output_dir()


def _create_key(request: CreateKey) -> Answer:
    from cairn.release.trust import signers

    key = signers.create(request.output_dir)
    private, public = (request.output_dir / name for name in (signers.PRIVATE_NAME, signers.PUBLIC_NAME))
    text = (
        key.key_id,
        Note(f"{private} signs: keep it to yourself, and a copy where nobody else can read it"),
        Note(f"{public} checks: give it to those who are to trust you"),
    )
    return Answer({"key_id": key.key_id, "private_key": private, "public_key": public}, text)


COMMANDS = {"create": command(CreateKey, _create_key)}
