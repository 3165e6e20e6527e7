package runner

import (
	"errors"
	"fmt"
	"sync"
)

// logPair is the logs of a program's stdout and stderr.
type logPair struct {
	out, err *programLog
	base     string // the path of both below the results directory, without the extension
}

// stepLogs are the logs of programs, by their paths without the extension. A step that is done again
// continues its logs, so they stay open until the step ends.
type stepLogs struct {
	mu   sync.Mutex
	open map[string]logPair
	of   map[string]int // the index of the step that has the path
}

// openLogs returns the logs of a step's program. They stay open until the step ends.
func (s *session) openLogs(index int, node, name string) (logPair, error) {
	l := &s.logs
	l.mu.Lock()
	defer l.mu.Unlock()
	base := l.pathLocked(index, "logs/"+node+"/"+name)
	if pair, open := l.open[base]; open {
		return pair, nil
	}
	pair := logPair{base: base}
	var err error
	if pair.out, err = s.results.createLog(base + ".out"); err != nil {
		return pair, err
	}
	if pair.err, err = s.results.createLog(base + ".err"); err != nil {
		return pair, errors.Join(err, pair.out.Close())
	}
	l.open[base] = pair
	return pair, nil
}

// pathLocked returns a path that no other step has. Two steps have the same path if, for example, a command
// is named as the receivers of a traffic step, or "step2", which is the name of the second step.
func (l *stepLogs) pathLocked(index int, base string) string {
	if l.of == nil {
		l.open, l.of = map[string]logPair{}, map[string]int{}
	}
	if owner, taken := l.of[base]; taken && owner != index {
		return l.pathLocked(index, fmt.Sprintf("%s-step%d", base, index+1))
	}
	l.of[base] = index
	return base
}

// repeated starts the logs of the next run of a command, if the command ran before.
func (s *session) repeated(p logPair) {
	for _, log := range []*programLog{p.out, p.err} {
		if log.runs++; log.runs > 1 {
			log.heading = fmt.Sprintf("[railbed: run %d of the command, at %.3f s]\n", log.runs, s.now())
		}
	}
}

// closeLogs closes a step's logs and records those that have content. It removes the log of an output to
// which the program printed nothing.
func (s *session) closeLogs(index int) error {
	l := &s.logs
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for base, owner := range l.of {
		pair, open := l.open[base]
		if owner != index || !open {
			continue
		}
		delete(l.open, base)
		for ending, log := range map[string]*programLog{".err": pair.err, ".out": pair.out} {
			errs = append(errs, log.Close())
			switch {
			case log.size > 0:
				s.logged(index, base+ending)
			default:
				errs = append(errs, lost(s.results.discard(base+ending)))
			}
		}
	}
	return errors.Join(errs...)
}
