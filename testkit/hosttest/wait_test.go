package hosttest

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		Until(t, "the last moment", func() bool { return time.Since(began) >= Bound })

		var r recorder
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			Eventually(&r, "a miracle", func() error { return errors.New("none so far") })
		}()
		<-ended
		if want := "waited 1m0s for a miracle: none so far"; r.failed != want {
			t.Errorf("fails with %q, want %q", r.failed, want)
		}

		// The process was held up beyond the bound: the state holds all the same.
		Until(t, "a state that holds", func() bool { time.Sleep(2 * Bound); return true })
	})
}
