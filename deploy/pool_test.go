package deploy

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A poolObject holds the checked fields of the objects around an InferencePool.
type poolObject struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Selector struct {
			MatchLabels map[string]string
		}
		TargetPorts       []struct{ Number int }
		EndpointPickerRef struct {
			Name string
			Port struct{ Number int }
		}
		Rules []struct {
			BackendRefs []struct{ Group, Kind, Name string }
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
		}
	}
}

const poolDir = "../examples/gateway-api"

// TestInferencePoolFitsTogether: the pool selects the pods of whence by their port and labels, and names
// the Service of its picker; the route leads to the pool; and all arguments of the pods are flags.
func TestInferencePoolFitsTogether(t *testing.T) {
	pool := decode[poolObject](t, poolDir+"/base/pool.yaml")[0]
	member := decode[object](t, poolDir+"/base/member.yaml")[0]
	labels := decode[poolObject](t, poolDir+"/base/member.yaml")[0].Spec.Template.Metadata.Labels
	for name, value := range pool.Spec.Selector.MatchLabels {
		if labels[name] != value {
			t.Errorf("the pool selects %s=%s; the pods have %v", name, value, labels)
		}
	}
	pod := member.Spec.Template.Spec
	c := pod.Containers[0]
	if len(pool.Spec.TargetPorts) != 1 || pool.Spec.TargetPorts[0].Number != c.Ports[0].ContainerPort || c.ReadinessProbe == nil {
		t.Errorf("the pool sends to %v; the pods have %v", pool.Spec.TargetPorts, c.Ports)
	}
	known := flagsOf(t)["serve"]
	for _, file := range []string{"base/member.yaml", "vllm/member.yaml"} {
		args := decode[object](t, poolDir+"/"+file)[0].Spec.Template.Spec.Containers[0].Args
		values := parse(args[1:])
		for name := range values {
			if !slices.Contains(known, name) {
				t.Errorf("%s: whence serve has no flag --%s", file, name)
			}
		}
		if _, there := values["pool-metrics"]; !there || args[0] != "serve" || values["listen"] != fmt.Sprintf("0.0.0.0:%d", c.Ports[0].ContainerPort) {
			t.Errorf("%s: %v", file, args)
		}
		drain, err := time.ParseDuration(values["drain"])
		if need := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second + drain + 5*time.Second; err != nil || time.Duration(pod.TerminationGracePeriodSeconds)*time.Second < need {
			t.Errorf("%s: %v; the pods are killed after %d s", file, err, pod.TerminationGracePeriodSeconds)
		}
	}
	ref := pool.Spec.EndpointPickerRef
	picker := map[string]object{}
	for _, o := range decode[object](t, poolDir+"/base/picker.yaml") {
		if o.Kind == "Service" || o.Kind == "Deployment" {
			picker[o.Kind] = o
		}
	}
	if s := picker["Service"]; s.Metadata.Name != ref.Name || s.Spec.Ports[0].Port != ref.Port.Number || s.Spec.Ports[0].TargetPort != picker["Deployment"].Spec.Template.Spec.Containers[0].Ports[0].ContainerPort {
		t.Errorf("the pool asks %s:%d; the picker serves %v", ref.Name, ref.Port.Number, s.Spec.Ports)
	}
	if args := parse(picker["Deployment"].Spec.Template.Spec.Containers[0].Args); args["pool-name"] != pool.Metadata.Name {
		t.Errorf("the picker watches the pool %q, which is %q", args["pool-name"], pool.Metadata.Name)
	}
	route := decode[poolObject](t, poolDir+"/base/route.yaml")[1]
	if backend := route.Spec.Rules[0].BackendRefs[0]; backend.Kind != pool.Kind || backend.Name != pool.Metadata.Name || backend.Group != "inference.networking.k8s.io" {
		t.Errorf("the route leads to %v", backend)
	}
	images := decode[struct {
		Images []struct{ Name, NewTag string }
	}](t, poolDir+"/base/kustomization.yaml")[0].Images
	if len(images) != 1 || images[0].Name != c.Image || c.Image != registry+"/whence" || images[0].NewTag != version(t) {
		t.Errorf("the images are %v, of %s", images, c.Image)
	}
	if at := parse(c.Args[1:])["metrics-listen"]; at != fmt.Sprintf("0.0.0.0:%d", c.Ports[1].ContainerPort) {
		t.Errorf("metrics at %s; the container has %v", at, c.Ports)
	}
}
