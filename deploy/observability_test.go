package deploy

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const observability = "compose/observability.yml"

// A monitoredService is a service of the Compose file for observability.
type monitoredService struct {
	Image            string
	Command, Volumes []string
	Environment      map[string]string
}

// mounted checks that the mounted files exist and returns their paths, by path in the container.
func (s monitoredService) mounted(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, volume := range s.Volumes {
		local, rest, _ := strings.Cut(volume, ":")
		inside := strings.TrimSuffix(rest, ":ro")
		files[inside] = filepath.Join(filepath.Dir(observability), local)
		if _, err := os.Stat(files[inside]); err != nil {
			t.Error(err)
		}
	}
	return files
}

// TestObservabilityFilesAgree follows each address and path of the observability files to the file or
// service that it names. e2e checks the metric names of the rules and of the dashboard.
func TestObservabilityFilesAgree(t *testing.T) {
	all := decode[struct{ Services map[string]monitoredService }](t, observability)[0].Services
	flags := flagsOf(t)
	scraped := scrapeTargets(t, all["prometheus"].mounted(t)["/etc/prometheus/prometheus.yml"])
	for service, port := range ports {
		env := all[service].Environment
		for name := range env {
			if flag := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "WHENCE_"), "_", "-")); !slices.Contains(flags[service], flag) {
				t.Errorf("%s has no flag --%s for %s", service, flag, name)
			}
		}
		job := "whence-" + strings.TrimSuffix(strings.TrimPrefix(service, "llm-"), "-service")
		if env["WHENCE_METRICS_LISTEN"] != "0.0.0.0:9"+port[1:] || scraped[job] != service+":9"+port[1:] {
			t.Errorf("%s shows its metrics on %s, but job %s scrapes %q", service, env["WHENCE_METRICS_LISTEN"], job, scraped[job])
		}
		if env["WHENCE_OTLP"] != "grpc://collector:4317" {
			t.Errorf("%s pushes to %q", service, env["WHENCE_OTLP"])
		}
	}
	checkCollector(t, all)
	checkGrafana(t, all)
	for name, s := range all {
		if _, ours := ports[name]; !ours && (!strings.Contains(s.Image, ":") || strings.HasSuffix(s.Image, ":latest")) {
			t.Errorf("the image of %s is not pinned: %q", name, s.Image)
		}
	}
}

// scrapeTargets returns the only target of each job, and checks that the jobs are those of
// deploy/prometheus, which the alerts expect.
func scrapeTargets(t *testing.T, file string) map[string]string {
	t.Helper()
	type config struct {
		Jobs []struct {
			Name   string                       `json:"job_name"`
			Static []struct{ Targets []string } `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	targets := map[string]string{}
	for _, j := range decode[config](t, file)[0].Jobs {
		targets[j.Name] = j.Static[0].Targets[0]
	}
	for _, j := range decode[config](t, "prometheus/prometheus.yml")[0].Jobs {
		if targets[j.Name] == "" {
			t.Errorf("%s has no job %s", file, j.Name)
		}
	}
	return targets
}

// checkCollector checks that the collector listens where the services push, and takes every signal.
func checkCollector(t *testing.T, all map[string]monitoredService) {
	t.Helper()
	file := all["collector"].mounted(t)[strings.TrimPrefix(all["collector"].Command[0], "--config=")]
	c := decode[struct {
		Receivers struct {
			OTLP struct {
				Protocols struct{ GRPC struct{ Endpoint string } }
			}
		}
		Exporters map[string]struct{ Endpoint string }
		Service   struct {
			Pipelines map[string]struct{ Receivers, Exporters []string }
		}
	}](t, file)[0]
	if got := c.Receivers.OTLP.Protocols.GRPC.Endpoint; got != "0.0.0.0:4317" {
		t.Errorf("the collector listens on %q", got)
	}
	for _, signal := range []string{"traces", "metrics", "logs"} { // the services may push all three
		p := c.Service.Pipelines[signal]
		if !slices.Equal(p.Receivers, []string{"otlp"}) || len(p.Exporters) != 1 {
			t.Errorf("the pipeline of %s is %+v", signal, p)
			continue
		}
		exporter, ok := c.Exporters[p.Exporters[0]]
		if host, _, _ := strings.Cut(exporter.Endpoint, ":"); !ok || host != "" && all[host].Image == "" {
			t.Errorf("the exporter of %s sends to %q", signal, exporter.Endpoint)
		}
	}
}

// checkGrafana checks that Grafana finds its data sources and the dashboard.
func checkGrafana(t *testing.T, all map[string]monitoredService) {
	t.Helper()
	files := all["grafana"].mounted(t)
	provisioning := files["/etc/grafana/provisioning"]
	sources := decode[struct {
		Datasources []struct{ Type, URL string }
	}](t, filepath.Join(provisioning, "datasources/whence.yaml"))[0].Datasources
	for _, s := range sources {
		u, err := url.Parse(s.URL)
		if err != nil || all[u.Hostname()].Image == "" || u.Hostname() != s.Type {
			t.Errorf("the data source %s is at %q: %v", s.Type, s.URL, err)
		}
	}
	providers := decode[struct {
		Providers []struct{ Options struct{ Path string } }
	}](t, filepath.Join(provisioning, "dashboards/whence.yaml"))[0].Providers
	dashboard := all["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if len(sources) != 2 || len(providers) != 1 || providers[0].Options.Path != path.Dir(dashboard) || files[dashboard] != "grafana/whence.json" {
		t.Errorf("Grafana has %v, %v and the dashboard %s", sources, providers, dashboard)
	}
}
