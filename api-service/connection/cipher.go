package connection

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	// recordSize bounds the plaintext that is encrypted before the kernel has taken it, in bytes: one
	// record of TLS. A slow client must take as much within the write timeout.
	recordSize = 8 << 10
	// maxCipher bounds the ciphertext that waits for a server of HTTP/2, and the ciphertext that waits
	// for the client, in bytes.
	maxCipher = 64 << 10
)

// A cipher is the TLS of a Conn. It is the net.Conn below a tls.Conn, which is the original: it keeps
// what it has of a record after a read that finds no more, as after a timeout.
//
// While it blocks, goroutines wait in Read and Write: in the handshake, and in the server of HTTP/2.
// Otherwise the socket's goroutine decrypts what arrives, Read returns os.ErrDeadlineExceeded when
// there is no more, and Write keeps the ciphertext for flush.
type cipher struct {
	conn *Conn
	tls  *tls.Conn

	decrypting sync.Mutex // held while input is decrypted

	mu      sync.Mutex // guards the following fields; no other lock is taken while it is held
	changed sync.Cond  // with mu
	begun   bool       // the handshake has begun
	blocks  bool
	in      []byte  // ciphertext that was not decrypted
	out     *[]byte // ciphertext, of ciphertexts; nil if there is none
	sent    int     // bytes of out that the kernel has taken
	err     error   // of Write, and of Read after in; io.EOF concerns only Read
	readBy  deadline
	writeBy deadline
}

// newCipher makes a Conn that has not been entered begin with a handshake.
func newCipher(c *Conn, config *tls.Config) {
	s := &cipher{conn: c, blocks: true}
	s.changed.L = &s.mu
	s.tls = tls.Server(s, config)
	c.cipher, c.phase = s, handshaking
}

// ciphertexts and plaintexts pool buffers for encrypted and for decrypted bytes.
var (
	ciphertexts = sync.Pool{New: func() any { return new([]byte) }}
	plaintexts  = sync.Pool{New: func() any { b := make([]byte, recordSize); return &b }}
)

// arrived takes ciphertext, which is valid until it returns.
func (s *cipher) arrived(b []byte) {
	s.mu.Lock()
	if !s.blocks {
		s.mu.Unlock()
		s.decrypt(b)
		return
	}
	s.in = append(s.in, b...)
	s.changed.Broadcast()
	begins := !s.begun
	s.begun = true
	s.mu.Unlock()
	if begins {
		go s.handshake()
	}
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.conn.regulate()
}

// unread returns the number of bytes that a blocked Read has not taken.
func (s *cipher) unread() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.in)
}

// handshake makes the handshake, and has the connection served by the protocol that was chosen.
func (s *cipher) handshake() {
	c := s.conn
	if s.tls.Handshake() != nil {
		s.close()
		return
	}
	if s.tls.ConnectionState().NegotiatedProtocol == http2.NextProtoTLS {
		if c.enterPhase(handed) {
			c.server.serveHTTP2(c)
			s.close()
		}
		return
	}
	if c.enterPhase(waiting) {
		s.mu.Lock()
		s.blocks = false
		s.mu.Unlock()
		s.decrypt(nil) // the input that has arrived meanwhile
		c.settle()
	}
}

// close closes the connection after the bytes that were sent, such as an alert.
func (s *cipher) close() {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.conn.finish(false)
}

// decrypt passes the plaintext of the undecrypted rest and of b to the Conn.
func (s *cipher) decrypt(b []byte) {
	s.decrypting.Lock()
	defer s.decrypting.Unlock()
	s.mu.Lock()
	if len(s.in) > 0 {
		b = append(s.in, b...)
	}
	s.in = b
	s.mu.Unlock()
	buf := plaintexts.Get().(*[]byte) //nolint:forcetypeassert // the pool has nothing else
	defer plaintexts.Put(buf)
	for {
		n, err := s.tls.Read(*buf)
		if n > 0 {
			s.conn.feed((*buf)[:n])
		}
		if err == nil {
			continue
		}
		s.mu.Lock()
		s.in = nil // all was taken, unless the connection has failed
		s.mu.Unlock()
		s.conn.answerRecords()
		if !os.IsTimeout(err) {
			s.conn.lost()
		}
		return
	}
}

// answerRecords sends what crypto/tls has written while it has read, such as the answer to an update
// of keys.
func (c *Conn) answerRecords() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != over && !c.full {
		_ = c.flush() // a later write fails, too
	}
}

