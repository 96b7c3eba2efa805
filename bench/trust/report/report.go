// Package report prints measured figures beside their bounds, and writes them into a document.
package report

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
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

// Publish replaces the table of a document, which has a row for each fault. The title stands above the
// table, and so do the figures that are 0 in all rows, as they must be. Other figures of all rows have
// columns.
func Publish(file, title string, all []Finding) error {
	rows, names := map[string][]Finding{}, []string(nil)
	for _, f := range all {
		if len(rows[f.Row]) == 0 {
			names = append(names, f.Row)
		}
		rows[f.Row] = append(rows[f.Row], f)
	}
	zero, columns := common(all, len(names))
	var table strings.Builder
	table.WriteString(title + "\n\n")
	if len(zero) > 0 {
		fmt.Fprintf(&table, "In all rows these are 0, as they must be: %s.\n\n", strings.Join(zero, ", "))
	}
	table.WriteString("| fault | measured (bound) | also 0 |")
	for _, c := range columns {
		fmt.Fprintf(&table, " %s (%s) |", c.What, c.Said(c.Bound))
	}
	table.WriteString("\n|---|---|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, name := range names {
		writeRow(&table, name, rows[name], zero, columns)
	}
	return Replace(file, "trust", table.String())
}

// writeRow writes the row of a fault.
func writeRow(table *strings.Builder, name string, figures []Finding, zero []string, columns []Finding) {
	var measured, more []string
	cells := make([]string, len(columns))
	for _, f := range figures {
		column := slices.IndexFunc(columns, func(c Finding) bool { return c.What == f.What })
		switch {
		case column >= 0:
			cells[column] = f.got()
		case f.Got != 0 || f.Bound != 0:
			measured = append(measured, fmt.Sprintf("%s: %s (%s)", f.What, f.got(), f.Said(f.Bound)))
		case !slices.Contains(zero, f.What):
			more = append(more, f.What)
		}
	}
	fmt.Fprintf(table, "| %s | %s | %s |", name, strings.Join(measured, "; "), strings.Join(more, "; "))
	for _, cell := range cells {
		fmt.Fprintf(table, " %s |", cell)
	}
	table.WriteString("\n")
}

// got returns the measured value, and whether it misses its bound.
func (f *Finding) got() string {
	if !f.Within() {
		return f.Said(f.Got) + ", **missed**"
	}
	return f.Said(f.Got)
}

// common returns the figures of all rows: the names of those that are 0 everywhere, and must be, and the
// others that have one bound.
func common(all []Finding, rows int) (zero []string, others []Finding) {
	type figure struct {
		what  string
		bound float64
	}
	seen, nothing := map[figure]int{}, map[figure]int{}
	for _, f := range all {
		key := figure{f.What, f.Bound}
		seen[key]++
		if f.Got == 0 && f.Bound == 0 {
			nothing[key]++
		}
		switch {
		case seen[key] < rows:
		case nothing[key] == rows:
			zero = append(zero, f.What)
		default:
			others = append(others, f)
		}
	}
	return zero, others
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
