package worker

import (
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"railbed/capture/report"
	"railbed/internal/frame"
	"railbed/workloads/rank"
)

// errSilent is the error of a worker whose process exists but does nothing.
var errSilent = errors.New("the worker does not answer: its process is stopped, or gets no processor")

// errUnheard is the error of a worker that has never sent a message.
var errUnheard = errors.New(
	"the worker has sent nothing since it was started: its process is stopped, or gets no processor")

const (
	// silenceParts is how many times within Job.Silence the coordinator asks each worker whether it
	// is alive.
	silenceParts = 10
	// startParts is how many questions a worker may leave unanswered before its first message. Many
	// workers that start at the same time take long.
	startParts = 3 * silenceParts
)

// pulse records whether a worker is alive, as far as the coordinator knows. The zero value is for a
// worker that has not sent a message yet.
type pulse struct {
	ask      chan struct{} // to the goroutine that writes to the worker
	spoke    atomic.Bool
	unheard  atomic.Int32 // questions since its last message
	asked    atomic.Int64 // Unix time in ns of the unanswered question, or 0
	slowest  atomic.Int64 // slowest answer, in ns
	finished atomic.Bool
}

// take records a message from the worker, and reports whether the message was only an answer.
func (p *pulse) take(m *rank.Message) (answer bool) {
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

// silent reports whether the worker has left at least the given number of questions unanswered.
func (p *pulse) silent(questions int32) bool {
	return p.unheard.Load() >= questions && !p.finished.Load()
}

// failure returns an error if the worker has been silent for too long.
func (p *pulse) failure() error {
	switch {
	case !p.spoke.Load() && p.silent(startParts):
		return errUnheard
	case p.spoke.Load() && p.silent(silenceParts):
		return errSilent
	}
	return nil
}

// watch asks all workers whether they are alive, until the coordinator takes no more events. A
// worker that does not answer for Job.Silence, or for three times Job.Silence while it starts, has
// failed. watch counts questions instead of time, so that a coordinator which was itself held up
// blames no worker.
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
			default: // the writer has not yet sent the question before
			}
		}
	}
}

// silentRank returns the rank that has left the most questions unanswered, at least two: the
// failure of other ranks may come from it. It returns -1 if all ranks have answered.
func (c *coordinator) silentRank() int {
	found, most := -1, int32(1)
	for rank, w := range c.workers {
		if unheard := w.pulse.unheard.Load(); w.pulse.spoke.Load() && w.pulse.silent(2) && unheard > most {
			found, most = rank, unheard
		}
	}
	return found
}

// question is the encoded message that asks a worker for an answer.
var question = func() []byte {
	payload, err := json.Marshal(rank.Message{Alive: &struct{}{}})
	if err != nil {
		panic(err)
	}
	return payload
}()

// Thresholds for a straggler. It works for most of the time, and longer than any other rank by this
// factor and this time. Ranks that share processors differ by less, except for a few ms that the
// host causes.
const (
	stragglerShare = 0.5
	stragglerTimes = 2
	stragglerLeast = 20 * time.Millisecond
	// trainingShare replaces stragglerShare for a training job, which spends most of its time
	// computing.
	trainingShare = 0.2
)

// Straggler returns the slow rank, which worked while the others waited, or nil if no rank stands
// out.
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
	if _, computes := r.Own.(*Iterations); computes {
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

// write sends the coordinator's messages and questions to a worker.
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
			// If this fails, the worker has ended, perhaps after its last message.
			_ = out.Write(frame.Message, question)
		case <-c.stopped:
			return
		}
	}
}
