"""What answers in the place of torch's functions, a module for each subject; `matrix.toml` names them.

A replacement has the parameters of what it replaces. A decorator takes torch's function and gives another.
"""
