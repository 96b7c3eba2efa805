package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/whence-dev/whence/internal/client"
)

// A chat is a conversation with a model. It grows until the model refuses its length.
type chat struct {
	options     *runOptions
	client      *client.Client
	request     client.Request // with the messages so far
	out         io.Writer
	screen      screen    // of out
	notes       io.Writer // for everything but answers
	notesScreen screen
	last        string   // id of the last stream; "" before the first
	current     *reading // nil between answers
	signals     func() (signals <-chan os.Signal, stop func())
}

func newChat(ctx context.Context, o *runOptions, out, notes io.Writer) (*chat, error) {
	if err := o.api.Validate(); err != nil {
		return nil, err
	}
	req, err := o.request()
	if err != nil {
		return nil, err
	}
	if req.Model == "" {
		if req.Model, err = o.api.FirstModel(ctx); err != nil {
			return nil, err
		}
	}
	c := &chat{options: o, request: req, out: out, screen: screenOf(out), notes: notes, notesScreen: screenOf(notes), signals: notifySignals}
	c.client, err = client.New(o.api.URL, client.Options{Key: o.api.Credential(), OnRetry: c.retries})
	return c, err
}

// note prints a line that is not part of an answer.
func (c *chat) note(text string) {
	if c.notesScreen.Terminal() {
		_ = newWrapper(c.notes, c.notesScreen).Write(dim, text+"\n") // there is nowhere to report an error
		return
	}
	_, _ = fmt.Fprintln(c.notes, text) // likewise
}

// A reading is what the user sees of an answer that arrives.
type reading struct {
	*wrapper
	made    bool // the stream exists
	waiting bool // the line shows what the command waits for
}

// waits shows on a terminal what the command waits for, in a line that arrived erases.
func (c *chat) waits(text string) {
	if c.screen.Terminal() && c.notesScreen.Terminal() {
		c.arrived()
		_, _ = io.WriteString(c.out, c.screen.Show(dim, text)) // the next write reports an error
		c.current.waiting = true
	}
}

func (c *chat) arrived() {
	if c.current.waiting {
		_, _ = io.WriteString(c.out, "\r\x1b[K") // likewise
		c.current.waiting = false
	}
}

// retries tells why an answer does not arrive, and what the client does about it.
func (c *chat) retries(attempt int, failure *client.Error) {
	r := c.current
	text := failure.Text() + ", trying again"
	switch {
	case failure.Reason == client.PeerLost && r.made:
		text = "connection broken, resuming"
	case failure.Reason == client.PeerLost:
		text = "no answer from " + c.options.api.URL + ", trying again"
	}
	c.arrived()
	if c.screen.Terminal() && r.Column() > 0 {
		_ = r.Write("", "\n") // the next write reports an error
	}
	c.note(fmt.Sprintf("[%s (%d)…]", text, attempt))
}

// A chatAnswer is the result of one question.
type chatAnswer struct {
	id          string
	text        string
	ending      *client.Ending
	interrupted bool
	first, took time.Duration // until the first text, if there was one, and until the ending
}

// summary says who ended the stream and why, and how fast it was.
func (a *chatAnswer) summary() string {
	var b strings.Builder
	by := a.ending.Path.Origin()
	if a.ending.Reason == client.UserStop && !a.interrupted {
		by = "another request" // not by this command
	}
	fmt.Fprintf(&b, "[%s by %s", string(a.ending.Reason), by)
	err := a.ending.Err
	switch {
	case err != nil && err.GaveUp:
		return fmt.Sprintf("[not read to its end: %s]\n[the stream may still run: whence why %s]", err.Text(), a.id)
	case err != nil && err.Reason == client.NotFound:
		return "[api-service has lost the stream: it has restarted, or the stream ended long ago]"
	case err != nil:
		fmt.Fprintf(&b, " (%s)", strings.Join(a.ending.Path, " > "))
		if err.Message != "" {
			fmt.Fprintf(&b, ": %s", err.Message)
		}
	}
	if u := a.ending.Usage; u != nil {
		fmt.Fprintf(&b, "; %d tokens", u.Completion)
		if rest := a.took - a.first; a.first > 0 && rest > 0 && u.Completion > 1 {
			fmt.Fprintf(&b, ", %.1f/s", float64(u.Completion-1)/rest.Seconds())
		}
	}
	if a.first > 0 {
		fmt.Fprintf(&b, "; first token after %v", a.first.Round(time.Millisecond))
	}
	fmt.Fprintf(&b, "]\n[whence why %s]", a.id)
	return b.String()
}

