package cni

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// Type is the plugin's type: the name of the file that runtimes execute.
const Type = "railbed"

// Versions are the versions of the CNI specification that the plugin supports, the best first. Only
// 1.1.0 has GC and STATUS.
var Versions = []string{"1.1.0", "1.0.0", "0.4.0"}

// config is the plugin's configuration: the fields of all plugins, and the port and the testbed.
type config struct {
	types.PluginConf
	Testbed string `json:"testbed"`
	// Directory is the testbed's run directory.
	Directory string `json:"directory"`
	// Owner is the user id of the testbed's owner. Default: root. The plugin's own user is always
	// accepted.
	Owner int `json:"owner,omitempty"`
	// Port and Group are as in Request. A port in the container's own arguments takes precedence:
	// args.cni.port, which Multus sets from cni-args, or RAILBED_PORT of CNI_ARGS.
	Port  string `json:"port,omitempty"`
	Group string `json:"group,omitempty"`
	// IsDefaultGateway directs the container's default route into the fabric.
	IsDefaultGateway bool `json:"isDefaultGateway,omitempty"`
	Args             struct {
		CNI struct {
			Port string `json:"port"`
		} `json:"cni"`
	} `json:"args"`
}

// portArgument is the name of a port in CNI_ARGS.
const portArgument = "RAILBED_PORT"

// load reads a configuration from a runtime, with the container's arguments.
func load(text []byte, arguments string) (*config, error) {
	c := &config{}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "read network configuration: "+err.Error(), "")
	}
	wrong := func(format string, args ...any) error {
		return types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf(format, args...),
			"railbed cni config TESTBED prints a valid configuration")
	}
	if c.Args.CNI.Port != "" {
		c.Port = c.Args.CNI.Port
	}
	for pair := range strings.SplitSeq(arguments, ";") {
		if name, value, _ := strings.Cut(pair, "="); name == portArgument {
			c.Port = value
		}
	}
	switch {
	case c.Testbed == "":
		return nil, wrong("network %s: testbed is missing; want the name of a testbed", c.Name)
	case !filepath.IsAbs(c.Directory):
		return nil, wrong("network %s: directory is %q; want the absolute path of the run directory of "+
			"testbed %s", c.Name, c.Directory, c.Testbed)
	}
	return c, nil
}

// List is a configuration list (.conflist) for a testbed.
type List struct {
	Version string   `json:"cniVersion"`
	Name    string   `json:"name"`
	Plugins []Listed `json:"plugins"`
}

// Listed is the plugin's entry in a list.
type Listed struct {
	Type             string `json:"type"`
	Testbed          string `json:"testbed"`
	Directory        string `json:"directory"`
	Owner            int    `json:"owner,omitempty"`
	Port             string `json:"port,omitempty"`
	Group            string `json:"group,omitempty"`
	IsDefaultGateway bool   `json:"isDefaultGateway,omitempty"`
}

// NewList makes the list for a network of one testbed, named railbed-TESTBED by default.
func NewList(version, name string, one Listed) (*List, error) {
	if one.Port != "" && one.Group != "" {
		return nil, errors.New("port and group are both given, want only one of them")
	}
	one.Type = Type
	return &List{Version: version, Name: cmp.Or(name, "railbed-"+one.Testbed), Plugins: []Listed{one}}, nil
}
