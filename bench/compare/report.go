package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	page "github.com/whence-dev/whence/bench/trust/report"
)

// A report holds all measurements of a run.
type report struct {
	Machine string            `json:"machine"`
	Load    string            `json:"load"` // of the machine before the run: the averages of 1, 5 and 15 minutes
	Commit  string            `json:"commit"`
	Date    time.Time         `json:"date"`
	Rounds  int               `json:"rounds"`
	Window  time.Duration     `json:"window"`
	LeftOut map[string]string `json:"left_out"`        // systems that did not start, with the reason
	Peers   map[string]string `json:"peers,omitempty"` // releases of peers; nil without --peers
	Says    map[string]string `json:"says"`            // descriptions of the scenarios
	Rows    []row             `json:"rows"`
	Cells   []*cell           `json:"cells"`
}

func (b *bench) newReport() *report {
	r := &report{Machine: machine(), Date: time.Now().UTC(), LeftOut: map[string]string{}, Says: map[string]string{}}
	r.Rounds, r.Window = b.options.times()
	if averages, err := os.ReadFile("/proc/loadavg"); err == nil {
		r.Load = strings.Join(strings.Fields(string(averages))[:3], " ")
	}
	var err error
	if r.Commit, err = command("", "git", "describe", "--always", "--dirty", "--abbrev=12"); err != nil {
		r.Commit = "unknown" // not a git checkout
	}
	if b.options.peers != "" {
		r.Peers = b.releases()
	}
	return r
}

// machine describes the machine: processor, cores, system.
func machine() string {
	model := "unknown processor"
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%s, %d cores, Linux %s, %s", model, runtime.NumCPU(), strings.TrimSpace(string(release)), runtime.Version())
}

// leaveOut records a system that did not start.
func (r *report) leaveOut(system string, err error) { r.LeftOut[system] = err.Error() }

func (r *report) missing(system string) bool { return r.LeftOut[system] != "" }

// finish computes the rows.
func (r *report) finish(chosen []scenario) {
	for i := range chosen {
		s := &chosen[i]
		r.Says[s.name] = s.says
		var names []string
		for _, c := range r.Cells {
			if c.Scenario == s.name && !slices.Contains(names, c.System) {
				names = append(names, c.System)
			}
		}
		for _, name := range names {
			r.Rows = append(r.Rows, rowOf(s, name, r.Cells))
		}
	}
}

// publish prints the tables and writes the files.
func (r *report) publish(o *options, out io.Writer) error {
	text, ratios, section, picture := r.markdown(), r.ratioTable(), "compare", "![CPU of each system, divided by nginx's](../images/performance.svg)\n\n"
	if r.Peers != nil {
		text, ratios, section, picture = r.peerTables(), r.peerRatios(), "peers", ""
	}
	if _, err := io.WriteString(out, text); err != nil {
		return err
	}
	if o.json != "" {
		b, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, append(b, '\n'), 0o644); err != nil { //nolint:gosec // for everybody to read
			return err
		}
	}
	if o.docs != "" {
		if err := page.Replace(o.docs, section, "\n"+text+"\n"); err != nil {
			return err
		}
	}
	if o.ratios == "" {
		return nil
	}
	return page.Replace(o.ratios, section, "\n"+picture+ratios+"\n")
}

