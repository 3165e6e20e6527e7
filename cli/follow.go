package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"railbed/capture/bundle"
	"railbed/capture/follow"
	"railbed/internal/plural"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/reporting"
)

// followFlags are the flags of "railbed follow".
type followFlags struct {
	message, packet, rank, slowest int
	qp, flow, workload, svg        string
	capture                        string
	asked                          func(flag string) bool
}

// followReport is the JSON document of "railbed follow".
type followReport struct {
	Sums     []follow.Sum         `json:"sums,omitempty"`
	Messages []follow.MessageLife `json:"messages,omitempty"`
	Packets  []follow.PacketLife  `json:"packets,omitempty"`
}

func newFollowCommand(a *app) *cobra.Command {
	var flags followFlags
	cmd := &cobra.Command{
		Use:   "follow RUN",
		Short: "Show where the time of messages and packets went",
		Long: `Follow reads the recording of a run and follows each packet from port to port. It
puts packets together to messages and says where the time of each went:

  host       the sender sent nothing of the message
  recover    from the first transmission of the bytes that arrived last to the one that arrived,
             and before, from new bytes to the last repeat before more new bytes
  queue      in queues of NICs and switches
  pause      in queues that flow control had stopped
  fault      held back by faults that delay packets
  serialise  at the rate of links
  propagate  on links
  unseen     where the recording has no tap
  emulator   delay of the emulation behind its model

The parts add up to the time from the first packet at the sender's NIC to the last missing
byte at the receiver's. A message is a message of reliable datagrams; a SEND, a WRITE or the
answer to a READ of RoCEv2; the bytes of TCP up to a segment with PSH; or another UDP datagram.

Without a selection it prints the sum of all messages and the slowest. RUN is a results
directory, a bundle of one, or a capture. Several recordings of a run are read as one.`,
		Example: `  railbed follow out
  railbed follow out --workload ar --slowest 3
  railbed follow out --message 17 --svg message.svg
  railbed follow out --packet 4711          # frame.number in Wireshark
  railbed follow out --flow h0,h3 -o json`,
		Args:              exactArgs(1),
		ValidArgsFunction: completeCaptures,
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.asked = cmd.Flags().Changed
			return a.follow(cmd.Context(), args[0], flags)
		},
	}
	selectFlags(cmd, &flags)
	cmd.Flags().IntVar(&flags.message, "message", 0,
		"`NUMBER` of a message, from 1 in the order of their starts")
	cmd.Flags().StringVar(&flags.svg, "svg", "",
		"`FILE` for a time-sequence diagram of the message of --message")
	completeFlag(cmd, "svg", filesOf("svg"))
	cmd.Flags().IntVar(&flags.packet, "packet", 0, "`NUMBER` of a packet's record in the capture")
	cmd.Flags().IntVar(&flags.slowest, "slowest", 10, "`NUMBER` of messages to list, the slowest first")
	return cmd
}

func (a *app) follow(ctx context.Context, name string, flags followFlags) error {
	r, run, err := a.recording(ctx, name, flags.capture)
	if err != nil {
		return err
	}
	defer run.Close()
	if flags.svg != "" && !flags.asked("message") {
		return usage("--svg: want --message, too: a diagram shows one message")
	}
	again := flags.again(name)
	if flags.asked("packet") {
		packet := r.PacketOf(flags.packet)
		if packet < 0 {
			return usage("--packet %d: %s has no such record", flags.packet, name)
		}
		return a.showFollow(again, &followReport{Packets: []follow.PacketLife{r.PacketLife(packet)}})
	}
	if flags.asked("message") {
		if flags.message < 1 || flags.message > len(r.Messages) {
			return usage("--message %d: %s has %s", flags.message, name,
				plural.Count(len(r.Messages), "messages"))
		}
		if flags.svg != "" {
			if err := writeFile(flags.svg, 0, 0o644, func(w io.Writer) error {
				return r.Diagram(w, flags.message-1)
			}); err != nil {
				return err
			}
		}
		life := r.MessageLife(flags.message-1, true)
		return a.showFollow(again, &followReport{Messages: []follow.MessageLife{life}})
	}
	selected, err := flags.selected(r, run)
	if err != nil {
		return err
	}
	if a.noteSelection(flags, r, selected) {
		return nil
	}
	shown := followReport{Sums: r.Sums(selected)}
	for _, m := range r.Slowest(selected, flags.slowest) {
		shown.Messages = append(shown.Messages, r.MessageLife(m, false))
	}
	return a.showFollow(again, &shown)
}

// recording follows the packets of a run. The caller closes the run.
func (a *app) recording(ctx context.Context, name, capture string) (*follow.Recording, *bundle.Run, error) {
	run, err := openRun(name, capture)
	if err != nil {
		return nil, nil, err
	}
	r, err := follow.ReadRun(ctx, run)
	if err != nil {
		run.Close()
		return nil, nil, &exitError{Code: verdict.ExitUsage, Err: fmt.Errorf("%s: %w", name, err)}
	}
	for _, what := range r.Lacks() {
		a.say("railbed: warning: %s %s", name, what)
	}
	return r, run, nil
}

// warnMissing prints which files of a recording in several files are missing.
func (a *app) warnMissing(name string, missing []string) {
	for _, what := range missing {
		a.say("railbed: warning: %s: %s", name, what)
	}
}

// again returns the words of the run in command lines.
func (f *followFlags) again(name string) string {
	words := []string{name}
	if f.capture != "" {
		words = append(words, "--capture", f.capture)
	}
	return reporting.ShellLine(words)
}

