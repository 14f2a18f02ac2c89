# make help lists the targets. Everything is made in .venv in this tree; nothing else is touched.

PYTHON ?= python3
# What pip is told besides, say PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu".
PIP_ARGS ?=
# What the command is told besides, say make train ARGS="--model cnn".
ARGS ?=
# Which of examples/ make train runs: train_digits, char_gpt, vae, diffusion, recurrence, gcn,
# burgers, fourier, wasserstein, gaussian_process, lotka_volterra, heat, quantum_dot, nile
# or registration.
EXAMPLE ?= train_digits
ORACLE ?=

# Tests and benchmarks start hundreds of processes, each of which would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PY := $(VENV)/bin/python
STAMPS := $(VENV)/stamps
comma := ,
TEST_EXTRAS := test-notebook$(if $(filter-out 0,$(ORACLE)),-oracle)

.DEFAULT_GOAL := help
.PHONY: help train test test-all test-without-torch test-python-loops test-processors test-host-arithmetic test-cuda-standin test-cuda-driver lint lines files index snapshots names docs pictures bench bench-loops bench-check gpu gpus clean release-check wheels fuzz-checkpoints soak fuzz

help:  ## this list
	@sed -nE 's/^([a-z-]+):[^#]*##(.*)/\1|\2/p' Makefile | awk -F'|' '{printf "make %-23s%s\n", $$1, $$2}'

train: $(STAMPS)/train$(if $(findstring --processes,$(ARGS)),-mpi)  ## train on scanned digits (ARGS="--model cnn"), or EXAMPLE=char_gpt, diffusion, fourier ... (docs/examples.md)
	@test -f examples/$(EXAMPLE).py \
	  || { echo "make: there is no example $(EXAMPLE); examples/ has them"; exit 2; }
	@$(PY) examples/$(EXAMPLE).py $(ARGS)

test: $(STAMPS)/$(TEST_EXTRAS)  ## the tests but the slow ones, in 5 minutes; ORACLE=1 also compares with torch
ifndef ARGS
	@echo "without the tests marked slow (long searches, whole trainings, CUDA C compiled by the hundred); make test-all runs all, as CI does"
endif
	@$(PY) -m pytest $(or $(ARGS),-n 2 -m "not slow")

test-all: $(STAMPS)/$(TEST_EXTRAS)  ## every test, and the op table as CUDA C on the host; what CI runs
	@$(PY) -m pytest -n 2 $(ARGS)
ifndef ARGS
	@if command -v $${CXX:-g++} > /dev/null; then \
	    echo "the op table once more, as generated CUDA C executed on the host:"; \
	    LUCID_EXECUTOR=host-cuda $(PY) -m pytest -q -n 2 tests/test_optable.py; \
	else echo "no C++ compiler: generated CUDA C was not executed on the host"; fi
endif

test-without-torch: $(STAMPS)/$(TEST_EXTRAS)  ## the tests but the slow ones as where PyTorch is not installed
	@$(PY) -m pytest --without-torch -n 2 $(or $(ARGS),-m "not slow")

# What walks NumPy's compiled loops, or has a result that must not depend on whether something does;
# slow tests and CUDA C, which has no such loops, ran in test-all.
WITH_LOOPS := $(addprefix tests/,autograd devices fusion kernels nn optim test_optable.py test_tensor.py) \
    $(filter-out tests/ops/test_every_op.py,$(wildcard tests/ops/test_*.py)) \
    $(addprefix tests/ops/test_every_op.py::test_,values_and_gradients_are_those_of_torch \
        first_and_second_gradients_are_those_of_differences tangents_are_those_of_gradients)

test-python-loops: $(STAMPS)/$(TEST_EXTRAS)  ## tests of kernels where NumPy's loops are called from Python only
	@LUCID_NATIVE_LOOPS=0 LUCID_NATIVE_CORE=0 $(PY) -m pytest -n 2 $(or $(ARGS),-m "not slow" -k "not cuda and not compile and not ptx" $(WITH_LOOPS))

# What prints digits, or compares many.
WITH_DIGITS := $(addprefix tests/,test_docs.py test_readme.py test_optable.py fusion/test_erf.py \
    ops/test_every_op.py::test_values_and_gradients_are_those_of_torch \
    $(addsuffix .py,$(addprefix ops/test_,convolution cumulative elementwise fourier linalg matmul normalization \
        reductions softmax special_functions)) \
    $(addsuffix .py,$(addprefix numpy/test_,products reductions ufuncs)))

