package redisclient

// A message checks the type of what a server sends on a connection for messages. go-redis panics if
// a part of a message has another type.
type message struct {
	name  [16]byte // the first part: the kind of message
	named int      // bytes of the first part
	size  int64    // number of parts
	part  int      // the part that is being read
	shape string   // the types of the parts after the first; known once the first part has ended
}

// shapes has the kinds of messages that a server may send: 's' is a string, 'n' a string or
// nothing, and 'i' an integer.
var shapes = map[string]string{
	"message": "ss", "subscribe": "ni", "unsubscribe": "ni", "pong": "s",
}

// begin takes the type of a part, or of the whole message if depth is 0.
func (m *message) begin(depth int, kind byte) error {
	switch {
	case depth == 0 && (kind == '>' || kind == '*' || kind == '+' || kind == '-'):
		return nil // a message; the reply to a ping; an error
	case depth == 0:
		return refuse("a message has type %q", kind)
	case m.part == 0 && (kind == '$' || kind == '+'):
		return nil
	case m.part > 0 && m.allows(kind):
		return nil
	}
	return refuse("part %d of a message has type %q", m.part, kind)
}

func (m *message) allows(kind byte) bool {
	switch m.shape[m.part-1] {
	case 'i':
		return kind == ':'
	case 'n':
		return kind == '$' || kind == '+' || kind == '_'
	default:
		return kind == '$' || kind == '+'
	}
}

// text takes bytes of a part.
func (m *message) text(p []byte) {
	if m.part == 0 && m.size > 0 {
		copy(m.name[min(m.named, len(m.name)):], p)
		m.named += len(p)
	}
}

// nothing takes a part, or a whole reply, that is nothing in RESP2.
func (m *message) nothing(messages bool, depth int) error {
	if messages && (depth == 0 || m.part == 0 || m.shape[m.part-1] != 'n') {
		return refuse("part %d of a message is missing", m.part)
	}
	return nil
}

// parts takes the number of parts.
func (m *message) parts(n int64) error {
	if n < 2 || n > 3 {
		return refuse("a message has %d parts", n)
	}
	m.size = n
	return nil
}

// endPart ends a part. The first part decides about the others.
func (m *message) endPart(depth int) error {
	if depth == 0 {
		return nil
	}
	if m.part == 0 {
		name := m.name[:min(m.named, len(m.name))]
		shape, known := shapes[string(name)]
		if !known || m.named > len(m.name) || int64(len(shape)) != m.size-1 {
			return refuse("a message of %d parts has the unknown kind %q", m.size, name)
		}
		m.shape = shape
	}
	m.part++
	return nil
}