// encrypt encrypts plaintext, and sends what the kernel accepts at once. The conn's mu is held.
func (s *cipher) encrypt(b []byte) (n int, err error) {
	for len(b) > n && !s.conn.full {
		piece := b[n:min(len(b), n+recordSize)]
		if _, err = s.tls.Write(piece); err == nil {
			err = s.conn.flush()
		}
		if err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}

// flush sends the ciphertext that the kernel accepts at once. mu is held.
func (c *Conn) flush() error {
	s := c.cipher
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == nil {
		return nil
	}
	n, err := c.sock.send((*s.out)[s.sent:])
	if s.sent += n; s.sent < len(*s.out) {
		if err == nil {
			c.full = true
			c.sock.watch(!c.paused && !c.left, true)
		}
		return err
	}
	if *s.out = (*s.out)[:0]; cap(*s.out) <= maxCipher {
		ciphertexts.Put(s.out)
	}
	s.out, s.sent = nil, 0
	s.changed.Broadcast()
	return err
}

// pending reports whether ciphertext waits for the kernel. The conn's mu is held.
func (s *cipher) pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out != nil
}

// end makes waiting Reads and Writes fail. The conn's mu is held.
func (s *cipher) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil || s.err == io.EOF { //nolint:errorlint // lost sets it as it is
		s.err = err
	}
	s.changed.Broadcast()
}

// Read implements net.Conn.
func (s *cipher) Read(b []byte) (int, error) {
	n, more, err := s.take(b)
	if more {
		s.conn.mu.Lock()
		defer s.conn.mu.Unlock()
		s.conn.regulate()
	}
	return n, err
}

// take takes ciphertext. more reports that there is room for more.
func (s *cipher) take(b []byte) (n int, more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.in) == 0 {
		switch {
		case s.err != nil:
			return 0, false, s.err
		case !s.blocks || s.readBy.passed():
			return 0, false, os.ErrDeadlineExceeded
		}
		s.changed.Wait()
	}
	n = copy(b, s.in)
	before := len(s.in)
	if s.in = s.in[n:]; len(s.in) == 0 {
		s.in = nil
	}
	return n, s.blocks && before >= maxCipher && len(s.in) < maxCipher, nil
}

// goodbye is how long a write may wait beyond the bound of a slow reader: the writer of a stream finds that
// one first, also on a busy machine, and says so.
const goodbye = 30 * time.Second

// Write implements net.Conn.
func (s *cipher) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken() {
		return 0, s.err
	}
	if s.out == nil {
		s.out = ciphertexts.Get().(*[]byte) //nolint:forcetypeassert // the pool has nothing else
	}
	*s.out = append(*s.out, b...)
	if !s.blocks {
		if len(*s.out) > maxCipher { // answers to updates of keys, which the client does not read
			s.err = errClosed
			return 0, s.err
		}
		return len(b), nil
	}
	s.mu.Unlock()
	s.conn.answerRecords()
	s.mu.Lock()
	var last deadline // besides writeBy, which a protocol may take away while TLS says goodbye
	for s.out != nil {
		if bound := s.conn.server.Write + goodbye; bound > goodbye && last.timer == nil {
			last = deadline{at: time.Now().Add(bound), timer: time.AfterFunc(bound, s.wake)}
			defer last.timer.Stop()
		}
		switch {
		case s.broken():
			return 0, s.err
		case s.writeBy.passed() || last.passed():
			return 0, os.ErrDeadlineExceeded
		}
		s.changed.Wait()
	}
	return len(b), nil
}

// wake has a Read or Write that waits look again.
func (s *cipher) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}

// broken reports whether Write fails. mu is held.
func (s *cipher) broken() bool {
	return s.err != nil && s.err != io.EOF //nolint:errorlint // lost sets it as it is
}

// Close implements net.Conn.
func (s *cipher) Close() error {
	s.close()
	return nil
}

// LocalAddr implements net.Conn.
func (s *cipher) LocalAddr() net.Addr { return s.conn.local }

// RemoteAddr implements net.Conn.
func (s *cipher) RemoteAddr() net.Addr { return s.conn.remote }

// SetDeadline implements net.Conn.
func (s *cipher) SetDeadline(t time.Time) error {
	_ = s.SetReadDeadline(t) // never fails
	return s.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (s *cipher) SetReadDeadline(t time.Time) error { return s.set(&s.readBy, t) }

// SetWriteDeadline implements net.Conn.
func (s *cipher) SetWriteDeadline(t time.Time) error { return s.set(&s.writeBy, t) }

func (s *cipher) set(d *deadline, t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	if *d = (deadline{at: t}); !t.IsZero() {
		d.timer = time.AfterFunc(time.Until(t), s.wake)
	}
	s.changed.Broadcast()
	return nil
}

// A deadline is that of a Read or Write that waits.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }
