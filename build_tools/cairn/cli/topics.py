"""`cairn help TOPIC`: the help of a command, or a page about what all commands have in common."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence

_WIDTH = 80


def words_for(topic: Sequence[str]) -> Sequence[str]:
    """Return the command line that shows a topic; a page is shown at once, and ends the program.

    Raises:
        SystemExit: a page was shown.
    """
    names = [word for word in topic if not word.startswith("-")]
    if len(names) == 1 and (page := _PAGES.get(names[0])) is not None:
        sys.stdout.write("\n".join(page()) + "\n")
        sys.exit(0)
    return [*topic, "--help"]


def _settings() -> Iterable[str]:
    from cairn import settings

    yield "An option that is not given has its value from the first of these that sets it:"
    yield ""
    yield "  a variable      CAIRN_STORE for --store"
    yield "  cairn.toml      here or above, up to the root of the repository; or"
    yield "                  [tool.cairn] in pyproject.toml"
    yield f"  your own file   {settings.user_file() or 'none here'}"
    yield ""
    yield "cairn config set        set an option: cairn config set store s3://my-wheels"
    yield "cairn config list       the settings that hold here, and where each stands"


def _options() -> Iterable[str]:
    from cairn.cli import setting_names

    yield "Every option that some command has; `cairn COMMAND --help` says what it does:"
    yield ""
    names = " ".join(f"--{name}" for name in sorted(setting_names.FREE | setting_names.GUARDED))
    yield from textwrap.wrap(names, _WIDTH, break_on_hyphens=False)


def _exit_codes() -> Iterable[str]:
    from cairn import errors, start

    yield "  0   success"
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    for kind in sorted(
        (k for k in kinds if k is not errors.CairnError), key=lambda k: getattr(k, "exit_code", 0)
    ):
        if issubclass(kind, errors.CairnError) and "exit_code" in vars(kind):
            yield f" {kind.exit_code:>2}   {str(kind.__doc__).splitlines()[0]}"
    yield f" {start.EXIT_INTERNAL}   A defect of Cairn."
    yield f"{start.EXIT_INTERRUPTED}   Interrupted."


_PAGES = {"settings": _settings, "options": _options, "exit-codes": _exit_codes}
