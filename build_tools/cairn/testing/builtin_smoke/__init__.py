"""Checks that apply to any stack: pytest files, run from a copy against an installed set."""
