// Package filter compiles pcap-filter(7) expressions into classic BPF for Ethernet, without cgo.
//
// It supports this part of the language, with libpcap's semantics:
//
//	ip ip6 arp rarp tcp udp sctp icmp icmp6          a protocol
//	[ip|arp|rarp|ip6] [DIR] [host] ADDRESS           an IPv4 or IPv6 address
//	[ip|arp|rarp|ip6] [DIR] net 10.0.0.0/8 | 10.0 | 10.0.0.0 mask 255.0.0.0 | fd00::/8
//	[tcp|udp|sctp] [DIR] port N, portrange N-M
//	ether [DIR] [host] MAC, ether proto N, ip proto N, ip6 proto N, proto N
//	broadcast, multicast, with ether, ip or ip6 (ip broadcast is missing)
//	inbound, outbound
//	less N, greater N, and relations of arithmetic over numbers, len and
//	ether|ip|ip6|arp|rarp|tcp|udp|sctp|icmp|icmp6[INDEX(:1|2|4)], as in
//	tcp[tcpflags] & tcp-syn != 0
//	and or not && || ! and parentheses; "host A or B" as short form
//
// DIR is src, dst, src or dst, src and dst. The package does not resolve names of hosts, networks
// and services, because a filter must not depend on the host on which it is compiled. VLAN, MPLS,
// protochain, gateway and other link types are missing. An expression that uses a missing feature
// is an error, never a filter with another meaning.
package filter

import (
	"fmt"

	"golang.org/x/net/bpf"
)

// maxExpression bounds the length of the text. maxProgram is the kernel's bound on classic programs
// (BPF_MAXINSNS).
const (
	maxExpression = 16 << 10
	maxProgram    = 4096
	maxDepth      = 200 // of parentheses and negations
)

const supported = "supported are ip, ip6, arp, rarp, tcp, udp, sctp, icmp, icmp6, host, net, port, " +
	"portrange, proto, ether, " +
	"src, dst, broadcast, multicast, inbound, outbound, less, greater, len, proto[index:size] relations, " +
	"and, or, not"

// Error is an error at a position of an expression.
type Error struct {
	Expression string
	Column     int // counted from 1
	Problem    string
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("compile filter %q: column %d: %s; %s", e.Expression, e.Column, e.Problem, supported)
}

// Compile returns a program that returns snapLen for a matching packet and 0 for any other. An
// empty expression matches every packet.
func Compile(expression string, snapLen int) ([]bpf.RawInstruction, error) {
	instructions, err := compile(expression, snapLen)
	if err != nil {
		return nil, err
	}
	program, err := bpf.Assemble(instructions)
	if err != nil {
		return nil, fmt.Errorf("compile filter %q: %w", expression, err)
	}
	return program, nil
}

func compile(expression string, snapLen int) ([]bpf.Instruction, error) {
	if len(expression) > maxExpression {
		return nil, &Error{Expression: expression[:40] + "...", Column: 1,
			Problem: fmt.Sprintf("longer than %d bytes", maxExpression)}
	}
	tree, err := parse(expression)
	if err != nil {
		return nil, err
	}
	p := new(program)
	reject := p.push(bpf.RetConstant{Val: 0})
	accept := p.push(bpf.RetConstant{Val: uint32(snapLen)})
	tree.emit(p, accept, reject)
	if len(p.reversed) > maxProgram {
		return nil, &Error{Expression: expression, Column: 1,
			Problem: fmt.Sprintf("needs %d instructions, the kernel takes %d", len(p.reversed), maxProgram)}
	}
	return p.instructions(), nil
}
