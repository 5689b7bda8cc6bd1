"""Scripts with upstream's names and flags (ROCm/TheRock, external-builds/pytorch and build_tools).

A function of a script's name makes its parser. It takes the script's own file: the stack.toml and the default
checkouts are beside that.
"""