test-processors: $(STAMPS)/$(TEST_EXTRAS)  ## tests of digits as on processors without AVX-512, and without AVX
	@failed=0; for processor in avx2 sse; do \
	    echo "as on a processor of class $$processor:"; \
	    $(PY) tools/as_processor.py $$processor -m pytest -q -n 2 $(or $(ARGS),-m "not slow" $(WITH_DIGITS)) || failed=1; \
	done; exit $$failed

# Kernels of every family, and what all stand on; ARGS="tests/kernels tests/fusion" is thorough.
WITH_ARITHMETIC := $(addprefix tests/,launch/test_host.py kernels/test_order.py kernels/test_batch_norm.py)

test-host-arithmetic: $(STAMPS)/$(TEST_EXTRAS)  ## tests of kernels on the host, contracted as on a GPU, then without denormal numbers
	@failed=0; for arithmetic in contracted flushed; do \
	    echo "kernels on the host, $$arithmetic:"; \
	    LUCID_HOST_ARITHMETIC=$$arithmetic $(PY) -m pytest -q -n 2 $(or $(ARGS),$(WITH_ARITHMETIC)) || failed=1; \
	done; exit $$failed

# Of tests with many cases one case in four: their ops are compiled from the same few templates, and
# all rows of the op table ran as CUDA C in test-all. ARGS=tests is all, as every night.
test-cuda-standin: $(STAMPS)/$(TEST_EXTRAS)  ## tests of tensors on device cuda over a stand-in for CuPy; no GPU
	@$(PY) -m pytest --standin -n 2 $(or $(ARGS),-m "not slow" --one-of 4)

# What launches kernels of each kind, copies, waits, and fails.
OVER_DRIVER := $(addprefix tests/,driver cuda devices numpy/test_cupy.py)

test-cuda-driver: $(STAMPS)/$(TEST_EXTRAS)-driver  ## tests on device cuda with the real CuPy over a stand-in for CUDA's driver; no GPU
	@$(PY) tests/driver/build.py pytest --driver -n 2 $(or $(ARGS),$(OVER_DRIVER))

lint: $(STAMPS)/lint  ## style, types, layering, docstrings
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(PY) -m mypy
	@$(PY) tools/check_layers.py
	@$(PY) tools/check_docstrings.py

lines:  ## lines of code in each folder, beside the last tag's
	@$(PYTHON) tools/count_lines.py

files:  ## write docs/files.md and the tree of docs/architecture.md anew
	@$(PYTHON) tools/list_files.py $(ARGS)

index: $(STAMPS)/test  ## write lucid_gpu/ops/index.py anew: which file holds an op that is imported late
	@$(PY) tools/list_ops.py $(ARGS)

snapshots: $(STAMPS)/test  ## write tests/snapshots/ anew: signatures, messages, generated CUDA C
	@$(PY) tools/take_snapshots.py $(ARGS)

names: $(STAMPS)/test  ## write which of PyTorch's and SciPy's names are here: docs/names.md, docs/scipy.md
	@$(PY) tools/list_names.py $(ARGS)
	@$(PY) tools/list_scipy.py

docs: $(STAMPS)/docs  ## the documentation as a site: site/index.html
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet $(ARGS)
	@echo site/index.html

pictures: $(STAMPS)/docs  ## draw docs/pictures/ anew
	@$(PY) tools/draw_pictures.py $(ARGS)
	@$(PY) tools/draw_readme.py

bench: $(STAMPS)/bench  ## side by side with torch eager and torch.compile (ARGS="--case chain-2^24")
	@$(PY) -m bench $(ARGS)

bench-loops: $(STAMPS)/bench  ## whole loops from a fresh process beside torch eager (ARGS="--case lion", --memory)
	@$(PY) -m bench.loops $(ARGS)

bench-check: $(STAMPS)/bench  ## the same; fails when a case is slower beside its peer than in bench/results/cpu.json
	@$(PY) -m bench --against --name partial $(ARGS)

wheels: $(STAMPS)/wheels  ## wheels of this system for each Python, the C file compiled; on Linux in containers
	@$(PY) -m cibuildwheel --output-dir dist $(ARGS)

release-check: $(STAMPS)/release  ## wheel and sdist: built, each installed into an empty environment, trained with
	@$(PY) tools/release_check.py

