package readers

import (
	"context"
	"time"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/edge/clientconn"
	"github.com/whence-dev/whence/api-service/edge/websocket"
	"github.com/whence-dev/whence/api-service/follow"
	"github.com/whence-dev/whence/api-service/replay"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// overSocket answers a request for events over a WebSocket: one text message for each event,
// {"id":"…","event":"…","data":{…}}, with the id, name and data of the server-sent event, and then a
// close frame.
func (r *Readers) overSocket(conn context.Context, c *app.RequestContext, id string, in replay.Reader, after uint64) {
	shake, err := websocket.Check(c, r.Gate)
	if err != nil {
		r.Desk.Refuse(c, err)
		return
	}
	// The WebSocket itself reports the end of the connection, after the messages that the client
	// sent before.
	r.follow(context.WithoutCancel(conn), c, id, in, after, &socketForm{readers: r, shake: shake, in: in, after: after})
}

// A socketForm is the form of events over a WebSocket.
type socketForm struct {
	readers *Readers
	shake   *websocket.Handshake
	in      replay.Reader
	after   uint64             // the number of the last event that the reader has; 0 once this WebSocket has sent an event
	session *websocket.Session // set by begin
	client  *clientconn.Conn
	out     websocket.Encoder
	failure []byte // data of the closing event of a stream that failed
}

// closingWithin bounds the wait for a closing event that the reader already has.
const closingWithin = time.Second

// noMessage bounds the messages of a reader, in bytes. Readers send no messages.
const noMessage = 1 << 10

func (f *socketForm) refused() { f.shake.Cancel() }

func (f *socketForm) begin(client *clientconn.Conn, sent func(time.Duration, int), lost func(*streamerr.Error)) error {
	f.client = client
	client.OnSent(sent)
	f.session = f.shake.Accept(client, noMessage).Serve(websocket.Rules{
		Name: f.readers.Name, Log: f.readers.Log, KeepAlive: f.readers.KeepAlive, Patience: f.readers.ClientTimeout,
		Take: func(websocket.Message) *streamerr.Error {
			return streamerr.New(streamerr.Invalid, "a reader of events sends no messages")
		},
		Lost: lost,
	})
	return nil
}

func (f *socketForm) read(ctx context.Context, in replay.Reader, after uint64) (follow.End, error) {
	return follow.Follow(ctx, in, after, f.event)
}

func (f *socketForm) event(id, name string, data []byte) error {
	f.after = 0
	b := append(append(f.out.Begin(), `{"id":"`...), id...)
	b = append(append(b, `","event":"`...), name...)
	b = append(append(append(b, `","data":`...), data...), '}')
	if name == string(replay.Failure) {
		f.failure = append([]byte(nil), data...)
	}
	frame, _ := f.out.End(websocket.Text, b)
	return f.client.Send(frame, deltaCount(name))
}

// readClosing reads the closing event for a reader that has the event already, because the close
// frame must have the ending of the stream. An error means that the log cannot say how the stream
// ended.
func (f *socketForm) readClosing() error {
	ctx, cancel := context.WithTimeout(context.Background(), closingWithin)
	defer cancel()
	closing, err := f.in.Closing(ctx)
	if err == nil && closing.Kind == replay.Failure {
		f.failure = []byte(closing.Data)
	}
	return err
}

func (f *socketForm) end(cause *streamerr.Error, _ bool) {
	if cause.Reason == streamerr.Completed && f.after > 0 {
		if err := f.readClosing(); err != nil {
			cause = streamerr.As(Lost(f.in.Head().ID, err)) // never a completion, because the stream may have failed
		}
	}
	reason := cause.Reason
	if failed, ok := streamerr.ParseJSON(f.failure); ok {
		reason = failed.Reason
	}
	f.session.Close(nil, reason, cause)
	f.session.Wait(f.readers.Live.Closed())
}
