"""The checks that hold for any stack: pytest files, run from a copy against an installed set."""
