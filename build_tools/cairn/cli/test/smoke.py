"""`cairn test smoke`: a set, installed into a fresh environment and tested there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cairn import converters
from cairn.cli import common_options as common
from cairn.cli.answer import Answer
from cairn.cli.binder import command
from cairn.errors import UsageError
from cairn.options import argument, fill, flag, option
from cairn.output import console

if TYPE_CHECKING:
    from cairn.testing.smoke import SmokeResult


@dataclass(frozen=True, kw_only=True)
class Smoke(common.OptionalStack):
    """Options of `cairn test smoke`.

    Exactly the files of the set are installed, from one index alone; then the built-in checks and the
    stack's own tests run. Without --index-url, packages come from --find-links alone. Writes record.json
    and junit.xml. Tests of a set for GPUs that used none do not pass: they are untested.

        cairn test smoke --set out/set.json --stack sample --index-url
        http://127.0.0.1:8383/staging/simple/ -- -k cpu
    """

    set: Path = option("set.json of the wheels", convert=converters.file, required=True)
    index_url: str | None = common.index_url()
    find_links: tuple[str, ...] = common.find_links()
    targets: str | None = common.targets("what the set is for; others are refused")
    output_dir: Path = common.output_dir(default=Path("smoke"))
    python: Path | None = common.python("to make the environment from")
    timeout: float = option("for each run of pytest", default=1800.0, convert=converters.seconds)
    floor: int = option("fewest tests that must run", default=1, convert=converters.floor)
    allow_untested: bool = flag(
        "exit with 0 where nothing failed and no test used a GPU, though the set is for some: the "
        "record is `untested` all the same, and the gate asks for a bypass"
    )
    translate: Path | None = common.translate()
    pytest_args: tuple[str, ...] = argument(
        "-- PYTEST ARGS",
        "passed on to pytest; the gate does not count a record that was made with any",
        nargs="*",
    )


def _smoke(request: Smoke) -> Iterator[Answer]:
    from cairn.targets import parse_targets
    from cairn.testing.smoke import SmokeRequest, require_passed, run_smoke
    from cairn.wheels import wheelset

    wheel_set = wheelset.read(request.set)
    if request.targets and set(parse_targets(request.targets)) != set(wheel_set.targets):
        raise UsageError(
            f"the set is for {', '.join(wheel_set.targets)}, not for {request.targets}",
            tip="leave --targets out, or build a set for them",
        )
    work_dir = request.output_dir.absolute()
    smoke_request = fill(SmokeRequest, request, wheel_set=wheel_set, work_dir=work_dir)
    if (stack := request.load_stack()) is not None:
        smoke_request = smoke_request.of_stack(stack)
    with console.current().stage(f"smoke tests of {len(wheel_set.wheels)} wheels") as stage:
        result = run_smoke(smoke_request, on_line=stage.update)
    yield Answer(result.record, _text(result))
    require_passed(result, or_untested=request.allow_untested)


def _text(result: SmokeResult) -> Iterator[str]:
    record = result.record
    yield from (f"FAILED {line}" for line in result.failures)
    yield from (f"skipped {skip.test}: {skip.reason}" for skip in record.skips)
    yield f"{record.verdict}: {record.reason}"
    yield f"record: {result.record_path}"


COMMANDS = {"smoke": command(Smoke, _smoke, needs="test")}
