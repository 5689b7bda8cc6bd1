"""Arguments that several commands share: one name and one wording each, their types, what a shell completes.

A type (`file`, `new_folder`, `positive`) is what argparse calls with the text of an argument: what is missing
or of a different kind is said before a command begins. A completer (`complete_targets`) is what argcomplete
calls after the tab key, with the beginning of the word and with what was given before it.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.errors import CairnError, UsageError

if TYPE_CHECKING:
    from cairn.build.model import WantedSdk
    from cairn.stack import Stack
    from cairn.store.protocol import Store

Completer = Callable[..., Iterable[str]]

MORE_FIND_LINKS = "more_find_links"  # where a parser that repeats the options of `add_pip` keeps its own
_MOST_SECONDS = 1e9
PORT = 8383
"""Where an index is served unless a different port is given."""
LINE_OF_CHECKOUTS = "that of the checkouts"
"""What `add_stack` says of the line where checkouts are there already."""


def add_stack(
    parser: argparse.ArgumentParser,
    *,
    required: bool = True,
    default: Path | str | None = None,
    default_line: str = "the stack's",
) -> None:
    """`--stack` and `--line`.

    Args:
        parser: what gets them.
        required: whether the stack must be given where it has no default.
        default: the stack of a script; argparse.SUPPRESS below a command that has one already.
        default_line: says in words which line applies without one.
    """
    action = parser.add_argument(
        "--stack",
        type=any_path,
        required=required and default is None,
        default=default,
        help="a stack.toml, or the folder that has one",
    )
    completes(action, complete_stack_folders)
    add_line(parser, default=default_line, value=default if default == argparse.SUPPRESS else None)


def add_build_env(parser: argparse.ArgumentParser) -> None:
    """`--build-env`."""
    add_repeated(
        parser,
        "--build-env",
        "[PROJECT:]NAME=VALUE",
        "variable for the builds, or for that of one project, such as USE_FBGEMM=0",
    )


def add_line(parser: argparse.ArgumentParser, *, default: str, value: object = None) -> None:
    """`--line`; `default` says in words what applies without it, `value` is what the option is then."""
    action = parser.add_argument(
        "--line",
        type=nonempty,
        default=value,
        help=f"release line, such as nightly or release/2.9 (default: {default})",
    )
    completes(action, complete_lines)


def read_stack(options: argparse.Namespace) -> Stack:
    """The stack that the options name, on the line they name."""
    from cairn import stack as stacks

    return stacks.load(options.stack).for_line(options.line)


def add_root_checkout_dir(parser: argparse.ArgumentParser) -> None:
    """`--root-checkout-dir`."""
    parser.add_argument(
        "--root-checkout-dir",
        type=new_folder,
        metavar="DIR",
        help="folder of the checkouts (default: beside the stack.toml)",
    )


def add_output_dir(
    parser: argparse.ArgumentParser, *, default: Path | None = None, required: bool = True
) -> None:
    """`--output-dir`, which must be given where it has no default and something is written."""
    parser.add_argument(
        "--output-dir",
        type=new_folder,
        required=required and default is None,
        default=default,
        metavar="DIR",
        help="folder to write into; made if missing" + (" (default: %(default)s)" if default else ""),
    )


def add_targets(parser: argparse.ArgumentParser, *, default: str) -> None:
    """`--targets`; `default` says in words what applies without it."""
    action = parser.add_argument(
        "--targets",
        type=nonempty,
        help=f"GPU targets or families, joined by commas, or cpu (default: {default})",
    )
    completes(action, complete_targets)


def nonempty(text: str) -> str:
    """A text, as a `type` of argparse for options whose default is wide: every target, the public index."""
    # As CI passes a variable that is not set.
    if not text.strip():
        raise ArgumentTypeError("it is empty; leave the option out for what applies without it")
    return text


def add_jobs(parser: argparse.ArgumentParser, *, what: str) -> None:
    """`--jobs`: how many of `what` at once; 0 without it, for as many as suits."""
    parser.add_argument("--jobs", type=positive, default=0, help=f"{what} at once (default: what suits)")


def positive(text: str) -> int:
    """A number of things, as a `type` of argparse."""
    # Python makes no number of more than 4,300 digits, and no machine has use for one of ten.
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
        raise ArgumentTypeError(f"{text[:40]!r} is not a positive number below a billion")
    return int(text)


def seconds(text: str) -> float:
    """A time to wait, as a `type` of argparse."""
    # Nothing is later than `nan`, and `inf` is more than a lock or a pipe can wait for.
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < _MOST_SECONDS:
        raise ArgumentTypeError(f"{text[:40]!r} is not a positive number of seconds below a billion")
    return found


def add_force(parser: argparse.ArgumentParser) -> None:
    """`--force`."""
    parser.add_argument(
        "--force",
        action="store_true",
        help="drop local work that stands in the way; refs/cairn/dropped keeps it",
    )


def add_repeated(
    parser: argparse.ArgumentParser,
    name: str,
    metavar: str,
    text: str,
    *,
    kind: Callable[[str], object] = str,
) -> None:
    """An option that may be given several times; it is a list."""
    parser.add_argument(
        name, action="append", default=[], type=kind, metavar=metavar, help=f"{text}; may be repeated"
    )


def add_find_links(parser: argparse.ArgumentParser) -> None:
    """`--find-links`."""
    add_repeated(parser, "--find-links", "PLACE", "folder or page with packages")


def add_wheels(parser: argparse.ArgumentParser) -> None:
    """`WHEEL …`."""
    parser.add_argument("wheels", nargs="+", type=file, metavar="WHEEL", help="a wheel")


def add_provided(parser: argparse.ArgumentParser) -> None:
    """`--provided`."""
    add_repeated(parser, "--provided", "GLOB", "a library that a different wheel supplies")


def add_store(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup, *, required: bool | None = None
) -> None:
    """`--store`, which must be given unless something else of a group may be given instead.

    Beside it, where it is not in a group: `--endpoint-url`.
    """
    needed = isinstance(parser, argparse.ArgumentParser) if required is None else required
    parser.add_argument(
        "--store", required=needed, metavar="URL", help="the store: a path, file://… or s3://bucket/prefix"
    )
    if isinstance(parser, argparse.ArgumentParser):
        add_endpoint_url(parser)


def add_endpoint_url(parser: argparse.ArgumentParser) -> None:
    """`--endpoint-url`."""
    parser.add_argument(
        "--endpoint-url",
        type=nonempty,
        metavar="URL",
        help="server of an s3:// store that is not Amazon's (default: AWS_ENDPOINT_URL_S3)",
    )


def open_store(options: argparse.Namespace) -> Store:
    """The store that the options of `add_store` name; it need not be there yet."""
    from cairn.output import console
    from cairn.store import opening

    return opening.open_store(options.store, endpoint_url=options.endpoint_url, say=console.current().info)


def open_existing_store(options: argparse.Namespace) -> Store:
    """The store that the options of `add_store` name, in which something is."""
    from cairn.output import console
    from cairn.store import opening

    return opening.open_existing(options.store, endpoint_url=options.endpoint_url, say=console.current().info)


def add_index(parser: argparse.ArgumentParser, *, default: str, told: bool = False) -> None:
    """`--index`, and the other name for it; with `told`, it is None where the user does not say which."""
    action = parser.add_argument(
        "--index",
        "--channel",
        dest="index",
        default=None if told else default,
        help=f"a channel, or a channel and a family: staging, release/gfx110X-all (default: {default})",
    )
    completes(action, complete_indexes)


def add_translate(parser: argparse.ArgumentParser) -> None:
    """`--translate`, for commands that run tests where there may be no GPU."""
    parser.add_argument(
        "--translate",
        type=file,
        metavar="WHEEL",
        help="run the tests through TorchDevice, whose wheel this is: code that says cuda computes on the "
        "CPU; the record says so, and is `untested` where nothing failed, whatever the set is for",
    )


def add_python(parser: argparse.ArgumentParser, *, what: str) -> None:
    """`--python`, an interpreter; `what` says which it is."""
    parser.add_argument(
        "--python", type=program, metavar="FILE", help=f"interpreter {what} (default: Cairn's own)"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """`--dry-run`."""
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")


def add_pip(parser: argparse.ArgumentParser) -> None:
    """Where pip finds the ROCm SDK: upstream's flags (build_prod_wheels.py)."""
    parser.add_argument("--index-url", type=nonempty, metavar="URL", help="the only package index to use")
    add_find_links(parser)
    parser.add_argument("--pip-cache-dir", type=new_folder, metavar="DIR", help="pip's cache folder")
    parser.add_argument(
        "--rocm-sdk-version",
        type=sdk_version,
        metavar="VERSION",
        help="version of the ROCm SDK: 7.10.0, ==7.10.0, '>1.0' or '~=7.10' (default: the newest)",
    )
    parser.add_argument(
        "--pre", action=argparse.BooleanOptionalAction, default=True, help="take pre-releases too"
    )
    parser.add_argument(
        "--rocm-extras",
        default="",
        help="extras of the rocm package in addition to libraries and devel, such as device-gfx1100",
    )


