"""Turn upstream repositories into trees that can be built: checkout, pins, hipify, manifest.

It takes projects of a stack, with the origins and hashtags that the user named, and gives trees with both
diff bases tagged, and a manifest of them. `checkout_stack.checkout_stack` checks a whole stack out,
`checkout_stack.checkout_project` one project; `manifest.manifest.create` freezes them, and `patches` explains
what is on top of upstream.
"""
