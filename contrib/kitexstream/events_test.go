//go:build !kitex016

package kitexstream_test

import "github.com/cloudwego/kitex/client"

// eventHandlers are the options of a client that the handlers of Kitex's events need: none before
// Kitex 0.16.
var eventHandlers []client.Option
