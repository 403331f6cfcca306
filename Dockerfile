# The project as an image for CPUs and NVIDIA's GPUs; docs/runs.md says how to build and run it.

# Copies the whole clone, so that git knows the commit, which the wheel keeps.
FROM python:3.11 AS build
COPY . /project
RUN pip wheel --no-deps --wheel-dir /wheels /project

# Not the slim image: torch.compile and Triton call a C compiler.
FROM python:3.11
# For torch's builds for CPUs, name their index; otherwise Linux on x86-64 gets a build for CUDA.
ARG PIP_EXTRA_INDEX_URL
COPY constraints.txt /
RUN pip install --no-cache-dir --constraint /constraints.txt torch
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --constraint /constraints.txt /wheels/*.whl
# Works for any user: runs and the cache are in the folder that is mounted here.
WORKDIR /work
ENV HOME=/work
CMD ["ablations", "list"]
