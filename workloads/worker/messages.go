package worker

import (
	"context"
	"slices"
	"time"

	"railbed/internal/clock"
	"railbed/plan/perf"
	"railbed/transports"
	"railbed/workloads/collective"
	"railbed/workloads/flows"
)

// Messages plays a flows.Schedule once. The schedule is in the testbed's time.
type Messages struct {
	Schedule *flows.Schedule `json:"schedule"`
}

func (Messages) complete(j *Job, _ reporter) { j.Kind = "messages" }

// check implements Work. It checks that the schedule is for the job's ranks.
func (m Messages) check(j *Job, problem reporter) {
	if m.Schedule == nil {
		problem("messages need a schedule")
		return
	}
	if j.InPlace || j.Sweep != nil || j.Warmup != 0 || j.Iterations != 1 {
		problem("messages are played once, out of place and without a warm-up")
	}
	if err := flows.Check(m.Schedule.Messages, len(j.Ranks)); err != nil {
		problem("%w", err)
	}
}

func (m Messages) of(*Job, int) rankWork { return m }

func (m Messages) wanted(_ *Job, _ *workerConfig, w *Wanted) error {
	for _, m := range m.Schedule.Messages {
		w.To[m.From][m.To].Add(collective.Amount{Bytes: uint64(m.Bytes), Messages: 1})
	}
	return nil
}

func (Messages) results(*Job) Results { return &Sent{} }

func (Messages) measure(*Job, *perf.Row) bool { return false }

// Sent are the messages that were sent, by sender, in the testbed's time.
type Sent [][]flows.Sent

// add implements Results.
func (s *Sent) add(_ *Operation, ranks []operationDone, _, _ time.Time) (err error) {
	*s, err = own[[]flows.Sent](ranks)
	return err
}

// sender is one rank's part in a job of kind Messages.
type sender struct {
	player   *flows.Player
	traffic  collective.Traffic // of a round
	sent     []flows.Sent
	dilation clock.Dilation
}

// run implements rankWork.
func (m Messages) run(ctx context.Context, w *rank) error {
	return w.throughLanes(func() error { return m.play(ctx, w) })
}

// play exchanges memory handles and addresses with the other ranks and plays the schedule.
func (m Messages) play(ctx context.Context, w *rank) error {
	c := &w.config
	by := clock.Dilation(c.Dilation)
	schedule := *m.Schedule
	schedule.Messages = slices.Clone(schedule.Messages)
	for i := range schedule.Messages {
		schedule.Messages[i].At = by.Wait(schedule.Messages[i].At)
	}
	memory := flows.Layout(schedule.Messages, c.Ranks)
	config := flows.PlayerConfig{
		Endpoint: w.endpoint,
		Rank:     c.Rank,
		Peers:    make([]transports.Peer, c.Ranks),
		Inputs:   make([][]byte, c.Ranks),
		Schedule: &schedule,
		Output:   make([]byte, memory.Output[c.Rank]),
		Input:    make([]byte, memory.Input[c.Rank]),
	}
	own := &rendezvous{}
	var err error
	if own.Input, err = w.register(config.Input); err != nil {
		return err
	}
	table, err := w.meet(ctx, own)
	if err != nil {
		return err
	}
	for rank := range table {
		if rank == c.Rank {
			continue
		}
		config.Inputs[rank] = table[rank].Input
		if config.Peers[rank], err = w.addPeer(table, rank); err != nil {
			return err
		}
	}
	player, err := flows.NewPlayer(config)
	if err != nil {
		return err
	}
	s := &sender{player: player, dilation: by,
		traffic: collective.Traffic{Sent: uint64(len(config.Output)), Received: uint64(len(config.Input))}}
	for _, r := range c.rounds() {
		if err := w.round(ctx, s, config.Input, &r); err != nil {
			return err
		}
	}
	return w.end(ctx)
}

// fill implements part.
func (s *sender) fill(id operationID) { s.player.Fill(id.Index) }

// operate implements part.
func (s *sender) operate(ctx context.Context, _ operationID, _ bool) (collective.Traffic, error) {
	var err error
	traffic := s.traffic
	s.sent, traffic.Missing, err = s.player.Play(ctx)
	traffic.Received -= min(traffic.Missing, traffic.Received)
	for i := range s.sent {
		s.sent[i].Begun, s.sent[i].Done = s.dilation.Passed(s.sent[i].Begun),
			s.dilation.Passed(s.sent[i].Done)
	}
	return traffic, err
}

// lost implements part.
func (s *sender) lost() []collective.Loss { return nil }

// check implements part. It counts wrong bytes.
func (s *sender) check(id operationID, _ []collective.Loss) (wrong, short uint64) {
	return uint64(s.player.Wrong(id.Index)), 0
}

func (s *sender) tell() (any, error) { return s.sent, nil }
