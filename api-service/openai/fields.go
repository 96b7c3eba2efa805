package openai

import "github.com/whence-dev/whence/api-service/strict"

// The readers of fields, by the names that they have here.
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
	only      = strict.Only
	compact   = strict.Compact
	null      = strict.Null
)
