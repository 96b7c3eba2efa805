package hub

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name of a file in Git
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/whence-dev/whence/internal/progress"
)

// Headers of the hub's answers.
const (
	linkedETag = "X-Linked-Etag" // the file's checksum, where the body is stored elsewhere
	linkedSize = "X-Linked-Size"
	repoCommit = "X-Repo-Commit"
)

// A file is a file of a model on the hub.
type file struct {
	name string
	etag string // its name in the cache, and for the hub's own files its checksum
	size int64  // -1 if it is unknown
}

var (
	etagForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)
	hexForm  = regexp.MustCompile(`^[0-9a-f]+$`)
)

// fetch downloads files into the cache.
func (c *client) fetch(ctx context.Context, f *finder, commit string, files []*file) error {
	total := int64(0)
	for _, one := range files {
		if err := c.head(ctx, f, commit, one); err != nil {
			return err
		}
		total += max(0, one.size)
	}
	if len(files) == 0 {
		return nil
	}
	begun := time.Now()
	f.opts.Log.Info("files of the model are downloaded", "model", f.id, "from", c.address(), "commit", commit, "files", len(files), "bytes", total, "to", f.root)
	report, end := func(int64) {}, func() {}
	if f.opts.Progress != nil {
		bar, done := progress.NewBar(f.opts.Progress, "fetching", f.id), int64(0)
		report, end = func(n int64) { done += n; bar.Update(min(done, total), total) }, bar.End
	}
	defer end()
	for _, one := range files {
		d := &download{client: c, file: one, repo: f.repo, url: c.fileURL(f.id, commit, one.name), report: report}
		if err := d.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", one.name, explainDisk(err))
		}
		if err := f.link(commit, one.name, one.etag); err != nil {
			return fmt.Errorf("%s: %w", one.name, explainDisk(err))
		}
	}
	end()
	f.opts.Log.Info("files of the model are complete", "model", f.id, "took", time.Since(begun).Round(time.Millisecond))
	return nil
}

// explainDisk adds to an error of the cache's disk what helps.
func explainDisk(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("the disk of the cache is full; HF_HUB_CACHE can name a directory on another one: %w", err)
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("the cache cannot be written to; HF_HUB_CACHE can name another directory: %w", err)
	}
	return err
}

// head asks for the size and the checksum of a file.
func (c *client) head(ctx context.Context, f *finder, commit string, one *file) error {
	resp, err := c.get(ctx, http.MethodHead, c.fileURL(f.id, commit, one.name), nil)
	if err != nil {
		return err
	}
	_ = resp.Body.Close() // it has none
	header := resp.Header
	if resp.StatusCode >= 400 {
		return c.refusal(resp, f.id, f.revision)
	}
	if at := header.Get(repoCommit); at != "" && at != commit {
		return fmt.Errorf("%s: %s answers with the commit %.64q instead of %s", one.name, c.address(), at, commit)
	}
	etag, size := header.Get(linkedETag), header.Get(linkedSize)
	if etag == "" {
		etag, size = header.Get("Etag"), header.Get("Content-Length")
	}
	one.etag = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
	if !etagForm.MatchString(one.etag) {
		return fmt.Errorf("%s: %s answers without a valid ETag, so it is not a Hugging Face hub or a mirror of it", one.name, c.address())
	}
	if one.size, err = strconv.ParseInt(size, 10, 64); err != nil || one.size < 0 {
		one.size = -1
	}
	if one.size > limit(one.name) {
		return fmt.Errorf("%s has %d bytes; at most %d are allowed", one.name, one.size, limit(one.name))
	}
	return nil
}

// A download fetches one file. The bytes go into a file that no other process writes to. A download
// that fails leaves them under a common name, where the next one takes them: a rename lets only one
// process have them.
type download struct {
	*client
	*file
	repo   repo
	url    *url.URL
	report func(bytes int64)
}

func (d *download) remains() string { return d.repo.blob(d.etag) + ".whence.incomplete" }

