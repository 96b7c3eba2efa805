package kitexrpc

import "github.com/whence-dev/whence/pkg/rpc/kitexrpc/kitexerr"

// toKitex and fromKitex convert errors.
var (
	toKitex   = kitexerr.ToKitex
	fromKitex = kitexerr.FromKitex
)
