package vm

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"railbed/internal/frame"
	"railbed/internal/kernel"
	"railbed/internal/verdict"
	"railbed/nodes"
)

// TestRefusals: what a guest refuses is on the host what it was in the guest.
func TestRefusals(t *testing.T) {
	sysctl := &kernel.RefusedSysctlError{
		Sysctl:           kernel.Sysctl{Path: "net/a", Value: "1"},
		UnsupportedError: verdict.UnsupportedError{Feature: "sysctl net.a", Reason: "no such file"},
	}
	for said, is := range map[error]error{
		fmt.Errorf("h0: %w", sysctl):               verdict.ErrUnsupported,
		fmt.Errorf("start: %w", nodes.ErrNotFound): nodes.ErrNotFound, errors.New("else"): nil,
	} {
		var stream bytes.Buffer
		if err := refuse(frame.NewWriter(&stream), said); err != nil {
			t.Fatal(err)
		}
		heard := answer(frame.NewReader(&stream), frame.Started, &started{})
		if heard == nil || is != nil && !errors.Is(heard, is) {
			t.Errorf("%v came as %v", said, heard)
		}
		var refused *kernel.RefusedSysctlError
		if errors.As(heard, &refused) != errors.Is(said, verdict.ErrUnsupported) ||
			refused != nil && *refused != *sysctl {
			t.Errorf("%v came as %+v", said, refused)
		}
	}
}
