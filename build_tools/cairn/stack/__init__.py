"""stack.toml: the projects of a stack and the edges between them.

`load` takes the path of one and gives a `Stack`; in `model` every field says what it means.
"""

from cairn.stack.model import Budget as Budget
from cairn.stack.model import Carried as Carried
from cairn.stack.model import Consumer as Consumer
from cairn.stack.model import Cost as Cost
from cairn.stack.model import DeviceWheels as DeviceWheels
from cairn.stack.model import Download as Download
from cairn.stack.model import Environment as Environment
from cairn.stack.model import Feature as Feature
from cairn.stack.model import Floor as Floor
from cairn.stack.model import Gate as Gate
from cairn.stack.model import HipifyKind as HipifyKind
from cairn.stack.model import Line as Line
from cairn.stack.model import Origin as Origin
from cairn.stack.model import Project as Project
from cairn.stack.model import RecordKind as RecordKind
from cairn.stack.model import Sdk as Sdk
from cairn.stack.model import Stack as Stack
from cairn.stack.read import FILE as FILE
from cairn.stack.read import checkouts_folder as checkouts_folder
from cairn.stack.read import load as load
