package cli

import (
	"github.com/spf13/cobra"

	"railbed/capture/layers"
)

func newDissectorCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "dissector",
		Short: "Print Wireshark's dissectors of Railbed's protocols and records",
		Long: `Dissector prints a Lua script with which Wireshark and tshark (tried with 4.0)
show reliable datagrams (rd), in-band telemetry, in-network aggregation and gentle
flow control: every field, whether checks and sums are right, which packets an
acknowledgement names, what was trimmed. Records of switches become fields whose
names begin with railbed, as in railbed decode.
Wireshark loads it from its folder for plugins, which may have to be created (Help,
About, Folders shows the path). Railbed wireshark install does that, and more.`,
		Example: `  railbed dissector > ~/.local/lib/wireshark/plugins/railbed.lua
  railbed dissector > railbed.lua && tshark -X lua_script:railbed.lua -r run.pcapng -Y 'rd.type == 4'`,
		Args: exactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			_, err := a.stdout.Write(layers.Dissector)
			return err
		},
	}
}
