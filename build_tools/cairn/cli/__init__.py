"""The `cairn` program: one module per command group."""
