package cli_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"railbed/nodes/cni"
	"railbed/testkit/hosttest"
)

// The specification's rules for a plugin, by calls as runtimes make them.
func TestCNISpecification(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed)
	const name = "cli-cni-spec"
	must(t, "up", writeFile(t, fmt.Sprintf("name: %s\nfabric: {topology: single-switch, params: {hosts: "+
		"2}}\nnodes: {h1: {runtime: cni}}\n", name)))
	t.Cleanup(func() { must(t, "down", name) })
	a := newContainer(t, "a")
	with := func(version, more string) string {
		return strings.TrimSuffix(pluginConfig(t, name, version), "}") + more + "}"
	}
	good := func(operation string, c *container, config string) (answer struct {
		CNIVersion        string
		SupportedVersions []string
		Interfaces        []struct {
			Name    string
			Mtu     int
			Sandbox string
		}
		IPs []struct {
			Version, Address string
			Interface        int
		}
	}) {
		t.Helper()
		code, out, _ := call(t, operation, c, config)
		if code != 0 {
			t.Fatalf("%s: exit %d, %s", operation, code, out)
		}
		if out != "" {
			if err := json.Unmarshal([]byte(out), &answer); err != nil {
				t.Fatalf("%s: %v: %s", operation, err, out)
			}
		}
		return answer
	}
	refused := func(operation string, c *container, config string, code uint) {
		t.Helper()
		if exit, out, answer := call(t, operation, c, config); exit == 0 || answer.Code != code ||
			answer.Msg == "" {
			t.Errorf("%s of %s: exit %d, %s; want code %d", operation, config, exit, out, code)
		}
	}
	if got := good("VERSION", a, `{"cniVersion":"1.0.0"}`); !slices.Equal(
		slices.Sorted(slices.Values(got.SupportedVersions)), slices.Sorted(slices.Values(cni.Versions))) {
		t.Errorf("VERSION: %+v", got)
	}
	for _, version := range cni.Versions {
		got := good("ADD", a, with(version, ""))
		if got.CNIVersion != version || len(got.Interfaces) != 2 || got.Interfaces[0].Name != "eth0" ||
			got.Interfaces[0].Sandbox != a.path || len(got.IPs) != 4 {
			t.Errorf("ADD of %s: %+v", version, got)
		}
		if version == "1.1.0" && got.Interfaces[0].Mtu != 1500 {
			t.Errorf("ADD of %s: mtu %d, want 1500", version, got.Interfaces[0].Mtu)
		}
		if want := map[string]string{"0.4.0": "4"}[version]; got.IPs[0].Version != want {
			t.Errorf("ADD of %s: version %q of an address, want %q: the key is of 0.4.0", version,
				got.IPs[0].Version, want)
		}
		good("CHECK", a, with(version, ""))
		nowhere := *a
		nowhere.path = ""
		good("DEL", &nowhere, with(version, "")) // a container whose namespace is gone
		if left := attached(t, name); len(left) != 0 {
			t.Fatalf("DEL without a namespace leaves %v", left)
		}
		nowhere.path = "/run/netns/no-such"
		good("DEL", &nowhere, with(version, ""))
		good("DEL", a, with(version, "")) // what the others could not see
	}

	// Behind another plugin of a list its result is passed on.
	const before = `"cniVersion":"1.0.0","interfaces":[{"name":"net0","sandbox":"/x"}],"ips":[{"interface":0,"address":"192.0.2.7/24"}]`
	got := good("ADD", a, with("1.0.0", `,"prevResult":{`+before+`}`))
	if len(got.Interfaces) != 3 || got.Interfaces[0].Name != "net0" || len(got.IPs) != 5 ||
		got.IPs[0].Interface != 0 || got.IPs[1].Interface != 1 || got.IPs[4].Interface != 2 {
		t.Errorf("ADD behind another plugin: %+v", got)
	}
	good("CHECK", a, with("1.0.0", `,"prevResult":{`+before+`}`))
	// another's address
	refused("CHECK", a, with("1.0.0", `,"prevResult":{`+strings.Replace(before, "net0", "eth0", 1)+`}`),
		types.ErrInternal)
	refused("CHECK", a, with("1.0.0", `,"prevResult":{"cniVersion":"1.0.0","ips":7}`),
		types.ErrDecodingFailure)
	refused("ADD", a, with("1.0.0", ""), 100)
	good("DEL", a, with("1.0.0", ""))

	refused("ADD", a, with("9.9.9", ""), types.ErrIncompatibleCNIVersion)
	refused("GC", a, with("1.0.0", ""), types.ErrIncompatibleCNIVersion)
	refused("STATUS", a, with("1.0.0", ""), types.ErrIncompatibleCNIVersion)
	refused("ADD", a, "{", types.ErrDecodingFailure)
	refused("ADD", &container{id: "", path: a.path}, with("1.0.0", ""), types.ErrInvalidEnvironmentVariables)
	refused("ADD", &container{id: "a b", path: a.path}, with("1.0.0", ""),
		types.ErrInvalidEnvironmentVariables)
	refused("ADD", &container{id: "a", path: "/run/netns/no-such"}, with("1.0.0", ""),
		types.ErrInvalidEnvironmentVariables)
	good("STATUS", a, with("1.1.0", ""))
	if left := attached(t, name); len(left) != 0 {
		t.Errorf("refused ADDs leave %v", left)
	}
}
