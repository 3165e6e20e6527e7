package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"railbed/testbed/ui"
)

func newUICommand(a *app) *cobra.Command {
	var port int
	cmd := &cobra.Command{
		Use:   "ui [TESTBED]",
		Short: "Show a running testbed in the browser",
		Long: `Serve the live view, a web page of a running testbed, until Ctrl-C or the testbed's end: the
topology with the load of its links, their queues and counters, and the events as
they come. Links can be changed and taken down on it, and the packets of a link
recorded and listed.

The command prints the page's URL. Its token is a secret: whoever has the URL can do
on this machine what the page can. The page listens on 127.0.0.1 alone. To open it
from another machine, forward the port: ssh -t -L 8080:127.0.0.1:8080 HOST. TESTBED is
needed only when several are up.`,
		Example:           "  railbed ui\n  railbed ui quickstart --port 8080",
		Args:              rangeArgs(0, 1),
		ValidArgsFunction: completeTestbeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			if port < 0 || port > 65535 {
				return usage("--port %d: want a port from 0 to 65535", port)
			}
			tb, err := openTestbed(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			server, err := ui.Listen(tb, port)
			if err != nil {
				return err
			}
			if a.output == "json" {
				err = a.printJSONLine(map[string]string{"testbed": tb.Name(), "url": server.URL()})
			} else {
				a.show("%s", server.URL())
				a.say("live view of testbed %s; Ctrl-C ends it", tb.Name())
			}
			if err != nil {
				return err
			}
			if err := server.Serve(cmd.Context()); err != nil {
				return err
			}
			if cmd.Context().Err() == nil {
				a.say("testbed %s was taken down", tb.Name())
			}
			return nil
		},
	}
	cmd.Flags().IntVarP(&port, "port", "p", 0, "`NUMBER` of the port on 127.0.0.1; 0 is any free port")
	return cmd
}
