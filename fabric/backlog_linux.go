package fabric

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"railbed/fabric/softswitch/live"
	"railbed/plan"
)

// backlogDrops is how many packets all processors have dropped since the host
// started because their backlogs were full. A veth counts such a packet as dropped
// by its sender, but also one that it sends while its peer is down: this count
// separates the two cases.
func backlogDrops() (total uint64, err error) {
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		return 0, fmt.Errorf("read backlog drops: %w", err)
	}
	return parseSoftnet(text)
}

// parseSoftnet sums the second column: a line is a processor's counters in hex,
// of which the second is drops (softnet_seq_show).
func parseSoftnet(text []byte) (total uint64, err error) {
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			return 0, fmt.Errorf("read backlog drops: line %q", line)
		}
		dropped, err := strconv.ParseUint(string(fields[1]), 16, 64)
		if err != nil {
			return 0, fmt.Errorf("read backlog drops: line %q: %w", line, err)
		}
		total += dropped
	}
	return total, nil
}

// fillBacklog counts what NICs lost to full backlogs: what their interfaces
// dropped, and no more than the host dropped since the fabric was made.
func (s *softPart) fillBacklog(nics []live.NICState, links []LinkState) error {
	now, err := backlogDrops()
	if err != nil {
		return err
	}
	dropped := map[plan.End]uint64{}
	for _, l := range links {
		for _, end := range []EndState{l.A, l.B} {
			dropped[plan.End{Node: end.Node, Port: end.Port}] = end.Counters.TxDropped
		}
	}
	for i := range nics {
		end := plan.End{Node: nics[i].Node, Port: nics[i].NIC}
		nics[i].Backlog = min(dropped[end], now-s.backlog)
	}
	return nil
}