# Architectures of GPUs whose kernels the image holds compiled.
CUDA_ARCHITECTURES ?= 80 86 89 90
DOCKER ?= docker
image: DEVICE := cuda
image-cpu: DEVICE := cpu
image: FOR := --build-arg CUDA_ARCHITECTURES="$(CUDA_ARCHITECTURES)"
image image-cpu:
	@command -v $(DOCKER) > /dev/null \
	  || { echo "make: there is no $(DOCKER); install it, or say make $@ DOCKER=podman; make image-dry-run needs none"; exit 1; }
	@$(DOCKER) info > /dev/null 2>&1 \
	  || { echo "make: $(DOCKER) is installed, but $(DOCKER) info fails: start its service, or let your user reach it"; exit 1; }
	@$(DOCKER) build --target $(DEVICE) --tag lucid-gpu:$(DEVICE) $(FOR) $(ARGS) \
	    --build-arg VERSION="$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' lucid_gpu/version.py)" \
	    --build-arg REVISION="$$(git rev-parse HEAD 2> /dev/null || echo unknown)" .
image:  ## a container image for GPUs (CUDA_ARCHITECTURES="80 90"); docker compose up trains with it
image-cpu:  ## a small one for the CPU

lint-image: $(STAMPS)/image  ## style of the Dockerfile
	@$(VENV)/bin/hadolint Dockerfile

image-dry-run: $(STAMPS)/image  ## every step of both images in clean virtual environments, without a container engine
	@$(PY) tools/run_image_steps.py $(ARGS)

# The machine's own Python, so that its cupy is used; no install, no network.
gpu:  ## what needs a GPU, part by part; the same command goes on (PARTS="check suite" RESULTS=folder MINUTES=9)
	@PYTHONPATH=. $(PYTHON) bench/gpu.py $(if $(PARTS),--parts "$(PARTS)") $(if $(RESULTS),--results "$(RESULTS)") \
	    $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

gpus:  ## what needs several GPUs, a process each (ARGS="--processes 4 --results file")
	@PYTHONPATH=. $(PYTHON) bench/gpus.py $(ARGS)

fuzz-checkpoints: $(STAMPS)/$(TEST_EXTRAS)  ## load damaged checkpoints (ARGS="--count 100000 --seed 1")
	@$(PY) tools/fuzz_checkpoints.py $(ARGS)

soak: $(STAMPS)/train  ## train, be killed, resume (ARGS="--minutes 30 --kills 50")
	@$(PY) tools/soak.py $(ARGS)

fuzz: $(STAMPS)/test-oracle  ## random ops, then random networks, against torch (ARGS="--minutes 60 --only networks")
	@$(PY) tools/fuzz.py $(ARGS)

clean:  ## remove .venv, caches and runs
	rm -rf $(VENV) build dist runs site lucid_gpu/*.so lucid_gpu/*/*.so *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.DEFAULT:
	@echo "make: there is no target $@; make help lists them"; exit 2

# One stamp a set of extras: a second run installs nothing. `test-oracle` is `.[test,oracle]`.
$(STAMPS)/%: pyproject.toml setup.py $(wildcard lucid_gpu/core/native/*) lucid_gpu/devices/_gpu.c lucid_gpu/devices/_native.c | $(PY)
	@mkdir -p $(STAMPS)
	@echo "installing lucid_gpu[$(subst -,$(comma),$*)] into $(VENV)"
	@$(PY) -m pip install --disable-pip-version-check $(PIP_ARGS) -e '.[$(subst -,$(comma),$*)]' \
	    > $(STAMPS)/$*.log 2>&1 \
	  || { tail -n 3 $(STAMPS)/$*.log; \
	       echo "make: pip could not install lucid_gpu[$(subst -,$(comma),$*)]; is a package index within reach? The whole log: $(STAMPS)/$*.log"; \
	       exit 1; }
	@$(PY) -c "import lucid_gpu._core, lucid_gpu._gpu, lucid_gpu.devices._native" 2> /dev/null \
	  || echo "make: the C files were not compiled (is there a C compiler?): all works, small programs are slower; the log: $(STAMPS)/$*.log"
	@touch $@

$(PY):
	@$(PYTHON) -c "" 2> /dev/null \
	  || { echo "make: there is no $(PYTHON); install Python 3.10 or newer, or say make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "make: $(PYTHON) is older than 3.10; say make PYTHON=/path/to/a/newer/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { rm -rf $(VENV); \
	       echo "make: $(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
