"""`cairn wheel`: look at wheels and check them (`verify`), and write changed ones (`change`)."""
