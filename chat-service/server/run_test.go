package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/route/policy"
	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func valid() Config {
	return Config{Name: DefaultName, Worker: DefaultWorker, MaxStreams: 1, Timers: DefaultTimers}
}

func TestInvalidConfigurationIsRefusedByFlag(t *testing.T) {
	many := make([]string, fleet.MaxWorkers+1)
	for i := range many {
		many[i] = fmt.Sprint("h:", i)
	}
	for want, change := range map[string]func(*Config){
		"--max-streams":               func(c *Config) { c.MaxStreams = 0 },
		"--worker":                    func(c *Config) { c.Worker = "" },
		"--worker: address nowhere":   func(c *Config) { c.Worker = "h:1,nowhere" },
		"--worker: h:1 appears twice": func(c *Config) { c.Worker = "h:1, h:2, h:1" },
		"--worker: there are 65 workers; at most 64 are allowed":                     func(c *Config) { c.Worker = strings.Join(many, ",") },
		"--policy: there is no policy \"best\"":                                      func(c *Config) { c.Policy = "best" },
		"--migrations":                                                               func(c *Config) { c.Migrations = -1 },
		"--migrate-after and --first-token-move must not be negative":                func(c *Config) { c.MigrateAfter = -1 },
		"--migrate-after is 41s; it must be less than --stall-timeout, which is 41s": func(c *Config) { c.Worker, c.MigrateAfter, c.Timers.Stall = "h:1,h:2", 41*time.Second, 41*time.Second },
		"--first-token-move is 3m0s": func(c *Config) {
			c.Worker, c.FirstTokenMove, c.Timers.FirstToken = "h:1,h:2", 3*time.Minute, time.Minute
		},
		"--migrate-after is 41s; it must be": func(c *Config) { c.Worker, c.MigrateAfter, c.Timers.Stall = "dns:///h:1", 41*time.Second, time.Second },
		"--models names all models":          func(c *Config) { c.Models, c.ModelName = "models.yaml", "m" },
		"--stall-timeout":                    func(c *Config) { c.Timers.Stall = -1 },
	} {
		c := valid()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestTimersDependOnMovesOnlyIfMovesAreEnabled(t *testing.T) {
	c := valid()
	c.Worker, c.Policy, c.Migrations, c.MigrateAfter = "a:1, [::1]:2,c:3", policy.PowerOfTwo, DefaultMigrations, DefaultMigrateAfter
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.Timers.Stall, c.MigrateAfter = 0, time.Hour
	if err := c.Validate(); err != nil {
		t.Errorf("a stream that may be silent for ever: %v", err)
	}
	c.Worker, c.Timers.Stall = "a:1", time.Second
	if err := c.Validate(); err != nil {
		t.Errorf("a worker that is never left: %v", err)
	}
}

func TestNameOfTheOnlyModel(t *testing.T) {
	for want, c := range map[string]Config{"whence-tiny": {}, "llama": {Model: "/models/llama"}, "m": {Model: "/models/llama", ModelName: "m"}} {
		if got := c.ModelID(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
