// Command supply lists the license of each dependency, one line each, and fails if a license is not
// in the list of allowed licenses: supply ROOT. Dependencies are the Go modules with packages that the
// modules of ROOT import, also in tests, and the npm packages of its lock files. Tools in scripts/tools
// that only run, and become part of no program, are not checked.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed are the accepted licenses: they permit use in a program under Apache-2.0 without terms for
// the rest of the program.
var allowed = map[string]bool{
	"0BSD": true, "Apache-2.0": true, "BSD-2-Clause": true, "BSD-3-Clause": true, "BSD-2-Clause-Patent": true,
	"CC0-1.0": true, "ISC": true, "MIT": true, "MIT-0": true, "Unlicense": true, "Zlib": true,
}

// onlyRun are the lock files of programs that tests start and that we neither link nor distribute. Their
// packages are listed, and may have any license.
var onlyRun = map[string]string{
	"e2e/habits/agents/package-lock.json": "command-line agents, which tests start as clients",
	"e2e/axe/package-lock.json":           "axe, which tests run in the console's pages",
}

// minCover is the percentage of the text of a license file that must be known licenses.
const minCover = 75

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: supply ROOT")
	}
	bad, err := check(os.Args[1], os.Stdout)
	if err != nil {
		log.Fatal(err)
	}
	for _, problem := range bad {
		log.Print(problem)
	}
	if len(bad) > 0 {
		log.Fatalf("%d dependencies without an allowed license", len(bad))
	}
}

// A dependency is one line of the list.
type dependency struct{ kind, name, version, license, note string }

// check writes the list to out, and returns a line for each dependency without an allowed license.
func check(root string, out *os.File) (bad []string, err error) {
	all, err := modules(root)
	if err != nil {
		return nil, err
	}
	for dir, flags := range ourModules {
		more, err := modules(filepath.Join(root, dir), flags...)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	slices.SortFunc(all, func(a, b dependency) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.version, b.version))
	})
	all = slices.Compact(all)
	packages, err := npm(root)
	if err != nil {
		return nil, err
	}
	w := bufio.NewWriter(out)
	for _, d := range slices.Concat(all, packages) {
		fmt.Fprintln(w, strings.TrimRight(strings.Join([]string{d.kind, d.name, d.version, d.license, d.note}, "\t"), "\t"))
		if d.note == "" && !accepted(d.license) {
			bad = append(bad, fmt.Sprintf("%s %s %s: license %q is not allowed", d.kind, d.name, d.version, d.license))
		}
	}
	return bad, w.Flush()
}

// accepted reports whether an SPDX expression of a lock file or of license files is allowed: each of
// the terms of an AND, or one of the terms of an OR.
func accepted(license string) bool {
	license = strings.Trim(license, "()")
	if either := strings.Split(license, " OR "); len(either) > 1 {
		return slices.ContainsFunc(either, accepted)
	}
	for term := range strings.SplitSeq(license, " AND ") {
		if !allowed[term] {
			return false
		}
	}
	return true
}

// ourModules are the other modules of the repository that are published, with the flags for go list. The
// client requires none.
var ourModules = map[string][]string{
	"contrib/kitexstream":           {"-modfile=kitex/0.16.mod"}, // its own go.mod does not build with the newest Go
	"contrib/kitexstream/hertzsse":  nil,
	"contrib/kitexstream/telemetry": nil,
}

// modules returns the Go modules whose packages the module in root imports.
func modules(root string, flags ...string) ([]dependency, error) {
	args := append(append([]string{"list"}, flags...), "-deps", "-test", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}{{end}}", "./...")
	list := exec.Command("go", args...)
	list.Dir, list.Stderr = root, os.Stderr
	lines, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []dependency
	unique := strings.Split(strings.TrimSpace(string(lines)), "\n")
	slices.Sort(unique)
	for _, line := range slices.Compact(unique) {
		fields := strings.Split(line, "\t")
		if len(fields) != 3 || strings.HasPrefix(fields[0], "github.com/whence-dev/") {
			continue // a package of the standard library or of the project itself
		}
		license, err := licenseOf(fields[2])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fields[0], err)
		}
		all = append(all, dependency{kind: "go", name: fields[0], version: fields[1], license: license})
	}
	return all, nil
}

// licenseFile matches the names of files that have a license.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([.-].*)?$`)

// licenseOf returns the licenses of the module in dir as an SPDX expression.
func licenseOf(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	found := map[string]bool{}
	for _, e := range entries {
		if e.IsDir() || !licenseFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", err
		}
		cover := licensecheck.Scan(text)
		if cover.Percent < minCover {
			found["unknown text in "+e.Name()] = true
		}
		for _, m := range cover.Match {
			found[m.ID] = true
		}
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return cmp.Or(strings.Join(names, " AND "), "none"), nil
}

// npm returns the packages of the lock files below root.
func npm(root string) ([]dependency, error) {
	var all []dependency
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "node_modules" || strings.HasPrefix(e.Name(), ".") && path != root):
			return filepath.SkipDir
		case e.Name() != "package-lock.json":
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		more, err := locked(path, onlyRun[filepath.ToSlash(name)])
		all = append(all, more...)
		return err
	})
	slices.SortFunc(all, func(a, b dependency) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.version, b.version), cmp.Compare(a.note, b.note))
	})
	return slices.Compact(all), err
}

// locked returns the packages of a lock file.
func locked(path, note string) ([]dependency, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			Version, License, Integrity string
			Link                        bool
		}
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var all []dependency
	for name, p := range lock.Packages {
		if name == "" || p.Link || strings.HasPrefix(name, "..") {
			continue // the package itself, and our own packages
		}
		if p.Integrity == "" {
			return nil, errors.New(path + ": " + name + " has no hash")
		}
		_, short, _ := strings.Cut(name, "node_modules/")
		all = append(all, dependency{"npm", short, p.Version, cmp.Or(p.License, "none"), note})
	}
	return all, nil
}
