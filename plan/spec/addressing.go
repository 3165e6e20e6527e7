package spec

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"railbed/internal/printable"
)

// Addressing holds the pools from which the plan takes addresses. Two pools must not overlap.
type Addressing struct {
	// Loopbacks4 is the pool of the nodes' and routers' own IPv4 addresses.
	// Default 10.0.0.0/16.
	Loopbacks4 string `yaml:"loopbacks4,omitempty" json:"loopbacks4,omitempty"`
	// Links4 is the pool of the links' IPv4 subnets. Default 10.128.0.0/10.
	Links4 string `yaml:"links4,omitempty" json:"links4,omitempty"`
	// Loopbacks6 is the pool of the nodes' and routers' own IPv6 addresses.
	// Default fd00:a1::/64.
	Loopbacks6 string `yaml:"loopbacks6,omitempty" json:"loopbacks6,omitempty"`
	// Links6 is the pool of the links' IPv6 subnets. Default fd00:a2::/64.
	Links6 string `yaml:"links6,omitempty" json:"links6,omitempty"`
	// Management4 is the IPv4 subnet of the nodes' management NICs, which are not part of the
	// fabric. The host has the last address of the subnet. Default: a /24 of
	// 172.24.0.0/14, drawn from the testbed's name, if there are such nodes.
	Management4 string `yaml:"management4,omitempty" json:"management4,omitempty"`
	// Management6 is the IPv6 subnet of the nodes' management NICs, with a prefix of at most 112
	// bits. The host's address in it ends in ffff. Default: a /64 of fd00:a3::/48, drawn
	// from the testbed's name, if there are such nodes.
	Management6 string `yaml:"management6,omitempty" json:"management6,omitempty"`
}

// Management connects a node to the host: published ports, access to the internet and name servers.
type Management struct {
	// Publish lists ports of the host that lead to ports of the node, as "HOST:NODE" for TCP or
	// "HOST:NODE/udp". Default none.
	Publish []string `yaml:"publish,omitempty" json:"publish,omitempty" scalar:"any"`
	// Internet lets the node reach over IPv4 all networks that the host reaches. The packets leave with
	// the host's address (NAT). The host must forward packets (net.ipv4.ip_forward). Default false.
	Internet bool `yaml:"internet,omitempty" json:"internet,omitempty"`
	// DNS lists the addresses of the node's name servers, at most three. The node reaches servers
	// outside of the fabric by its management NIC. Default: none.
	DNS []string `yaml:"dns,omitempty" json:"dns,omitempty"`
}

// mostDNS is the number of name servers that a resolver queries (resolv.conf(5)).
const mostDNS = 3

// String returns the port of the host and the protocol, such as "8080/udp".
func (p Published) String() string { return fmt.Sprintf("%d/%s", p.HostPort, p.Protocol) }

// Published is a parsed entry of Management.Publish.
type Published struct {
	HostPort int    `json:"host_port"`
	NodePort int    `json:"node_port"`
	Protocol string `json:"protocol"` // tcp or udp
}

// ParsePublished parses an entry of Management.Publish.
func ParsePublished(text string) (p Published, err error) {
	ports, protocol, given := strings.Cut(text, "/")
	host, node, both := strings.Cut(ports, ":")
	if p.Protocol = protocol; !given {
		p.Protocol = "tcp"
	}
	port := func(text string) int {
		number, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return 0
		}
		return int(number)
	}
	p.HostPort, p.NodePort = port(host), port(node)
	if !both || p.HostPort == 0 || p.NodePort == 0 || p.Protocol != "tcp" && p.Protocol != "udp" {
		return p, fmt.Errorf("%q publishes no port", text)
	}
	return p, nil
}

// management checks the form of published ports and name servers.
func (c *checker) management(at string, m *Management) {
	if m == nil {
		return
	}
	for i, text := range m.Publish {
		if _, err := ParsePublished(text); err != nil {
			c.Report(fmt.Sprintf("%s.publish[%d]", at, i), err.Error(),
				`want HOST:NODE, or HOST:NODE/udp, with ports from 1 to 65535`)
		}
	}
	for i, text := range m.DNS {
		path := fmt.Sprintf("%s.dns[%d]", at, i)
		if address, err := netip.ParseAddr(text); err != nil || address.Zone() != "" {
			c.Report(path, fmt.Sprintf("invalid name server %q", printable.Clip(text)),
				"want an address such as 192.0.2.53")
		} else if i == mostDNS {
			c.Report(path, fmt.Sprintf("%d name servers", len(m.DNS)),
				fmt.Sprintf("want at most %d", mostDNS))
		}
	}
}
