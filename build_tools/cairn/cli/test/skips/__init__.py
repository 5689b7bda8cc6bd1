"""`cairn test skips`: look after the tests that a suite leaves out; one module per command."""
