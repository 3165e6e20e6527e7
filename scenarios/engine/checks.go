package engine

import "context"

func (r *run) check(ctx context.Context) error { return nil }
