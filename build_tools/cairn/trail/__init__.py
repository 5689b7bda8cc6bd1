"""The whole trail of a stack on one machine: checkout, build, stage, smoke-test, gate, promote, install."""
