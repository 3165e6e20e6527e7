package fabric

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"railbed/fabric/softswitch/live"
	"railbed/plan"
)

// BacklogDrops returns how many packets all CPUs have dropped since the host started because their
// backlogs were full. A veth counts such a packet as dropped by its sender, but also a packet sent
// while its peer is down. This count separates the two cases.
func BacklogDrops() (total uint64, err error) {
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		return 0, fmt.Errorf("read backlog drops: %w", err)
	}
	return parseSoftnet(text)
}

// parseSoftnet sums the second column: a line has a CPU's counters in hex, and the second counts
// drops (softnet_seq_show).
func parseSoftnet(text []byte) (total uint64, err error) {
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			return 0, fmt.Errorf("read backlog drops: line %q; want at least 2 fields", line)
		}
		dropped, err := strconv.ParseUint(string(fields[1]), 16, 64)
		if err != nil {
			return 0, fmt.Errorf("read backlog drops: line %q: %w", line, err)
		}
		total += dropped
	}
	return total, nil
}

// fillBacklog counts the frames that NICs lost because of full backlogs. It is the number that
// their interfaces dropped, but at most the number that the host has dropped since the fabric was
// made.
func (s *softPart) fillBacklog(nics []live.NICState, links []LinkState) error {
	now, err := BacklogDrops()
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
