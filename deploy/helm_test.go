package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/tier"
)

const chartDir = "helm/whence"

// TestHelmChart runs in the full tier, with the tool of scripts/tools, whose first build takes a minute.
// The tool lints and renders the chart, and checks every object strictly against the Go types of its
// kind.
func TestHelmChart(t *testing.T) {
	tier.Full(t)
	tool := filepath.Join(t.TempDir(), "helm")
	if out, err := exec.Command("go", "-C", "../scripts/tools/helm", "build", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Run("roles", func(t *testing.T) { checkRoles(t, tool) })
	t.Run("options", func(t *testing.T) { checkOptions(t, tool) })
	t.Run("mutual TLS", func(t *testing.T) { checkMutualTLS(t, tool) })
	t.Run("wrong values", func(t *testing.T) { checkRefusals(t, tool) })
}

// render renders the chart and returns the objects by kind and name, without the release's prefix.
func render(t *testing.T, tool, values string) map[string]object {
	t.Helper()
	args := []string{chartDir}
	if values != "" {
		args = append(args, values)
	}
	cmd := exec.Command(tool, args...)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("values %q: %v\n%s", values, err, &problems)
	}
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
	objects := map[string]object{}
	for _, o := range decode[object](t, file) {
		key := o.Kind + " " + strings.TrimPrefix(o.Metadata.Name, "whence-")
		if _, ok := objects[key]; ok {
			t.Errorf("values %q: two objects are %s", values, key)
		}
		objects[key] = o
	}
	return objects
}

// checkRoles renders the chart with its defaults and with each file of values in ci.
func checkRoles(t *testing.T, tool string) {
	services := []string{"api-service", "chat-service", "llm-worker"}
	for values, want := range map[string]struct{ roles, kinds []string }{
		"": {services, []string{"PodDisruptionBudget", "NetworkPolicy"}},
		chartDir + "/ci/vllm.yaml": {
			services, []string{"PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor"},
		},
		chartDir + "/ci/gateway.yaml": {[]string{"gateway", "llm-worker"}, nil},
		chartDir + "/ci/mtls.yaml":    {services, nil},
	} {
		t.Run(strings.TrimSuffix(filepath.Base(values), ".yaml"), func(t *testing.T) {
			objects := render(t, tool, values)
			for _, role := range want.roles {
				for _, kind := range append([]string{"Service"}, want.kinds...) {
					if _, ok := objects[kind+" "+role]; !ok {
						t.Errorf("%s has no %s", role, kind)
					}
				}
				checkRole(t, role, objects)
			}
			for key := range objects {
				if kind, role, _ := strings.Cut(key, " "); kind == "Deployment" && !slices.Contains(want.roles, role) {
					t.Errorf("unexpected %s", key)
				}
			}
		})
	}
}

// checkRole checks one Deployment and its Service: flags, ports, drain and the address of the callee.
func checkRole(t *testing.T, role string, objects map[string]object) {
	t.Helper()
	pod := objects["Deployment "+role].Spec.Template.Spec
	if len(pod.Containers) != 1 {
		t.Fatalf("%s has %d containers", role, len(pod.Containers))
	}
	c := pod.Containers[0]
	if !strings.HasPrefix(c.Image, registry+"/"+role+":") {
		t.Errorf("%s has the image %s", role, c.Image)
	}
	values := parse(c.Args)
	known := flagsOf(t)[role]
	for name := range values {
		if !slices.Contains(known, name) {
			t.Errorf("%s has no flag --%s", role, name)
		}
	}
	callee := map[string][2]string{"api-service": {"chat", "chat-service"}, "chat-service": {"worker", "llm-worker"}, "gateway": {"worker", "llm-worker"}}[role]
	if want := "dns:///whence-" + callee[1] + ":" + ports[callee[1]]; callee[0] != "" && values[callee[0]] != want {
		t.Errorf("%s: --%s is %q; want %s", role, callee[0], values[callee[0]], want)
	}
	service := objects["Service "+role].Spec
	for i, flag := range []string{"listen", "metrics-listen"} {
		if i >= len(service.Ports) || values[flag] != fmt.Sprintf("0.0.0.0:%d", service.Ports[i].TargetPort) {
			t.Errorf("%s: --%s is %s, but the Service has %v", role, flag, values[flag], service.Ports)
		}
	}
	opened := []string{values["link-port"]}
	for _, p := range c.Ports {
		opened = append(opened, strconv.Itoa(p.ContainerPort))
	}
	for _, rule := range objects["NetworkPolicy "+role].Spec.Ingress {
		for _, p := range rule.Ports {
			if !slices.Contains(opened, strconv.Itoa(p.Port)) {
				t.Errorf("%s: the NetworkPolicy opens port %d, but the container has %v", role, p.Port, opened)
			}
		}
	}
	drain, err := time.ParseDuration(values["drain"])
	if need := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second + drain + 5*time.Second; err != nil || time.Duration(pod.TerminationGracePeriodSeconds)*time.Second < need {
		t.Errorf("%s is killed after %d s, but may need %v: %v", role, pod.TerminationGracePeriodSeconds, need, err)
	}
}

