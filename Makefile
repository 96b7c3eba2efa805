# Thin names for the scripts.
.PHONY: run test gen lint bench fidelity fleet whodunit
run:
	go run .
test:
	./scripts/test
gen:
	./scripts/gen
lint:
	go tool -modfile=scripts/tools/lint/go.mod golangci-lint run ./...
bench:
	./scripts/bench
fidelity:
	./scripts/fidelity
fleet:
	./scripts/fleet
whodunit:
	./scripts/whodunit
