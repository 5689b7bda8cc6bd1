"""The `cairn` program: the options of its commands, and what they do.

It takes a command line and returns an exit code; each command makes one call to another package of Cairn and
shows an `Answer` of the result. `commands` lists every command with its help line and its module. That
module's `COMMANDS` has the class of its requests, whose fields are the options and whose docstring is the
help, and the function that carries one out, which imports what it needs. `main.main` runs a command line.
"""
