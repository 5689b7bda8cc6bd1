"""Check a repository out at a hashtag, hipify it and tag both diff bases, without losing local work.

`checkout.checkout` takes a `CheckoutRequest` and gives a `describe.Checkout`; `describe.describe` reads one
that exists. `local_work` and `overwritten` find the user's work that moving a checkout would lose.
"""
