"""`cairn release key`: keys to sign releases and test records with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cairn.cli import fields
from cairn.cli.answer import Answer, Note
from cairn.cli.binder import command


@dataclass(frozen=True, kw_only=True)
class CreateKey:
    """What `cairn release key create` is asked for.

    The private half stays with you; users get the public one from where they know it is yours.

        cairn release key create --output-dir ~/.config/cairn
    """

    output_dir: Path = fields.output_dir()
    json: bool = fields.json()


def _create(request: CreateKey) -> Answer:
    from cairn.release.provenance import signing_key

    key = signing_key.create(request.output_dir)
    private, public = (
        request.output_dir / name for name in (signing_key.PRIVATE_NAME, signing_key.PUBLIC_NAME)
    )
    text = (
        key.key_id,
        Note(f"{private} signs: keep it to yourself, and a copy where nobody else can read it"),
        Note(f"{public} checks: give it to those who are to trust you"),
    )
    return Answer({"key_id": key.key_id, "private_key": private, "public_key": public}, text)


COMMANDS = {"create": command(CreateKey, _create)}
