"""Format numbers, lists and suggestions for sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

_ID = 12  # digits
_ALIKE = 0.6  # of difflib's ratio: what it calls a close match
_BEGINS_OTHERWISE = 0.75  # the same for a name with another first letter: `help` is 0.67 of `wheel`
_LONGEST = 100  # characters that a mistyped name may have; comparing takes longer the longer it is
_AS_LIKELY = 0.1  # how far below the best guess a further one may be


def short_id(text: str) -> str:
    """The beginning of a digest, a commit or a set's id, by which messages name it."""
    return text[:_ID]


def count(items: Collection[object], noun: str) -> str:
    """`3 files`, `1 file`."""
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'}"


def each_once(names: Iterable[str]) -> str:
    """List names with commas, each once: `gfx942, gfx950`."""
    return ", ".join(dict.fromkeys(names))


def some(names: Sequence[str], *, shown: int = 5) -> str:
    """`a, b and 7 more`."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def nearest(word: str, choices: Iterable[str]) -> tuple[str, ...]:
    """The known names that `word` may be meant for: at most three, likeliest first."""
    import difflib  # noqa: PLC0415 - only needed after a typing error

    if len(word) > _LONGEST:
        return ()
    typed = word.lstrip("-").casefold()  # the dashes that all options have make no two of them alike
    likeness: dict[str, float] = {}
    for name in choices:
        folded = name.lstrip("-").casefold()
        # The beginning of a long name, or 2.9 of release/2.9, is not similar enough to it, but often meant.
        begins = len(typed) > 1 and (folded.startswith(typed) or folded.endswith(f"/{typed}"))
        ratio = 1.0 if begins else difflib.SequenceMatcher(None, typed, folded).ratio()
        if ratio >= (_ALIKE if typed[:1] == folded[:1] else _BEGINS_OTHERWISE):
            likeness[name] = ratio
    best = max(likeness.values(), default=0.0)
    ordered = sorted(likeness, key=lambda name: (-likeness[name], name))
    return tuple(name for name in ordered if likeness[name] > best - _AS_LIKELY)[:3]


def did_you_mean(word: str, choices: Collection[str], *, what: str) -> str:
    """A tip for an unknown name: `did you mean a or b?`, or all names after `what`."""
    if close := nearest(word, choices):
        return f"did you mean {' or '.join(close)}?"
    return f"{what}: {', '.join(choices)}" if choices else f"{what}: none"
