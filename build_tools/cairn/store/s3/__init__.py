"""A store in an S3 bucket, Amazon's or any other that speaks its protocol, through boto3 (extra `s3`).

It takes a URL (`client.connect`) and gives a `bucket.BucketStore`. Every request goes through
`client.Bucket`, where failures get their meaning (`errors`) and are tried again; `upload` and `download` move
big files in parts.
"""
