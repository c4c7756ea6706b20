# `make` alone explains the targets. Everything runs in .venv, made on first use.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DATA ?= ../shared/data
# Several BLAS threads on two cores fight each other; one process keeps both busy through its batches.
export TOKENIZERS_PARALLELISM = false
export HF_HUB_OFFLINE = 1

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all lint bench clean
help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip
	@# CPU torch first: what comes after accepts it instead of fetching a CUDA build.
	$(BIN)/pip install -q -c constraints.txt torch
	$(BIN)/pip install -q -c constraints.txt -e '.[embedded,dev]'
	touch $(STAMP)

install: $(STAMP)  ## make .venv with the tested versions

demo: $(STAMP)  ## index the sample corpus, run every method on every retriever, print the table (no LLM, no network)
	$(BIN)/python inference/demo.py

test: $(STAMP)  ## the default tests: offline, under 5 minutes on 2 cores
	$(BIN)/python -m pytest

test-all: $(STAMP)  ## also the slow ones and those against a local language-model server
	$(BIN)/python -m pytest -m 'not gpu and not slurm'

lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)  ## speed against peers, in ratios (reads DATA=../shared/data)
	$(BIN)/python tests/benchmarks/bench_ppr.py --data $(DATA)/2wiki
	$(BIN)/python tests/benchmarks/bench_index.py --data $(DATA)/2wiki

clean:  ## remove .venv, runs and indexes
	rm -rf $(VENV) runs indexes
