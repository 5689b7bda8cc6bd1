"""The `git` program and repositories, so that a person's configuration changes nothing of what is done.

`command.run` runs git; `repository.Repository` is a working repository; `failures.again` tries again when the
network is at fault; `commits.between` reads the commits of a range, with GitPython.
"""
