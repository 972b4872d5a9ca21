# Hostler's image: the command line, the workers and the simulator. `docker build -t hostler .`

FROM python:3.11.14-slim-bookworm AS build

WORKDIR /src
RUN python -m venv /opt/hostler
# The dependencies first: a change of the code does not install them again.
COPY constraints.txt pyproject.toml README.md LICENSE worker.py ./
RUN /opt/hostler/bin/pip install --no-cache-dir --constraint constraints.txt . && /opt/hostler/bin/pip uninstall --yes hostler
COPY activities ./activities
COPY drivers ./drivers
COPY planners ./planners
COPY resources ./resources
COPY simulator ./simulator
COPY starter ./starter
COPY templates ./templates
COPY workflows ./workflows
RUN /opt/hostler/bin/pip install --no-cache-dir --no-deps . && /opt/hostler/bin/pip uninstall --yes pip setuptools


FROM python:3.11.14-slim-bookworm

ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Hostler" \
      org.opencontainers.image.description="Looks after the hosts of Kubernetes clusters: every machine is one durable Temporal workflow" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

RUN groupadd --gid 10001 hostler && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin hostler \
    && install -d -o 10001 -g 10001 -m 0700 /var/lib/hostler /var/lib/hostler/demo
COPY --from=build /opt/hostler /opt/hostler

ENV PATH=/opt/hostler/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOSTLER_WORKER__HEALTH=127.0.0.1:8081
USER 10001:10001
WORKDIR /tmp

# Of a worker: its event loop runs, all its queues are polled, no slot is lost. Other commands end by themselves.
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://' + os.environ['HOSTLER_WORKER__HEALTH'] + '/healthz', timeout=3)"]
ENTRYPOINT ["hostler"]
CMD ["--help"]
