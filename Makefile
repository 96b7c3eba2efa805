# Thin names for the scripts.
.PHONY: run test gen bench
run:
	go run .
test:
	./scripts/test
gen:
	./scripts/gen
bench:
	./scripts/bench
