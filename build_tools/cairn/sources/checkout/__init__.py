"""A repository at a hashtag, hipified, with both diff bases tagged; no work of the user is lost.

`checkout.checkout` takes a `CheckoutRequest` and gives a `describe.Checkout`; `describe.describe` reads one
that is there. What a move would lose is found in `local_work` and `overwritten`.
"""
