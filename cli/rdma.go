package cli

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"railbed/internal/reexec"
	"railbed/internal/verdict"
	"railbed/transports/roce/perftest"
)

func newRdmaCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rdma",
		Short: "Measure RDMA as perftest does, without an RDMA device",
		Long: `Measure RDMA as the perftest programs do, over RoCEv2 that this process speaks itself:
no RDMA device and no kernel module are needed, only the right to open raw sockets,
which programs in nodes have. The other end is the same command or the unmodified
program of perftest (ib_write_bw, ib_write_lat, ib_send_bw, ib_send_lat, ib_read_bw,
ib_atomic_bw) on a RoCEv2 device; options and tables are theirs, except that -o is
the output's format and --outs has no short form.

With two nodes of a running testbed a command starts both ends in them, prints the
client's output, and ends both. In a node or on a host it is one end: without an argument
it waits for one client, and with a host it connects to the server there.`,
		Example: `  railbed rdma write-bw h0 h1                       # h0 writes to h1
  railbed rdma read-bw h0:eth1 h1:eth1 -D 5         # over the second rail, for 5 s
  railbed rdma send-lat h0 h1 -s 64 -o json | jq '.latency[0].typical'`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, one := range []struct {
		test  perftest.Test
		what  string
		extra func(cmd *cobra.Command, o *rdmaOptions)
	}{
		{perftest.WriteBW, "the bandwidth of RDMA WRITE, as ib_write_bw does", nil},
		{perftest.WriteLat, "the latency of RDMA WRITE, as ib_write_lat does", nil},
		{perftest.SendBW, "the bandwidth of SEND, as ib_send_bw does", nil},
		{perftest.SendLat, "the latency of SEND, as ib_send_lat does", nil},
		{perftest.ReadBW, "the bandwidth of RDMA READ, as ib_read_bw does", nil},
		{perftest.AtomicBW, "the rate of atomic operations, as ib_atomic_bw does",
			func(cmd *cobra.Command, o *rdmaOptions) {
				cmd.Flags().StringVarP(&o.atomic, "atomic_type", "A", "FETCH_AND_ADD",
					"`OPERATION`: FETCH_AND_ADD or CMP_AND_SWAP")
				completeFlag(cmd, "atomic_type", oneOf("FETCH_AND_ADD", "CMP_AND_SWAP"))
			}},
	} {
		o := &rdmaOptions{config: perftest.Config{Test: one.test}}
		test := a.newRdmaTest(o, one.what)
		if one.extra != nil {
			one.extra(test, o)
		}
		cmd.AddCommand(test)
	}
	return cmd
}

// rdmaOptions are options that need conversion to become those of perftest.Config.
type rdmaOptions struct {
	config           perftest.Config
	duration, margin int // seconds
	connection       string
	atomic           string
	ignored          struct {
		frequency, events   bool
		port, inline, level int
	}
}

func (a *app) newRdmaTest(o *rdmaOptions, what string) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   o.config.Test.String() + " [HOST | CLIENT SERVER]",
		Short: "Measure " + what,
		Long: "Measure " + what + `.

CLIENT and SERVER are nodes of a running testbed, or NICs as NODE:NIC. The command
starts the server, then the client, and prints the client's output. Both get the other
options. Ctrl-C ends both. An error names the end and its node.

With a HOST the command is the client alone and connects to the server there. Without
arguments it is a server. Both ends want the same options.`,
		Example: fmt.Sprintf(`  railbed rdma %[1]v h0 h1
  railbed rdma %[1]v h0:eth1 h1:eth1 -n 100 --output json
  railbed exec h1 -- railbed rdma %[1]v              # the server alone, then
  railbed exec h0 -- railbed rdma %[1]v h1           # the client`, o.config.Test),
		Args:              rangeArgs(0, 2),
		ValidArgsFunction: ofTestbed(&name, nodesAndNICs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return &exitError{Code: verdict.ExitUsage, Err: err}
			}
			if o.config.Infinitely && a.output == "json" {
				return usage("--run_infinitely has no end at which JSON is written: remove one of them")
			}
			switch {
			case len(args) == 2:
				return a.rdmaBetween(cmd, o.config, name, args[0], args[1])
			case name != "":
				return usage("--testbed %s: want two nodes, the client and the server", name)
			case len(args) == 1:
				o.config.Server = args[0]
			}
			out := a.stdout
			if a.output == "json" {
				out = io.Discard
			}
			if !o.config.Test.Latency() {
				reexec.Batch()
			}
			result, err := perftest.Run(cmd.Context(), o.config, out)
			switch {
			case errors.Is(err, perftest.ErrConfig):
				return &exitError{Code: verdict.ExitUsage, Err: err}
			case err != nil:
				return err
			case a.output == "json":
				return a.printJSON(result)
			}
			return nil
		},
	}
	o.flags(cmd)
	if !o.config.Test.Latency() {
		o.bandwidthFlags(cmd)
	}
	if cmd.Flags().ShorthandLookup("o") != nil { // perftest has -o for --outs
		a.longOutputFlag(cmd)
	}
	// perftest uses the letters of --testbed and of the global flag -x for options of its own.
	cmd.Flags().StringVar(&name, "testbed", "",
		"`NAME` of the testbed of CLIENT and SERVER; needed only when several are up")
	completeFlag(cmd, "testbed", completeTestbeds)
	cmd.Flags().BoolVar(&a.trace, "trace", false, "")
	_ = cmd.Flags().MarkHidden("trace")
	return cmd
}

