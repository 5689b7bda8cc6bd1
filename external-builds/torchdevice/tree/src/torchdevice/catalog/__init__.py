"""`torchdevice catalog`: what becomes of each public function of the torch that is installed, measured.

`functions` says which there are, `calls` how to call one, `measure` calls each in a process of its own,
`render` writes the table, and what changed between two.
"""
