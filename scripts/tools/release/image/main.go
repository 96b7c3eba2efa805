// Command image builds the images of a release from the binaries that goreleaser has left in a
// directory, without a container engine: image [-push REGISTRY] DIST LAYOUT.
//
// LAYOUT becomes an OCI image layout with one index for each image, and in each index one image for
// each architecture. All images of an architecture have the same two layers, and differ in their
// entry point only. With -push, each index also goes to the registry, with the credentials of
// ~/.docker/config.json.
//
// image -archives DIR -registry REGISTRY -version VERSION BINARY writes the images of one binary, for
// this machine's architecture, as archives that `docker load`, `kind load image-archive` and `ctr image
// import` read. Each has the name REGISTRY/ROLE:VERSION.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	log.SetFlags(0)
	push := flag.String("push", "", "`registry` and prefix to push to, such as ghcr.io/whence-dev; empty: none")
	archives := flag.String("archives", "", "`directory` for archives of the images of one binary")
	registry := flag.String("registry", "", "`registry` and prefix in the names of the archives' images")
	version := flag.String("version", "", "`version` of the archives' images")
	flag.Parse()
	if *archives != "" && flag.NArg() == 1 {
		if err := archive(*archives, *registry, *version, flag.Arg(0)); err != nil {
			log.Fatal(err)
		}
		return
	}
	if flag.NArg() != 2 {
		log.Fatal("usage: image [-push REGISTRY] DIST LAYOUT, or image -archives DIR -registry REGISTRY -version VERSION BINARY")
	}
	r, err := read(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	all, err := r.images()
	if err != nil {
		log.Fatal(err)
	}
	if err := write(flag.Arg(1), r.Version, all); err != nil {
		log.Fatal(err)
	}
	for role, index := range all {
		if *push == "" {
			continue
		}
		if err := upload(*push, role, r.Version, index); err != nil {
			log.Fatal(err)
		}
	}
}

// archive writes an archive of each image of a binary for this machine's architecture.
func archive(dir, registry, version, binary string) error {
	layers, err := layersOf(binary)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	r := &release{Version: version}
	for _, role := range roles {
		tag, err := name.NewTag(registry + "/" + role.name + ":" + version)
		if err != nil {
			return err
		}
		img, err := r.image(role, runtime.GOARCH, layers)
		if err != nil {
			return fmt.Errorf("%s: %w", tag, err)
		}
		if err := tarball.WriteToFile(filepath.Join(dir, role.name+".tar"), tag, img); err != nil {
			return fmt.Errorf("%s: %w", tag, err)
		}
		log.Print("made ", tag)
	}
	return nil
}

// A release is what goreleaser has built.
type release struct {
	Version  string            `json:"version"`
	Commit   string            `json:"commit"`
	Date     time.Time         `json:"date"`
	binaries map[string]string // files, by architecture; all for Linux
}

// read reads a directory of goreleaser.
func read(dist string) (*release, error) {
	var r release
	if err := readJSON(filepath.Join(dist, "metadata.json"), &r); err != nil {
		return nil, err
	}
	var artifacts []struct{ Name, Path, Goos, Goarch, Type string }
	if err := readJSON(filepath.Join(dist, "artifacts.json"), &artifacts); err != nil {
		return nil, err
	}
	r.binaries = map[string]string{}
	for _, a := range artifacts {
		if a.Type == "Binary" && a.Name == "whence" && a.Goos == "linux" {
			r.binaries[a.Goarch] = filepath.Join(filepath.Dir(dist), a.Path) // paths are relative to the project
		}
	}
	if len(r.binaries) == 0 {
		return nil, fmt.Errorf("%s has no binary for Linux", dist)
	}
	return &r, nil
}

func readJSON(file string, into any) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// write writes the layout. Each index has its name and version as an annotation, by which skopeo
// and podman find it.
func write(dir, version string, all map[string]v1.ImageIndex) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	for _, role := range roles {
		ref := "whence/" + role.name + ":" + version
		if err := path.AppendIndex(all[role.name], layout.WithAnnotations(map[string]string{refName: ref})); err != nil {
			return fmt.Errorf("%s: %w", ref, err)
		}
	}
	return nil
}

const refName = "org.opencontainers.image.ref.name"

// upload pushes an index under the version's tag.
func upload(registry, role, version string, index v1.ImageIndex) error {
	ref, err := name.ParseReference(registry + "/" + role + ":" + version)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(ref, index, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	log.Print("pushed ", ref)
	return nil
}

// images returns the index of each image, by its name.
func (r *release) images() (map[string]v1.ImageIndex, error) {
	all := map[string]v1.ImageIndex{}
	for _, role := range roles {
		all[role.name] = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		file, ok := r.binaries[arch]
		if !ok {
			continue // of a snapshot with one target
		}
		layers, err := layersOf(file)
		if err != nil {
			return nil, err
		}
		for _, role := range roles {
			img, err := r.image(role, arch, layers)
			if err != nil {
				return nil, fmt.Errorf("%s for %s: %w", role.name, arch, err)
			}
			all[role.name] = mutate.AppendManifests(all[role.name], mutate.IndexAddendum{
				Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
			})
		}
	}
	return all, nil
}
