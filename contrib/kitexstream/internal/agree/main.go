// Command agree prints what the copies in this module do with names and errors of Whence. A test of
// Whence's own module compares that with the originals, which this module cannot import.
//
// Each line of the input is a kind and a value: "names", "reason WORD", "path TEXT", "status BASE64" (a
// google.rpc.Status), or "cause TEXT" (the text of an exception of TTHeader Streaming). The answer is
// one line.
package main

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/status"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/contrib/kitexstream"
	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

func main() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		kind, value, _ := strings.Cut(lines.Text(), " ")
		out, err := answer(kind, value)
		if err != nil {
			log.Fatalf("%s: %v", lines.Text(), err)
		}
		fmt.Println(out)
	}
}

func answer(kind, value string) (string, error) {
	switch kind {
	case "names":
		return strings.Join(append(monitor.HeaderNames(), streamerr.ReasonTrailer, streamerr.PathTrailer, streamerr.Domain, streamerr.PathKey,
			string(monitor.SendHeader), string(monitor.RecvHeader), string(monitor.SendRst), string(monitor.RecvRst),
			string(monitor.SendTrailer), string(monitor.RecvTrailer), string(monitor.Send), string(monitor.Recv),
			monitor.CodeStop, monitor.CodeCancel, monitor.CodeLost), " "), nil
	case "reason":
		r := streamerr.ParseReason(value)
		return fmt.Sprintf("%d %s, %v", int32(r), r.String(), error(r)), nil
	case "path":
		return streamerr.ParsePath(value).String(), nil
	case "status":
		b, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return "", err
		}
		st := new(spb.Status)
		if err := proto.Unmarshal(b, st); err != nil {
			return "", err
		}
		return text(kitexstream.Classify("peer", status.ErrorProto(st))), nil
	case "cause":
		return text(kitexstream.Classify("peer", exception(value))), nil
	default:
		return "", errors.New("unknown kind")
	}
}

func text(e *streamerr.Error) string {
	return fmt.Sprintf("%d %s [%s]", int32(e.Reason), strings.ReplaceAll(e.Text(), "\n", " "), e.Path)
}

// An exception has the text of a cancel with a cause.
type exception string

// Error implements error.
func (e exception) Error() string { return string(e) }

// TypeId returns the code of the exception. The name is Kitex's.
func (exception) TypeId() int32 { return 12011 } //nolint:revive // see above
