package main

import (
	"slices"
)

// rows lists the faults, with the bounds of bench/trust.md.
var rows = slices.Concat(clientRows, stallRows, workerRows, refusalRows, chatRows, edgeRows, networkRows, restartRows, overloadRows, dependencyRows, heldRows)
