"""`cairn test`: test built wheels, and judge the results; one module per command."""
