"""`cairn wheel`: look at, compare, check and change built wheels; one module per command."""
