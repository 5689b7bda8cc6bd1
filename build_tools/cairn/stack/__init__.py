"""stack.toml: the projects of a stack and the edges between them.

`load` takes the path of one and gives a `Stack`; in `model` every field says what it means.
"""

from cairn.stack.model import (
    DeviceWheels,
    Download,
    Environment,
    Feature,
    Floor,
    Gate,
    HipifyKind,
    Line,
    Origin,
    PinKind,
    Project,
    RecordKind,
    Sdk,
    Stack,
)
from cairn.stack.read import FILE, load

__all__ = [
    "FILE",
    "DeviceWheels",
    "Download",
    "Environment",
    "Feature",
    "Floor",
    "Gate",
    "HipifyKind",
    "Line",
    "Origin",
    "PinKind",
    "Project",
    "RecordKind",
    "Sdk",
    "Stack",
    "load",
]
