package overhttp

import (
	"errors"
	"io"
	"slices"
	"strconv"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
)

// TestEventsOfOneReadAreOneMessage: the worker joins the events in its buffer, and waits for no further one. The error of an event
// comes after the tokens before it.
func TestEventsOfOneReadAreOneMessage(t *testing.T) {
	type message struct {
		ids []uint32
		end bool
		err bool
	}
	for name, test := range map[string]struct {
		media mediaType
		reads []string
		want  []message
	}{
		"events":          {serverSentEvents, []string{"data: 1\n\ndata: 2\n\n", "data: 3\n\n"}, []message{{ids: []uint32{1, 2}}, {ids: []uint32{3}}, {err: true}}},
		"a part":          {serverSentEvents, []string{"data: 1\n\ndata: 2\n", "\ndata: 3\n\n"}, []message{{ids: []uint32{1}}, {ids: []uint32{2, 3}}, {err: true}}},
		"comments":        {serverSentEvents, []string{"data: 1\n\n: ping\n\n", "data: 2\n\n"}, []message{{ids: []uint32{1}}, {ids: []uint32{2}}, {err: true}}},
		"the ending":      {serverSentEvents, []string{"data: 1\r\n\r\ndata: [DONE]\r\n\r\n"}, []message{{ids: []uint32{1}, end: true}}},
		"an error":        {serverSentEvents, []string{"data: 1\n\ndata: 2\n\ndata: x\n\ndata: 3\n\n"}, []message{{ids: []uint32{1, 2}}, {err: true}}},
		"only an error":   {serverSentEvents, []string{"data: x\n\ndata: 3\n\n"}, []message{{err: true}}},
		"lines":           {jsonLines, []string{"1\n2\n\n3", "\n4\n"}, []message{{ids: []uint32{1, 2}}, {ids: []uint32{3, 4}}, {err: true}}},
		"the last line":   {jsonLines, []string{"1\n[DONE]\n"}, []message{{ids: []uint32{1}, end: true}}},
		"a line of noise": {jsonLines, []string{"1\nx\n"}, []message{{ids: []uint32{1}}, {err: true}}},
	} {
		s := &Stream{wire: wire{client: new(Client)}, media: test.media}
		reads := test.reads
		s.Read(readerFunc(func(b []byte) (int, error) {
			if len(reads) == 0 {
				return 0, io.EOF
			}
			n := copy(b, reads[0])
			reads = reads[1:]
			return n, nil
		}))
		for i, want := range test.want {
			ids, end, err := s.Tokens(func() ([]uint32, *llmv1.End, error) {
				data, err := s.Next()
				if err != nil {
					return nil, nil, err
				}
				if string(data) == Done {
					return nil, new(llmv1.End), nil
				}
				n, err := strconv.ParseUint(string(data), 10, 32)
				if err != nil {
					return nil, nil, errors.New("no number")
				}
				return []uint32{uint32(n)}, nil, nil
			})
			if !slices.Equal(ids, want.ids) || (end != nil) != want.end || (err != nil) != want.err {
				t.Errorf("%s: message %d is %v, %v, %v; want %+v", name, i, ids, end, err, want)
			}
		}
	}
}
