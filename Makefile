# The list of commands. No logic here: each calls cargo or a script of scripts/.

.DEFAULT_GOAL := help
.PHONY: help run test lint generate check-generated e2e e2e-kube bench bench-relay bench-kv bench-routing fuzz

help: ## Show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

run: ## Build and start the router in front of a simulated fleet; ask it once; Ctrl-C ends both
	@scripts/run-demo.sh

test: ## Run all tests but the end-to-end ones (installs protoc, etcd and a Kubernetes API server if missing)
	@scripts/test.sh

lint: ## Check formatting and lints, with and without the optional features
	@scripts/lint.sh

generate: ## Write the generated files (configuration reference, JSON Schema, limits, the rendered operator)
	@scripts/generate.sh

check-generated: ## Fail if a generated file is not current
	@scripts/check-generated.sh

e2e: ## Run the router against real Dynamo 1.4.2, 1.5.1 and 1.6.1 (installs them if missing)
	@scripts/e2e.sh
	@scripts/e2e-kube.sh

e2e-kube: ## Run operator and routers on a real one-node Kubernetes with real Dynamo pods (root; a part of e2e)
	@scripts/e2e-kube.sh

bench: ## Run all benches and print their tables
	@scripts/bench.sh

bench-relay: ## Compare the relay alone with other proxies
	@scripts/bench.sh relay

bench-kv: ## Compare the KV index with the fastest one of Dynamo; fails below its gates
	@scripts/bench.sh kv

bench-routing: ## Compare choices with Dynamo's own KV router in front of real workers; fails where they are worse
	@scripts/bench.sh routing

fuzz: ## Fuzz each decoder for a minute
	@scripts/fuzz.sh
