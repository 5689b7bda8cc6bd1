"""What the tests of several rooms use: one module per wing, imported as `helpers.wheels`."""
