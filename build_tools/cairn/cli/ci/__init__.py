"""`cairn ci`: a stack end to end on this machine, and the jobs of a night; one module per command."""
