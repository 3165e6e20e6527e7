package engine

import (
	"context"
	"errors"

	"railbed/testbed/spec"
)

func (s *session) workload(ctx context.Context, index int, w *spec.Workload) error {
	return errors.New("not wired")
}
