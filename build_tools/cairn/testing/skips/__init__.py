"""Tests that are left out of a suite: which, where, why, and until when.

`skip_files` reads the TOML of `skip-tests/`, whose entries name tests by their exact `ids` and apply under
`conditions`. `select` gives the entries of one run to the pytest `plugin`, and reads what that left out.
`lint` looks for mistakes, `retry` for tests that would pass by now; `importing/` makes such files of
upstream's lists.
"""
