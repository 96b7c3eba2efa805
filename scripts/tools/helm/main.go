// Command helm lints a chart, renders it with one file of values, checks every rendered object
// strictly against the Go types of its kind, and prints the objects: helm CHART [VALUES].
package main

import (
	"cmp"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 || len(os.Args) > 3 {
		log.Fatal("usage: helm CHART [VALUES]")
	}
	values := chartutil.Values{}
	if len(os.Args) == 3 {
		var err error
		if values, err = chartutil.ReadValuesFile(os.Args[2]); err != nil {
			log.Fatal(err)
		}
	}
	if err := lintChart(os.Args[1], values); err != nil {
		log.Fatal(err)
	}
	manifests, err := render(os.Args[1], values)
	if err != nil {
		log.Fatal(err)
	}
	if err := validate(manifests); err != nil {
		log.Fatal(err)
	}
	fmt.Print(strings.Join(manifests, "---\n"))
}

// lintChart runs the rules of `helm lint`. A warning is an error.
func lintChart(dir string, values chartutil.Values) error {
	for _, m := range lint.AllWithKubeVersion(dir, values, "whence", nil).Messages {
		if m.Severity >= support.WarningSev {
			return m
		}
	}
	return nil
}

// render returns the objects of a release named whence, one document for each, in a fixed order.
func render(dir string, values chartutil.Values) ([]string, error) {
	c, err := loader.Load(dir)
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "whence", Namespace: "whence", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return nil, err
	}
	var manifests []string
	for _, name := range slices.SortedFunc(maps.Keys(files), cmp.Compare[string]) {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, document := range strings.Split("\n"+files[name], "\n---\n") {
			if strings.TrimSpace(document) != "" {
				manifests = append(manifests, strings.TrimSpace(document)+"\n")
			}
		}
	}
	return manifests, nil
}

// validate decodes each document into its type. Unknown and repeated fields are errors.
func validate(manifests []string) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		apps.AddToScheme, autoscaling.AddToScheme, core.AddToScheme, networking.AddToScheme, policy.AddToScheme,
		gateway.Install, monitoring.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, m := range manifests {
		if _, _, err := decoder.Decode([]byte(m), nil, nil); err != nil {
			return fmt.Errorf("%w in\n%s", err, m)
		}
	}
	return nil
}
