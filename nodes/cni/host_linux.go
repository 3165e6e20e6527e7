package cni

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"railbed/internal/kernel"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
)

// CheckHost checks that the host of the calling thread can provide a plan's network outside the
// fabric. The errors name published ports that are taken, subnets in use, and an internet to which
// the host does not forward, each with its place in the file. testbedOf returns the name of the
// testbed that a process serves, or "".
func CheckHost(p *plan.Plan, testbedOf func(pid int) string) error {
	m := p.Management
	if m == nil {
		return nil
	}
	var errs []error
	for _, n := range p.Nodes {
		if n.Management == nil {
			continue
		}
		for _, published := range n.Management.Publish {
			if err := taken(published); err != nil {
				errs = append(errs, refusedPort(m, published, n.Name, whoHas(published, err, testbedOf)))
			}
		}
	}
	if _, wanted := m.Where["internet"]; wanted {
		errs = append(errs, forwards(m))
	}
	conn, err := kernel.Open()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	defer conn.Close()
	return errors.Join(append(errs, freeSubnet(conn, p, -1))...)
}

func refused(where, what, reason, remedy string) error {
	return fmt.Errorf("%s: %w", where,
		&verdict.UnsupportedError{Feature: what, Reason: reason, Remedy: remedy})
}

// forwards checks that the host of the calling thread forwards IPv4.
func forwards(m *plan.Management) error {
	setting, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	if err == nil && strings.TrimSpace(string(setting)) != "1" {
		return refused(m.Where["internet"], "internet",
			"the host does not forward packets (net.ipv4.ip_forward is 0)",
			"allow it with sysctl -w net.ipv4.ip_forward=1, or remove internet")
	}
	return err
}

// freeSubnet returns an error if the host has routes into the network's subnets, except through the
// interface with index own. Such routes and the network's would hide each other.
func freeSubnet(conn *kernel.Conn, p *plan.Plan, own int) error {
	routes, err := conn.AllRoutes()
	if err != nil {
		return err
	}
	inUse := func(subnet netip.Prefix) (netip.Prefix, bool) {
		for _, r := range routes {
			theirs := !slices.ContainsFunc(r.Hops, func(hop kernel.NextHop) bool { return hop.Index == own })
			wide := 1 // for everywhere, whole or in halves
			if r.Dst.Addr().Is6() {
				wide = 8 // for all unique local addresses (RFC 4193)
			}
			if r.Dst.Bits() > wide && r.Dst.Overlaps(subnet) && theirs {
				return r.Dst, true
			}
		}
		return netip.Prefix{}, false
	}
	var errs []error
	for _, family := range []struct {
		subnet    netip.Prefix
		place     string
		addressed string
		draw      func(testbed string, turn int) netip.Prefix
	}{
		{p.Management.Subnet, "subnet", "management4", plan.DrawManagement},
		{p.Management.Subnet6, "subnet6", "management6", plan.DrawManagement6},
	} {
		by, used := inUse(family.subnet)
		if !used {
			continue
		}
		remedy := "want another subnet as addressing." + family.addressed
		for turn := range 1 << 10 {
			if other := family.draw(p.Name, turn); other != family.subnet {
				if _, used := inUse(other); !used {
					remedy = fmt.Sprintf("want a free subnet, as addressing: {%s: %s}", family.addressed,
						quoted(other))
					break
				}
			}
		}
		errs = append(errs, refused(p.Management.Where[family.place], "subnet "+family.subnet.String(),
			fmt.Sprintf("the host has a route to %s", by), remedy))
	}
	return errors.Join(errs...)
}

// quoted formats a prefix for a file: colons need quotes.
func quoted(prefix netip.Prefix) string {
	if prefix.Addr().Is6() {
		return strconv.Quote(prefix.String())
	}
	return prefix.String()
}

// whoHas explains why a port cannot be had, and names the program that has it.
func whoHas(p spec.Published, err error, testbedOf func(pid int) string) string {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err.Error()
	}
	pid := holder(p)
	if pid == 0 {
		return "the port is taken"
	}
	if testbed := testbedOf(pid); testbed != "" {
		return "the port is taken by testbed " + testbed
	}
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return fmt.Sprintf("the port is taken by %s (process %d)", strings.TrimSpace(string(name)), pid)
}

// holder returns a process that has a port in the calling thread's network, or 0.
func holder(p spec.Published) int {
	sockets := map[string]bool{}
	for _, table := range []string{p.Protocol, p.Protocol + "6"} {
		file, err := os.Open("/proc/thread-self/net/" + table)
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() { // sl local_address rem_address st ... inode, as in proc(5)
			fields := strings.Fields(lines.Text())
			const local, state, inode, listens = 1, 3, 9, "0A"
			if len(fields) > inode && strings.HasSuffix(fields[local], fmt.Sprintf(":%04X", p.HostPort)) &&
				(p.Protocol == "udp" || fields[state] == listens) {
				sockets["socket:["+fields[inode]+"]"] = true
			}
		}
		file.Close()
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && sockets[target] {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
			return pid
		}
	}
	return 0
}
