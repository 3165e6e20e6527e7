package testbed

import (
	"errors"

	"railbed/nodes/cni"
	"railbed/testbed/supervisor"
)

// remoteError holds the supervisor's message and the errors for which callers test.
type remoteError struct {
	text string
	kind error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }

func failureError(failure supervisor.Failure) error {
	switch {
	case failure.Unsupported != nil:
		return &remoteError{text: failure.Error, kind: failure.Unsupported}
	case failure.Mistake != nil:
		return &remoteError{text: failure.Error, kind: failure.Mistake}
	case failure.NotFound:
		return &remoteError{text: failure.Error, kind: ErrNotFound}
	case failure.NoFolder:
		return &remoteError{text: failure.Error, kind: ErrNoFolder}
	case failure.NoSuchObject:
		return &remoteError{text: failure.Error, kind: ErrNoSuchObject}
	case failure.NoPort:
		return &remoteError{text: failure.Error, kind: cni.ErrNoPort}
	case failure.Taken:
		return &remoteError{text: failure.Error, kind: cni.ErrTaken}
	case failure.Twice:
		return &remoteError{text: failure.Error, kind: cni.ErrTwice}
	}
	return errors.New(failure.Error)
}
