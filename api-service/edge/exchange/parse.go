package exchange

import (
	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/anthropic"
	"github.com/whence-dev/whence/api-service/call"
	"github.com/whence-dev/whence/api-service/strict"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// IgnoredHeader is the response header with the fields of the body that were left out.
	IgnoredHeader = "whence-ignored"
	// StrictHeader is the request header that refuses such fields instead, for one request: "1".
	StrictHeader = "whence-strict"
)

// Parse parses the body of a request. It tells the client which fields were left out: in a header of
// the response, in the record of the stream, in a counter and in the debug log.
func Parse[In any](d *Desk, c *app.RequestContext, body []byte, parse func(body []byte, in *strict.Reading) (In, error)) (In, error) {
	reading := &strict.Reading{Strict: d.Strict}
	switch asked := string(c.GetHeader(StrictHeader)); asked {
	case "":
	case "0", "1":
		reading.Strict = asked == "1"
	default:
		var none In
		return none, streamerr.InvalidParam(StrictHeader, "%s is %.32q; it must be 0 or 1", StrictHeader, asked)
	}
	var in In
	var err error
	if Form(c) == &anthropic.Form {
		err = anthropic.CheckVersion(string(c.GetHeader(anthropic.VersionHeader)), reading)
	}
	if err == nil {
		in, err = parse(body, reading)
	}
	asked, ok := any(in).(*call.Call)
	if ok = ok && asked != nil; ok {
		asked.Strict = reading.Strict
	}
	left := reading.Left()
	if len(left) == 0 {
		return in, err
	}
	c.Header(IgnoredHeader, reading.Header())
	api := Surface(c)
	for _, field := range left {
		d.Metrics.Ignored(api, reading.Label(field))
	}
	d.Log.Debug("fields of a request left out", "stream", string(c.Response.Header.Peek(IDHeader)), "hop", d.Name, "api", api, "fields", reading.Header())
	if ok {
		asked.Ignored = reading.Brief()
	}
	return in, err
}

// Leave tells the client that a field was left out, as Parse does, when that turns out later. A strict
// request is refused. path is a name of the API.
func (d *Desk) Leave(c *app.RequestContext, in *call.Call, path string) error {
	if err := (&strict.Reading{Strict: in.Strict}).Unsupported(path); err != nil {
		return err
	}
	header := path
	if before := string(c.Response.Header.Peek(IgnoredHeader)); before != "" {
		header = before + ", " + path
	}
	c.Header(IgnoredHeader, header)
	in.Ignored = append(in.Ignored, path)
	d.Metrics.Ignored(Surface(c), path)
	return nil
}
