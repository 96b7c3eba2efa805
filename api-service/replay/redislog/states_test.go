package redislog_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

// state returns the state of a stream on the server, and "" if the stream is absent.
func state(t testing.TB, db *redis.Client, id string) string {
	t.Helper()
	known, err := db.HGet(t.Context(), "whence:2:head:"+id, "state").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return known
}
