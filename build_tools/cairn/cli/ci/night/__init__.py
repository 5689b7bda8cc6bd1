"""`cairn ci night`: the jobs of the nightly workflow, one command each.

`begin` has freeze and build, `handover` fetch and keep, `publish` stage, test and promote,
`suites` suite and merge, `after` report, list and watch.
"""
