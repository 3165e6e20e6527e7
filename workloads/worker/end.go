package worker

import (
	"errors"
	"fmt"
	"time"
)

const (
	// endGrace is how long workers have to end by themselves after one of them did.
	endGrace = 2 * time.Second
	// endMost is how long all of them have together.
	endMost = 20 * time.Second
)

// end ends every worker that was started: a closed channel tells it, and it is
// killed when it does not end by that. It returns when all are gone.
func (c *coordinator) end(failed bool) error {
	close(c.stopped)
	started := 0
	for _, w := range c.workers {
		if w == nil {
			continue
		}
		if started++; failed {
			w.process.Channel().Close()
		}
	}
	c.awaitEnds(started)
	var problems []error
	for rank, w := range c.workers {
		if w == nil {
			continue
		}
		select {
		case <-w.ended:
		default:
			problems = append(problems, c.rankError(rank,
				fmt.Errorf("the worker had to be killed: it did not end within %v", c.job.endGrace)))
			if err := w.process.Kill(); err != nil {
				problems = append(problems, c.rankError(rank, fmt.Errorf("kill worker: %w", err)))
			}
		}
	}
	for rank, w := range c.workers {
		if w == nil {
			continue
		}
		<-w.ended
		w.process.Channel().Close()
		if w.status != nil && !failed {
			problems = append(problems, c.rankError(rank, w.status))
		}
	}
	c.goroutines.Wait()
	return errors.Join(problems...)
}

// awaitEnds waits until so many workers have ended, or none does any more. Many end one after
// another where there are few processors.
func (c *coordinator) awaitEnds(workers int) {
	most := time.NewTimer(endMost)
	defer most.Stop()
	grace := time.NewTimer(c.job.endGrace)
	defer grace.Stop()
	for range workers {
		select {
		case <-c.gone:
			grace.Reset(c.job.endGrace)
		case <-grace.C:
			return
		case <-most.C:
			return
		}
	}
}