// run makes the file a blob of the cache, unless it is one.
func (d *download) run(ctx context.Context) error {
	blob := d.repo.blob(d.etag)
	if info, err := os.Stat(blob); err == nil && info.Mode().IsRegular() {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(blob), 0o777); err != nil {
		return err
	}
	own := blob + "." + unique() + ".incomplete"
	_ = os.Rename(d.remains(), own) // if a download has left any
	f, err := os.OpenFile(own, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	err = d.fill(ctx, f)
	wrong := errors.Is(err, errChecksum)
	if err == nil {
		err = f.Sync() // after a crash the cache must not have an empty file
	}
	info, statErr := f.Stat()
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		return os.Rename(own, blob)
	}
	if wrong || statErr != nil || info.Size() == 0 || os.Rename(own, d.remains()) != nil {
		_ = os.Remove(own) // the first error is the one to report
	}
	return err
}

var errChecksum = errors.New("it has not the checksum that the hub has announced")

// fill downloads the rest of a file, and checks the whole. The rest of an earlier download that proves
// wrong is downloaded again.
func (d *download) fill(ctx context.Context, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	d.report(info.Size())
	if err := d.complete(ctx, f); err != nil {
		return err
	}
	if err = d.verify(f); !errors.Is(err, errChecksum) || info.Size() == 0 {
		return err
	}
	if err := d.clear(f); err != nil {
		return err
	}
	if err := d.complete(ctx, f); err != nil {
		return err
	}
	return d.verify(f)
}

// clear removes all bytes of f.
func (d *download) clear(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	d.report(-info.Size())
	return f.Truncate(0)
}

// complete appends to f until it has all bytes. A connection that breaks is replaced, at once if f has
// more bytes than ever.
func (d *download) complete(ctx context.Context, f *os.File) error {
	most, tries, pause := int64(-1), 0, firstPause
	for {
		begin, err := f.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		if d.size >= 0 && begin == d.size {
			return nil
		}
		if begin > most {
			most, tries, pause = begin, 0, firstPause
		}
		err = d.append(ctx, f, begin)
		var broken *brokenError
		if !errors.As(err, &broken) {
			return err
		}
		if now, err := f.Seek(0, io.SeekEnd); err != nil || now > most {
			continue
		}
		if tries++; tries == maxTries {
			return d.unreachable(broken.error)
		}
		if err := wait(ctx, &pause); err != nil {
			return err
		}
	}
}

// A brokenError is the end of a connection in the middle of a file.
type brokenError struct{ error }

// append asks for the bytes from begin on, and appends them to f.
func (d *download) append(ctx context.Context, f *os.File, begin int64) error {
	header := http.Header{}
	if begin > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", begin))
	}
	resp, err := d.get(ctx, http.MethodGet, d.url, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	switch {
	case resp.StatusCode == http.StatusPartialContent && strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", begin)):
	case resp.StatusCode == http.StatusOK, begin > 0 && resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		if err := d.clear(f); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return d.append(ctx, f, 0)
		}
		begin = 0
	default:
		return fmt.Errorf("%s answers with status %d", resp.Request.URL.Host, resp.StatusCode)
	}
	most := limit(d.name) - begin
	if d.size >= 0 {
		most = d.size - begin
	}
	n, err := d.copy(f, d.bounded(resp.Body), most)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case d.size >= 0 && begin+n < d.size:
		return &brokenError{io.ErrUnexpectedEOF}
	}
	return nil
}

// copy appends at most most bytes. A body with more is an error.
func (d *download) copy(f *os.File, body io.Reader, most int64) (n int64, err error) {
	b := make([]byte, 64<<10)
	for {
		got, err := body.Read(b)
		if n+int64(got) > most {
			return n, fmt.Errorf("%s sends more than the %d bytes of the file", d.endpoint.Host, most)
		}
		if _, err := f.Write(b[:got]); err != nil {
			return n, err
		}
		n += int64(got)
		d.report(int64(got))
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, &brokenError{err}
		}
	}
}

// verify compares the content of f with its ETag: a SHA-256 for large files, and Git's name of the
// content for others. An ETag of another form, as mirrors may have, proves nothing.
func (d *download) verify(f *os.File) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	var sum hash.Hash
	switch {
	case !hexForm.MatchString(d.etag):
		return nil
	case len(d.etag) == hex.EncodedLen(sha256.Size):
		sum = sha256.New()
	case len(d.etag) == hex.EncodedLen(sha1.Size):
		sum = sha1.New() //nolint:gosec // as above
		_, _ = fmt.Fprintf(sum, "blob %d\x00", size)
	default:
		return nil
	}
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, size)); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != d.etag {
		return fmt.Errorf("%w: %s instead of %s; try again, or download it with huggingface_hub", errChecksum, got, d.etag)
	}
	return nil
}
