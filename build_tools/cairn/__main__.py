"""`python -m cairn`, for where the program is not on PATH."""

import sys

from cairn.start import main

if __name__ == "__main__":
    sys.exit(main())
