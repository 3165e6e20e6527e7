package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(10)
		time.Sleep(time.Second)
		if now := c.Now(); now != Time(100*time.Millisecond) {
			t.Errorf("%v after a second, want a tenth of it", now)
		}
		at := Time(0).Add(3 * time.Second)
		if real := c.Real(at); real.Sub(c.Epoch()) != 30*time.Second || c.Of(real) != at {
			t.Errorf("3 s of virtual time are at %v, which is %v", real.Sub(c.Epoch()), c.Of(real))
		}
		if c.Wait(time.Millisecond) != 10*time.Millisecond || c.Dilation() != 10 {
			t.Errorf("a millisecond takes %v at dilation %d", c.Wait(time.Millisecond), c.Dilation())
		}
	})
}

func TestDilation(t *testing.T) {
	for _, d := range []Dilation{0, 1} {
		if d.Wait(7) != 7 || d.Passed(7) != 7 || d.Real(7) != 7 || d.Virtual(7) != 7 {
			t.Errorf("dilation %d is not real time", d)
		}
	}
	d := Dilation(10)
	if d.Wait(7) != 70 || d.Passed(70) != 7 || d.Real(70) != 7 || d.Virtual(7) != 70 {
		t.Error("dilation 10 is not a tenth")
	}
	if d.Real(3) != 1 || d.Real(0) != 0 {
		t.Error("a slow rate becomes none, or none becomes one")
	}
}
