package worker

import (
	"context"
	"slices"
	"time"

	"railbed/internal/clock"
	"railbed/plan/perf"
	"railbed/workloads/collective"
	"railbed/workloads/flows"
	"railbed/workloads/rank"
)

// Messages plays a flows.Schedule once. The schedule is in the testbed's time.
type Messages struct {
	Schedule *flows.Schedule `json:"schedule"`
}

// messagesWork is a rank's part in a job of kind Messages.
type messagesWork Messages

func (Messages) complete(j *Job, _ reporter) { j.Kind = "messages" }

// check implements Work. It checks that the schedule is for the job's ranks.
func (m Messages) check(j *Job, problem reporter) {
	if m.Schedule == nil {
		problem("messages need a schedule, which is missing")
		return
	}
	if j.InPlace || j.Sweep != nil || j.Warmup != 0 || j.Iterations != 1 {
		problem("messages: want one iteration, and no warm-up, in-place operations or sweep")
	}
	if err := flows.Check(m.Schedule.Messages, len(j.Ranks)); err != nil {
		problem("%w", err)
	}
}

func (m Messages) of(*Job, int) rank.Work { return messagesWork(m) }

func (m Messages) wanted(_ *Job, _ *rank.Config, w *Wanted) error {
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
func (s *Sent) add(_ *Operation, ranks []rank.Done, _, _ time.Time) (err error) {
	*s, err = own[[]flows.Sent](ranks)
	return err
}

// sender plays one rank's messages.
type sender struct {
	player   *flows.Player
	traffic  collective.Traffic // of a round
	sent     []flows.Sent
	dilation clock.Dilation
}

// Run implements rank.Work.
func (m messagesWork) Run(ctx context.Context, w *rank.Process) error {
	return w.ThroughLanes(func() error { return m.play(ctx, w) })
}

// play exchanges memory handles and addresses with the other ranks and plays the schedule.
func (m messagesWork) play(ctx context.Context, w *rank.Process) error {
	c := &w.Config
	by := clock.Dilation(c.Dilation)
	schedule := *m.Schedule
	schedule.Messages = slices.Clone(schedule.Messages)
	for i := range schedule.Messages {
		schedule.Messages[i].At = by.Wait(schedule.Messages[i].At)
	}
	lane, memory := w.Lanes()[0], flows.Layout(schedule.Messages, c.Ranks)
	config := flows.PlayerConfig{
		Endpoint: lane.Endpoint(),
		Rank:     c.Rank,
		Inputs:   make([][]byte, c.Ranks),
		Schedule: &schedule,
		Output:   make([]byte, memory.Output[c.Rank]),
		Input:    make([]byte, memory.Input[c.Rank]),
	}
	tables, err := w.Meet(ctx, func(_ int, l *rank.Lane) (*rank.Rendezvous, error) {
		handles, err := l.Register(collective.Memory[[]byte]{Input: config.Input})
		return &rank.Rendezvous{Input: handles.Input}, err
	})
	if err != nil {
		return err
	}
	if config.Peers, err = lane.AddPeers(tables[0]); err != nil {
		return err
	}
	for other, of := range tables[0] {
		if other != c.Rank {
			config.Inputs[other] = of.Input
		}
	}
	player, err := flows.NewPlayer(config)
	if err != nil {
		return err
	}
	s := &sender{player: player, dilation: by,
		traffic: collective.Traffic{Sent: uint64(len(config.Output)), Received: uint64(len(config.Input))}}
	return w.Do(ctx, func(int) (rank.Part, []byte, error) { return s, config.Input, nil })
}

// Fill implements rank.Part.
func (s *sender) Fill(id rank.OperationID) { s.player.Fill(id.Index) }

// Operate implements rank.Part.
func (s *sender) Operate(ctx context.Context, _ rank.OperationID, _ bool) (collective.Traffic, error) {
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

// Lost implements rank.Part.
func (s *sender) Lost() []collective.Loss { return nil }

// Check implements rank.Part. It counts wrong bytes.
func (s *sender) Check(id rank.OperationID, _ []collective.Loss) (wrong, short uint64) {
	return uint64(s.player.Wrong(id.Index)), 0
}

func (s *sender) Tell() (any, error) { return s.sent, nil }