// answer asks a question, and prints the answer as it arrives. An interrupt stops the stream; a
// second one leaves it. The error is nil if the stream has an ending, and errInterrupted if a signal
// arrived before.
func (c *chat) answer(ctx context.Context, question string) (*chatAnswer, error) {
	readCtx, leave := context.WithCancel(ctx)
	defer leave()
	req := c.request
	req.Messages = append(req.Messages[:len(req.Messages):len(req.Messages)], client.Message{Role: "user", Content: question})
	watch := c.watchInterrupts(ctx, leave)
	a, err := c.stream(readCtx, watch, req)
	a.interrupted = watch.end()
	switch {
	case a.ending != nil:
	case a.interrupted:
		return nil, errInterrupted
	default:
		return nil, err
	}
	if a.ending.Reason == client.Completed {
		c.request.Messages = append(req.Messages, client.Message{Role: "assistant", Content: a.text})
	}
	return a, nil
}

// stream makes a stream and reads it.
func (c *chat) stream(ctx context.Context, watch *interruptWatch, req client.Request) (*chatAnswer, error) {
	begun := time.Now()
	a := &chatAnswer{}
	c.current = &reading{wrapper: newWrapper(c.out, c.screen)}
	defer func() {
		c.arrived()
		c.current = nil
	}()
	c.waits("waiting for " + c.options.api.URL + " …")
	s, err := c.client.Stream(ctx, req)
	if err != nil {
		return a, err
	}
	watch.attach(s)
	a.id, c.last, c.current.made = s.ID(), s.ID(), true
	c.waits("waiting for the first token of " + req.Model + " …")
	err = c.read(ctx, s, a, begun)
	a.took = time.Since(begun)
	a.ending = s.Ending()
	return a, err
}

// read prints the events of a stream.
func (c *chat) read(ctx context.Context, s *client.Stream, a *chatAnswer, begun time.Time) error {
	var text strings.Builder // bounded by the service's limit for an answer
	defer func() { a.text = text.String() }()
	for e, err := range s.Events(ctx) {
		if err != nil {
			return err // the ending, unless the stream has none
		}
		if a.first == 0 && (e.Text != "" || e.Reasoning != "") {
			a.first = time.Since(begun)
		}
		text.WriteString(e.Text)
		c.arrived()
		if err := c.print(c.current.wrapper, &e); err != nil {
			return err
		}
	}
	return nil
}

// print prints an event. Only a terminal gets the reasoning.
func (c *chat) print(w *wrapper, e *client.Event) error {
	if !c.screen.Terminal() {
		_, err := io.WriteString(c.out, e.Text)
		return err
	}
	if err := w.Write(dim, e.Reasoning); err != nil {
		return err
	}
	return w.Write("", e.Text)
}

const commandsHelp = `/new starts a new conversation, /why shows the hops of the last answer, /exit ends; three quotes (""") begin and end a message of several lines, and a \ at the end of a line continues it; Ctrl-C stops an answer`

// commandLike matches a line that is a command, or a misspelt one. A path is not, and neither is a
// line that begins with a space.
var commandLike = regexp.MustCompile(`^/[a-z?]+(\s|$)`)

// converse asks the questions that the user types, until the input ends.
func (c *chat) converse(ctx context.Context, in *os.File) error {
	c.note(c.request.Model + " at " + c.options.api.URL + "; " + commandsHelp)
	input := newLineReader(in, c.out, c.screen, c.signals)
	system := c.request.Messages
	for {
		message, err := input.read()
		if errors.Is(err, io.EOF) {
			_, err = fmt.Fprintln(c.out)
			return err
		}
		if err != nil {
			return err
		}
		switch line := strings.TrimSpace(message); line {
		case "":
		case "/exit", "/quit", "/bye":
			return nil
		case "/help", "/?":
			c.note(commandsHelp)
		case "/new":
			c.request.Messages = system
			c.note("A new conversation.")
		case "/why":
			c.why(ctx)
		default:
			if command := strings.TrimSpace(commandLike.FindString(message)); command != "" {
				c.note("There is no command " + command + "; a message may begin with a space. " + commandsHelp)
				continue
			}
			c.turn(ctx, line)
		}
	}
}

// turn asks one question of a conversation. Errors are printed, and the conversation continues.
func (c *chat) turn(ctx context.Context, question string) {
	a, err := c.answer(ctx, question)
	if err != nil {
		c.note("\n[" + c.options.api.Explain(err).Error() + "]")
		return
	}
	if a.text != "" {
		_, _ = fmt.Fprintln(c.out) // the next write reports an error
	}
	c.note(a.summary())
}

// why prints the story of the last answer.
func (c *chat) why(ctx context.Context) {
	if c.last == "" {
		c.note("There is no answer yet.")
		return
	}
	told, err := c.options.api.Story(ctx, c.last)
	if err == nil {
		var b strings.Builder
		if err = told.Print(&b); err == nil {
			err = newWrapper(c.out, c.screen).Write("", b.String())
		}
	}
	if err != nil {
		c.note(err.Error())
	}
}
