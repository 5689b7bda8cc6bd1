"""Judge the judge: `cairn wheel verify` over some of PyPI's most downloaded wheels.

    python benchmarks/wheel_verify_popular.py /tmp/popular

The wheels of `wheel_verify_popular.txt`, by exact file name, are fetched by pip into the folder given where
they are not there yet (about 7 GB), and each is verified by itself, or with the wheel that stands beside
it in the list. Every finding is printed: one that could not be defended before the wheel's author is a
defect of ours. Fails where one could not be fetched.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

from packaging.utils import parse_wheel_filename

LIST = Path(__file__).with_suffix(".txt")
MOST = 250_000_000  # bytes of a wheel


def main() -> None:
    """Fetch, verify and print."""
    parser = argparse.ArgumentParser(
        description=textwrap.dedent(__doc__ or ""), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the wheels are kept")
    parser.add_argument("--only", default="", metavar="TEXT", help="only those with that in their names")
    options = parser.parse_args()
    names = [line for line in LIST.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    missing, judged, found = [], 0, 0
    for name, *beside in (line.split() for line in names if options.only in line):
        wheels = [options.folder / one for one in (name, *beside)]
        lacking = [one.name for one in wheels if not one.exists() and not fetch(one.name, options.folder)]
        if lacking:
            missing += lacking
            continue
        began = time.process_time()
        findings = verified(*wheels)
        print(f"{len(findings):4}  {time.process_time() - began:6.2f} s  {name}", flush=True)
        for finding in findings:
            print(textwrap.indent(finding, " " * 16))
        judged += 1
        found += len(findings)
    print(f"{judged} wheels, {found} findings")
    if missing:
        raise SystemExit(f"not to be fetched: {', '.join(missing)}")


def fetch(name: str, folder: Path) -> bool:
    """Whether pip could fetch the wheel of exactly that file name."""
    distribution, version, _, tags = parse_wheel_filename(name)
    pythons = {tag.interpreter for tag in tags}
    python = max(pythons, key=len)
    numbers = python.lstrip("abcdefghijklmnopqrstuvwxyz")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--dest", str(folder), "--python-version", f"{numbers[0]}.{numbers[1:] or 12}"]
    command += [f"--platform={tag.platform}" for tag in tags if tag.platform != "any"]
    if python[:2] in ("cp", "pp"):
        command += ["--implementation", python[:2], *(f"--abi={tag.abi}" for tag in tags)]
    subprocess.run([*command, f"{distribution}=={version}"], check=False)
    wheel = folder / name
    return wheel.exists() and wheel.stat().st_size < MOST


def verified(wheel: Path, *beside: Path) -> list[str]:
    """The findings on one wheel, as lines; those of one kind on many members are shown together."""
    # Imported here, so that the list can be fetched by a Python without Cairn.
    from cairn.wheels.contents import providers  # noqa: PLC0415
    from cairn.wheels.verify import Expectation, verify  # noqa: PLC0415

    supply = providers.supplies([wheel, *beside])[wheel]
    expected = Expectation(provided_libraries=supply.libraries, beside=supply.versions)
    findings = verify(wheel, expected)
    several = Counter((finding.code, finding.reason) for finding in findings)
    lines = []
    for (code, reason), count in several.items():
        where = [
            finding.member or "" for finding in findings if (finding.code, finding.reason) == (code, reason)
        ]
        more = f" and {count - 1} more" if count > 1 else ""
        lines.append(f"[{code}] {where[0]}{more}: {reason}")
    return lines


if __name__ == "__main__":
    main()
