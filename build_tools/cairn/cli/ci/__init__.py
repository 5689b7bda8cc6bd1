"""`cairn ci`: a stack end to end on this machine (`run`), and the jobs of a night.

Those are in `night_wheels` (freeze, build, stage, promote), `night_tests` (fetch, test, suite, keep, merge)
and `night_report` (report, list, watch); `night_options` has what they share.
"""