def exact_version(text: str) -> str:
    """An exact version, perhaps with the comparison that upstream writes before it: `==7.10.0`."""
    return text.strip().removeprefix("==")


def sdk_version(text: str) -> str | None:
    """A version, or what one must be by the comparisons of PEP 440; None for an empty text: the newest."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    exact = exact_version(text).strip()
    try:
        Version(exact)
    except InvalidVersion:
        try:
            return str(SpecifierSet(text)) or None
        except InvalidSpecifier:
            raise ArgumentTypeError(f"{text!r} is no version, such as 7.10.0, '>1.0' or '~=7.10'") from None
    return exact


def sdk_extras(options: argparse.Namespace) -> tuple[str, ...]:
    """The extras of `--rocm-extras`, after those that a build needs: upstream adds too."""
    more = (word.strip() for word in options.rocm_extras.split(","))
    return tuple(dict.fromkeys(("libraries", "devel", *filter(None, more))))


def wanted_sdk(options: argparse.Namespace, *, family: str | None = None) -> WantedSdk:
    """Which ROCm SDK the options ask for."""
    from cairn.build.model import WantedSdk
    from cairn.venv import PackageSource

    return WantedSdk(
        source=PackageSource(
            index_url=options.index_url,
            find_links=(*options.find_links, *getattr(options, MORE_FIND_LINKS, ())),
            cache_dir=options.pip_cache_dir,
            pre=options.pre,
            offline=getattr(options, "offline", False),
        ),
        version=options.rocm_sdk_version,
        extras=sdk_extras(options),
        family=family,
    )


def file(text: str) -> Path:
    """A file that is there and can be read."""
    path = _there(text, "file")
    if path.is_dir():
        raise ArgumentTypeError(f"{text} is a folder, not a file")
    return _readable(path, os.R_OK)


def folder(text: str) -> Path:
    """A folder that is there and can be read."""
    path = _there(text, "folder")
    if not path.is_dir():
        raise ArgumentTypeError(f"{text} is a file, not a folder")
    return _readable(path, os.R_OK | os.X_OK)


def program(text: str) -> Path:
    """A program that can be run, such as an interpreter: its whole path, as it may run in another folder."""
    path = _there(text, "program")
    if path.is_dir():
        raise ArgumentTypeError(f"{text} is a folder, not a program")
    if not os.access(path, os.X_OK):
        raise ArgumentTypeError(f"{text} is not a program: it may not be run")
    return path.absolute()  # links stay: an environment's interpreter is one


def file_or_folder(text: str) -> Path:
    """Either, as long as it is there."""
    path = _there(text, "file or folder")
    return _readable(path, os.R_OK)


def new_file(text: str) -> Path:
    """A file to write: its folder is made where it is missing."""
    path = any_path(text)
    if path.is_dir():
        raise ArgumentTypeError(f"{text} is a folder, not a file to write")
    _refuse_file_above(path)
    return path


def new_folder(text: str) -> Path:
    """A folder to write into: it is made where it is missing."""
    path = any_path(text)
    if path.exists() and not path.is_dir():
        raise ArgumentTypeError(f"{text} is a file, not a folder to write into")
    _refuse_file_above(path)
    return path


def any_path(text: str) -> Path:
    """A path of which the command itself says more, where nothing is there."""
    from cairn import files

    try:
        return files.expanded(text)
    except UsageError as error:
        raise ArgumentTypeError(str(error)) from error


def _there(text: str, what: str) -> Path:
    path = any_path(text)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink():
            said = f"{text} is a link to {path.readlink()}, which is not there"
        elif any(sign in text for sign in "*?["):
            said = f"no {what} matches {text}"
        else:
            said = f"there is no {what} {text}"
        raise ArgumentTypeError(said) from error
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        raise ArgumentTypeError(f"{text!r} cannot be read: {_reason(error)}") from error
    return path


def _readable(path: Path, mode: int) -> Path:
    if not os.access(path, mode):
        raise ArgumentTypeError(f"{path} cannot be read: permission denied")
    return path


def _refuse_file_above(path: Path) -> None:
    try:
        above = next(folder for folder in path.absolute().parents if folder.exists())
        if not above.is_dir():
            raise ArgumentTypeError(f"{path} cannot be made: {above} is a file")
    except (OSError, ValueError) as error:
        raise ArgumentTypeError(f"{str(path)!r} cannot be written: {_reason(error)}") from error


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def completes(action: argparse.Action, completer: Completer) -> None:
    """Have `completer` say what there is for an argument."""
    action.completer = completer  # type: ignore[attr-defined]  # where argcomplete looks for it


def words() -> list[str]:
    """What is on the line that a shell asks about, up to the cursor."""
    import shlex

    # bash's names for the line and the cursor's place in it; argcomplete sets them for other shells too.
    line = os.environ.get("COMP_LINE", "")
    try:
        return shlex.split(line[: int(os.environ.get("COMP_POINT", len(line)))])[1:]
    except ValueError:  # an open quote
        return line.split()[1:]


def complete_stack_folders(prefix: str, **_: object) -> list[str]:
    """Folders with a stack, and folders on the way to one."""
    folder = Path(prefix) if prefix.endswith("/") else Path(prefix).parent
    found = [path for path in sorted(folder.glob("*/")) if not path.name.startswith(".")]
    near = [] if prefix else sorted(Path("external-builds").glob("*/stack.toml"))
    return [*(f"{path}/" for path in found), *(str(path.parent) for path in near)]


def complete_projects(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """The projects of the stack that is named, and what else `checkout` takes."""
    stack = _stack(parsed_args)
    return ["all", "origins", *(project.name for project in stack.projects)] if stack else ["all", "origins"]


def complete_lines(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """The release lines of the stack that is named."""
    stack = _stack(parsed_args)
    return list(stack.line_names()) if stack else []


def complete_indexes(**_: object) -> tuple[str, ...]:
    """The channels, and the families of each."""
    from cairn.release.index import keys

    return keys.possible_indexes()


def complete_targets(prefix: str, **_: object) -> list[str]:
    """Targets and families, after those that are on the list already."""
    from cairn import targets as gpu

    # A shell replaces the whole word, `gfx942,gf` too.
    before = prefix[: prefix.rfind(",") + 1]
    return [f"{before}{name}" for name in (gpu.CPU, *gpu.families(), *gpu.known_targets())]


def _stack(parsed_args: argparse.Namespace) -> Stack | None:
    from cairn import stack as stacks

    # argcomplete gives the options that it has parsed so far.
    path = getattr(parsed_args, "stack", None)
    line = words()
    if path is None and "--stack" in line[:-1]:  # it may stand behind the cursor's word, or be parsed later
        path = Path(line[line.index("--stack") + 1])
    try:
        return stacks.load(path) if path is not None else None
    except CairnError:  # nothing to offer; the command itself will say what is wrong
        return None
