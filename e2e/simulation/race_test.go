//go:build race

package simulation

// defaultSeeds is lower under the race detector, which makes a schedule about ten times slower.
const defaultSeeds = 200