// checkOptions checks what the options turn on and off.
func checkOptions(t *testing.T, tool string) {
	all := render(t, tool, chartDir+"/ci/vllm.yaml")
	for _, key := range []string{"Secret keys", "Secret whence", "HTTPRoute whence", "HorizontalPodAutoscaler api-service", "HorizontalPodAutoscaler llm-worker"} {
		if _, ok := all[key]; !ok {
			t.Errorf("no %s", key)
		}
	}
	worker := all["Deployment llm-worker"].Spec.Template.Spec
	if len(worker.InitContainers) != 1 || worker.InitContainers[0].Name != "engine" {
		t.Errorf("the worker's pod has no engine: %+v", worker.InitContainers)
	}
	if args := parse(all["Deployment api-service"].Spec.Template.Spec.Containers[0].Args); args["keys"] != "/etc/whence/keys/keys.yaml" || args["max-streams"] != "2000" {
		t.Errorf("api-service has %v", args)
	}
	if args := parse(render(t, tool, chartDir+"/ci/gateway.yaml")["Deployment gateway"].Spec.Template.Spec.Containers[0].Args); args["queue-streams"] != "500" || args["keys"] != "" {
		t.Errorf("the gateway has %v", args)
	}
	for where, key := range map[string]string{"": "HorizontalPodAutoscaler llm-worker", chartDir + "/ci/gateway.yaml": "NetworkPolicy gateway"} {
		if _, ok := render(t, tool, where)[key]; ok {
			t.Errorf("values %q: %s is there, but switched off", where, key)
		}
	}
	for _, role := range []string{"api-service", "chat-service", "llm-worker"} {
		if image := render(t, tool, "")["Deployment "+role].Spec.Template.Spec.Containers[0].Image; image != registry+"/"+role+":"+version(t) {
			t.Errorf("%s has the image %s, which is not the base's", role, image)
		}
	}
	// Autoscalers use a metric that the services have.
	template, err := os.ReadFile(chartDir + "/templates/autoscalers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := os.ReadFile("../docs/reference/metrics.md") // a test of observe compares it with the code
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`name: (whence_\w+)`).FindAllStringSubmatch(string(template), -1)
	if len(named) == 0 {
		t.Error("no autoscaler uses a metric of Whence")
	}
	for _, m := range named {
		if !strings.Contains(string(metrics), "`"+m[1]+"`") {
			t.Errorf("no service has the metric %s", m[1])
		}
	}
}

// checkMutualTLS checks that callers and callees expect each other's names, that the files of the flags are mounted, and
// that no probe needs a certificate.
func checkMutualTLS(t *testing.T, tool string) {
	objects := render(t, tool, chartDir+"/ci/mtls.yaml")
	peer := map[string]string{
		"api-service": "whence-api-service.whence.svc", "chat-service": "whence-chat-service.whence.svc",
		"llm-worker": "spiffe://example.org/ns/prod/sa/llm-worker",
	}
	for role, want := range map[string]struct{ secret, callers, callees string }{
		"api-service":  {"whence-api-service-tls", "", peer["chat-service"]},
		"chat-service": {"whence-chat-service-tls", peer["api-service"], peer["llm-worker"]},
		"llm-worker":   {"worker-certificate", peer["chat-service"], ""},
	} {
		pod := objects["Deployment "+role].Spec.Template.Spec
		c := pod.Containers[0]
		args := parse(c.Args)
		if args["mtls-callers"] != want.callers || args["mtls-callees"] != want.callees {
			t.Errorf("%s takes the callers %q and the callees %q; want %+v", role, args["mtls-callers"], args["mtls-callees"], want)
		}
		for flag, file := range map[string]string{"mtls-cert": "tls.crt", "mtls-key": "tls.key", "mtls-ca": "ca.crt"} {
			if at := slices.IndexFunc(c.VolumeMounts, func(m mount) bool { return args[flag] == m.MountPath+"/"+file }); at < 0 || c.VolumeMounts[at].Name != "mtls" {
				t.Errorf("%s: --%s is %q, and the mounts are %v", role, flag, args[flag], c.VolumeMounts)
			}
		}
		if at := slices.IndexFunc(pod.Volumes, func(v volume) bool { return v.Name == "mtls" }); at < 0 || pod.Volumes[at].Secret.SecretName != want.secret {
			t.Errorf("%s has the volumes %+v; want the Secret %s", role, pod.Volumes, want.secret)
		}
		if c.ReadinessProbe["grpc"] != nil {
			t.Errorf("%s has a gRPC probe, which has no certificate", role)
		}
	}
	if c := render(t, tool, "")["Deployment chat-service"].Spec.Template.Spec.Containers[0]; c.ReadinessProbe["grpc"] == nil || parse(c.Args)["mtls-cert"] != "" {
		t.Errorf("without mutual TLS, chat-service has %+v", c)
	}
}

var engineNames = regexp.MustCompile(`(?m)^\t[A-Z]\w+ += "([a-z]+)" +// `)

// TestHelmEngines compares the engines of the schema with those of the worker.
func TestHelmEngines(t *testing.T) {
	source, err := os.ReadFile("../llm-worker/worker/upstream.go")
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, m := range engineNames.FindAllStringSubmatch(string(source), -1) {
		known = append(known, m[1])
	}
	type schema struct {
		Properties map[string]struct {
			Properties map[string]struct{ Enum []string }
		}
	}
	listed := decode[schema](t, chartDir+"/values.schema.json")[0].Properties["llmWorker"].Properties["engine"].Enum
	slices.Sort(known)
	slices.Sort(listed)
	if len(known) < 5 || !slices.Equal(known, listed) {
		t.Errorf("the schema has the engines %v; the worker has %v", listed, known)
	}
}

// checkRefusals checks that the schema and the templates refuse wrong values.
func checkRefusals(t *testing.T, tool string) {
	for values, want := range map[string]string{
		"mode: sidecar":                  "mode",
		"apiService: {replica: 3}":       "replica",
		"llmWorker: {engine: tgi}":       "engine",
		"apiService: {drain: 30s}":       "drain",
		"chatService: {extraArgs: [-x]}": "extraArgs",
		"otlp: collector:4317":           "otlp",
		"route: {enabled: true}":         "route.parentRefs",
		"mtls: {names: {worker: x}}":     "worker",
	} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(tool, chartDir, file).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v\n%s", values, err, out)
		}
	}
}
