package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"railbed/testkit/hosttest"
)

var _ = hosttest.MarkPackage(hosttest.AsNobody)

// manifests are the documents of a file, with the fields that the test looks at.
func manifests(t *testing.T, file string) (all []manifest) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("kubernetes", file))
	if err != nil {
		t.Fatal(err)
	}
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var one manifest
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, one)
	}
}

type manifest struct {
	Kind     string
	Metadata struct {
		Name        string
		Annotations map[string]string
	}
	Spec struct {
		Config       string
		NodeSelector map[string]string `yaml:"nodeSelector"`
		Template     struct {
			Spec struct {
				NodeSelector   map[string]string `yaml:"nodeSelector"`
				InitContainers []struct {
					Args         []string
					VolumeMounts []struct {
						MountPath string `yaml:"mountPath"`
					} `yaml:"volumeMounts"`
				} `yaml:"initContainers"`
			}
		}
	}
}

// The network in the manifests is the output of railbed cni config, pods use it, and their ports
// have the form that the plugin reads.
func TestKubernetes(t *testing.T) {
	network := manifests(t, "network.yaml")[0]
	list, err := NewList("1.0.0", "", Listed{Testbed: "cluster", Directory: "/run/railbed/cluster"})
	if err != nil {
		t.Fatal(err)
	}
	var got List
	if err := json.Unmarshal([]byte(network.Spec.Config), &got); err != nil ||
		network.Kind != "NetworkAttachmentDefinition" || network.Metadata.Name != got.Name {
		t.Fatalf("%s %s has %+v, %v", network.Kind, network.Metadata.Name, got, err)
	}
	if diff := cmp.Diff(*list, got); diff != "" {
		t.Error(diff)
	}
	if _, err := libcni.ConfListFromBytes([]byte(network.Spec.Config)); err != nil {
		t.Error(err)
	}
	rails := manifests(t, "rails.yaml")
	for i, asked := range strings.Split(rails[2].Metadata.Annotations["k8s.v1.cni.cncf.io/networks"], ", ") {
		list, err := NewList("1.0.0", asked,
			Listed{Testbed: "cluster", Directory: "/run/railbed/cluster", Group: fmt.Sprint("*:eth", i)})
		if err != nil {
			t.Fatal(err)
		}
		var got List
		if err := json.Unmarshal([]byte(rails[i].Spec.Config), &got); err != nil ||
			rails[i].Metadata.Name != asked {
			t.Errorf("%s: %v", rails[i].Metadata.Name, err)
		}
		if diff := cmp.Diff(*list, got); diff != "" {
			t.Error(diff)
		}
	}
	install := manifests(t, "install.yaml")[0]
	first := install.Spec.Template.Spec.InitContainers[0]
	if diff := cmp.Diff([]string{"cni", "install", first.VolumeMounts[0].MountPath}, first.Args); diff != "" {
		t.Error(diff)
	}
	pods := manifests(t, "pods.yaml")
	for i, want := range []string{"", "h3"} {
		asked := pods[i].Metadata.Annotations["k8s.v1.cni.cncf.io/networks"]
		if diff := cmp.Diff(install.Spec.Template.Spec.NodeSelector, pods[i].Spec.NodeSelector); diff != "" {
			t.Error(diff)
		}
		var selected []struct {
			Name string
			Args json.RawMessage `json:"cni-args"`
		}
		if want == "" {
			if asked != network.Metadata.Name {
				t.Errorf("%s asks for %s", pods[i].Metadata.Name, asked)
			}
			continue
		}
		if err := json.Unmarshal([]byte(asked), &selected); err != nil || len(selected) != 1 ||
			selected[0].Name != network.Metadata.Name {
			t.Fatalf("%s asks for %s, %v", pods[i].Metadata.Name, asked, err)
		}
		// Multus puts cni-args below args.cni.
		text := `{"cniVersion":"1.0.0","name":"n","type":"railbed","testbed":"t","directory":"/d","group":"h*","args":{"cni":` + string(selected[0].Args) + `}}`
		if config, err := load([]byte(text), "IgnoreUnknown=1;K8S_POD_NAME=h3"); err != nil ||
			config.Port != want {
			t.Errorf("%s: port %+v, %v; want %s", text, config, err, want)
		}
		if config, err := load([]byte(text), "RAILBED_PORT=h2"); err != nil || config.Port != "h2" {
			t.Errorf("RAILBED_PORT: %+v, %v", config, err)
		}
	}
}
