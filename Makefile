# Everything a contributor or the CI runs. `make` alone lists the targets, from the comments behind `##`.
#
# Tools are pinned in tools/go.mod, a module of its own, so that go.mod lists only what offpath itself needs.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

TOOL := go tool -modfile=tools/go.mod
PROTOS := $(wildcard pkg/*/*.proto)

# How long each fuzz test runs, which benchmarks, and how often: make fuzz FUZZTIME=5m; make bench BENCH=Check COUNT=10
FUZZTIME ?= 10s
BENCH ?= .
COUNT ?= 1

# The limit of one package's tests. The whole of `make test` should stay below 10 minutes on 2 cores.
TESTTIME ?= 15m

# Packages with tests that are too long, or too much a matter of speed, for the race detector and for company: -short leaves
# those out.
LONG := ./internal/endtoend ./loadtest/sim ./loadtest/fleet ./pkg/aggregate
# Tests of these that take minutes and are no shorter with -short: they have run by then.
NOTAGAIN := ^(TestSingleRedis|TestRedisCluster|TestStrictLive)$$

.PHONY: help
help: ## List the targets (default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: build
build: ## Compile everything; the commands go to bin/
	go build ./...
	go build -o bin/ ./cmd/...

.PHONY: test
test: ## Run all tests, with the race detector and real servers, and every benchmark once
	scripts/need-redis.sh
	scripts/need-chromium.sh
	go test -race -short -shuffle=on -timeout $(TESTTIME) ./...
	go test -run 'Alloc|Flood' ./pkg/... # the race detector allocates, and is slow
	go test -p 1 -shuffle=on -timeout $(TESTTIME) -skip '$(NOTAGAIN)' $(LONG)
	go test -run '^$$' -bench . -benchtime 1x -timeout $(TESTTIME) ./...
	scripts/nested-modules.sh go test -race -shuffle=on -timeout $(TESTTIME) ./...
	scripts/nested-modules.sh go test -run '^$$' -bench . -benchtime 1x -timeout $(TESTTIME) ./...

.PHONY: test-short
test-short: ## Run the tests without the race detector and without repeating unchanged ones
	scripts/need-redis.sh
	scripts/need-chromium.sh
	go test -timeout $(TESTTIME) ./...

.PHONY: lint
lint: ## Check format, vet, staticcheck, generated code and go.mod
	scripts/gofmt-check.sh
	go vet ./...
	go -C tools vet ./...
	$(TOOL) staticcheck ./...
	go -C tools tool staticcheck ./...
	scripts/generated-check.sh $(PROTOS)
	go mod tidy -diff
	go -C tools mod tidy -diff
	scripts/nested-modules.sh go vet ./...

.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZTIME (10s) each
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: ## Run the benchmarks: BENCH=pattern COUNT=times
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./...

.PHONY: generate
generate: ## Generate Go code from the .proto files
	go -C tools run ./protogen $(CURDIR) $(PROTOS)

.PHONY: clean
clean: ## Remove what builds and profiles leave behind
	rm -rf bin
	find . -name '*.test' -o -name '*.prof' | xargs -r rm -f
