"""`cairn wheel`: look at wheels (`show`), check them (`verify`), and write changed ones (`change`)."""
