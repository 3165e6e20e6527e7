package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"railbed/internal/reexec"
	"railbed/internal/rundir"
	"railbed/nodes/cni"
	"railbed/plan"
	"railbed/testbed"
)

// cniCommand is the environment variable by which container runtimes call plugins.
const cniCommand = "CNI_COMMAND"

// plugin returns this program as a CNI plugin.
func plugin() *cni.Plugin {
	about := "CNI plugin " + cni.Type
	if build, ok := debug.ReadBuildInfo(); ok {
		about += " " + build.Main.Version
	}
	return &cni.Plugin{About: about,
		Open: func(ctx context.Context, name, directory string, owner int) (cni.Testbed, error) {
			tb, err := testbed.OpenDir(ctx, rundir.Dir{Name: name, Path: directory}, owner)
			if errors.Is(err, testbed.ErrNotRunning) {
				return nil, fmt.Errorf("%w: %w", cni.ErrDown, err)
			}
			if err != nil {
				return nil, err
			}
			return tb, nil
		}}
}

func newCniCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cni",
		Short: "Attach containers of other runtimes to a testbed",
		Long: fmt.Sprintf(`Attach containers of any runtime that speaks the Container Network Interface
to nodes of a running testbed. Such a node has runtime: cni in the testbed's file: a
name, NICs, addresses and routes, and no programs.

A runtime executes this program as its plugin, by the name %q in one of its
directories of plugins; railbed cni install puts it there. The configuration comes
from railbed cni config. The plugin needs rights in the container's network namespace
and to the testbed's directory, which belongs to the user who brought the testbed up.

It supports the versions %s of the specification: ADD, DEL and
CHECK, and with 1.1.0 also GC and STATUS.`, cni.Type, strings.Join(cni.Versions, ", ")),
		Example: `  railbed up cluster.yaml                                # with nodes: {h2: {runtime: cni}}
  railbed cni install /opt/cni/bin
  railbed cni config cluster > /etc/cni/net.d/cluster.conflist
  cnitool add railbed-cluster /run/netns/mine            # or podman, containerd, Kubernetes`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Getenv(cniCommand) == "" {
				return cmd.Help()
			}
			if code := plugin().Main(); code != 0 {
				return &exitError{Code: code}
			}
			return nil
		},
	}
	cmd.AddCommand(newCniConfigCommand(a), newCniInstallCommand(a))
	return cmd
}

func newCniConfigCommand(a *app) *cobra.Command {
	var listed cni.Listed
	var version, network string
	cmd := &cobra.Command{
		Use:   "config [TESTBED]",
		Short: "Print the network configuration list (.conflist) of a testbed",
		Long: `Print a network configuration for a runtime. A container gets
  - the next free node of runtime cni, without --port and --group,
  - the next free node of a group, with --group 'gpu[0-3]',
  - the named node, with --port gpu2.
The testbed need not be up.

Each ADD attaches one NIC. All NICs of a node belong to one container: its next ADD gets
another NIC of that node, if free the NIC with the interface's name (CNI_IFNAME).
--port gpu2:eth1 selects one NIC, and --group '*:eth1' one NIC of each node. So a network
for each rail (--name) gives a container the rails of the same node.

A container can request a node itself: by args.cni.port (cni-args in an annotation for
Multus) or by RAILBED_PORT in CNI_ARGS.

The container's default route stays unchanged: the testbed's addresses get routes of
their own. ADD fails if the container already has a route to one of them. Then give the
testbed other addresses, with the key addressing of its file.`,
		Example: `  railbed cni config cluster > /etc/cni/net.d/cluster.conflist
  railbed cni config cluster --group 'gpu[0-3]' --cni-version 1.0.0
  railbed cni config cluster --group '*:eth1' --name rail1`,
		Args:              rangeArgs(0, 1),
		ValidArgsFunction: completeTestbeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			} else {
				tb, err := openTestbed(cmd.Context(), "")
				if err != nil {
					return err
				}
				name = tb.Name()
			}
			dir, err := rundir.Of(name)
			if err != nil {
				return usage("%w", err)
			}
			listed.Testbed, listed.Directory, listed.Owner = dir.Name, dir.Path, os.Getuid()
			list, err := cni.NewList(version, network, listed)
			if err != nil {
				return usage("%w", err)
			}
			return a.printJSON(list)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&listed.Group, "group", "",
		"the next free node, or NODE:NIC, that matches `PATTERN` (default all nodes)")
	flags.StringVar(&listed.Port, "port", "", "only this `NODE` or NODE:NIC")
	flags.StringVar(&network, "name", "", "the network's `NAME`; default railbed-TESTBED")
	flags.BoolVar(&listed.IsDefaultGateway, "default-gateway", false,
		"direct the containers' default routes into the fabric")
	flags.StringVar(&version, "cni-version", cni.Versions[0],
		"`VERSION` of the specification: "+strings.Join(cni.Versions, ", "))
	completeFlag(cmd, "cni-version", oneOf(cni.Versions...))
	completeFlag(cmd, "port", func(cmd *cobra.Command, args []string, typed string) ([]string,
		cobra.ShellCompDirective) {
		name := strings.Join(args, "")
		return ofTestbed(&name, containerNames)(cmd, args, typed)
	})
	return cmd
}

// containerNames returns the nodes that containers of other runtimes can become, with their NICs.
func containerNames(p *plan.Plan) (names []string) {
	for _, n := range p.CNINodes() {
		names = append(names, n.Name)
		for _, nic := range n.NICs {
			names = append(names, n.Name+":"+nic.Name)
		}
	}
	return names
}

func newCniInstallCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "install DIR",
		Short: "Put the plugin into a runtime's directory of plugins",
		Long: `Copy this program to DIR/railbed, where container runtimes look for a plugin of this
type. Usual directories are /opt/cni/bin and /usr/lib/cni. An existing plugin is
replaced in one step, so that a runtime never finds an incomplete file.`,
		Example:           "  railbed cni install /opt/cni/bin",
		Args:              exactArgs(1),
		ValidArgsFunction: completeDirs,
		RunE: func(_ *cobra.Command, args []string) error {
			path := filepath.Join(args[0], cni.Type)
			if err := install(path); err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(map[string]string{"path": path})
			}
			fmt.Fprintln(a.stdout, path)
			return nil
		},
	}
}

// install copies this program to a path.
func install(path string) (err error) {
	from, err := os.Open(reexec.Self)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.CreateTemp(filepath.Dir(path), ".railbed-*")
	if err != nil {
		return fmt.Errorf("install plugin: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("install plugin: %w", err), os.Remove(to.Name()))
		}
	}()
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Chmod(0o755), to.Close()); err != nil {
		return err
	}
	return os.Rename(to.Name(), path)
}
