# Every target sets up what it needs and repeats in seconds when nothing changed: environments and tools are keyed by
# what they are made from (tooling/). Only Python 3.11+, make and a package registry have to be there before.

PYTHON ?= python3
VENV_PYTHON := .venv/bin/python
COLD ?= file
# Tests wait more than they compute: on two cores six processes keep both busy. Unit tests compute, a soak's kills too.
WORKERS ?= 6
UNIT_WORKERS ?= 4
SOAK_WORKERS ?= 4
PROXY ?=
SINCE ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test-unit test test-full soak lint bench lock clean

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make the virtual environment (.venv) from the locked packages.
	@$(PYTHON) tooling/python_environment.py

demo: setup ## Run the whole path on real data; COLD=file (default), minio, versitygw, localstack or moto; PROXY=1: gRPC; REPLICAS=3.
	@$(VENV_PYTHON) -m tooling.provision demo --cold "$(COLD)" $(if $(PROXY),--grpc-client)
	@$(VENV_PYTHON) examples/demo/run.py --cold "$(COLD)" $(if $(PROXY),--grpc-client "$$($(VENV_PYTHON) -m tooling.pinned_wheels rocketmq-grpc-python)") $(if $(REPLICAS),--replicas "$(REPLICAS)")

test-unit: setup ## Run the tests that start no server, Java or Spark: the fast inner loop.
	@$(VENV_PYTHON) -m pytest -n $(UNIT_WORKERS) --dist loadgroup --unit $(PYTEST_ARGS)

test: setup ## Run the tests with real servers, Java clients and Spark; PYTEST_ARGS="-k name" for some.
	@$(VENV_PYTHON) -m tooling.provision test --keep-going
	@$(VENV_PYTHON) -m pytest -n $(WORKERS) --dist loadgroup $(PYTEST_ARGS)

test-full: setup ## Run all tests, those too that are marked `full`.
	@$(VENV_PYTHON) -m tooling.provision test --keep-going
	@$(VENV_PYTHON) -m pytest -n $(WORKERS) --dist loadgroup --full $(PYTEST_ARGS)

soak: setup ## Run the crash, power-cut and fuzzing tests at their full case counts (hours); SINCE=COMMIT to go on.
	@$(VENV_PYTHON) -m tooling.provision test --keep-going
	@$(VENV_PYTHON) -m tooling.soak --workers $(SOAK_WORKERS) $(if $(SINCE),--since $(SINCE))

lint: setup ## Check format, style, types and import layers.
	@$(VENV_PYTHON) -m tooling.lint

bench: setup ## Compare this broker with the official one, in alternation; BENCH_ARGS="--quick" for a short run.
	@$(VENV_PYTHON) -m tooling.provision bench
	@$(VENV_PYTHON) -m benchmarks.compare $(BENCH_ARGS)

lock: setup ## Renew the lock files from pyproject.toml and the servers' pins.
	@$(VENV_PYTHON) -m tooling.lock

clean: ## Remove the virtual environment, the caches and everything built.
	@rm -rf .venv .cache build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
