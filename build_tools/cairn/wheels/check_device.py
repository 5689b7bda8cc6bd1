"""Whether the containers of a device wheel can be joined."""

from __future__ import annotations

from collections.abc import Iterator

from cairn.errors import WheelError
from cairn.wheels import device
from cairn.wheels.archive import Archive
from cairn.wheels.check_code import Checker
from cairn.wheels.findings import Finding
from cairn.wheels.unpacking import Forward, ViewReader
from cairn.wheels.views import MemberView
from cairn.wheels.zipformat import Member

_AGAIN = "split the wheel again"


def check(archive: Archive, member: Member) -> Iterator[Finding]:
    """Breaches of a container; nothing for any other member."""
    if not member.name.endswith(device.SUFFIX):
        return
    view = MemberView(archive, member)
    reader = ViewReader(view, 0, view.size)
    try:
        container = device.parse(reader, member.name)
    except WheelError as error:
        yield Finding(code="container-malformed", member=member.name, reason=str(error), fix=_AGAIN)
        return
    room = view.size - reader.at
    if any(blob.at < 0 or blob.size < 0 or blob.at + blob.size > room for blob in device.blobs(container)):
        reason = "its index names bytes that it does not have"
        yield Finding(code="container-malformed", member=member.name, reason=reason, fix=_AGAIN)
    else:
        yield from _check_codes(container, view, reader.at, member.name)
    if member.name.rpartition("/")[2] != f"{container.library}.{container.processor}{device.SUFFIX}":
        reason = f"its name is not that of the code of {container.library} for {container.processor}"
        yield Finding(code="container-name", member=member.name, reason=reason, fix=_AGAIN)
    empty = sorted({code.id for part in container.parts for code in part.codes if not code.blob.size})
    if empty:
        reason = f"its code for {', '.join(empty)} is empty"
        yield Finding(code="code-object-empty", member=member.name, reason=reason, fix=_AGAIN)


def _check_codes(container: device.Container, view: MemberView, base: int, member: str) -> Iterator[Finding]:
    codes = [code for part in container.parts for code in part.codes if code.blob.size]
    checker, content = Checker(member), Forward(ViewReader(view, base, view.size))
    seen: set[int] = set()
    for code in sorted(codes, key=lambda code: code.blob.at):
        if code.blob.at not in seen:
            seen.add(code.blob.at)
            checker.look_at(content, code.blob.at, code.blob.size, code.id)
    yield from checker.findings
