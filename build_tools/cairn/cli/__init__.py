"""The `cairn` program: one module per command group, with the arguments of its commands and what they do.

It takes a command line and gives an exit code; between them stand one call of a wing and what is said of its
answer. `main.main` runs a command line, `main.make_parser` gives its parser. What a command needs is imported
in the function that runs it.
"""
