package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"railbed/capture/wireshark"
	"railbed/internal/rundir"
	"railbed/testbed"
	"railbed/testbed/supervisor"
)

func newWiresharkCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wireshark",
		Short: "Watch running testbeds in Wireshark",
		Long: `Install Railbed's files in your own folders of Wireshark (tried with 4.0):
  - a plugin (extcap) that puts your running testbeds into the list of interfaces; an
    interface is the whole fabric as one stream, the same as railbed capture writes,
  - the dissectors of reliable datagrams, telemetry, aggregation and gentle flow control,
    and fields of what switches recorded: railbed.verdict, reason, depth, node, message
    and rank,
  - a profile, Railbed, with columns and colours of these fields.
Install and uninstall change no file that railbed did not write.`,
		Example: `  railbed wireshark install
  railbed up cluster.yaml && wireshark -C Railbed -k -i railbed:cluster
  tshark -i railbed:cluster -Y 'railbed.verdict == "drop"'`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newWiresharkInstallCommand(a), newWiresharkUninstallCommand(a),
		newWiresharkStatusCommand(a))
	return cmd
}

// wiresharkFlags adds the flags that install, uninstall and status share.
func wiresharkFlags(cmd *cobra.Command, o *wireshark.Options) {
	cmd.Flags().StringVar(&o.Home.Dir, "dir", "", "`DIR` in place of your home directory")
	completeFlag(cmd, "dir", completeDirs)
}

func newWiresharkInstallCommand(a *app) *cobra.Command {
	var o wireshark.Options
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Put Railbed's plugin, dissectors and profile into your Wireshark",
		Long: `Write the files, and say where. The folders are those that tshark -G folders names, or
Wireshark's defaults if tshark is not installed. If a file of another origin is in
the way, nothing is written. A second call brings the files up to date.`,
		Example: "  railbed wireshark install && railbed doctor wireshark-plugin",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := programPath()
			if err != nil {
				return err
			}
			o.Program = program
			result, err := wireshark.Install(cmd.Context(), o)
			return errors.Join(err, a.printWireshark(result))
		},
	}
	wiresharkFlags(cmd, &o)
	cmd.Flags().BoolVar(&o.Force, "force", false, "write over files that railbed did not write")
	return cmd
}

func newWiresharkUninstallCommand(a *app) *cobra.Command {
	var o wireshark.Options
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Railbed's plugin, dissectors and profile from your Wireshark",
		Long: `Remove the files that install wrote, and the directories that it made, if these are
empty. A file that was changed since stays.`,
		Example: "  railbed wireshark uninstall",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			result, err := wireshark.Uninstall(cmd.Context(), o)
			return errors.Join(err, a.printWireshark(result))
		},
	}
	wiresharkFlags(cmd, &o)
	cmd.Flags().BoolVar(&o.Force, "force", false, "remove files that were changed since, too")
	return cmd
}

func newWiresharkStatusCommand(a *app) *cobra.Command {
	var o wireshark.Options
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show which of Railbed's files are in your Wireshark",
		Example: "  railbed wireshark status",
		Args:    exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			program, err := programPath()
			if err != nil {
				return err
			}
			o.Program = program
			status, err := wireshark.GetStatus(cmd.Context(), o)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.printJSON(status)
			}
			rows := a.newTable("file", "state", "for")
			rows.SetColumnConfigs(nil) // users copy paths, so paths must not wrap
			for _, f := range status.Files {
				rows.AppendRow(table.Row{f.Path, f.State, f.What})
			}
			rows.Render()
			fmt.Fprintln(a.stdout)
			a.show("%s", status.Tshark)
			return nil
		},
	}
	wiresharkFlags(cmd, &o)
	return cmd
}

// printWireshark prints what an installation did.
func (a *app) printWireshark(result wireshark.Result) error {
	if a.output == "json" {
		return a.printJSON(result)
	}
	for _, f := range result.Wrote {
		a.show("wrote %s (%s)", f.Path, f.What)
	}
	for _, path := range result.Removed {
		a.show("removed %s", path)
	}
	for _, kept := range result.Kept {
		a.show("kept %s: %s", kept.Path, kept.Why)
	}
	return nil
}

// programPath returns a path of this program that stays valid when the program is upgraded: its name in
// PATH, if this is the program there.
func programPath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	found, err := exec.LookPath("railbed")
	if err != nil {
		return self, nil
	}
	first, failed := os.Stat(self)
	second, err := os.Stat(found)
	if failed != nil || err != nil || !os.SameFile(first, second) {
		return self, nil
	}
	return found, nil
}

// newExtcapCommand makes the command that the plugin executes. The command parses Wireshark's arguments by
// itself, because they follow other rules than Railbed's.
func newExtcapCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "extcap",
		Short:  "Answer Wireshark, which calls this as its plugin (extcap)",
		Hidden: true,
		Long: `Extcap answers calls of Wireshark as extcap(4) describes. Railbed wireshark install
tells Wireshark of it.`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			version := "unknown"
			if build, ok := debug.ReadBuildInfo(); ok {
				version = build.Main.Version
			}
			plugin := &wireshark.Plugin{Testbeds: running{}, Version: version, Stdout: a.stdout}
			return plugin.Run(cmd.Context(), args)
		},
	}
}

// running are the running testbeds of the user, for Wireshark.
type running struct{}

// Running implements wireshark.Testbeds.
func (running) Running() (names []string, err error) {
	dirs, err := rundir.List()
	for _, dir := range dirs {
		if dir.Running() {
			names = append(names, dir.Name)
		}
	}
	return names, err
}

// Taps implements wireshark.Testbeds.
func (running) Taps(ctx context.Context, name string) ([]string, error) {
	tb, err := testbed.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return tapNames(tb.Plan()), nil
}

// Record implements wireshark.Testbeds.
func (running) Record(ctx context.Context, name string, r wireshark.Recording, w io.Writer) error {
	tb, err := testbed.Open(ctx, name)
	if err != nil {
		return err
	}
	recording, err := tb.Capture(ctx, supervisor.CaptureRequest{At: r.Taps, Filter: r.Filter,
		SnapLen: r.SnapLen, Events: r.Events}, w)
	if err != nil {
		return err
	}
	<-recording.Done()
	stats, err := recording.Stop()
	if err == nil && stats.Dropped() > 0 {
		err = fmt.Errorf("the recording lost %d packets; record fewer taps or fewer bytes of each packet",
			stats.Dropped())
	}
	return err
}
