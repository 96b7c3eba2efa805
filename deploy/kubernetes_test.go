package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/tier"
)

// A container is a container of a pod.
type container struct {
	Name      string
	Image     string
	Args      []string
	Command   []string
	Ports     []struct{ ContainerPort int }
	Lifecycle struct {
		PreStop struct{ Sleep struct{ Seconds int } }
	}
	ReadinessProbe map[string]any
	Resources      struct{ Requests, Limits map[string]any }
	VolumeMounts   []mount
}

type mount struct{ Name, MountPath string }

type volume struct {
	Name   string
	Secret struct{ SecretName string }
}

// An object holds the checked fields of a Kubernetes object.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		ClusterIP string
		Selector  map[string]any
		Ports     []struct{ Port, TargetPort int }
		Ingress   []struct{ Ports []struct{ Port int } }
		Template  struct {
			Spec struct {
				TerminationGracePeriodSeconds int
				Containers, InitContainers    []container
				Volumes                       []volume
			}
		}
	}
}

// registry is the prefix of the images that the manifests and the chart name.
const registry = "ghcr.io/whence-dev"

// version returns the version of the chart's images.
func version(t *testing.T) string {
	t.Helper()
	return decode[struct{ AppVersion string }](t, chartDir+"/Chart.yaml")[0].AppVersion
}

// TestOneNameForEachImage: the manifests and the chart name the images that the commands of the guide
// build and load.
func TestOneNameForEachImage(t *testing.T) {
	base := decode[struct {
		Images []struct{ Name, NewName, NewTag string }
	}](t, "kubernetes/base/kustomization.yaml")[0].Images
	var named []string
	for _, image := range base {
		named = append(named, image.Name)
		if image.NewName != "" || image.NewTag != version(t) {
			t.Errorf("the base has %+v; the chart has the version %s", image, version(t))
		}
	}
	for service := range ports {
		if !slices.Contains(named, registry+"/"+service) {
			t.Errorf("the base sets no tag of %s/%s", registry, service)
		}
	}
	values := decode[struct {
		Image struct{ Registry, Tag string }
	}](t, chartDir+"/values.yaml")[0].Image
	if values.Registry != registry || values.Tag != "" { // "" is the version
		t.Errorf("the chart has the images %+v", values)
	}
	guide, err := os.ReadFile("../docs/howto/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		"./scripts/release images " + registry + " " + version(t), "image=" + registry + "/$role:" + version(t), "--target $role -t $image .", "kind load docker-image $image",
	} {
		if !strings.Contains(string(guide), command) {
			t.Errorf("docs/howto/kubernetes.md lacks %q", command)
		}
	}
}

