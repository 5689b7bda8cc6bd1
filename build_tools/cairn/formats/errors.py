"""One class per way in which an archive can be wrong, so that callers and tests can tell them apart."""

from __future__ import annotations

from cairn.errors import WheelError


class ArchiveError(WheelError):
    """The ZIP archive of a wheel cannot be trusted."""


class NotAnArchiveError(ArchiveError):
    """The file is not a ZIP archive at all."""


class TruncatedArchiveError(ArchiveError):
    """The file ends before, or in the middle of, what its headers promise."""


class InconsistentArchiveError(ArchiveError):
    """Two places of the archive contradict each other, or the content contradicts its header."""


class EscapingPathError(ArchiveError):
    """A member's name would lead outside the folder it is unpacked into."""


class AbsolutePathError(ArchiveError):
    """A member's name begins at a root or a drive."""


class DuplicateMemberError(ArchiveError):
    """Two members claim one path."""


class LinkMemberError(ArchiveError):
    """A member is a symbolic link, a device, or anything else that is not a file."""


class EncryptedMemberError(ArchiveError):
    """A member needs a password."""


class BombError(ArchiveError):
    """Unpacking would take far more room than a wheel needs."""


class UnsupportedArchiveError(ArchiveError):
    """The archive uses a ZIP feature that installers do not understand."""


class MissingMemberError(ArchiveError):
    """The archive has no member of that name."""
