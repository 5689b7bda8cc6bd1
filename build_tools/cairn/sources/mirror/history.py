"""What a branch of an origin was at a moment.

Walking back from where it is now along first parents, it is the first commit whose committer date is not
later than that moment. First parents only, since a merge brings in commits that are older than the day they
arrived; the committer date, since the author date may be older still. That is right for a branch that only
ever grew; what a rewritten branch was, only its host knows.
"""

from __future__ import annotations

from datetime import datetime

from cairn.errors import SourceError
from cairn.output import Progress
from cairn.sources.git import command, url
from cairn.sources.mirror.mirror import Mirror


def as_of(source: Mirror, hashtag: str, when: datetime, *, say: Progress) -> str:
    """The commit that a branch was at a moment; a tag or a commit is what it is, and returned as it came.

    Args:
        source: a mirror with the whole history, if only of commits.
        hashtag: a branch, tag or commit of its origin.
        when: the moment.
        say: progress callback.

    Raises:
        SourceError: the origin has no such hashtag, or the branch has no commit that old.
        NetworkError: it could not be reached.
    """
    tip = source.find(hashtag, say=say)
    if tip.kind == "tag" or (not tip.kind and tip.commit.startswith(hashtag)):
        return hashtag
    walk = ("--first-parent", f"--min-age={int(when.timestamp())}", "--max-count=1")
    commit = command.line(source.path, "rev-list", *walk, tip.commit)
    if not commit:
        raise SourceError(
            f"{hashtag} of {url.without_credentials(source.origin)} has no commit as old as {when}",
            tip="name a later --as-of, or the branch that was used then",
        )
    say(f"{hashtag} was {commit[:12]} as of {when.isoformat()}")
    return commit
