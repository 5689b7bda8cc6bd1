"""The rules, a module for each subject: each takes a workflow and gives its findings.

`promotion` says what must hold before one, `limits` is on time, `commands` on command lines, `supply` on
what is used and by whom, `data` on the matrices and artifacts that jobs hand on.
"""