// flags adds the flags of all tests.
func (o *rdmaOptions) flags(cmd *cobra.Command) {
	f, c := cmd.Flags(), &o.config
	f.StringVarP(&c.NIC, "ib-dev", "d", "",
		"`NIC` whose first address is used (default the NIC with the route to the peer)")
	completeFlag(cmd, "ib-dev", cobra.NoFileCompletions)
	f.IntVarP(&c.Port, "port", "p", perftest.DefaultPort,
		"`NUMBER` of the TCP or rdma_cm port for the connection")
	f.IntVarP(&c.Size, "size", "s", 0, "`BYTES` of a message (default 65536, of latencies 2, of atomics 8)")
	f.BoolVarP(&c.All, "all", "a", false, "all sizes from 2 bytes to 8 MiB")
	f.IntVarP(&c.Iterations, "iters", "n", 0,
		"`NUMBER` of messages of each size (default 1000, of write-bw 5000)")
	f.IntVarP(&o.duration, "duration", "D", 0, "`TIME` to run in seconds, in place of a number of messages")
	f.IntVarP(&o.margin, "margin", "f", 0,
		"`TIME` in seconds at both ends of --duration that is not measured (default a quarter of it)")
	f.IntVarP(&c.TxDepth, "tx-depth", "t", 0, "`NUMBER` of requests under way (default 128, of latencies 1)")
	f.IntVarP(&c.QueuePairs, "qp", "q", 1, "`NUMBER` of queue pairs")
	f.IntVarP(&c.MTU, "mtu", "m", 0,
		"largest payload of a packet in `BYTES`, 256 to 4096 (default what the link carries)")
	f.IntVarP(&c.QPTimeout, "qp-timeout", "u", 14, "`NUMBER` n: an answer may take 4 us * 2^n")
	f.IntVarP(&c.TOS, "tos", "T", -1,
		"`NUMBER`: traffic class of packets, DSCP above two bits of ECN (default DSCP 26)")
	f.IntVarP(&c.GIDIndex, "gid-index", "x", 0, "`NUMBER`, only printed: the address determines the GID")
	f.StringVarP(&o.connection, "connection", "c", "RC", "`SERVICE`: RC")
	completeFlag(cmd, "connection", oneOf("RC"))
	f.BoolVarP(&c.CM, "rdma_cm", "R", false, "connect the queue pairs by rdma_cm; implies -z")
	f.BoolVarP(&c.ExchangeCM, "com_rdma_cm", "z", false,
		"exchange parameters over a queue pair that rdma_cm connects, instead of TCP")
	f.BoolVarP(&o.ignored.frequency, "CPU-freq", "F", false, "no effect")
	f.BoolVarP(&o.ignored.events, "events", "e", false,
		"no effect: the command always waits for completions")
	f.IntVarP(&o.ignored.port, "ib-port", "i", 1, "`NUMBER` of the device's port: 1")
	f.IntVarP(&o.ignored.inline, "inline_size", "I", 0, "`BYTES`, no effect")
	f.IntVarP(&o.ignored.level, "sl", "S", 0, "`NUMBER`, no effect over Ethernet")
	if c.Test == perftest.SendBW || c.Test == perftest.SendLat {
		f.IntVarP(&c.RxDepth, "rx-depth", "r", 512, "`NUMBER` of receives that are posted")
	}
	f.BoolVar(&c.Verify, "verify", false,
		"check for each size that the received data is the data that railbed rdma sends")
}

// bandwidthFlags adds the flags of the tests of bandwidth.
func (o *rdmaOptions) bandwidthFlags(cmd *cobra.Command) {
	f, c := cmd.Flags(), &o.config
	f.BoolVarP(&c.Bidirectional, "bidirectional", "b", false, "both ends send")
	f.BoolVar(&c.Gigabits, "report_gbits", false, "Gb/s in place of MiB/s")
	f.IntVarP(&c.PostList, "post_list", "l", 0,
		"`NUMBER` of requests that are posted at a time (default as many as there is room for)")
	f.IntVarP(&c.CQModeration, "cq-mod", "Q", 100,
		"`NUMBER` of requests after which time is taken for the peak")
	f.BoolVarP(&c.NoPeak, "noPeak", "N", false, "no peak")
	f.BoolVar(&c.Infinitely, "run_infinitely", false,
		"go on until Ctrl-C, and print a row after each --duration (default 5)")
	if c.Test == perftest.ReadBW || c.Test == perftest.AtomicBW {
		f.IntVarP(&c.Reads, "outs", "o", 16, "`NUMBER` of READs or atomics under way")
	}
}

// check reports options that are not supported.
func (o *rdmaOptions) check() error {
	o.config.Duration, o.config.Margin = time.Duration(o.duration)*time.Second,
		time.Duration(o.margin)*time.Second
	o.config.CompareSwap = o.atomic == "CMP_AND_SWAP"
	switch {
	case o.connection != "RC":
		return fmt.Errorf("connection %q: want RC", o.connection)
	case o.ignored.port != 1:
		return fmt.Errorf("ib-port %d: want 1; a NIC is chosen with --ib-dev", o.ignored.port)
	case o.atomic != "" && o.atomic != "FETCH_AND_ADD" && !o.config.CompareSwap:
		return fmt.Errorf("atomic_type %q: want FETCH_AND_ADD or CMP_AND_SWAP", o.atomic)
	}
	return nil
}
