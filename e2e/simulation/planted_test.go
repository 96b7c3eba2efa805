package simulation

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var planted = flag.Bool("planted", false, "plant each fault of the catalogue, and find it")

// A plant is a fault that is planted into a copy of a file of the product.
type plant struct {
	name     string
	file     string // below the module's root
	old, new string // old occurs exactly once in the file
}

// plants are one fault of each kind that the simulation must find.
var plants = []plant{
	{
		"a token is delivered twice after a move", "chat-service/route/request.go",
		"req.Prompt = d.answer.AppendTo(slices.Clip(req.Prompt))\n\treq.Generated += uint32(d.answer.Len())",
		"all := d.answer.AppendTo(nil)\n\tall = all[:max(0, len(all)-1)]\n\treq.Prompt = append(slices.Clip(req.Prompt), all...)\n\treq.Generated += uint32(len(all))",
	},
	{
		"a token is lost when messages are merged", "pkg/rpc/methods/codec/tokens.go",
		"if d.some {\n\t\tbefore = d.ids\n", "if d.some {\n\t\tbefore = d.ids[:max(1, len(d.ids)-1)]\n",
	},
	{
		"a stream whose peer is lost has two endings", "pkg/rpc/hop.go",
		"h.attempt(ctx, func() { flow.Note(ended) })\n",
		"h.attempt(ctx, func() { flow.Note(ended) })\n\tif o.Reason() == streamerr.PeerLost {\n\t\treport.Ended(ctx, h.log(), h.Name, report.Ending{End: o.End, Err: o.Err, Reason: o.Reason(), Path: o.Path(), Took: time.Since(begun)})\n\t}\n",
	},
	{
		"[DONE] follows a failure", "api-service/edge/stream.go",
		"a.form.Fail(a.call, exchange.Outward(a.call.Param, o.Err), a.delivery.ID, &a.lines)\n",
		"a.form.Fail(a.call, exchange.Outward(a.call.Param, o.Err), a.delivery.ID, &a.lines)\n\t\ta.lines.End(append(a.lines.Begin(), \"[DONE]\"...))\n",
	},
	{
		"the engine runs on after a stop", "llm-worker/batch/generate.go",
		"l.leaving = append(l.leaving, s)\n", "",
	},
	{
		"a callee is told of a stop twice", "pkg/rpc/dial.go",
		"_ = source.SendLast(stop)\n", "_ = c.st.Send(stop)\n\t\t_ = source.SendLast(stop)\n",
	},
	{
		"an ending names the wrong origin", "pkg/streamerr/error.go",
		"c.Path = e.Path.Append(hop)\n", "c.Path = e.Path[min(1, len(e.Path)):].Append(hop)\n",
	},
	{
		"the usage is off by one", "chat-service/postprocess/postprocess.go",
		"last.Usage = &p.usage\n", "p.usage.CompletionTokens++\n\tlast.Usage = &p.usage\n",
	},
	{
		"an ending overtakes the last tokens", "pkg/rpc/link/mux/stream.go",
		"s.in.End(ending.Err(e.Status))", "s.in.Drop(ending.Err(e.Status))",
	},
	{
		"a stopped stream stays in a worker's count", "chat-service/route/attempt.go",
		"ctl.Release()\n\t\ta.charge.End()\n", "ctl.Release()\n\t\tif ctl.State() == stream.Live {\n\t\t\ta.charge.End()\n\t\t}\n",
	},
	{
		"a client that does not read counts as gone", "api-service/edge/clientconn/timer.go",
		"c.fail(&streamerr.Error{Reason: streamerr.SlowReader,", "c.fail(&streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath(Client),",
	},
	{
		"a write waits for a client for ever", "api-service/edge/clientconn/clock.go",
		"if c.writeTimeout > 0 {", "if c.writeTimeout > time.Hour {",
	},
	{
		"a waiting request is served after its client has left", "api-service/connection/conn.go",
		"	case c.left:\n		c.bye()\n		c.finish(false)\n	case r.last", "	case r.last",
	},
	{
		"a request does not wait for the answer before", "api-service/connection/conn.go",
		"		case answering:\n", "		case answering:\n			if c.request.taken && len(c.in) > 0 {\n				c.next()\n				continue\n			}\n",
	},
	{
		"a stream leaves a worker that drains", "chat-service/route/failover/search.go",
		"	case m.flowing:\n		if m.phase", "	case m.flowing && m.unhealthy:\n		if m.phase",
	},
	{
		"a drain ends streams at once", "pkg/rpc/hop.go",
		"drain.Within(ctx, grace)", "drain.Within(ctx, grace/100)",
	},
}

// root is the module's root, from this package.
const root = "../.."

// withFault returns the file with the fault.
func (p *plant) withFault(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, p.file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), p.old); n != 1 {
		t.Fatalf("%s: %s has the place for the fault %d times, want once:\n%s", p.name, p.file, n, p.old)
	}
	return []byte(strings.Replace(string(b), p.old, p.new, 1))
}

// TestPlacesOfPlantedFaults: each planted fault has its place in today's code.
func TestPlacesOfPlantedFaults(t *testing.T) {
	for _, p := range plants {
		p.withFault(t)
	}
}

// TestPlantedFaultsAreFound plants one fault after another, and plays schedules until one fails.
func TestPlantedFaultsAreFound(t *testing.T) {
	if !*planted {
		t.Skip("scripts/simulate --planted runs this test: it compiles the services once for each fault")
	}
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) { p.find(t) })
	}
}

var (
	failedSeed = regexp.MustCompile(`FAILED seed \d+: (.*)|an undisturbed request: \[(.*)\] `) // the latter is the first of all
	playedSo   = regexp.MustCompile(`(\d+) schedules in `)
)

// find builds the simulation with the fault, and plays at most *seeds schedules.
func (p *plant) find(t *testing.T) {
	dir := t.TempDir()
	faulty, overlay, binary := filepath.Join(dir, "faulty.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "simulation.test")
	original, err := filepath.Abs(filepath.Join(root, p.file))
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: faulty}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{faulty: p.withFault(t), overlay: replace} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("the faulty services do not compile: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), binary, "-test.run", "TestSchedules$", "-confirm", "0", "-seeds", strconv.Itoa(*seeds), "-failures", "1").CombinedOutput()
	violated := failedSeed.FindSubmatch(out)
	if err == nil || violated == nil {
		t.Errorf("%d schedules do not find it: %v\n%s", *seeds, err, out[max(0, len(out)-2000):])
		return
	}
	played := "1"
	if n := playedSo.FindSubmatch(out); n != nil {
		played = string(n[1])
	}
	fmt.Printf("found after %6s schedules: %-45s %s\n", played, p.name, bytes.Join(violated[1:], nil))
}
