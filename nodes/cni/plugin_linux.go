package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"railbed/fabric"
	"railbed/internal/kernel"
)

// patience bounds a call: a runtime would wait for ever.
const patience = 45 * time.Second

// Error codes: of the specification, 1.1.0, and, from 100 on, of this plugin.
const (
	notAvailable    = 50
	attachedAlready = 100
)

// ErrDown means that the testbed is not up. Plugin.Open wraps it.
var ErrDown = errors.New("testbed is not up")

// Plugin is the CNI plugin, for one call.
type Plugin struct {
	// Open connects to a testbed by its name and run directory. The directory must belong to owner
	// or to this process's user.
	Open func(ctx context.Context, name, directory string, owner int) (Testbed, error)
	// About describes the plugin to users who start it by hand.
	About string
}

// Main runs the command in the environment and standard input, as the specification requires, and
// returns the exit code.
func (p *Plugin) Main() int {
	call := func(fn func(context.Context, *skel.CmdArgs, *config) error) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			config, err := load(args.StdinData, args.Args)
			if err != nil {
				return err
			}
			return fn(ctx, args, config)
		}
	}
	err := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add: call(p.add), Del: call(p.del), Check: call(p.check), GC: call(p.gc), Status: call(p.status),
	}, version.PluginSupports(Versions...), p.About)
	if err == nil {
		return 0
	}
	_ = err.Print() // there is no other way to report it
	return 1
}

// code converts a testbed's error to an error with a code of the specification.
func code(err error) error {
	var number uint
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrTaken), errors.Is(err, ErrDown):
		number = types.ErrTryAgainLater
	case errors.Is(err, ErrNoPort):
		number = types.ErrInvalidNetworkConfig
	case errors.Is(err, ErrTwice):
		number = attachedAlready
	default:
		number = types.ErrInternal
	}
	return types.NewError(number, err.Error(), "")
}

func (p *Plugin) add(ctx context.Context, args *skel.CmdArgs, config *config) error {
	before, err := previousResult(config)
	if err != nil {
		return err
	}
	ns, tb, err := p.both(ctx, args, config)
	if err != nil {
		return err
	}
	defer ns.Close()
	made, err := tb.AttachContainer(ctx, Request{
		Key: Key{args.ContainerID, args.IfName}, Network: config.Name, Namespace: args.Netns,
		Port: config.Port, Group: config.Group, DefaultRoute: config.IsDefaultGateway,
	}, func(a *fabric.Attachment) (*fabric.ForeignNIC, error) {
		if err := a.Check(config.IsDefaultGateway); err != nil {
			return nil, err
		}
		return fabric.Attach(ctx, a, args.IfName, args.Netns, ns)
	})
	if err != nil {
		return code(err)
	}
	return types.PrintResult(result(before, made, args.IfName, args.Netns), config.CNIVersion)
}

// both opens the container's namespace and the testbed.
func (p *Plugin) both(ctx context.Context, args *skel.CmdArgs, config *config) (*kernel.Namespace, Testbed,
	error) {
	ns, err := kernel.OpenNamespace(args.Netns)
	if err != nil {
		return nil, nil, types.NewError(types.ErrInvalidEnvironmentVariables, err.Error(),
			"set CNI_NETNS to the path of the container's network namespace")
	}
	tb, err := p.Open(ctx, config.Testbed, config.Directory, config.Owner)
	if err != nil {
		return nil, nil, code(errors.Join(err, ns.Close()))
	}
	return ns, tb, nil
}

// result adds the new attachment to the results of earlier plugins in the list: the NIC with its
// addresses, and the node's own addresses on the loopback.
func result(before *current.Result, made *fabric.Attachment, name, namespace string) *current.Result {
	r := before
	if r == nil {
		r = &current.Result{CNIVersion: Versions[0]}
	}
	nic := made.Interface()
	add := func(i *current.Interface, prefixes []netip.Prefix) {
		i.Sandbox = namespace
		for _, prefix := range prefixes {
			r.IPs = append(r.IPs, &current.IPConfig{Interface: current.Int(len(r.Interfaces)),
				Address: ipNet(prefix)})
		}
		r.Interfaces = append(r.Interfaces, i)
	}
	add(&current.Interface{Name: name, Mac: kernel.MACText(nic.MAC), Mtu: nic.MTU}, nic.Addrs)
	if len(made.Node.Loopbacks) > 0 {
		add(&current.Interface{Name: loopback, Mac: kernel.MACText(kernel.MAC{})}, made.Node.Loopbacks)
	}
	for _, route := range made.Main() {
		to := &types.Route{Dst: ipNet(route.Dst)}
		if route.NextHops[0].Via.IsValid() {
			to.GW = route.NextHops[0].Via.AsSlice()
		}
		r.Routes = append(r.Routes, to)
	}
	return r
}

func ipNet(prefix netip.Prefix) net.IPNet {
	return net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}

