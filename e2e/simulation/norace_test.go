//go:build !race

package simulation

// shortSeeds is the number of schedules in the short tier.
const shortSeeds = 2000
