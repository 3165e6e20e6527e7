package worker

import (
	"slices"
	"testing"
	"time"

	"railbed/plan"
	"railbed/plan/spec"
	"railbed/workloads/flows"
	"railbed/workloads/rank"
)

// messagesJob plays a schedule.
func messagesJob(ranks int, transport string, s *flows.Schedule) Job {
	j := job(ranks, 0)
	j.Transport, j.Iterations, j.Warmup, j.Work = transport, 1, 0, Messages{s}
	return j
}

// TestMessagesJobs holds that all messages come over each transport, as the schedule says
// it, and in the testbed's time.
func TestMessagesJobs(t *testing.T) {
	open, err := flows.Open{Ranks: 3, Count: 200, Sizes: flows.Published["storage"], Load: 0.5,
		Rate: 1_000_000_000, Seed: 5}.Schedule()
	if err != nil {
		t.Fatal(err)
	}
	blocks := flows.Blocks{Ranks: 3, Servers: 1, Count: 60, Block: 4096, Outstanding: 4, Seed: 1}.Schedule()
	for _, c := range []struct {
		transport string
		dilation  uint64
		schedule  *flows.Schedule
		rd        *spec.RD
	}{{TCP, 1, open, nil}, {RD, 3, open, nil}, {TCP, 1, blocks, nil},
		{RD, 1, blocks, &spec.RD{Encrypt: true, Spray: "reps", Engines: 2}},
		{RD, 1, blocks, &spec.RD{Control: spec.ControlArbiter}}} {
		j := messagesJob(3, c.transport, c.schedule)
		j.Dilation, j.RD = c.dilation, c.rd
		if c.rd != nil {
			j.Family, j.Sends = 6, slices.Repeat([]plan.Direction{{Rate: 1_000_000_000}}, 3)
		}
		result, err := Run(t.Context(), j, goroutines{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if result.Wrong() != 0 || len(*result.Own.(*Sent)) != 3 {
			t.Errorf("%s: %d bytes are wrong, %d ranks sent", c.transport, result.Wrong(),
				len(*result.Own.(*Sent)))
		}
		count := 0
		for rank, sent := range *result.Own.(*Sent) {
			count += len(sent)
			for _, s := range sent {
				m := c.schedule.Messages[s.Message]
				if m.From != rank || s.Done < s.Begun ||
					c.schedule.Outstanding == 0 && s.Begun < m.At-time.Microsecond {
					t.Errorf("%s: rank %d sent message %d, %+v: %+v", c.transport, rank, s.Message, m, s)
				}
			}
			if got, want := result.PerRank[rank].Payload.Sent, uint64(c.schedule.Sent(rank)); got != want {
				t.Errorf("%s: rank %d sent %d bytes, want %d", c.transport, rank, got, want)
			}
		}
		if count != len(c.schedule.Messages) {
			t.Errorf("%s: %d of %d messages were sent", c.transport, count, len(c.schedule.Messages))
		}
	}
}

// TestWrongMessageIsCounted damages a byte that one rank received.
func TestWrongMessageIsCounted(t *testing.T) {
	l := after(func(rank int, _ rank.OperationID, result []byte) {
		if rank == 0 {
			result[5000] ^= 0x40
		}
	})
	s := flows.Blocks{Ranks: 3, Servers: 1, Count: 10, Block: 4096, Outstanding: 4, Seed: 1}.Schedule()
	if result, err := Run(t.Context(), messagesJob(3, TCP, s), l, nil); err != nil || result.Wrong() != 1 {
		t.Errorf("%v: one byte was changed, and wrong are %d", err, result.Wrong())
	}
}

func TestBadMessagesJobs(t *testing.T) {
	first := func(j *Job) *flows.Message { return &j.Work.(Messages).Schedule.Messages[0] }
	for name, change := range map[string]func(*Job){
		"no schedule": func(j *Job) { j.Work = Messages{} },
		"twice":       func(j *Job) { j.Iterations = 2 },
		"rank":        func(j *Job) { first(j).To = 3 },
		"to itself":   func(j *Job) { first(j).To = first(j).From },
		"empty":       func(j *Job) { first(j).Bytes = 0 },
	} {
		j := messagesJob(3, TCP, flows.Blocks{Ranks: 3, Servers: 1, Count: 1, Block: 1,
			Outstanding: 1}.Schedule())
		change(&j)
		if _, err := Run(t.Context(), j, goroutines{}, nil); err == nil {
			t.Errorf("%s: the job was run", name)
		}
	}
}
