# `make help` lists the targets. Everything runs in .venv, which `make install` creates.
PYTHON ?= python3
BIN := .venv/bin
TARGET ?= smollm2
DEMO_OUT ?= runs/demo-$(shell date +%Y%m%d-%H%M%S)
TEST_PROCESSES ?= 2
PYTEST_ARGS ?=
PIP_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install servers model demo test test-all lint types format bench drafters secrets clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

install: .venv/.installed servers ## Create .venv with the package and its development tools

.venv/.installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (a few minutes the first time)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]' -c constraints.txt $(PIP_ARGS)
	@touch $@

APT := $(shell [ "$$(id -u)" = 0 ] || echo sudo -n) apt-get -qq -o DPkg::Lock::Timeout=60

servers: # tests of the store want a redis-server; without one, and without the right to install it, they are skipped
	@command -v redis-server > /dev/null || { echo "installing redis-server"; \
		{ $(APT) install -y redis-server || { $(APT) update && $(APT) install -y redis-server; }; } > /dev/null 2>&1 \
		|| echo "not installed: tests that need it will be skipped"; }

model: install ## Fetch and convert the demo model, once
	@$(BIN)/python -c "import logging; logging.basicConfig(level='INFO', format='%(message)s'); \
		from tts_orch.engine.model_files import locate; locate('$(TARGET)')"

demo: model ## Solve word problems with the demo model, and check that drafts changed no token
	$(BIN)/tts-orch run examples/problems/word_problems.jsonl --target $(TARGET) --method majority_vote -n 8 \
		--template raw --stop Q: --max-new-tokens 96 --compare-plain 4 --out $(DEMO_OUT)

test: model ## Run the tests that every change must pass
	@TTS_ORCH_REQUIRE_MODEL=1 $(BIN)/python -m pytest -n $(TEST_PROCESSES) $(PYTEST_ARGS)

test-all: model ## Run every test this machine can run
	@TTS_ORCH_REQUIRE_MODEL=1 $(BIN)/python -m pytest -m "" -n $(TEST_PROCESSES) $(PYTEST_ARGS)

lint: install ## Check style, format and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: install ## Check types
	$(BIN)/mypy

format: install ## Format the code and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: model ## Measure decoding with and without drafts
	$(BIN)/python benchmarks/best_of_16.py --target $(TARGET) --problems examples/problems/word_problems.jsonl

RECIPES ?= math chat code mixed double
LOSSES ?= eagle2 hass
DRAFTERS ?= runs/drafters
DRAFTER_ARGS ?=

drafters: model ## Train the draft heads of all recipes, and average two, DATA=folder of their files
	@test -d "$(DATA)" || { echo "drafters: give DATA=folder, with the files that recipes/drafters/*.yaml name"; exit 2; }
	@for recipe in $(RECIPES); do for loss in $(LOSSES); do \
		$(BIN)/tts-orch drafter train --config recipes/drafters/$$recipe.yaml --data-folder $(DATA) --target $(TARGET) \
			--loss $$loss --cache $(DRAFTERS)/cache --out $(DRAFTERS)/$$loss/$$recipe $(DRAFTER_ARGS) || exit; done; done
	@for loss in $(LOSSES); do if test -d $(DRAFTERS)/$$loss/math && test -d $(DRAFTERS)/$$loss/chat; then \
		$(BIN)/tts-orch drafter average $(DRAFTERS)/$$loss/math $(DRAFTERS)/$$loss/chat \
			--out $(DRAFTERS)/$$loss/averaged || exit; fi; done

secrets: install ## Make a token for Ray and a password for the store, which `ray up` copies to the nodes
	@$(BIN)/ray get-auth-token --generate > /dev/null
	@mkdir -p -m 700 ~/.tts_orch && umask 077 && test -s ~/.tts_orch/store_password \
		|| $(BIN)/python -c 'import secrets; print(secrets.token_hex(32))' > ~/.tts_orch/store_password

clean: ## Remove caches and build outputs; .venv, models and runs stay
	rm -rf build dist *.egg-info .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find actors policies tts_orch tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
