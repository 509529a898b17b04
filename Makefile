# The two commands of the README; each sets up what it needs.
.PHONY: run test test-kind setup setup-test setup-kind lint unit process integration bench flakes mutants
HARNESS = .venv/bin/dra-harness
PYTEST = .venv/bin/python -m pytest

run: setup
	$(HARNESS) run extended-resource

test: setup-test lint unit process integration

# On kind: starts a Docker daemon of the harness's own if none answers, and builds a node image.
test-kind: setup-kind
	$(PYTEST) -m kind

setup:
	python3 scripts/setup.py

setup-test:
	python3 scripts/setup.py --test

setup-kind:
	python3 scripts/setup.py --test --kind

lint:
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports

unit:
	$(PYTEST) -n 4 -m "not process and not integration and not browser and not kind"

process:
	$(PYTEST) -n 4 -m "process and not browser"

integration:
	$(PYTEST) -m "integration or browser"

# Speed and memory, as figures; see benchmarks/README.md.
bench: setup
	.venv/bin/python -m benchmarks.main_job
	.venv/bin/python -m benchmarks.generator
	.venv/bin/python -m benchmarks.load
	.venv/bin/python -m benchmarks.compare

# Drivers with one seeded fault each must make the checks of what they break fail.
mutants: setup
	.venv/bin/python -m mutants

# All areas ten times in a row: every run must come out the same.
flakes: setup
	.venv/bin/python -m benchmarks.flakes
