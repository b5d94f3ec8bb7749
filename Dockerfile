# Sealog in a container: `docker build -t sealog .`, then compose files in packaging/docker. Settings come from the environment; events are in /data.
# The root can be read-only: everything that is written is under /data.
FROM rust:1.95-slim-bookworm AS manifests
WORKDIR /src
COPY . .
# Manifests and sources that are empty: what is copied from here is the same until a dependency changes.
RUN find . -type f ! -name Cargo.toml ! -name Cargo.lock -delete \
 && for manifest in crates/*/Cargo.toml bench/Cargo.toml; do mkdir -p "${manifest%Cargo.toml}src" && touch "${manifest%Cargo.toml}src/lib.rs"; done \
 && mv crates/sealog/src/lib.rs crates/sealog/src/main.rs && echo 'fn main() {}' >crates/sealog/src/main.rs

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
# The C compiler is for SQLite and ring, which bring their own sources.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends build-essential \
 && rm -rf /var/lib/apt/lists/*
# The layer of the dependencies, which takes most of the time.
COPY --from=manifests /src ./
RUN cargo build --release --locked -p sealog \
 && rm -r crates bench
COPY . .
# Which commit this is: the context has no repository. `docker build --build-arg COMMIT="$(git rev-parse --short=12 HEAD)" .`
ARG COMMIT=""
# Sources may be older than the layer, and cargo goes by their times.
RUN find crates bench -name '*.rs' -exec touch {} + \
 && SEALOG_COMMIT="$COMMIT" cargo build --release --locked -p sealog \
 && install -D -m 0755 target/release/sealog /out/usr/bin/sealog \
 && install -d -m 0700 -o 10001 -g 10001 /out/data

# With a shell, since operators run commands in it (sealog reset, sealog accept-loss) and copy files out of it.
FROM debian:bookworm-slim
LABEL org.opencontainers.image.title="Sealog" \
      org.opencontainers.image.description="Tamper-evident audit event log" \
      org.opencontainers.image.licenses="Apache-2.0"
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/usr/bin/sealog /usr/bin/sealog
COPY --from=build --chown=10001:10001 /out/data /data
USER 10001:10001
WORKDIR /data
VOLUME ["/data"]
ENV SEALOG_LISTEN=0.0.0.0:8080 \
    SEALOG_DATA_DIR=/data
EXPOSE 8080
# Recovery of a large store takes its time; only then is a container that does not answer a sick one.
HEALTHCHECK --interval=15s --timeout=5s --start-period=300s --retries=3 CMD ["/usr/bin/sealog", "healthcheck"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/sealog"]
CMD ["serve"]
