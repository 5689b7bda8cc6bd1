"""Placeholders in stack.toml: `{version}`, `{rocm_home}`, `{version:torch}`.

| placeholder | meaning |
| --- | --- |
| `{version}` | the version the wheel gets, base and suffix; `{version_suffix}` the suffix alone |
| `{build_number}` | `--pytorch-build-number` |
| `{version:NAME}` | the version of a project this one needs, as built |
| `{requirements}` | exact requirements, joined by a vertical bar |
| `{targets}` | GPU targets, joined by `;` |
| `{rocm_version}`, `{rocm_home}`, `{rocm_bin}`, `{rocm_cmake}` | the ROCm SDK and its folders |
| `{jobs}` | compile jobs that this build may run at once |
| `{environment}` | the folder of the virtual environment that the build runs in |
| `{source_dir}` | the folder of the tree that is built |
| `{on_or_off:FEATURE}` | `ON` where the feature is enabled, else `OFF` |
| `{PATH}` | `PATH` as it was |
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cairn.errors import UsageError

_PLACEHOLDER = re.compile(r"\{(?P<name>[A-Za-z_]+(?::[A-Za-z0-9_-]+)?)\}")


def expand(template: str, values: Mapping[str, str], *, where: str) -> str:
    """`template` with every placeholder replaced.

    Args:
        template: text of a stack.toml.
        values: placeholder name to text.
        where: what the template belongs to, for the error.

    Raises:
        UsageError: a placeholder that has no value here.
    """

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in values:
            raise UsageError(f"{where}: no value for the placeholder {{{name}}}")
        return values[name]

    return _PLACEHOLDER.sub(value, template)


def expand_all(templates: Mapping[str, str], values: Mapping[str, str], *, where: str) -> Mapping[str, str]:
    """Every value of a mapping, expanded."""
    return {name: expand(text, values, where=f"{where}, {name}") for name, text in templates.items()}
