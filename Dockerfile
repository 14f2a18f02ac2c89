# docker build --target cpu  -t lucid-gpu:cpu .
# docker build --target cuda -t lucid-gpu:cuda .    then: docker run --gpus all ...
# The CUDA libraries and headers come as wheels with cupy's [ctk], so the host needs its driver alone.

FROM python:3.12-slim AS base
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
RUN useradd --create-home lucid
WORKDIR /app
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE CHANGELOG.md ./
COPY lucid_gpu ./lucid_gpu
COPY kernels ./kernels

FROM base AS cpu
RUN pip install '.[train]'
COPY --chown=lucid examples ./examples
RUN chown lucid /app
USER lucid
CMD ["python", "examples/train_digits.py", "--device", "cpu"]

FROM base AS cuda
RUN pip install '.[cuda12,train]'
# Compiled kernels are kept here; mount a volume to keep them between runs.
ENV CUPY_CACHE_DIR=/var/cache/cupy
RUN install -d -o lucid /var/cache/cupy && chown lucid /app
COPY --chown=lucid examples ./examples
USER lucid
CMD ["python", "examples/train_digits.py", "--device", "cuda"]