// del frees the NIC, and removes its remains from the container. It is no error if they or the
// testbed are gone already.
func (p *Plugin) del(ctx context.Context, args *skel.CmdArgs, config *config) error {
	nic, loopbacks, err := previous(config, args.IfName)
	if err != nil {
		return err
	}
	tb, err := p.Open(ctx, config.Testbed, config.Directory, config.Owner)
	if err != nil && !errors.Is(err, ErrDown) {
		return code(err)
	}
	var had []Attached
	if err == nil {
		if had, err = tb.DetachContainer(ctx, Key{args.ContainerID, args.IfName}); err != nil {
			return code(err)
		}
		for _, was := range had {
			if err := was.Made.Check(config.IsDefaultGateway); err != nil {
				return code(err)
			}
			nic, loopbacks = append(nic, was.Made.Addresses()...),
				append(loopbacks, was.Made.Node.Loopbacks...)
		}
		if loopbacks, err = unused(ctx, tb, args.ContainerID, loopbacks); err != nil {
			return code(err)
		}
	}
	if args.Netns == "" {
		return nil
	}
	ns, err := kernel.OpenNamespace(args.Netns)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer ns.Close()
	err = fabric.Detach(args.IfName, nic, loopbacks, ns)
	for _, was := range had {
		err = errors.Join(err, was.Made.Yield(ns))
	}
	return err
}

// unused removes from loopbacks the addresses that the container has by another NIC of the node.
func unused(ctx context.Context, tb Testbed, container string, loopbacks []netip.Prefix) ([]netip.Prefix,
	error) {
	ports, err := tb.ContainerPorts(ctx)
	for _, p := range ports {
		if p.Attached != nil && p.Attached.Made != nil && p.Attached.Container == container {
			loopbacks = slices.DeleteFunc(loopbacks, func(l netip.Prefix) bool {
				return slices.Contains(p.Attached.Made.Node.Loopbacks, l)
			})
		}
	}
	return loopbacks, err
}

// loopback is the interface with a node's own addresses.
const loopback = "lo"

// previousResult returns the results of plugins so far, from the runtime's record, or nil.
func previousResult(config *config) (*current.Result, error) {
	if config.RawPrevResult == nil {
		return nil, nil
	}
	err := version.ParsePrevResult(&config.PluginConf)
	var was *current.Result
	if err == nil {
		was, err = current.NewResultFromResult(config.PrevResult)
	}
	if err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "read prevResult: "+err.Error(), "")
	}
	return was, nil
}

// previous returns the addresses in an ADD's result: of the NIC and of the loopback. It ignores
// addresses of other plugins' interfaces.
func previous(config *config, name string) (nic []netip.Addr, loopbacks []netip.Prefix, err error) {
	was, err := previousResult(config)
	if err != nil || was == nil {
		return nil, nil, err
	}
	for _, ip := range was.IPs {
		address, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok || ip.Interface == nil || *ip.Interface < 0 || *ip.Interface >= len(was.Interfaces) {
			continue
		}
		address = address.Unmap()
		switch was.Interfaces[*ip.Interface].Name {
		case loopback:
			loopbacks = append(loopbacks, netip.PrefixFrom(address, address.BitLen()))
		case name:
			nic = append(nic, address)
		}
	}
	return nic, loopbacks, nil
}

// check compares the container with its attachment, and with the runtime's record.
func (p *Plugin) check(ctx context.Context, args *skel.CmdArgs, config *config) error {
	ns, tb, err := p.both(ctx, args, config)
	if err != nil {
		return err
	}
	defer ns.Close()
	ports, err := tb.ContainerPorts(ctx)
	if err != nil {
		return code(err)
	}
	key := Key{args.ContainerID, args.IfName}
	at := slices.IndexFunc(ports, func(p Port) bool {
		return p.Attached != nil && p.Attached.Joined && p.Attached.Key == key
	})
	if at < 0 {
		return code(fmt.Errorf("check %s of container %s: testbed %s has no such attachment", args.IfName,
			args.ContainerID, config.Testbed))
	}
	made := ports[at].Attached.Made
	if err := made.Check(config.IsDefaultGateway); err != nil {
		return code(err)
	}
	nic, _, err := previous(config, args.IfName)
	if err != nil {
		return err
	}
	for _, address := range nic {
		if !slices.Contains(made.Addresses(), address) {
			return code(fmt.Errorf("check %s of container %s: prevResult has address %s, but node %s "+
				"has %v", args.IfName, args.ContainerID, address, made.Node.Name, made.Addresses()))
		}
	}
	return code(fabric.CheckAttached(ctx, made, args.IfName, ns))
}

// gc frees attachments that the runtime does not list as valid.
func (p *Plugin) gc(ctx context.Context, _ *skel.CmdArgs, config *config) error {
	tb, err := p.Open(ctx, config.Testbed, config.Directory, config.Owner)
	if errors.Is(err, ErrDown) {
		return nil // and with it all attachments
	}
	if err != nil {
		return code(err)
	}
	collect := Collect{Network: config.Name, Valid: []Key{}}
	for _, valid := range config.ValidAttachments {
		collect.Valid = append(collect.Valid, Key{valid.ContainerID, valid.IfName})
	}
	_, err = tb.CollectContainers(ctx, collect)
	return code(err)
}

// status reports whether an ADD could succeed.
func (p *Plugin) status(ctx context.Context, _ *skel.CmdArgs, config *config) error {
	not := func(err error) error { return types.NewError(notAvailable, err.Error(), "") }
	tb, err := p.Open(ctx, config.Testbed, config.Directory, config.Owner)
	if err != nil {
		return not(err)
	}
	ports, err := tb.ContainerPorts(ctx)
	if err != nil {
		return not(err)
	}
	if _, err := free(ports, Request{Port: config.Port, Group: config.Group}, config.Testbed); err != nil {
		return not(err)
	}
	return nil
}
