"""`python -m rocm_sdk` is `rocm-sdk`."""

import sys

from ._cli import main

sys.exit(main())
