package fabric

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"railbed/fabric/kernelswitch"
	"railbed/internal/kernel"
	"railbed/plan"
)

// ipForward is the other name of forwarding of all IPv4 interfaces.
const ipForward, allForwarding = "net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding"

// nodeSysctls returns a node's settings: ours, and those of the file, which replace ours. A setting that
// the plan cannot do without is refused before: see plan.RefusedSysctl.
func nodeSysctls(n plan.Node) ([]kernel.Sysctl, error) {
	ours := kernelswitch.NodeSysctls()
	if multipath(n.Routes) {
		ours = append(ours, kernelswitch.MultipathSysctls(nodeSeed(n))...)
	}
	var given []kernel.Sysctl
	for _, name := range slices.Sorted(maps.Keys(n.Sysctls)) {
		path := strings.ReplaceAll(name, ".", "/")
		// Only settings of a network namespace are allowed: a node must not change its host. Below
		// net/ a namespace sees only its own.
		if !strings.HasPrefix(path, "net/") || strings.Contains(path, "//") || strings.HasSuffix(path, "/") {
			return nil, fmt.Errorf("set sysctl %s of %s: want a setting below net", name, n.Name)
		}
		given = append(given, kernel.Sysctl{Path: path, Value: n.Sysctls[name], Asked: true})
	}
	ours = slices.DeleteFunc(ours, func(s kernel.Sysctl) bool {
		return slices.ContainsFunc(given, func(g kernel.Sysctl) bool {
			return g.Path == s.Path || s.Path == ipForward && g.Path == allForwarding
		})
	})
	return append(ours, given...), nil
}

// interfaceSetting returns the value of an interface's own setting: the file's value for the interface, or
// the value that a new interface copies from "default". Some settings of "all" set "default" too.
func (h *host) interfaceSetting(version, nic, name string, ours int32) int32 {
	conf := "net/" + version + "/conf/"
	paths := []string{conf + nic + "/" + name, conf + "default/" + name}
	if name == "forwarding" {
		paths = append(paths, conf+"all/"+name)
		if version == "ipv4" {
			paths = append(paths, ipForward)
		}
	}
	for _, path := range paths {
		for _, s := range h.sysctls {
			if !s.Asked || s.Path != path {
				continue
			}
			if value, err := strconv.ParseInt(strings.TrimSpace(s.Value), 10, 32); err == nil {
				return int32(value)
			}
		}
	}
	return ours
}
