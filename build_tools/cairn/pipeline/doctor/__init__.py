"""What a machine lacks for a build, an installation or tests, and the line to type about each.

It takes what is known of a machine, a `Machine`, and what it is for, a `Need`, and gives findings.
`look.here` describes the machine that we run on; `diagnose.diagnose` judges any, also one from a file.
"""
