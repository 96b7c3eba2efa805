package openai

import (
	"encoding/json"
	"time"

	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// MaxTimeout is the longest timeout that a request may ask for.
const MaxTimeout = 24 * time.Hour

// timeout parses a number of seconds. 0 means no limit.
func timeout(in *strict.Reading, param string, raw json.RawMessage) (time.Duration, error) {
	v, err := number(param, raw, 0, MaxTimeout.Seconds())
	switch {
	case err != nil:
		return 0, err
	case v == 0 && in.Refuses():
		return 0, streamerr.InvalidParam(param, "%s is 0; it must be over 0", param)
	case v == 0:
		return 0, nil
	}
	return max(time.Duration(float64(v)*float64(time.Second)), time.Nanosecond), nil // 0 would mean no limit
}
