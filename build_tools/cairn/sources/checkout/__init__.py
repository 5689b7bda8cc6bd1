"""A repository at a hashtag, hipified, with both diff bases tagged; no work of a person's is lost.

`checkout.checkout` takes a `CheckoutRequest` and gives an `inspect.Checkout`; `inspect.inspect` reads one.
What a move would lose is found in `local_work`, `overwritten` and `unfinished`.
"""
