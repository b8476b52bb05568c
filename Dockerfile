# DINOSaur on a box: the run time alone, for amd64 and arm64. How to build and run it: docs/devices/docker.md
ARG PYTHON=3.12

# --- build: the wheels that scripts/check_wheels.py found for this processor, by hash, and our own ---
FROM python:${PYTHON}-slim AS build
ARG PYTHON
# "openvino" on amd64 adds that provider; empty elsewhere.
ARG EXTRAS=""
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY scripts/check_wheels.py scripts/
COPY results/edge/wheels.json results/edge/
COPY src src
ENV PIP_CONSTRAINT=/build/constraints.txt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/dinosaur
RUN python scripts/check_wheels.py --show results/edge/wheels.json --pins \
      --only "$(uname -m)/${PYTHON}${EXTRAS:++${EXTRAS}}" > pins.txt
RUN /opt/dinosaur/bin/pip install --only-binary=:all: --require-hashes --requirement pins.txt
RUN /opt/dinosaur/bin/pip wheel --no-deps --wheel-dir dist .
RUN /opt/dinosaur/bin/pip install --no-deps --no-index dist/*.whl

# --- run: nothing but Python and the run time ---
FROM python:${PYTHON}-slim
RUN groupadd --gid 10001 dinosaur \
    && useradd --uid 10001 --gid 10001 --create-home --shell /usr/sbin/nologin dinosaur \
    && mkdir /images /store /weights \
    && chown 10001:10001 /store /weights
COPY --from=build /opt/dinosaur /opt/dinosaur
ENV PATH=/opt/dinosaur/bin:$PATH \
    DINOSAUR_HOME=/weights \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /images
VOLUME ["/store", "/weights"]
# Weights, encoder, store and disk; an empty store is healthy, missing weights are not. Without --verify: hashing every
# bank each minute would take longer than the limit.
HEALTHCHECK --interval=60s --timeout=30s --start-period=60s --retries=3 \
    CMD ["dinosaur", "health", "--store", "/store"]
ENTRYPOINT ["dinosaur"]
CMD ["--help"]
