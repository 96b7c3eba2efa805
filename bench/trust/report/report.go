// Package report prints measured figures beside their bounds, and writes them into a document.
package report

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/whence-dev/whence/lab"
)

// A Finding is one measured figure of a row.
type Finding struct {
	Row, What  string
	Got, Bound float64
	Unit       lab.Unit
}

// Within reports whether the figure is within its bound.
func (f *Finding) Within() bool { return f.Got <= f.Bound }

// Said formats a figure.
func (f *Finding) Said(n float64) string {
	switch f.Unit {
	case lab.Millis:
		return (time.Duration(n * float64(time.Millisecond)).Round(time.Millisecond / 10)).String()
	case lab.Mebibytes:
		if n > -1 && n < 1 {
			return fmt.Sprintf("%.0f KiB", n*1024)
		}
		return fmt.Sprintf("%.1f MiB", n)
	case lab.Percent:
		return fmt.Sprintf("%.1f %%", n)
	default:
		return fmt.Sprintf("%.0f", n)
	}
}

// Print prints the figures, and marks those that miss their bounds.
func Print(out io.Writer, all []Finding) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintln(w, "FAULT\tFIGURE\tMEASURED\tBOUND\t")
	for _, f := range all {
		mark := ""
		if !f.Within() {
			mark = "MISSED"
		}
		_, e := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", f.Row, f.What, f.Said(f.Got), f.Said(f.Bound), mark)
		err = errors.Join(err, e)
	}
	return errors.Join(err, w.Flush())
}

// Publish replaces the table of a document. The title stands above the table.
func Publish(file, title string, all []Finding) error {
	var table strings.Builder
	table.WriteString(title + "\n\n")
	table.WriteString("| fault | figure | measured | bound |\n|---|---|---|---|\n")
	for _, f := range all {
		measured := f.Said(f.Got)
		if !f.Within() {
			measured += ", **missed**"
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", f.Row, f.What, measured, f.Said(f.Bound))
	}
	return Replace(file, "trust", table.String())
}

// Replace replaces the part of a document between the comments <!-- name --> and <!-- end of name -->.
func Replace(file, name, text string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
	before, rest, found := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s has no %s and %s", file, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(file, []byte(before+begin+text+end+after), 0o600)
}