// ratioTable returns the CPU of each system, divided by nginx's: a row for each scenario.
func (r *report) ratioTable() string {
	var systems []string
	cells := map[string]map[string]string{} // by scenario and system
	for i := range r.Rows {
		one := &r.Rows[i]
		if one.Ratio.N == 0 {
			continue
		}
		if !slices.Contains(systems, one.System) && one.System != nginxName {
			systems = append(systems, one.System)
		}
		if cells[one.Scenario] == nil {
			cells[one.Scenario] = map[string]string{}
		}
		cells[one.Scenario][one.System] = short(one.Ratio.Median)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| CPU, divided by nginx's | %s |\n|---|%s\n", strings.Join(systems, " | "), strings.Repeat("--:|", len(systems)))
	for i := range r.Rows {
		name := r.Rows[i].Scenario
		if cells[name] == nil || i > 0 && r.Rows[i-1].Scenario == name {
			continue
		}
		fmt.Fprintf(&b, "| **%s**: %s |", name, r.Says[name])
		for _, system := range systems {
			fmt.Fprintf(&b, " %s |", cells[name][system])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// A column of a table.
type column struct {
	head string
	of   func(*row) figure
	unit float64 // divisor of the figures
}

// head returns what the tables of a run are of: the machine, the commit, and what was left out.
func (r *report) head() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Machine: %s; load average before the run %s. Commit %s, %s.\n", r.Machine, r.Load, r.Commit, r.Date.Format("2 January 2006, 15:04 MST"))
	fmt.Fprintf(&b, "Each figure is the median of %d interleaved rounds of %v, with the minimum and the maximum.\n", r.Rounds, r.Window)
	for _, name := range slices.Sorted(maps.Keys(r.LeftOut)) {
		reason, _, _ := strings.Cut(r.LeftOut[name], "\n")
		fmt.Fprintf(&b, "\nLeft out: %s (%s).\n", name, reason)
	}
	return b.String()
}

// markdown returns the tables.
func (r *report) markdown() string {
	var b strings.Builder
	b.WriteString(r.head())
	b.WriteString("\nWhere streams have no end, all clients leave at once after the measurement, and the stop figures are those of that leave.\n")
	for i, one := range r.Rows {
		if i == 0 || r.Rows[i-1].Scenario != one.Scenario {
			end := i
			for end < len(r.Rows) && r.Rows[end].Scenario == one.Scenario {
				end++
			}
			r.table(&b, r.Rows[i:end])
		}
	}
	return b.String()
}

const (
	milli = 1000.0 // microseconds
	kibi  = 1024.0 // bytes
)

// table writes the rows of one scenario. It leaves out columns without figures.
func (r *report) table(b *strings.Builder, rows []row) {
	unit := rows[0].Unit
	fmt.Fprintf(b, "\n### %s\n\n%s.\n\n", capital(rows[0].Scenario), capital(r.Says[rows[0].Scenario]))
	columns := []column{
		{"CPU per " + unit + ", µs", func(r *row) figure { return r.Cost }, 1},
		{"of nginx's", func(r *row) figure { return r.Ratio }, 1},
		{unit + "s/s", func(r *row) figure { return r.Rate }, 1},
		{"latency p50, ms", func(r *row) figure { return r.Latency50 }, milli},
		{"p99", func(r *row) figure { return r.Latency99 }, milli},
		{"TTFT p50, ms", func(r *row) figure { return r.TTFT50 }, milli},
		{"p99", func(r *row) figure { return r.TTFT99 }, milli},
		{"memory per stream, KiB", func(r *row) figure { return r.Memory }, kibi},
		{"stop p50, ms", func(r *row) figure { return r.Stop50 }, milli},
		{"p99", func(r *row) figure { return r.Stop99 }, milli},
		{"last stop, ms", func(r *row) figure { return r.StopLast }, milli},
		{"wasted tokens per departure", func(r *row) figure { return r.Wasted }, 1},
	}
	columns = slices.DeleteFunc(columns, func(c column) bool {
		return !slices.ContainsFunc(rows, func(r row) bool { return c.of(&r).N > 0 })
	})
	b.WriteString("| |")
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", c.head)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for i := range rows {
		name := rows[i].System
		if name == directName {
			name += " (others: more than this)"
		}
		fmt.Fprintf(b, "| %s |", name)
		for _, c := range columns {
			fmt.Fprintf(b, " %s |", c.of(&rows[i]).text(c.unit))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(b, "\nCPU per %s by process, µs: ", unit)
	for i := range rows {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(rows[i].System + ":")
		for _, name := range slices.Sorted(maps.Keys(rows[i].Processes)) {
			fmt.Fprintf(b, " %s %s", name, short(rows[i].Processes[name].Median))
		}
	}
	b.WriteString(".\n")
	for i := range rows {
		if rows[i].Failed > 0 {
			fmt.Fprintf(b, "\n%s: %d streams failed.\n", rows[i].System, rows[i].Failed)
		}
	}
	r.problems(b, rows[0].Scenario)
}

// problems writes one problem of each system in a scenario.
func (r *report) problems(b *strings.Builder, scenario string) {
	told := map[string]bool{}
	for _, c := range r.Cells {
		if c.Scenario == scenario && len(c.Problems) > 0 && !told[c.System] {
			told[c.System] = true
			line, _, _ := strings.Cut(c.Problems[0], "\n")
			fmt.Fprintf(b, "\n%s, round %d: %s.\n", c.System, c.Round+1, strings.TrimSuffix(line, "."))
		}
	}
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
