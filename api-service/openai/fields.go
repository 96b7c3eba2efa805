package openai

import "github.com/whence-dev/whence/api-service/strict"

// The parsers of fields, under short names.
var (
	mismatch  = strict.Mismatch
	object    = strict.Object
	array     = strict.Array
	text      = strict.String
	member    = strict.Member
	boolean   = strict.Boolean
	number    = strict.Number
	integer   = strict.Integer
	count     = strict.Count
	printable = strict.Printable
	compact   = strict.Compact
	null      = strict.Null
)
