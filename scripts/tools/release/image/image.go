package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user of all images, the "nonroot" of other images without a shell.
const user = "65532"

// A role is one image.
type role struct {
	name  string
	args  []string // of the entry point, after the binary
	port  string
	about string
}

var roles = []role{
	{"whence", nil, "8080", "Whence: all services in one process"},
	{"gateway", []string{"gateway"}, "8080", "Whence: api-service and chat-service in one process"},
	{"api-service", []string{"api"}, "8080", "Whence: OpenAI-compatible HTTP"},
	{"chat-service", []string{"chat"}, "8081", "Whence: prompts, tokens, routing"},
	{"llm-worker", []string{"worker"}, "8082", "Whence: an engine, or the worker beside one"},
}

// image returns the image of a role for an architecture.
func (r *release) image(role role, arch string, layers []v1.Layer) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(img, layers...)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: r.Date}
	config.Config = v1.Config{
		User: user, WorkingDir: "/",
		Entrypoint:   append([]string{"/whence"}, role.args...),
		Cmd:          []string{"--listen", "0.0.0.0:" + role.port},
		ExposedPorts: map[string]struct{}{role.port + "/tcp": {}},
		Env:          []string{"PATH=/"},
		Labels: map[string]string{
			"org.opencontainers.image.title": "whence/" + role.name, "org.opencontainers.image.description": role.about,
			"org.opencontainers.image.source": "https://github.com/whence-dev/whence", "org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version": r.Version, "org.opencontainers.image.revision": r.Commit,
		},
	}
	return mutate.ConfigFile(img, config)
}

// layersOf returns the layer of the system's files, which few releases change, and the layer of the
// binary.
func layersOf(binary string) ([]v1.Layer, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var all []v1.Layer
	for _, files := range [][]file{
		{
			{name: "etc/passwd", content: []byte("root:x:0:0:root:/:/nologin\nnonroot:x:" + user + ":" + user + ":nonroot:/:/nologin\n"), mode: 0o644},
			{name: "etc/group", content: []byte("root:x:0:\nnonroot:x:" + user + ":\n"), mode: 0o644},
			{name: "etc/ssl/certs/ca-certificates.crt", content: roots(), mode: 0o644},
		},
		{{name: "whence", content: program, mode: 0o755}},
	} {
		layer, err := layerOf(files)
		if err != nil {
			return nil, err
		}
		all = append(all, layer)
	}
	return all, nil
}

// roots returns the certificates of Mozilla's list that need no constraints, which a PEM file cannot
// express.
func roots() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Buffer never fails
		}
	}
	return b.Bytes()
}

type file struct {
	name    string
	content []byte
	mode    int64
}

// layerOf returns a layer with files of root without times, so that equal files are an equal layer.
func layerOf(files []file) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}
