package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"railbed/internal/printable"
	"railbed/internal/strictyaml"
	"railbed/internal/units"
)

// linkName matches "a--b" and "a:port--b:port".
var linkName = regexp.MustCompile(
	`^[a-z][a-z0-9-]{0,23}(:[a-zA-Z0-9._-]{1,15})?--[a-z][a-z0-9-]{0,23}(:[a-zA-Z0-9._-]{1,15})?$`)

const linkNameForm = `a link such as "leaf1--spine2" or "a:eth0--b:p1"`

// generators are the topologies that generate their hosts and links.
var generators = map[string]struct{}{SingleSwitch: {}, LeafSpine: {}, FatTree: {}, RailOptimized: {}, HPN: {},
	Torus: {}, Dragonfly: {}}

func (c *checker) fabric() {
	f := &c.t.Fabric
	_, generated := generators[f.Topology]
	if generated && c.given("fabric.hosts", len(f.Hosts)) {
		c.ReportKey("fabric.hosts", "topology "+f.Topology+" makes its own hosts",
			"remove hosts, or write topology: explicit")
	}
	if generated && c.given("fabric.connect", len(f.Connect)) {
		c.ReportKey("fabric.connect", "topology "+f.Topology+" makes its own links",
			"remove connect, or write topology: explicit")
	}
	if f.Topology == Explicit && c.given("fabric.params", len(f.Params)) {
		c.ReportKey("fabric.params", "topology explicit has no parameters",
			"remove params, or name a generator as the topology")
	}
	if len(f.Hosts) > MaxNodes {
		c.Report("fabric.hosts", fmt.Sprintf("%d hosts", len(f.Hosts)),
			fmt.Sprintf("want at most %d", MaxNodes))
	}
	c.hosts()
	c.entries("fabric.switches", len(f.Switches))
	c.entries("fabric.links", len(f.Links))
	c.between("fabric.memory", f.Memory, minMemoryBytes, maxMemoryBytes)
	if f.Routing != nil {
		c.routing("fabric.routing", f.Routing)
	}
	c.switchSettings("fabric.switch", f.Switch)
	for _, entry := range f.Switches {
		at := strictyaml.EntryPath("fabric.switches", entry.Key)
		c.overrideKey(at, entry.Key, "switch", nodeName, nodeNameForm)
		c.switchSettings(at, entry.Value)
	}
	for _, entry := range f.Links {
		at := strictyaml.EntryPath("fabric.links", entry.Key)
		if entry.Key != HostLink && entry.Key != FabricLink {
			c.overrideKey(at, entry.Key, "link", linkName,
				linkNameForm+`, "host" or "fabric" for a class, a pattern, or "default"`)
		}
		c.direction(at, entry.Value.Direction)
		if entry.Value.AToB != nil {
			c.direction(at+".a-to-b", *entry.Value.AToB)
		}
		if entry.Value.BToA != nil {
			c.direction(at+".b-to-a", *entry.Value.BToA)
		}
	}
}

// entries bounds the size of a mapping of overrides, because each name is looked up in all entries.
func (c *checker) entries(path string, count int) {
	if count > MaxNodes {
		c.Report(path, fmt.Sprintf("%d entries in %s", count, path),
			fmt.Sprintf("want at most %d; a pattern stands for many names", MaxNodes))
	}
}

func (c *checker) given(path string, length int) bool { return length > 0 || c.Source.Has(path) }

func (c *checker) hosts() {
	switches := make(map[string]bool, len(c.t.Fabric.Switches))
	for _, entry := range c.t.Fabric.Switches {
		switches[entry.Key] = true
	}
	named := make(map[string]bool, len(c.t.Fabric.Hosts))
	for i, host := range c.t.Fabric.Hosts {
		at := fmt.Sprintf("fabric.hosts[%d]", i)
		if !nodeName.MatchString(host) || host == DefaultKey {
			c.Report(at, fmt.Sprintf("invalid host name %q", printable.Clip(host)),
				"want "+nodeNameForm+`, and not "default"`)
			continue
		}
		if named[host] {
			c.Report(at, fmt.Sprintf("host %q is named twice", host), "give each host a name of its own")
		} else if switches[host] {
			c.Report(at, fmt.Sprintf("%q is a host and a switch", host), "give each a name of its own")
		}
		named[host] = true
	}
}

func (c *checker) overrideKey(at, key, kind string, name *regexp.Regexp, form string) {
	if key != DefaultKey {
		c.pattern(c.ReportKey, at, key, kind, name, form)
	}
}

// positive reports a value that the file gives as zero although the setting has no zero value.
func (c *checker) positive(path string, value uint64, what, want string) {
	if value == 0 && c.Source.Has(path) {
		c.Report(path, what, want)
	}
}

func (c *checker) atMost(path string, value, limit uint64, shown fmt.Stringer, want string) {
	if value > limit {
		c.Report(path, fmt.Sprintf("%s is %s", path, shown), want)
	}
}

func (c *checker) direction(at string, d Direction) {
	for _, s := range LinkSettings {
		if s.check != nil {
			s.check(c, strictyaml.FieldPath(at, s.Key), &d)
		}
	}
}

var (
	envName    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	sysctlName = regexp.MustCompile(`^net(\.[A-Za-z0-9_-]+)+$`)
)

// minMemory is the memory that a small program needs to start. Below it the kernel kills every
// process of the node at once.
const minMemory = units.Bytes(4 << 20)

func (c *checker) nodes() {
	c.entries("nodes", len(c.t.Nodes))
	for _, entry := range c.t.Nodes {
		at, node := strictyaml.EntryPath("nodes", entry.Key), entry.Value
		c.overrideKey(at, entry.Key, "node", nodeName, nodeNameForm)
		if node.Memory != 0 && node.Memory < minMemory {
			c.Report(at+".memory", fmt.Sprintf("%s.memory is %s", at, node.Memory),
				"want at least "+minMemory.String()+", or 0B for no limit")
		}
		c.positive(at+".nic-queue", uint64(node.NICQueue), "nic-queue is 0B, which drops every packet",
			"want the bytes of each priority, such as 256KiB")
		c.atMost(at+".nic-queue", uint64(node.NICQueue), uint64(maxBuffer), node.NICQueue,
			"want at most 4GiB")
		c.container(at, node.Container)
		c.management(at+".management", node.Management)
		for _, name := range sortedKeys(node.Env) {
			if !envName.MatchString(name) {
				c.ReportKey(strictyaml.EntryPath(at+".env", name),
					fmt.Sprintf("invalid environment variable %q", printable.Clip(name)),
					"want letters, digits and _, the first not a digit")
			} else if strings.ContainsRune(node.Env[name], 0) {
				c.Report(strictyaml.EntryPath(at+".env", name), "a NUL byte in the value of "+name,
					"remove it")
			}
		}
		for _, name := range sortedKeys(node.Sysctls) {
			if !sysctlName.MatchString(name) {
				c.ReportKey(strictyaml.EntryPath(at+".sysctls", name),
					fmt.Sprintf("invalid sysctl %q", printable.Clip(name)),
					"want a setting of the node's own network, such as net.ipv4.tcp_ecn")
			}
		}
	}
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
