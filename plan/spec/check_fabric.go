package spec

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

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
		c.reportKey("fabric.hosts", "topology "+f.Topology+" makes its own hosts",
			"remove hosts, or write topology: explicit")
	}
	if generated && c.given("fabric.connect", len(f.Connect)) {
		c.reportKey("fabric.connect", "topology "+f.Topology+" makes its own links",
			"remove connect, or write topology: explicit")
	}
	if f.Topology == Explicit && c.given("fabric.params", len(f.Params)) {
		c.reportKey("fabric.params", "topology explicit has no parameters",
			"remove params, or name a generator as the topology")
	}
	if len(f.Hosts) > MaxNodes {
		c.report("fabric.hosts", fmt.Sprintf("%d hosts", len(f.Hosts)),
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
		at := keyed("fabric.switches", entry.Key)
		c.overrideKey(at, entry.Key, "switch", nodeName, nodeNameForm)
		c.switchSettings(at, entry.Value)
	}
	for _, entry := range f.Links {
		at := keyed("fabric.links", entry.Key)
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
		c.report(path, fmt.Sprintf("%d entries in %s", count, path),
			fmt.Sprintf("want at most %d; a pattern stands for many names", MaxNodes))
	}
}

func (c *checker) given(path string, length int) bool { return length > 0 || c.t.Source.Has(path) }

func (c *checker) hosts() {
	switches := make(map[string]bool, len(c.t.Fabric.Switches))
	for _, entry := range c.t.Fabric.Switches {
		switches[entry.Key] = true
	}
	named := make(map[string]bool, len(c.t.Fabric.Hosts))
	for i, host := range c.t.Fabric.Hosts {
		at := fmt.Sprintf("fabric.hosts[%d]", i)
		if !nodeName.MatchString(host) || host == DefaultKey {
			c.report(at, fmt.Sprintf("invalid host name %q", clipped(host)),
				"want "+nodeNameForm+`, and not "default"`)
			continue
		}
		if named[host] {
			c.report(at, fmt.Sprintf("host %q is named twice", host), "give each host a name of its own")
		} else if switches[host] {
			c.report(at, fmt.Sprintf("%q is a host and a switch", host), "give each a name of its own")
		}
		named[host] = true
	}
}

func (c *checker) overrideKey(at, key, kind string, name *regexp.Regexp, form string) {
	if key != DefaultKey {
		c.pattern(c.reportKey, at, key, kind, name, form)
	}
}

// positive reports a value that the file gives as zero although the setting has no zero value.
func (c *checker) positive(path string, value uint64, what, want string) {
	if value == 0 && c.t.Source.Has(path) {
		c.report(path, what, want)
	}
}

func (c *checker) atMost(path string, value, limit uint64, shown fmt.Stringer, want string) {
	if value > limit {
		c.report(path, fmt.Sprintf("%s is %s", path, shown), want)
	}
}

// Bounds of link settings. 1.6 Tbit/s is the fastest port on the market. A minute is far above the
// delay of any path on earth.
const (
	minRate  = units.Rate(1e3)
	maxRate  = units.Rate(1.6e12)
	maxDelay = units.Duration(60e9)
	maxFlap  = units.Duration(24 * 3600e9)
	// maxOverhead is far above the overhead of any tunnel.
	maxOverhead = units.Bytes(256)
	// maxDropList keeps the search in the list short.
	maxDropList = 4096
)

func (c *checker) direction(at string, d Direction) {
	if given := d.Rate != 0 || c.t.Source.Has(at+".rate"); given && (d.Rate < minRate || d.Rate > maxRate) {
		c.report(at+".rate", fmt.Sprintf("%s.rate is %s", at, d.Rate),
			fmt.Sprintf("want %s to %s", minRate, maxRate))
	}
	c.atMost(at+".delay", uint64(d.Delay), uint64(maxDelay), d.Delay, "want at most 1m0s")
	c.atMost(at+".jitter", uint64(d.Jitter), uint64(maxDelay), d.Jitter, "want at most 1m0s")
	c.positive(at+".queue", uint64(d.Queue), "queue is 0B, which drops every packet",
		"want the bytes that can wait for the link, such as 256KiB")
	c.atMost(at+".queue", uint64(d.Queue), 1<<32, d.Queue, "want at most 4GiB")
	if len(d.DropList) > maxDropList {
		c.report(at+".drop-list", fmt.Sprintf("a drop-list of %d packets", len(d.DropList)),
			fmt.Sprintf("want at most %d", maxDropList))
	} else {
		c.distinct(at+".drop-list", d.DropList, 1, math.MaxInt32, "packet number")
	}
	c.positive(at+".reorder-by", uint64(d.ReorderBy), "reorder-by is 0, which reorders nothing",
		"want a duration such as 50us, or reorder: 0%")
	c.atMost(at+".reorder-by", uint64(d.ReorderBy), uint64(maxDelay), d.ReorderBy, "want at most 1m0s")
	c.atMost(at+".overhead", uint64(d.Overhead), uint64(maxOverhead), d.Overhead,
		"want at most "+maxOverhead.String()+"; Ethernet's is 24B")
	if g := d.GilbertElliott; g != nil && !g.Off {
		c.gilbertElliott(at+".gilbert-elliott", g)
	}
	if f := d.Flap; f != nil && !f.Off {
		c.atMost(at+".flap.every", uint64(f.Every), uint64(maxFlap), f.Every,
			"want at most "+maxFlap.String())
		if f.Every != 0 && f.For >= f.Every {
			c.report(at+".flap.for", fmt.Sprintf("flap.for is %s and flap.every %s", f.For, f.Every),
				"want a shorter flap.for, or a link step with state: down")
		}
	}
}

func (c *checker) gilbertElliott(at string, g *GilbertElliott) {
	c.positive(at+".enter", g.Enter.Num, "enter is 0, so no burst begins",
		"want a share such as 1%, or gilbert-elliott: false")
	c.positive(at+".leave", g.Leave.Num, "leave is 0, so the first burst never ends",
		"want a share such as 20%")
	c.positive(at+".loss", g.Loss.Num, "loss is 0, so bursts lose nothing",
		"want a share such as 50%, or remove the key for 100%")
	if loss := cmp.Or(g.Loss, units.Ratio{Num: 1, Den: 1}); g.LossGood.Float() > loss.Float() {
		c.report(at+".loss-good", fmt.Sprintf("loss-good is %s and loss %s", g.LossGood, loss),
			"want the good state to lose less than the bad one")
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
		at, node := keyed("nodes", entry.Key), entry.Value
		c.overrideKey(at, entry.Key, "node", nodeName, nodeNameForm)
		if node.Memory != 0 && node.Memory < minMemory {
			c.report(at+".memory", fmt.Sprintf("%s.memory is %s", at, node.Memory),
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
				c.reportKey(keyed(at+".env", name),
					fmt.Sprintf("invalid environment variable %q", clipped(name)),
					"want letters, digits and _, the first not a digit")
			} else if strings.ContainsRune(node.Env[name], 0) {
				c.report(keyed(at+".env", name), "a NUL byte in the value of "+name, "remove it")
			}
		}
		for _, name := range sortedKeys(node.Sysctls) {
			if !sysctlName.MatchString(name) {
				c.reportKey(keyed(at+".sysctls", name), fmt.Sprintf("invalid sysctl %q", clipped(name)),
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