func TestManifestsFitTogether(t *testing.T) {
	flags := flagsOf(t)
	there := map[string]bool{}
	objects := map[string]map[string]object{} // by service and kind
	for service := range ports {
		objects[service] = map[string]object{}
		for _, o := range decode[object](t, "kubernetes/base/"+service+".yaml") {
			if o.Metadata.Name != service {
				t.Errorf("%s has a %s named %s", service, o.Kind, o.Metadata.Name)
			}
			objects[service][o.Kind] = o
		}
		_, there[service] = objects[service]["Service"]
	}
	drains := map[string]time.Duration{}
	for service, kinds := range objects {
		for _, kind := range []string{"Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy"} {
			if _, ok := kinds[kind]; !ok {
				t.Errorf("%s has no %s", service, kind)
			}
		}
		port, _ := strconv.Atoi(ports[service])
		if p := kinds["Service"].Spec.Ports; len(p) != 1 || p[0].Port != port || p[0].TargetPort != port {
			t.Errorf("the Service of %s has %v", service, p)
		}
		opened := map[int]bool{}
		for _, rule := range kinds["NetworkPolicy"].Spec.Ingress {
			for _, p := range rule.Ports {
				opened[p.Port] = true
			}
		}
		wanted := []int{port, port + 1000}
		if link, err := strconv.Atoi(parse(kinds["Deployment"].Spec.Template.Spec.Containers[0].Args)["link-port"]); err == nil {
			wanted = append(wanted, link)
		}
		if len(opened) != len(wanted) || slices.ContainsFunc(wanted, func(p int) bool { return !opened[p] }) {
			t.Errorf("the NetworkPolicy of %s opens %v", service, opened)
		}
		pod := kinds["Deployment"].Spec.Template.Spec
		c := pod.Containers[0]
		check(t, "base", service, c.Args, flags[service], there)
		if got := parse(c.Args)["metrics-listen"]; got != "0.0.0.0:"+strconv.Itoa(port+1000) {
			t.Errorf("%s shows its metrics on %s", service, got)
		}
		if c.Image != registry+"/"+service || c.Ports[0].ContainerPort != port || c.ReadinessProbe == nil || c.Resources.Limits["memory"] == nil {
			t.Errorf("%s: %+v", service, c)
		}
		drain, err := time.ParseDuration(parse(c.Args)["drain"])
		if err != nil {
			t.Errorf("%s: %v", service, err)
		}
		drains[service] = drain
		// After the drain, closing the connections takes a second; the rest is slack for the
		// machine.
		if need := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second + drain + 5*time.Second; time.Duration(pod.TerminationGracePeriodSeconds)*time.Second < need {
			t.Errorf("%s is killed after %d s, but may need %v", service, pod.TerminationGracePeriodSeconds, need)
		}
	}
	if drains["llm-worker"] > drains["chat-service"] || drains["chat-service"] > drains["api-service"] {
		t.Errorf("a callee must not drain longer than its caller: %v", drains)
	}
	for _, service := range []string{"llm-worker", "chat-service"} {
		if ip := objects[service]["Service"].Spec.ClusterIP; ip != "None" {
			t.Errorf("the Service of %s has the address %q: callers could not choose a pod", service, ip)
		}
	}
	for _, patch := range []string{"llm-worker", "chat-service"} {
		o := decode[object](t, "kubernetes/overlays/vllm/"+patch+".yaml")[0]
		pod := o.Spec.Template.Spec
		check(t, "vllm", patch, pod.Containers[0].Args, flags[patch], there)
		patched := parse(pod.Containers[0].Args)
		for name, value := range parse(objects[patch]["Deployment"].Spec.Template.Spec.Containers[0].Args) { // the patch replaces the arguments of the base
			if got, ok := patched[name]; !ok || got != value {
				t.Errorf("vllm: --%s of %s is %q, but %q in the base", name, patch, got, value)
			}
		}
		if patch != "llm-worker" {
			continue
		}
		engine := pod.InitContainers[0]
		upstream := parse(pod.Containers[0].Args)["upstream"]
		if !slices.Contains(engine.Command, "--port="+strings.TrimPrefix(upstream, "127.0.0.1:")) {
			t.Errorf("the worker calls %s, but the engine is %v", upstream, engine.Command)
		}
	}
}

// TestKustomizeBuilds builds base and overlays with the kustomize on the PATH, or, in the full tier,
// with the kustomize of scripts/tools, whose first build takes minutes.
func TestKustomizeBuilds(t *testing.T) {
	tier.Full(t)
	tool, err := exec.LookPath("kustomize")
	if err != nil {
		tier.Full(t)
		tool = filepath.Join(t.TempDir(), "kustomize")
		if out, err := exec.Command("go", "-C", "../scripts/tools/kustomize", "build", "-o", tool, "sigs.k8s.io/kustomize/kustomize/v5").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for dir, want := range map[string][]string{
		"kubernetes/base":          {"image: " + registry + "/llm-worker:" + version(t), "namespace: whence", "app.kubernetes.io/part-of: whence"},
		poolDir + "/base":          {"image: " + registry + "/whence:" + version(t), "kind: InferencePool", "--pool-metrics"},
		poolDir + "/vllm":          {"--upstream=http://127.0.0.1:8000", "--port=8000", "nvidia.com/gpu", "--pool-metrics", "kind: HTTPRoute"},
		"kubernetes/overlays/vllm": {"--engine=vllm", "nvidia.com/gpu", "image: " + registry + "/chat-service:" + version(t), "readOnlyRootFilesystem: true"},
	} {
		out, err := exec.Command(tool, "build", dir).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", dir, err, out)
		}
		for _, text := range want {
			if !strings.Contains(string(out), text) {
				t.Errorf("%s has no %q", dir, text)
			}
		}
	}
}