// showFollow prints what was followed. run are the words of the run in command lines.
func (a *app) showFollow(run string, r *followReport) error {
	if a.output == "json" {
		return a.printJSON(r)
	}
	if len(r.Sums)+len(r.Messages)+len(r.Packets) == 0 {
		a.show("no such message was recorded")
	}
	if len(r.Sums) > 0 {
		rows := a.newTable("workload", "over", "messages", "unfinished", "sent\nagain", "p50", "p99", "most",
			"where the time went")
		for _, s := range r.Sums {
			rows.AppendRow([]any{s.Workload, s.Protocol, s.Messages, s.Unfinished, s.Again,
				units.Took(s.P50),
				units.Took(s.P99), units.Took(s.Most), shares(s.Account)})
		}
		rows.Render()
		fmt.Fprintln(a.stdout)
	}
	if len(r.Messages) == 1 && r.Messages[0].Lives != nil {
		a.printMessage(run, &r.Messages[0])
		return nil
	}
	if len(r.Messages) > 0 {
		rows := a.newTable("message", "over", "from", "to", "bytes", "packets", "lost", "start", "took",
			"where the time went")
		for _, m := range r.Messages {
			took := units.Took(m.Took)
			if m.Unseen {
				took = "not seen"
			} else if m.Took == 0 {
				took = "unfinished"
			}
			rows.AppendRow([]any{m.Message, m.Protocol, end(m.From, m.FromRank, m.Source), end(m.To,
				m.ToRank, m.Destination),
				m.Bytes, m.Packets, m.Lost, units.Took(m.Start), took, shares(m.Account)})
		}
		rows.Render()
	}
	for i := range r.Packets {
		a.printPacketLife(&r.Packets[i])
	}
	return nil
}

// end names an end of a flow for people.
func end(node string, rank *int, address string) string {
	switch {
	case rank != nil:
		return fmt.Sprintf("%s (rank %d)", node, *rank)
	case node != "":
		return node
	}
	return address
}

// shares lists the parts of an account, the largest first, without those below a hundredth.
func shares(account follow.Account) string {
	total := account.Total()
	if total <= 0 {
		return ""
	}
	var texts []string
	for range follow.Parts {
		part := account.Largest()
		if account[part]*100 < total {
			break
		}
		texts = append(texts, fmt.Sprintf("%s %d%%", part, (account[part]*100+total/2)/total))
		account[part] = 0
	}
	return strings.Join(texts, ", ")
}

// parts lists the times of an account.
func parts(account follow.Account) string {
	var texts []string
	for part, ns := range account {
		if ns != 0 {
			texts = append(texts, fmt.Sprintf("%s %s", follow.Part(part), units.Took(time.Duration(ns))))
		}
	}
	return strings.Join(texts, ", ")
}

func (a *app) printMessage(run string, m *follow.MessageLife) {
	a.show("message %d: %s from %s to %s, %d bytes in %s, id %d", m.Message, m.Protocol,
		end(m.From, m.FromRank, m.Source), end(m.To, m.ToRank, m.Destination), m.Bytes,
		plural.Count(m.Packets, "packets"), m.ID)
	took := "did not arrive"
	if m.Took > 0 {
		took = "took " + units.Took(m.Took)
	} else if m.Unseen {
		took = "arrived where the recording has no tap, or got lost"
	}
	if m.Acknowledged > 0 {
		took += ", acknowledged after " + units.Took(m.Acknowledged)
	}
	a.show("started after %s, %s", units.Took(m.Start), took)
	a.show("%s", parts(m.Account))
	a.show("railbed decode %s -Y '%s'", run, m.Filter)
	a.show("Wireshark: %s", m.Wireshark)
	fmt.Fprintln(a.stdout)
	rows := a.newTable("record", "sent", "psn", "from", "bytes", "took", "outcome", "where the time went")
	for i := 0; i < len(m.Lives); i++ {
		p := &m.Lives[i]
		mark, outcome := strconv.Itoa(p.Record), p.Outcome
		if p.Record == m.Critical {
			mark += " *"
		}
		alike := 0 // of the next packets, that were discarded for the same reason
		for p.Missing > 0 && i+1 < len(m.Lives) && m.Lives[i+1].Missing == p.Missing {
			alike, i = alike+1, i+1
		}
		if alike > 0 {
			outcome += plural.Text("; likewise the next %d packets, up to record ", alike) +
				strconv.Itoa(m.Lives[i].Record)
		}
		rows.AppendRow([]any{mark, units.Took(p.Sent - m.Start), p.PSN, p.Position, p.Bytes,
			units.Took(p.Took), outcome, parts(p.Account)})
	}
	rows.Render()
	for i := range m.Lives {
		if m.Lives[i].Record == m.Critical {
			fmt.Fprintln(a.stdout)
			a.show("* brought the last missing byte:")
			a.printPacketLife(&m.Lives[i])
		}
	}
}

func (a *app) printPacketLife(p *follow.PacketLife) {
	part := ""
	if p.Message > 0 {
		part = fmt.Sprintf(" of message %d", p.Message)
	}
	a.show("packet of record %d%s: %s %s > %s, %d bytes, %s after %s", p.Record, part, p.Protocol, p.Source,
		p.Destination, p.Length, p.Outcome, units.Took(p.Took))
	rows := a.newTable("record", "after", "from", "to", "depth", "recorded", "where the time went")
	for _, h := range p.Hops {
		depth := ""
		if h.Depth != nil {
			depth = strconv.FormatInt(*h.Depth, 10)
		}
		rows.AppendRow([]any{h.Record, units.Took(h.At), h.From, h.To, depth,
			strings.TrimSpace(h.Verdict + " " + h.Reason),
			parts(h.Account)})
	}
	rows.Render()
}
