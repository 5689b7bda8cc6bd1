"""Container images: the Dockerfiles of `dockerfiles/`, and the commands that build, push and run them.

It takes the name of an image and gives command lines for docker, podman or buildah, whichever is there.
`building.find` gives a Dockerfile, `engines.choose` an engine; `building` and `running` give what to type.
"""
