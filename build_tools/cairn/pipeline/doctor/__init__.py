"""Find what a machine lacks for a build, an installation or tests, with a command line to fix each.

It compares a description of a machine, a `Machine`, with its purpose, a `Need`, and returns findings.
`look.here` describes this machine; `checks.diagnose` judges any machine, also one described in a file.
"""
