"""Exclude tests from a suite: which tests, under which conditions, why, and until when.

`skip_files` reads the TOML of `skip-tests/`, whose entries name tests by their exact `ids` and apply under
`conditions`, and looks for mistakes; `sources` finds ids in PyTorch's sources, by the `generated_names` of
their functions. `select` passes the entries of one run to the pytest `plugin`, and reads which tests that
excluded. `retry` finds the entries whose tests pass by now. The maintainers' `tests/upstream/import_skips.py`
writes such files from the names of upstream's lists.
"""
