"""The `cairn` program: the options of its commands, and what they do.

It takes a command line and gives an exit code; between them stand one call of a wing and the `Answer` that is
shown of what it gave. `commands` has every command with its line in the help, and says where it is: there,
`COMMANDS` has the class of its requests, whose fields are the options and whose docstring is the help, and
the function that carries one out, which imports what it needs. `main.main` runs a command line.
"""
