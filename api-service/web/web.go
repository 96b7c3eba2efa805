// Package web is the console at "/": a chat whose streams can be stopped and inspected, the streams
// of the instance, and the workers, in plain HTML, CSS and ES modules.
//
// The page uses only the public endpoints (docs/reference/http-api.md), has no build step, and loads
// nothing from another host, so that it works under ContentSecurityPolicy and without a network. Its
// answers are kept streams, which assets/client, a copy of clients/js, reads. It has two dependencies:
// marked, which reads Markdown, and @speed-highlight/core, which reads code. assets/marked.js and
// assets/highlight are copies of files of a release, and the browser tests compare them with the
// packages.
package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
)

//go:embed index.html assets/*.js assets/client/*.js assets/highlight/*.js assets/highlight/languages/*.js assets/*.css assets/*.svg
var embedded embed.FS

// ContentSecurityPolicy is the strictest policy under which the page works. Serve it with every
// File.
const ContentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Icon is the path of the page's icon.
const Icon = "/assets/favicon.svg"

// contentTypes is a table of our own because the table of package mime depends on the machine.
var contentTypes = map[string]string{
	".css":  "text/css; charset=utf-8",
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// A File is one file of the page. URLs have no version, so serve each File with "Cache-Control:
// no-cache": the browser asks again each time, and the ETag saves the transfer.
type File struct {
	Path        string // path of the URL, such as "/" or "/assets/app.js"
	ContentType string
	ETag        string // strong, in quotes, derived from the content
	Body        []byte // shared: do not change it
}

// Fresh reports whether a client that sent this If-None-Match has the current file, so that the
// answer is 304.
func (f File) Fresh(ifNoneMatch string) bool {
	for tag := range strings.SplitSeq(ifNoneMatch, ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == f.ETag {
			return true
		}
	}
	return false
}

// Files returns every file of the page, sorted by path.
func Files() []File { return slices.Clone(files()) }

var files = sync.OnceValue(func() []File {
	var all []File
	err := fs.WalkDir(embedded, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		all = append(all, newFile(name, body))
		return nil
	})
	if err != nil {
		panic(fmt.Sprintf("web: read embedded files: %v", err)) // cannot happen: the files are part of the binary
	}
	slices.SortFunc(all, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return all
})

func newFile(name string, body []byte) File {
	sum := sha256.Sum256(body)
	f := File{
		Path:        "/" + name,
		ContentType: contentTypes[path.Ext(name)],
		ETag:        `"` + hex.EncodeToString(sum[:16]) + `"`,
		Body:        body,
	}
	if name == "index.html" {
		f.Path = "/"
	}
	return f
}
