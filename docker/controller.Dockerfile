# syntax=docker/dockerfile:1
# The operator. From the top of the checkout:
#   docker buildx build --platform linux/amd64,linux/arm64 -f docker/controller.Dockerfile -t REGISTRY/continuum/controller:0.1.0 --push .
# Each platform is built on itself, or emulated.
FROM rust:1.95-bookworm AS build
ARG TARGETARCH
# The image's own compiler, whatever rust-toolchain.toml would fetch.
ENV RUSTUP_TOOLCHAIN=1.95.0
RUN apt-get update \
 && apt-get install -y --no-install-recommends protobuf-compiler \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# A cache for each architecture; what comes out is copied, since caches are no part of the image.
RUN --mount=type=cache,id=continuum-registry,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,id=continuum-target-${TARGETARCH},target=/src/target,sharing=locked \
    cargo build --release --locked -p continuum-controller \
 && install -D target/release/continuum-controller /out/continuum-controller

# The C library, certificates of public authorities, and a user without rights. No shell.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /out/continuum-controller /continuum-controller
USER 65532:65532
EXPOSE 9443 8081
ENTRYPOINT ["/continuum-controller"]
