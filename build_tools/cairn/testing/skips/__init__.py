"""Leave tests out of a suite: which, where, why, and until when.

`skip_files` reads the TOML of `skip-tests/`, whose entries name tests by their exact `ids` and apply under
`conditions`, and looks for mistakes. `select` gives the entries of one run to the pytest `plugin`, and reads
which tests that left out. `retry` finds the entries whose tests would pass by now; `importing` makes such
files of upstream's lists (`upstream_lists`).
"""
