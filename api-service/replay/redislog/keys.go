package redislog

import "github.com/whence-dev/whence/api-service/replay"

// keyPrefix begins the names of all keys. It changes with the encoding of heads and events, so that
// instances of different versions do not read each other's streams.
const keyPrefix = "whence:4:"

// Names of keys. A message on the channel wakeName announces new events of the stream.
func headKey(id string) string     { return keyPrefix + "head:" + id }
func logKey(id string) string      { return keyPrefix + "log:" + id }
func requestKey(id string) string  { return keyPrefix + "request:" + id }
func seenKey(id string) string     { return keyPrefix + "seen:" + id }
func wakeName(id string) string    { return keyPrefix + "wake:" + id }
func streamsKey(run string) string { return keyPrefix + "streams:" + run }

// Names of the sorted sets of instances; see beat.
const (
	leasesKey = keyPrefix + "leases"
	heirsKey  = keyPrefix + "heirs"
)

// idempotencyKey returns the name of the key that holds the id of the stream with this idempotency
// key. Without an idempotency key it returns the name of the head, which scripts take for "no key".
func idempotencyKey(h replay.Head) string {
	if h.Key == "" {
		return headKey(h.ID)
	}
	return keyPrefix + "key:" + h.Key
}

// keysOf returns the keys that scripts take for a stream of the instance run.
func keysOf(h replay.Head, run string) []string {
	return []string{headKey(h.ID), logKey(h.ID), idempotencyKey(h), requestKey(h.ID), streamsKey(run)}
}
