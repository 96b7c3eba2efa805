//go:build race

package simulation

// shortSeeds is lower under the race detector, which makes a schedule about ten times slower.
const shortSeeds = 200
