package worker

import (
	"errors"
	"fmt"
	"time"
)

const (
	// endGrace is how long the remaining workers have to exit after a worker has exited.
	endGrace = 2 * time.Second
	// endMost is how long all workers together have to exit.
	endMost = 20 * time.Second
)

// end ends each worker that was started and returns when all have exited. If the job failed, end
// closes the workers' channels, which tells them to exit. It kills a worker that does not exit in
// time.
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

// awaitEnds waits until the given number of workers have exited, or until none has exited for a
// grace period. With few processors, many workers exit one after another.
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
