"""`cairn ci`: a stack end to end on this machine (`run`), and the jobs of a night.

Those are in `night_wheels` (freeze, stage, promote), `night_step` (step), `night_report` (report, list) and
`night_run` (run); `night_options` has what they share.
"""
