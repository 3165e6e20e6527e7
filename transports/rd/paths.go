package rd

import (
	"railbed/fabric/clock"
	"railbed/transports/rd/engine"
)

// spread takes the paths in turn, some packets each.
type spread struct {
	paths, grain int
	path, left   int
}

func newPaths(paths, grain int) engine.Paths { return &spread{paths: paths, grain: grain} }

// Pick implements engine.Paths.
func (s *spread) Pick(clock.Time) int {
	if s.left == 0 {
		s.path, s.left = (s.path+1)%s.paths, s.grain
	}
	s.left--
	return s.path
}

// Feedback implements engine.Paths.
func (s *spread) Feedback(int, engine.PathEvent, int, clock.Time) {}
