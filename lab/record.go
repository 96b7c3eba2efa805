package lab

import (
	"encoding/json"
	"time"
)

// A Record is one line of a service's log.
type Record struct {
	Time time.Time `json:"time"`
	Msg  string    `json:"msg"`
	Addr string    `json:"addr"`
	Err  string    `json:"err"`

	// Of "stream ended".
	Stream  string `json:"stream"`
	Hop     string `json:"hop"`
	Reason  string `json:"reason"`
	Origin  string `json:"origin"`
	Path    string `json:"path"`
	Message string `json:"message"`
	Trace   string `json:"trace"`
	Extent  string `json:"extent"`

	// Of "streams go over links".
	Target string `json:"target"`

	// Of "worker is healthy" and "worker is not healthy", and of "stream moved".
	Worker  string `json:"worker"`
	Problem string `json:"problem"`
	From    string `json:"from"`
	To      string `json:"to"`

	// Of "draining".
	Streams int       `json:"streams"`
	Until   time.Time `json:"until"`
}

// Records returns the records that a run has logged so far. Other lines are left out.
func (r *Run) Records() (all []Record) {
	for _, line := range r.Log.All() {
		var one Record
		if json.Unmarshal([]byte(line), &one) == nil {
			all = append(all, one)
		}
	}
	return all
}

// Logged waits for the first record that match accepts.
func (p *Process) Logged(what string, match func(Record) bool) (r Record, err error) {
	_, err = p.Await(p.Log, what, func(line string) bool {
		r = Record{}
		return json.Unmarshal([]byte(line), &r) == nil && match(r)
	})
	return r, err
}

// address returns the address in the record with a message.
func (p *Process) address(msg string) (string, error) {
	r, err := p.Logged("the record "+msg, func(r Record) bool { return r.Msg == msg })
	return r.Addr, err
}

// Listening returns the address that a service has chosen.
func (p *Process) Listening() (string, error) { return p.address("listening") }

// Metrics returns the address at which a service answers scrapes.
func (p *Process) Metrics() (string, error) { return p.address("serving metrics") }

// GRPC returns a gateway's address for gRPC callers.
func (p *Process) GRPC() (string, error) { return p.address("listening for gRPC callers") }
