"""What is said to people and programs: the only room that writes to the screen.

`console.current` gives the console of this run; `redact.mask` keeps secrets and `escaping` control characters
of others out of what is shown.
"""
