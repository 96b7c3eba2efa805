package simulation

import (
	"net/http"
	"strconv"
	"time"

	"github.com/whence-dev/whence/e2e/simulation/client"
	"github.com/whence-dev/whence/e2e/simulation/schedule"
)

// read runs the readers of a kept stream. v is the request for the stream.
func (p *play) read(i int, v *client.Visit) {
	r := &p.Schedule.Requests[i]
	if r.Kept { // the answer has the id
		id := v.Answer().ID
		p.mu.Lock()
		p.streams[i].ID = id
		p.mu.Unlock()
		p.Journal.Note("stream %s has the id %q", p.Schedule.Name(i), id)
		if v.Answer().Status != http.StatusCreated {
			return
		}
	}
	for j := range r.Readers {
		p.readers.Go(func() { p.sessions(i, j) })
	}
}

// sessions runs a reader's sessions, until one has read the closing event or is refused.
func (p *play) sessions(i, j int) {
	reader := &p.Schedule.Requests[i].Readers[j]
	time.Sleep(reader.At)
	var answers []client.Answer
	after := client.Event{}
	for _, s := range reader.Sessions {
		time.Sleep(s.Pause)
		if !s.Resume {
			after = client.Event{}
		}
		a := p.session(p.id(i), &s, after)
		answers = append(answers, a)
		if n := len(a.Events); n > 0 {
			after = a.Events[n-1]
		}
		if a.Status == http.StatusOK && !after.Closing() {
			continue
		}
		break
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams[i].Readers[j] = answers
}

// session reads the events of a stream after the event after; the zero value means from the
// beginning.
func (p *play) session(id string, s *schedule.Session, after client.Event) client.Answer {
	q := &client.Request{Method: "GET", Path: "/v1/streams/" + id + "/events", Window: s.Window, Pace: s.Pace, Events: s.Events, Stall: s.Stall, HTTP2: s.HTTP2 && !s.Socket, Socket: s.Socket}
	if after.Seq > 0 {
		q.Header = map[string]string{"Last-Event-ID": after.Epoch + "." + strconv.Itoa(after.Seq)}
	}
	a := p.ask(q)
	a.After = after.Seq
	return a
}

// audit reads the events of each kept stream from the beginning, when all streams have ended.
func (p *play) audit() {
	for i := range p.streams {
		if s := &p.streams[i]; s.ID != "" && p.Schedule.Requests[i].Keeps() {
			s.Audit = p.session(s.ID, &schedule.Session{Window: 64 << 10}, client.Event{})
		}
	}
}
