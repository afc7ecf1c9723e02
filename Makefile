# Each target does its own set-up: Python 3.11 or newer, git and make are enough. uv is used when it is there.

PACKAGES := bots core stores playground
TYPED := $(wildcard $(PACKAGES) tests examples bench)
BIN := .venv/bin
# More than there are cores: many tests wait for a real program, or for a second to pass.
WORKERS := 4

.PHONY: help setup demo test check test-browser images test-crash test-cluster soak mutate cover bench bench-engine lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: .venv/.done ## make .venv with the command chinwag in it

.venv/.done: pyproject.toml requirements.lock
	@sh tools/setup.sh .venv requirements.lock
	@touch $@

demo: setup ## try it: no account, no key, no network
	@$(BIN)/chinwag playground

test: check ## everything that CI runs: the checks, then the tests
	@# Real programs and real seconds: what fails in the crowd must hold alone.
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not crash" \
		--ignore tests/browser --ignore tests/quiet \
		|| $(BIN)/python -m pytest -m "not crash" --last-failed --last-failed-no-failures none
	@# By itself: what a person sees within 100 ms is not to be measured in a crowd.
	$(BIN)/python -m pytest -n 2 tests/browser || [ $$? -eq 5 ] \
		|| $(BIN)/python -m pytest tests/browser --last-failed --last-failed-no-failures none
	$(BIN)/python -m pytest tests/quiet

check: setup ## lint, format, types, import arrows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(TYPED)
	$(BIN)/lint-imports --no-logo

test-browser: setup ## the page of the playground, in the Chromium that is installed
	CHINWAG_REQUIRE=chromium $(BIN)/python -m pytest -n 2 tests/browser

images: setup ## the pictures of docs/images, made anew
	$(BIN)/python -m tests.browser.shots

test-crash: setup ## kill the program at every failpoint, tell thousands of stories (long)
	$(BIN)/python -m pytest -m crash

test-cluster: setup ## kill, stop and wake processes that share one PostgreSQL (long)
	$(BIN)/python -m pytest -m "crash or not crash" tests/cluster tests/core/test_dbos.py tests/crash/test_takeover.py

soak: setup ## kill it every few seconds for 10 minutes, under load and with faults
	$(BIN)/python -m tests.crash.soak --seconds 600 --chats 200

mutate: setup ## take each save and each check of the fencing away: some test must fail (long)
	$(BIN)/python -m tests.mutate

cover: setup ## the tests must reach every line of core/ and stores/
	$(BIN)/coverage run -m pytest -m "not crash"
	$(BIN)/coverage report

bench: setup .venv-bench/.done ## measure the figures of the README, in an environment of its own
	.venv-bench/bin/python bench/store.py
	.venv-bench/bin/python bench/cache.py

bench-engine: setup ## measure the shared engine with a PostgreSQL beside it (a minute)
	$(BIN)/python -m bench.engine

.venv-bench/.done: pyproject.toml requirements.lock bench/requirements.txt
	@sh tools/setup.sh .venv-bench requirements.lock bench/requirements.txt
	@touch $@

lock: ## resolve pyproject.toml into requirements.lock anew (LOCKFLAGS=--upgrade for the newest)
	@sh tools/lock.sh $(LOCKFLAGS)

clean: ## remove the environments, caches and reports
	rm -rf .venv .venv-bench .venv-lock .mypy_cache .ruff_cache .pytest_cache .import_linter_cache \
		.hypothesis .coverage build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
