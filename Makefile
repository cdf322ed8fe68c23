# One door: `make help` lists what there is.

GO          ?= go
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 10s
COUNT       ?= 1
RACE        ?= -race
TIMEOUT     ?= 30m

# The race detector runs where this project's own goroutines meet. The rest is the
# stores and the provider's adapter, which have none, and tests of whole processes;
# there it would only watch databases, drivers and a large client being slow.
RACED = ./turn ./session ./session/internal/... ./agent ./agent/script ./agent/httptool ./agent/agentsfile ./worker ./ingress ./jetstream/...
PLAIN = ./agent/openai/... ./session/sqlite ./session/postgres/... ./session/sessiontest ./cmd/... ./internal/... ./examples/...

.PHONY: help dev test check fmt vet lint fuzz bench tidy build

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

dev: ## Run everything in one process on http://127.0.0.1:8080.
	$(GO) run ./cmd/turnpool dev

build: ## Build the commands into bin/.
	$(GO) build -o bin/ ./cmd/...

test: ## Run all tests, or those of PKGS, COUNT times; RACE= without the race detector.
ifdef PKGS
	$(GO) test $(RACE) -vet=off -count=$(COUNT) -timeout $(TIMEOUT) $(PKGS)
else
	$(GO) test $(RACE) -vet=off -count=$(COUNT) -timeout $(TIMEOUT) $(RACED)
	$(GO) test -vet=off -count=$(COUNT) -timeout $(TIMEOUT) $(PLAIN)
endif

check: fmt vet lint test ## Everything: format, vet, lint, tests.

fmt: ## Fail if a file is not formatted.
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "not formatted, run gofmt -w:"; echo "$$files"; exit 1; fi

vet: ## Run go vet.
	$(GO) vet ./...

lint: ## Run staticcheck; staticcheck.conf has the exceptions and why.
	$(GO) run $(STATICCHECK) ./...

fuzz: ## Run every fuzz target for FUZZTIME (10s) each.
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; \
	done

bench: ## Measure the pipeline beside its parts; prints ratios.
	cd bench && $(GO) run . $(BENCH_ARGS)

tidy: ## Tidy both modules.
	$(GO) mod tidy
	cd bench && $(GO) mod tidy
