package worker

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"railbed/capture/report"
	"railbed/internal/frame"
)

// errSilent is the end of a worker that lives, for the kernel, and does nothing.
var errSilent = errors.New("the worker does not answer: its process is stopped, or gets no processor")

// errUnheard is that of one that never said a word.
var errUnheard = errors.New(
	"the worker has not said a word since it was started: its process is stopped, or gets no processor")

const (
	// silenceParts is how many times within Job.Silence each worker is asked whether it lives.
	silenceParts = 10
	// startParts is how many questions a worker may leave without an answer before its first
	// word: many that start at the same time take long.
	startParts = 3 * silenceParts
)

// pulse is what the coordinator knows of a worker's life. The zero value is of one that has
// not spoken yet.
type pulse struct {
	ask      chan struct{} // to its writer
	spoke    atomic.Bool
	unheard  atomic.Int32 // questions since its last word
	asked    atomic.Int64 // Unix time in ns of the question that it has not answered, or 0
	slowest  atomic.Int64 // answer, in ns
	finished atomic.Bool
}

// take takes a word of the worker, and reports whether it was an answer and no more.
func (p *pulse) take(m *message) (answer bool) {
	p.spoke.Store(true)
	p.unheard.Store(0)
	if m.Finished != nil {
		p.finished.Store(true)
	}
	if m.Alive == nil {
		return false
	}
	if asked := p.asked.Swap(0); asked != 0 {
		p.slowest.Store(max(p.slowest.Load(), time.Now().UnixNano()-asked))
	}
	return true
}

// silent says that the worker has not answered so many questions.
func (p *pulse) silent(questions int32) bool {
	return p.unheard.Load() >= questions && !p.finished.Load()
}

// failure is why the worker has failed, if its silence says so.
func (p *pulse) failure() error {
	switch {
	case !p.spoke.Load() && p.silent(startParts):
		return errUnheard
	case p.spoke.Load() && p.silent(silenceParts):
		return errSilent
	}
	return nil
}

// watch asks all workers whether they live, until nobody takes events any more. Who does not
// answer for Job.Silence, or three times that when it starts, has failed. Questions are
// counted and not time, so that a coordinator which was held up itself accuses nobody.
func (c *coordinator) watch() {
	ticker := time.NewTicker(c.job.Silence / silenceParts)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.stopped:
			return
		}
		for rank, w := range c.workers {
			p := &w.pulse
			if p.finished.Load() {
				continue
			}
			if err := p.failure(); err != nil {
				select {
				case c.events <- event{rank: rank, err: err}:
				case <-c.stopped:
				}
				return
			}
			p.unheard.Add(1)
			p.asked.CompareAndSwap(0, time.Now().UnixNano())
			select {
			case p.ask <- struct{}{}:
			default: // it has not even read the one before
			}
		}
	}
}

// silentRank is a rank that has not answered lately, where the failure of others might come
// from that; -1 where all have.
func (c *coordinator) silentRank() int {
	found, most := -1, int32(1)
	for rank, w := range c.workers {
		if unheard := w.pulse.unheard.Load(); w.pulse.spoke.Load() && w.pulse.silent(2) && unheard > most {
			found, most = rank, unheard
		}
	}
	return found
}

// question is the message that asks for a word.
var question = func() []byte {
	payload, err := json.Marshal(message{Alive: &struct{}{}})
	if err != nil {
		panic(err)
	}
	return payload
}()

// waitTimer is an endpoint that says how long its rank has waited for others.
type waitTimer struct {
	endpoint
	waited atomic.Int64 // in ns
}

// Wait implements transports.Endpoint.
func (t *waitTimer) Wait(ctx context.Context) error {
	begin := time.Now()
	err := t.endpoint.Wait(ctx)
	t.waited.Add(int64(time.Since(begin)))
	return err
}

// Of a straggler: it works most of the time, and this much longer than any other. Ranks that
// share processors differ by less, but for a few ms that the host makes of them.
const (
	stragglerShare = 0.5
	stragglerTimes = 2
	stragglerLeast = 20 * time.Millisecond
	// trainingShare is the least share of a training job, most of whose time is computed.
	trainingShare = 0.2
)

// Straggler is the rank that was slow, nil where none stands out: it worked while the
// others waited.
func (r *Result) Straggler() *report.Straggler {
	found := report.Straggler{Rank: -1}
	for i := range r.PerRank {
		rank := &r.PerRank[i]
		if rank.Timed == 0 {
			return nil
		}
		switch worked := 1 - float64(rank.Waited)/float64(rank.Timed); {
		case found.Rank < 0 || worked > found.Worked:
			found = report.Straggler{Rank: i, Node: rank.Node, Worked: worked, Others: found.Worked}
		case worked > found.Others:
			found.Others = worked
		}
	}
	share := stragglerShare
	if r.Kind == Training {
		share = trainingShare
	}
	if len(r.PerRank) < 2 || found.Worked < share || found.Worked < stragglerTimes*found.Others {
		return nil
	}
	if more := (found.Worked - found.Others) *
		float64(r.PerRank[found.Rank].Timed); time.Duration(more) < stragglerLeast {
		return nil
	}
	return &found
}

// write sends what there is for a worker.
func (c *coordinator) write(rank int, w *workerProcess) {
	out := frame.NewWriter(w.process.Channel())
	for {
		select {
		case payload := <-w.out:
			if err := out.Write(frame.Message, payload); err != nil {
				select {
				case c.events <- event{rank: rank, err: err}:
				case <-c.stopped:
				}
				return
			}
		case <-w.pulse.ask:
			// Where that fails the worker has ended, perhaps after its last words.
			_ = out.Write(frame.Message, question)
		case <-c.stopped:
			return
		}
	}
}
