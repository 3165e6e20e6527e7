// Package cni lets container runtimes attach their containers to a running testbed, by the
// Container Network Interface (CNI).
//
// A node of runtime cni has a place in the fabric, a name, addresses and routes, but no programs:
// its network stack is in a container that another runtime starts and ends. That runtime calls the
// plugin (Plugin). The plugin asks the testbed's supervisor for a node, makes the node's NIC in the
// container's network namespace, and passes the NIC's far end to the supervisor as an open
// descriptor. So the plugin needs rights in the container's namespace alone, and no link crosses
// from one user namespace into another.
//
// The supervisor keeps a Table of the attached containers. When the supervisor ends, the
// descriptors are closed and the NICs disappear. When a container's namespace ends without a DEL,
// its node is free again.
package cni

import (
	"context"
	"errors"
	"fmt"
	"time"

	"railbed/fabric"
	"railbed/nodes"
)

// Key is what the CNI specification knows an attachment by.
type Key struct {
	Container string `json:"container"`
	Interface string `json:"interface"`
}

// Request asks for a node.
type Request struct {
	Key
	// Network is the name of the configuration, for GC.
	Network string `json:"network"`
	// Namespace is the path of the container's, for people.
	Namespace string `json:"namespace"`
	// Port is the node, or one of its NICs, NODE:NIC; or else it is the first free one of
	// Group, a pattern of such names, and of all nodes of runtime cni where that is empty.
	// A node's NICs are one container's: more of them go to the container that has one
	// already, and of those the one that is called as the interface goes first.
	Port  string `json:"port,omitempty"`
	Group string `json:"group,omitempty"`
	// DefaultRoute has the container's default route go into the fabric.
	DefaultRoute bool `json:"default_route,omitempty"`
}

// Attached is who has a NIC.
type Attached struct {
	Request
	Since time.Time `json:"since"`
	// Joined says that its port is there; else the plugin is at it.
	Joined bool `json:"joined"`
	// Made is what the plugin was told to make.
	Made *fabric.Attachment `json:"made,omitempty"`
}

// Port is a NIC of a node of runtime cni.
type Port struct {
	Node string `json:"node"`
	NIC  string `json:"nic"`
	// Addresses are the node's and the NIC's.
	Addresses []string  `json:"addresses"`
	Attached  *Attached `json:"attached,omitempty"`
}

// Collect frees what a network's attachments left behind: all but the valid ones.
type Collect struct {
	Network string `json:"network"`
	Valid   []Key  `json:"valid"`
}

// Testbed is a running testbed, as a plugin needs it.
type Testbed interface {
	// AttachContainer reserves a NIC, has make attach it, and takes the way to it over. What
	// make returns is used up. When any of it fails the NIC is free again.
	AttachContainer(ctx context.Context, r Request,
		make func(*fabric.Attachment) (*fabric.Way, error)) (*fabric.Attachment, error)
	// DetachContainer frees a NIC, and returns what the container had by the interface,
	// ADDs that came to nothing included.
	DetachContainer(ctx context.Context, k Key) ([]Attached, error)
	// ContainerPorts are all NICs of nodes of runtime cni.
	ContainerPorts(ctx context.Context) ([]Port, error)
	// CollectContainers frees NICs, and returns who had them.
	CollectContainers(ctx context.Context, c Collect) ([]Attached, error)
}

// Errors of Testbed.
var (
	// ErrNoPort wraps that the testbed has no such port.
	ErrNoPort = errors.New("no such port")
	// ErrTaken wraps that there is none free now.
	ErrTaken = errors.New("no free port")
	// ErrTwice wraps that the container has one by this interface.
	ErrTwice = errors.New("attached already")
)

// Runtime makes nodes whose programs are those of another runtime.
type Runtime struct{}

// Create implements nodes.Runtime.
func (Runtime) Create(_ context.Context, config nodes.Config) (nodes.Node, error) {
	return node{config}, nil
}

type node struct{ config nodes.Config }

// Start implements nodes.Node.
func (n node) Start(context.Context, nodes.Command) (nodes.Process, error) {
	return nil, fmt.Errorf("start a program in %s: %w: node %s is a container (runtime: cni), and what "+
		"runs in it is its own runtime's to start; railbed inspect %s says who is attached",
		n.config.Node.Name, nodes.ErrNotFound, n.config.Node.Name, n.config.Testbed)
}

// Processes implements nodes.Node: none is the testbed's.
func (node) Processes() (int, error) { return 0, nil }

// Close implements nodes.Node.
func (n node) Close() error {
	if n.config.Cgroup != nil {
		return n.config.Cgroup.Close()
	}
	return nil
}
