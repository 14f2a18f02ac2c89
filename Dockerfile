# make image       lucid-gpu:cuda; the host needs its NVIDIA driver alone: docker run --gpus all lucid-gpu:cuda
# make image-cpu   lucid-gpu:cpu, under 250 MB beyond the base
# make image-dry-run executes the steps without a container engine.

# The whole image has the C compiler, which one optional file of the wheel is compiled by.
FROM python:3.12 AS wheel
WORKDIR /src
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE CHANGELOG.md ./
COPY kernels ./kernels
COPY lucid_gpu ./lucid_gpu
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim AS base
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="lucid_gpu" \
      org.opencontainers.image.description="Automatic differentiation for CuPy and NumPy arrays with PyTorch's contract" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
ENV PYTHONUNBUFFERED=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
# What the examples write lies in /app/runs.
RUN useradd --create-home --uid 1000 lucid && mkdir -p /app/runs && chown -R lucid /app
WORKDIR /app
COPY examples ./examples
COPY --from=wheel /wheels /wheels

# Small: no bytecode, no tests and C sources of packages, and of fontTools, which writes fonts into
# PDF, only what matplotlib imports.
FROM base AS cpu
ENV PYTHONDONTWRITEBYTECODE=1
# hadolint ignore=DL3013
RUN set -- /wheels/*.whl \
 && pip install --no-cache-dir --no-compile "$1[train]" \
 && packages=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
 && find "$packages" -type d -name tests -prune -exec rm -rf {} + \
 && find "$packages/fontTools" -mindepth 1 -maxdepth 1 -type d ! -name misc -exec rm -rf {} + \
 && find "$packages" -type f \( -name '*.c' -o -name '*.cpp' -o -name '*.h' -o -name '*.hpp' -o -name '*.a' \
      -o -name '*.py[xi]' -o -name '*.pxd' \) ! -path '*/lucid_gpu/*' -delete
USER 1000
HEALTHCHECK --interval=5m --timeout=60s --start-period=30s \
    CMD ["python", "-m", "lucid_gpu.doctor", "--device", "cpu"]
CMD ["python", "examples/train_digits.py", "--device", "cpu"]

# The CUDA libraries, NVRTC and headers come as wheels with cupy's [ctk].
FROM base AS cuda
# hadolint ignore=DL3013
RUN set -- /wheels/*.whl \
 && pip install --no-cache-dir "$1[cuda12,train]"
# Compiled kernels are kept here; mount a volume to keep between runs what is compiled later.
ENV CUPY_CACHE_DIR=/var/cache/cupy
RUN mkdir -p /var/cache/cupy && chown lucid /var/cache/cupy
USER 1000
ARG CUDA_ARCHITECTURES="80 86 89 90"
# Files are the writer's alone, which `docker run --user` may not be.
RUN python -m lucid_gpu.precompile --arch "$CUDA_ARCHITECTURES" && chmod -R a+rwX /var/cache/cupy
HEALTHCHECK --interval=5m --timeout=60s --start-period=60s \
    CMD ["python", "-m", "lucid_gpu.doctor", "--device", "cuda"]
CMD ["python", "examples/train_digits.py", "--device", "cuda"]
