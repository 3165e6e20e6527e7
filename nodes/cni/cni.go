// Package cni lets container runtimes attach their containers to a running testbed, by the
// Container Network Interface (CNI).
//
// A node of runtime cni has a place in the fabric, a name, addresses and routes, but no programs.
// Its network stack is in a container that another runtime starts and ends. That runtime calls the
// plugin (Plugin). The plugin requests a node from the testbed's supervisor and makes the node's
// NIC in the container's network namespace. It passes the NIC's far end to the supervisor as an
// open descriptor. So the plugin needs rights in the container's namespace alone, and no link
// crosses from one user namespace into another.
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

// Key identifies an attachment in the CNI specification.
type Key struct {
	Container string `json:"container"`
	Interface string `json:"interface"`
}

// Request is a request for a node.
type Request struct {
	Key
	// Network is the name of the configuration, for GC.
	Network string `json:"network"`
	// Namespace is the path of the container's network namespace, for display.
	Namespace string `json:"namespace"`
	// Port is the node, or one of its NICs, NODE:NIC. Without it the plugin gets the first free
	// port of Group, a pattern of such names. An empty Group stands for all nodes of runtime cni.
	// All NICs of a node belong to one container. So a container that has a NIC gets the other NICs
	// of that node first. Of these, the NIC with the name of the interface comes first.
	Port  string `json:"port,omitempty"`
	Group string `json:"group,omitempty"`
	// DefaultRoute directs the container's default route into the fabric.
	DefaultRoute bool `json:"default_route,omitempty"`
}

// Attached describes the container that has a NIC.
type Attached struct {
	Request
	Since time.Time `json:"since"`
	// Joined is true if the port exists. Otherwise the plugin is still making the port.
	Joined bool `json:"joined"`
	// Made is the attachment that the plugin has to make.
	Made *fabric.Attachment `json:"made,omitempty"`
}

// Port is a NIC of a node of runtime cni.
type Port struct {
	Node string `json:"node"`
	NIC  string `json:"nic"`
	// Addresses are the node's and the NIC's addresses.
	Addresses []string  `json:"addresses"`
	Attached  *Attached `json:"attached,omitempty"`
}

// Collect frees all attachments of a network except the valid attachments.
type Collect struct {
	Network string `json:"network"`
	Valid   []Key  `json:"valid"`
}

// Testbed is the part of a running testbed that a plugin uses.
type Testbed interface {
	// AttachContainer reserves a NIC, calls make to attach it, and takes over the fabric.ForeignNIC that
	// make returns. It consumes that value. If any step fails, the NIC is free again.
	AttachContainer(ctx context.Context, r Request,
		make func(*fabric.Attachment) (*fabric.ForeignNIC, error)) (*fabric.Attachment, error)
	// DetachContainer frees a NIC. It returns the attachments of the container's interface, failed
	// ADDs included.
	DetachContainer(ctx context.Context, k Key) ([]Attached, error)
	// ContainerPorts returns all NICs of nodes of runtime cni.
	ContainerPorts(ctx context.Context) ([]Port, error)
	// CollectContainers frees NICs, and returns their former attachments.
	CollectContainers(ctx context.Context, c Collect) ([]Attached, error)
}

// Errors of Testbed.
var (
	// ErrNoPort means that the testbed has no such port.
	ErrNoPort = errors.New("no such port")
	// ErrTaken means that no such port is free now.
	ErrTaken = errors.New("no free port")
	// ErrTwice means that the container already has a NIC with this interface name.
	ErrTwice = errors.New("attached already")
)

// Runtime makes nodes whose programs another runtime starts.
type Runtime struct{}

// Create implements nodes.Runtime.
func (Runtime) Create(_ context.Context, config nodes.Config) (nodes.Node, error) {
	return node{config}, nil
}

type node struct{ config nodes.Config }

// Start implements nodes.Node.
func (n node) Start(context.Context, nodes.Command) (nodes.Process, error) {
	return nil, fmt.Errorf("start a program in %s: %w: node %s is a container (runtime: cni), in which "+
		"only its own runtime starts programs; railbed inspect %s shows the attached container",
		n.config.Node.Name, nodes.ErrNotFound, n.config.Node.Name, n.config.Testbed)
}

// Processes implements nodes.Node. No process belongs to the testbed.
func (node) Processes() (int, error) { return 0, nil }

// Close implements nodes.Node.
func (n node) Close() error {
	if n.config.Cgroup != nil {
		return n.config.Cgroup.Close()
	}
	return nil
}
