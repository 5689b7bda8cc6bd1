"""Stores in buckets: Amazon S3 and servers that speak its protocol, Google's or Azure's (extra `s3`).

It takes a URL (`client.connect`) and gives a `bucket.BucketStore`. Requests go through obstore. Those of
`client.Bucket` are tried again where that may help, and what failed gets its meaning (`errors`).
"""
