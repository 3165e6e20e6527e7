package convert

import (
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"railbed/plan/spec"
)

// frrDaemons maps the protocols of "router PROTOCOL" lines to their daemons.
var frrDaemons = map[string]string{"bgp": "bgpd", "ospf": "ospfd", "ospf6": "ospf6d", "isis": "isisd",
	"rip": "ripd", "ripng": "ripngd", "eigrp": "eigrpd", "babel": "babeld", "openfabric": "fabricd"}

// frrConfig is the configuration of a node that runs FRRouting.
type frrConfig struct {
	read      bool // whether there is a file with configuration
	addresses []labAddress
	protocols []frrLine // such as bgp and ospf
	asn       frrLine
	neighbors []frrLine // addresses or interfaces of BGP sessions
	timers    frrLine   // KEEPALIVE and HOLD in seconds
	bfd       frrLine   // milliseconds
	static    []frrLine
	networks  []frrLine       // that BGP announces
	left      []frrLine       // lines that have no equivalent
	daemons   map[string]bool // nil if all daemons that are configured run
}

// frrLine is a text and its position. Its problem has no text.
type frrLine struct {
	text string
	at   spec.Problem
}

// runs reports whether the daemon of a protocol runs.
func (c *frrConfig) runs(protocol string) bool {
	return c.daemons == nil || c.daemons[frrDaemons[protocol]]
}

// speaks reports whether the node runs the protocol.
func (c *frrConfig) speaks(protocol string) bool {
	return c.runs(protocol) && slices.ContainsFunc(c.protocols, func(l frrLine) bool {
		return l.text == protocol
	})
}

// frrFiles are the files of FRRouting's folder that have configuration.
var frrFiles = []string{"daemons", "frr.conf", "zebra.conf", "staticd.conf", "bgpd.conf", "ospfd.conf",
	"ospf6d.conf", "isisd.conf", "ripd.conf", "bfdd.conf"}

const frrFolder = "/etc/frr"

// readFRR reads the files that a lab gives to a node that runs FRRouting.
func (i *importer) readFRR(name string, d definition) *frrConfig {
	c := &frrConfig{}
	read := func(file string, parse func(*frrConfig, string, string)) {
		if i.options.ReadFile == nil || file == "" {
			return
		}
		if content, err := i.options.ReadFile(file); err == nil {
			if !path.IsAbs(file) {
				file = path.Join(path.Dir(i.file), file)
			}
			parse(c, file, string(content))
		}
	}
	configure := func(c *frrConfig, file, content string) { c.configure(name, file, content) }
	for _, bind := range d.binds {
		from, to, _ := strings.Cut(bind.value, ":")
		to, _, _ = strings.Cut(to, ":")
		for _, file := range frrFiles {
			source := from
			if path.Clean(to) == frrFolder {
				source = path.Join(from, file)
			} else if path.Clean(to) != path.Join(frrFolder, file) {
				continue
			}
			if file == "daemons" {
				read(source, (*frrConfig).enable)
			} else {
				read(source, configure)
			}
		}
	}
	read(d.startup.value, configure)
	for _, daemon := range d.frrDaemons {
		if c.daemons == nil {
			c.daemons = map[string]bool{}
		}
		c.daemons[daemon.value] = true
	}
	return c
}

var enabledDaemon = regexp.MustCompile(`(?m)^\s*([a-z0-9]+)=(?:yes|true|1)\s*$`)

// enable reads the file that lists the daemons that run.
func (c *frrConfig) enable(_, content string) {
	c.daemons = map[string]bool{}
	for _, found := range enabledDaemon.FindAllStringSubmatch(content, -1) {
		c.daemons[found[1]] = true
	}
}

// configure reads a file of configuration. A section ends at the next one, because the indentation
// has no meaning.
func (c *frrConfig) configure(node, file, content string) {
	c.read = true
	section := []string{""}
	for number, line := range strings.Split(content, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.ContainsAny(words[0][:1], "!#") || ignored(frrPlain, words) {
			continue
		}
		column := 1 + len(line) - len(strings.TrimLeft(line, " \t"))
		at := frrLine{node + ": " + strings.Join(words, " "),
			spec.Problem{File: file, Line: number + 1, Column: column}}
		switch {
		case words[0] == "interface" && len(words) > 1:
			section = words
		case words[0] == "router" && len(words) > 1:
			section = words
			if words[1] == "bgp" && len(words) == 3 {
				c.asn = frrLine{node + ": " + words[2], at.at}
			} else if words[1] == "bgp" {
				c.left = append(c.left, at) // an instance of its own, or of a VRF
			}
			c.protocol(words[1], at)
		case words[0] == "bfd" && len(words) == 1, words[0] == "line":
			section = words
		case slices.Contains([]string{"exit", "end", "exit-vrf"}, words[0]):
			section = []string{""}
		case (words[0] == "ip" || words[0] == "ipv6") && len(words) > 1 && words[1] == "route":
			c.static = append(c.static, at)
		case slices.Contains([]string{"vrf", "route-map", "mpls", "segment-routing"}, words[0]):
			section = words
			c.left = append(c.left, at)
		default:
			c.inSection(node, section, words, at)
		}
	}
}

func (c *frrConfig) protocol(name string, at frrLine) {
	if !slices.ContainsFunc(c.protocols, func(l frrLine) bool { return l.text == name }) {
		c.protocols = append(c.protocols, frrLine{name, at.at})
	}
}

