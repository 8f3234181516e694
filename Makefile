# Two commands matter: `make demo` shows the product, `make test` runs every test.
# `make help` lists the rest.

SHELL   := /bin/sh
PYTHON  ?= python3
VENV    ?= .venv
BIN     := $(VENV)/bin
DEMO    ?= .demo

.DEFAULT_GOAL := help
.PHONY: help demo test test-python lint format models peers bench bench-retrieval bench-answers bench-scale bench-documents bench-injection flip-bytes docs dist boot-test install-test bench-serial clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

demo: $(VENV)/.demo-ready ## install, fetch models, read the sample documents, answer, then chat
	@BIN=$(BIN) DATA=$(DEMO) sh assets/setup/demo.sh

test: $(VENV)/.test-ready models native-test-fast test-python ## set up and run every test

test-python: $(VENV)/.test-ready models ## the Python tests alone
	$(BIN)/python -m pytest

models: $(VENV)/.demo-ready ## fetch the starter models into the cache
	@$(BIN)/appliance models pull --starter

lint: $(VENV)/.test-ready native-format ## ruff, mypy, layer contracts, clang-format (native-lint adds clang-tidy)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.test-ready ## rewrite the Python sources in house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.demo-ready ## write the pages that are made from the code
	$(BIN)/appliance config reference > docs/configuration.md

bench-serial: $(VENV)/.test-ready ## share of text and delay of deltas on a paced serial line
	$(BIN)/python bench/serial_line.py

bench-retrieval: $(VENV)/.demo-ready models ## recall of the three search arms: SQUAD=file.json
	$(BIN)/python bench/retrieval.py --squad $(SQUAD)

bench-answers: $(VENV)/.demo-ready models ## answers judged on a question set: SQUAD=file.json
	$(BIN)/python bench/answers.py --squad $(SQUAD) --max 50

dist: $(VENV)/.test-ready models native ## release archives in dist/; ARCH="x86_64 aarch64"
	$(BIN)/python assets/setup/dist.py --arch $(or $(ARCH),x86_64 aarch64)

boot-test: $(VENV)/.test-ready ## install the x86_64 archive into a Debian root and boot it (root, slow)
	sh assets/setup/packages.sh boot
	$(BIN)/python tests/boot/boot_test.py

install-test: $(VENV)/.test-ready ## install, again, uninstall in Debian 12 and 13 roots (root, slow)
	sh assets/setup/packages.sh boot
	$(BIN)/python tests/boot/install_test.py

bench-scale: $(VENV)/.demo-ready models ## search at 100,000 passages: SQUAD=file.json DB=folder
	$(BIN)/python bench/scale.py --squad $(SQUAD) --db $(DB)

bench-documents: $(VENV)/.demo-ready models ## real documents read, timed and asked about: DIR=folder
	$(BIN)/python bench/documents.py $(DIR)

bench-injection: $(VENV)/.test-ready models ## documents that give orders, with the real model
	$(BIN)/python bench/injection.py

flip-bytes: $(VENV)/.test-ready ## 5,000 files with random bytes flipped, read by every parser
	$(BIN)/python -m tests.faults.flip_bytes --flips 5000

clean: ## remove what the targets made here (models stay in their cache)
	rm -rf $(VENV) $(DEMO) build .cache

$(VENV)/bin/python:
	@sh assets/setup/packages.sh demo
	@$(PYTHON) -m venv $(VENV)
	@BIN=$(BIN) sh assets/setup/install.sh --upgrade pip

$(VENV)/.demo-ready: pyproject.toml | $(VENV)/bin/python
	@echo "Installing the appliance. llama.cpp is compiled on the first run: 4 to 15 minutes ..."
	@BIN=$(BIN) sh assets/setup/install.sh --editable .
	@touch $@

$(VENV)/.test-ready: pyproject.toml $(VENV)/.demo-ready
	@sh assets/setup/packages.sh test
	@BIN=$(BIN) sh assets/setup/install.sh --editable '.[test,dev]'
	@touch $@

-include native/native.mk

# llama.cpp's own programs, from the same source and with the same flags as the package: the server
# that the remote engine is tested against, and what speed is compared with.
PEERS       := .cache/peers
PEER_FLAGS  := -DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
	-DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_MTMD=OFF -DLLAMA_CURL=OFF -DLLAMA_BUILD_APP=OFF

peers: $(PEERS)/bin/llama-server $(PEERS)/bin/llama-bench ## build llama-server and llama-bench from the pinned sdist

$(PEERS)/bin/llama-server $(PEERS)/bin/llama-bench &: $(VENV)/.demo-ready $(NATIVE_SDIST)/.unpacked
	$(NATIVE_CMAKE) -S $(NATIVE_LLAMA) -B $(PEERS) $(PEER_FLAGS)
	cmake --build $(PEERS) -j $(NATIVE_JOBS) --target llama-server llama-bench

bench: peers models ## speed beside llama-bench and llama-server, in turn: BENCH="--only single"
	$(BIN)/python bench/speed.py --peers $(PEERS) $(BENCH)
