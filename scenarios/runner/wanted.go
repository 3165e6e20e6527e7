package runner

import (
	"railbed/capture/verify"
	"railbed/internal/units"
	"railbed/plan/spec"
	"railbed/transports/tcp"
	"railbed/workloads/worker"
)

// setWanted sets the traffic that each rank of a workload should send to ranks of other nodes.
// Traffic within a node passes no tap.
func setWanted(t *verify.Workload, wanted *worker.Wanted) {
	t.Across = true
	payload := false
	messages := make([][]uint64, len(t.Ranks))
	for i := range t.Ranks {
		rank := &t.Ranks[i]
		rank.Expected = units.Bytes(wanted.Switch)
		if rank.Transport != spec.InSwitch {
			rank.ExpectedTo, messages[i] = make([]units.Bytes, len(t.Ranks)), make([]uint64, len(t.Ranks))
		}
		for to := range rank.ExpectedTo {
			if rank.Node == t.Ranks[to].Node {
				continue
			}
			amount := wanted.To[i][to]
			rank.ExpectedTo[to], messages[i][to] = units.Bytes(amount.Bytes), amount.Messages
			rank.Expected += units.Bytes(amount.Bytes)
		}
		payload = payload || rank.Expected > 0
	}
	for i := range t.Ranks {
		rank := &t.Ranks[i]
		if rank.Transport == worker.TCP {
			rank.Framing = &verify.Framing{Hello: tcp.HelloLen, Header: tcp.HeaderLen, Goodbye: tcp.Goodbye,
				Messages: messages[i]}
		}
		if payload {
			continue
		}
		var all uint64
		for _, n := range messages[i] {
			all += n
		}
		if all > 0 {
			rank.Empty = &verify.Empty{Messages: all}
		}
	}
}