// inSection reads a line of a section.
func (c *frrConfig) inSection(node string, section, words []string, at frrLine) {
	two := ""
	if len(words) > 1 {
		two = words[1]
	}
	switch {
	case section[0] == "interface" && two == "address" && len(words) > 2:
		prefix, err := netip.ParsePrefix(words[2])
		if err != nil {
			c.left = append(c.left, at)
			return
		}
		c.addresses = append(c.addresses, labAddress{node: node, nic: section[1], prefix: prefix, at: at.at})
	case section[0] == "interface" && two == "ospf" && slices.Contains(words, "area"):
		c.protocol("ospf", at)
	case section[0] == "interface" && two == "ospf6" && slices.Contains(words, "area"):
		c.protocol("ospf6", at)
	case section[0] == "interface" && two == "router" && slices.Contains(words, "isis"):
		c.protocol("isis", at)
	case section[0] == "bfd" && words[0] == "transmit-interval" && two != "":
		c.bfd = frrLine{two, at.at}
	case section[0] == "bfd" && !ignored(frrBFD, words),
		section[0] == "router" && section[1] != "bgp" && !ignored(frrRouter, words),
		section[0] == "interface" && !ignored(frrInterface, words),
		!slices.Contains([]string{"bfd", "router", "interface", "line"}, section[0]):
		c.left = append(c.left, at)
	case section[0] == "router" && section[1] == "bgp":
		c.bgp(words, at)
	}
	if slices.Contains(words, "bfd") && c.bfd.text == "" {
		c.bfd = frrLine{defaultBFD, at.at}
	}
}

// defaultBFD is FRRouting's default interval in milliseconds.
const defaultBFD = "300"

// bgp reads a line of BGP's section.
func (c *frrConfig) bgp(words []string, at frrLine) {
	switch {
	case words[0] == "timers" && len(words) == 4:
		c.timers = frrLine{words[2] + " " + words[3], at.at}
	case words[0] == "neighbor" && len(words) == 5 && words[2] == "timers" && words[3] != "connect":
		c.timers = frrLine{words[3] + " " + words[4], at.at}
	case words[0] == "neighbor" && len(words) > 2 && words[2] == "bfd":
		if len(words) == 6 {
			c.bfd = frrLine{words[5], at.at}
		}
	case words[0] == "neighbor" && len(words) > 3 &&
		slices.Contains([]string{"remote-as", "interface", "peer-group"}, words[2]):
		c.neighbors = append(c.neighbors, frrLine{words[1], at.at})
	case words[0] == "network" && len(words) > 1:
		c.networks = append(c.networks, frrLine{words[1], at.at})
	case !ignored(frrBGP, words):
		c.left = append(c.left, at)
	}
}

// ignored reports whether words match one of the forms. A form is the first words of a line, and *
// any word.
func ignored(forms []string, words []string) bool {
	return slices.ContainsFunc(forms, func(form string) bool {
		wanted := strings.Fields(form)
		if len(wanted) > len(words) {
			return false
		}
		for i, word := range wanted {
			if word != "*" && word != words[i] {
				return false
			}
		}
		return true
	})
}

// Forms of lines without an effect on routes, or with an effect that all routers of a testbed have.
var (
	frrPlain = []string{"frr", "hostname", "domainname", "log", "service", "no service", "password",
		"enable", "username", "debug", "agentx", "exit-address-family", "ip forwarding", "no ip forwarding",
		"ipv6 forwarding", "no ipv6 forwarding", "ip nht", "ipv6 nht", "ip router-id", "ipv6 router-id"}
	frrInterface = []string{"description", "no shutdown", "ip ospf network", "ip ospf hello-interval",
		"ip ospf dead-interval", "ip ospf bfd", "ipv6 ospf6 network",
		"ipv6 nd", "no ipv6 nd", "no ip ospf passive",
		"ip ospf passive", "isis passive", "isis circuit-type"}
	frrRouter = []string{"network", "passive-interface", "no passive-interface", "router-id",
		"ospf router-id", "ospf6 router-id", "redistribute connected", "log-adjacency-changes", "net",
		"is-type", "version", "maximum-paths"}
	frrBFD = []string{"peer", "profile", "receive-interval", "no shutdown", "exit", "detect-multiplier 3"}
	frrBGP = []string{"bgp router-id", "bgp log-neighbor-changes", "bgp bestpath as-path multipath-relax",
		"bgp network", "no bgp", "redistribute connected", "maximum-paths", "address-family ipv4 unicast",
		"address-family ipv6 unicast", "neighbor * activate", "neighbor * description",
		"neighbor * update-source", "neighbor * ebgp-multihop", "neighbor * next-hop-self",
		"neighbor * soft-reconfiguration",
		"neighbor * capability", "neighbor * password", "neighbor * advertisement-interval",
		"neighbor * send-community", "neighbor * timers connect", "neighbor * disable-connected-check",
		"neighbor * ttl-security", "neighbor * peer-group", "no neighbor * enforce-first-as",
		"no neighbor * capability"}
)

// seconds returns the two numbers of timers.
func (l frrLine) seconds() (keepalive, hold int, err error) {
	if _, err = fmt.Sscan(l.text, &keepalive, &hold); err != nil {
		return 0, 0, err
	}
	return keepalive, hold, nil
}

// milliseconds returns the number of a line.
func (l frrLine) milliseconds() (int, error) { return strconv.Atoi(l.text) }
